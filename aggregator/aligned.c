/*
 * aligned.c - finds the iterations that all ranks have in common (aligned.h). Keys ascend within a
 * rank, so everything is a merge of sorted lists. Runs in the reading commands.
 */
#include "aggregator/aligned.h"

#include <stdlib.h>
#include <string.h>

/* Device times arrive late, at most so many rows behind (schema/spool.h, the recorder's limit of 64
 * and a little). More without them at the end: the device was not measured any more, which is no
 * reason to leave steps out. */
#define PENDING_LIMIT 72

/* The iterations of one rank. */
struct list {
    const struct lg_rank *rank;
    size_t n;
    int64_t *key;
    uint32_t *row;
};

/* ---- keys ---- */

/* True if the row issued no collective: a local step. */
static bool is_local(const int64_t *seq, size_t row)
{
    return row > 0 && seq[row - 1] != LG_NULL && seq[row] == seq[row - 1];
}

/* Numbers can be used if there are some and they never fall; only rows before the first collective
 * may have none. */
static bool has_sequence(const struct lg_rank *rank)
{
    const int64_t *seq = rank->value[LG_COL_collective_seq];
    int64_t last = LG_NULL;

    if (!seq)
        return false;
    for (size_t i = 0; i < rank->n; i++) {
        if (seq[i] < last) /* LG_NULL is the smallest number */
            return false;
        last = seq[i];
    }
    return last > 0;
}

static void list_by_step(struct list *list)
{
    for (size_t i = 0; i < list->rank->n; i++) {
        list->key[list->n] = list->rank->step[i];
        list->row[list->n++] = (uint32_t)i;
    }
}

/* Returns true if there are local steps. */
static bool list_by_sequence(struct list *list)
{
    const int64_t *seq = list->rank->value[LG_COL_collective_seq];
    bool local = false;

    for (size_t i = 0; i < list->rank->n; i++) {
        if (is_local(seq, i)) {
            local = true;
        } else if (seq[i] != LG_NULL) {
            list->key[list->n] = seq[i];
            list->row[list->n++] = (uint32_t)i;
        }
    }
    return local;
}

static struct list *make_lists(struct lg_aligned *a, const struct lg_run *run, size_t *n)
{
    struct list *list = lg_alloc(run->n_ranks, sizeof(*list));

    *n = 0;
    a->by_collective = true;
    for (size_t i = 0; i < run->n_ranks; i++) {
        if (run->ranks[i].n == 0)
            continue;
        list[(*n)++].rank = &run->ranks[i];
        a->by_collective = a->by_collective && has_sequence(&run->ranks[i]);
    }
    a->by_collective = a->by_collective && *n > 1;
    for (size_t i = 0; i < *n; i++) {
        list[i].key = lg_alloc(list[i].rank->n, sizeof(int64_t));
        list[i].row = lg_alloc(list[i].rank->n, sizeof(uint32_t));
        if (a->by_collective)
            a->has_local |= list_by_sequence(&list[i]);
        else
            list_by_step(&list[i]);
    }
    return list;
}

static void free_lists(struct list *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(list[i].key);
        free(list[i].row);
    }
    free(list);
}

/* ---- what they have in common ---- */

/* Keeps of the ascending key[0..n) what is in the list, and returns how much that is. */
static size_t intersect(int64_t *key, size_t n, const struct list *list)
{
    size_t kept = 0, i = 0;

    for (size_t k = 0; k < n; k++) {
        while (i < list->n && list->key[i] < key[k])
            i++;
        if (i < list->n && list->key[i] == key[k])
            key[kept++] = key[k];
    }
    return kept;
}

/* The keys of all lists but those with skip[]; *n of them, owned by the caller. */
static int64_t *common_keys(const struct list *list, size_t n_lists, const bool *skip, size_t *n)
{
    int64_t *key = NULL;

    *n = 0;
    for (size_t i = 0; i < n_lists; i++) {
        if (skip[i])
            continue;
        if (key) {
            *n = intersect(key, *n, &list[i]);
            continue;
        }
        key = lg_alloc(list[i].n, sizeof(*key));
        memcpy(key, list[i].key, list[i].n * sizeof(*key));
        *n = list[i].n;
    }
    return key;
}

static int by_key(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* Ascending keys that more than half of the lists have; returns how many. */
static size_t majority_keys(const struct list *list, size_t n_lists, int64_t **result)
{
    size_t total = 0, kept = 0;
    int64_t *key;

    for (size_t i = 0; i < n_lists; i++)
        total += list[i].n;
    key = lg_alloc(total, sizeof(*key));
    total = 0;
    for (size_t i = 0; i < n_lists; i++) {
        memcpy(key + total, list[i].key, list[i].n * sizeof(*key));
        total += list[i].n;
    }
    qsort(key, total, sizeof(*key), by_key);
    for (size_t i = 0, end; i < total; i = end) {
        for (end = i; end < total && key[end] == key[i];)
            end++;
        if (2 * (end - i) > n_lists)
            key[kept++] = key[i];
    }
    *result = key;
    return kept;
}

/* Marks the ranks none of whose iterations most of the others have: one such rank would leave
 * nothing to compare. */
static void find_misaligned(const struct list *list, size_t n_lists, bool *skip)
{
    int64_t *majority, *copy;
    size_t n = majority_keys(list, n_lists, &majority);

    copy = lg_alloc(n, sizeof(*copy));
    for (size_t i = 0; n > 0 && i < n_lists; i++) {
        memcpy(copy, majority, n * sizeof(*copy));
        skip[i] = intersect(copy, n, &list[i]) == 0;
    }
    free(copy);
    free(majority);
}

static void find_rows(struct lg_aligned *a, const struct list *list)
{
    uint32_t *row = lg_alloc(a->n, sizeof(*row));
    size_t i = 0;

    for (size_t k = 0; k < a->n; k++) {
        while (list->key[i] < a->key[k])
            i++;
        row[k] = list->row[i];
    }
    a->row[a->n_ranks] = row;
    a->rank[a->n_ranks++] = list->rank;
}

static void match(struct lg_aligned *a, const struct list *list, size_t n_lists)
{
    bool *skip = lg_alloc(n_lists, sizeof(*skip));

    a->key = common_keys(list, n_lists, skip, &a->n);
    if (a->n == 0 && n_lists > 0) {
        free(a->key);
        find_misaligned(list, n_lists, skip);
        a->key = common_keys(list, n_lists, skip, &a->n);
    }
    a->rank = lg_alloc(n_lists, sizeof(const struct lg_rank *));
    a->misaligned = lg_alloc(n_lists, sizeof(const struct lg_rank *));
    a->row = lg_alloc(n_lists, sizeof(*a->row));
    for (size_t i = 0; i < n_lists; i++) {
        if (skip[i])
            a->misaligned[a->n_misaligned++] = list[i].rank;
        else
            find_rows(a, &list[i]);
    }
    a->step = lg_alloc(a->n, sizeof(*a->step));
    for (size_t k = 0; k < a->n; k++)
        a->step[k] = a->rank[0]->step[a->row[0][k]];
    free(skip);
}

/* ---- which of them may be used ---- */

/* Drops all but the iterations [from, to). */
static void keep(struct lg_aligned *a, size_t from, size_t to)
{
    if (to - from == a->n)
        return;
    a->n = to - from;
    memmove(a->key, a->key + from, a->n * sizeof(*a->key));
    memmove(a->step, a->step + from, a->n * sizeof(*a->step));
    for (size_t r = 0; r < a->n_ranks; r++)
        memmove(a->row[r], a->row[r] + from, a->n * sizeof(**a->row));
}

static void apply_range(struct lg_aligned *a, int64_t first, int64_t last)
{
    size_t from = 0, to = a->n;

    while (first != LG_NULL && from < to && a->step[from] < first)
        from++;
    while (last != LG_NULL && to > from && a->step[to - 1] > last)
        to--;
    a->before_range = a->n - (to - from);
    keep(a, from, to);
}

static bool device_complete(const struct lg_aligned *a, const bool *device, size_t iteration)
{
    for (size_t r = 0; r < a->n_ranks; r++)
        if (device[r] && a->rank[r]->value[LG_COL_gpu_dur_ns][a->row[r][iteration]] == LG_NULL)
            return false;
    return true;
}

/* One NULL would put the whole window on the CPU clock: ends the range at the last iteration whose
 * device times have arrived on every rank that has some. */
static void cut_pending_device(struct lg_aligned *a)
{
    bool *device = lg_alloc(a->n_ranks, sizeof(*device));
    size_t pending = 0;

    for (size_t r = 0; r < a->n_ranks; r++)
        device[r] = lg_rank_measured(a->rank[r], LG_COL_gpu_dur_ns);
    while (pending < a->n && pending <= PENDING_LIMIT &&
           !device_complete(a, device, a->n - 1 - pending))
        pending++;
    if (pending < a->n && pending <= PENDING_LIMIT) {
        a->pending_device = pending;
        keep(a, 0, a->n - pending);
    }
    free(device);
}

/* First row of the iteration that ends with `last`: local steps before it belong to it. */
static size_t group_begin(const struct lg_aligned *a, const struct lg_rank *rank, size_t last)
{
    size_t first = last;

    if (a->has_local)
        while (first > 0 && is_local(rank->value[LG_COL_collective_seq], first - 1))
            first--;
    return first;
}

size_t lg_aligned_rows(const struct lg_aligned *a, size_t rank, size_t iteration)
{
    size_t last = a->row[rank][iteration];

    return last - group_begin(a, a->rank[rank], last) + 1;
}

static void find_left_out(struct lg_aligned *a)
{
    a->left_out = lg_alloc(a->n, sizeof(*a->left_out));
    for (size_t r = 0; r < a->n_ranks; r++) {
        const struct lg_rank *rank = a->rank[r];
        const int64_t *flags = rank->value[LG_COL_flags];

        for (size_t k = 0; k < a->n; k++) {
            size_t last = a->row[r][k], row = group_begin(a, rank, last);

            if (row == 0)
                a->left_out[k] |= LG_FLAG_first;
            for (; flags && row <= last; row++)
                if (flags[row] != LG_NULL)
                    a->left_out[k] |= (uint8_t)(flags[row] & LG_LEFT_OUT_FLAGS);
        }
    }
    a->used = lg_alloc(a->n, sizeof(*a->used));
    for (size_t k = 0; k < a->n; k++)
        if (!a->left_out[k])
            a->used[a->n_used++] = k;
}

struct lg_aligned *lg_align(const struct lg_run *run, int64_t first, int64_t last)
{
    struct lg_aligned *a = lg_alloc(1, sizeof(*a));
    size_t n_lists;
    struct list *list = make_lists(a, run, &n_lists);

    a->run = run;
    match(a, list, n_lists);
    free_lists(list, n_lists);
    apply_range(a, first, last);
    cut_pending_device(a);
    find_left_out(a);
    return a;
}

void lg_aligned_free(struct lg_aligned *a)
{
    if (!a)
        return;
    for (size_t r = 0; r < a->n_ranks; r++)
        free(a->row[r]);
    free(a->rank);
    free(a->misaligned);
    free(a->key);
    free(a->step);
    free(a->row);
    free(a->left_out);
    free(a->used);
    free(a);
}

/* ---- values ---- */

static bool is_occurrence(enum lg_column column)
{
    return column == LG_COL_h2d_ns || column == LG_COL_gpu_h2d_ns ||
           column == LG_COL_optimizer_ns || column == LG_COL_gpu_optimizer_ns;
}

static int64_t sum_rows(const int64_t *value, size_t first, size_t last, bool occurrence)
{
    int64_t sum = LG_NULL;

    for (size_t i = first; i <= last; i++) {
        if (value[i] != LG_NULL)
            sum = (sum == LG_NULL ? 0 : sum) + value[i];
        else if (!occurrence)
            return LG_NULL;
    }
    return sum;
}

int64_t lg_aligned_value(const struct lg_aligned *a, size_t rank, size_t iteration,
                         enum lg_column column)
{
    const struct lg_rank *r = a->rank[rank];
    const int64_t *value = r->value[column];
    size_t last = a->row[rank][iteration], first;

    if (!value)
        return LG_NULL;
    if (!a->has_local)
        return value[last];
    first = group_begin(a, r, last);
    return first == last ? value[last] : sum_rows(value, first, last, is_occurrence(column));
}

int64_t lg_aligned_h2d(const struct lg_aligned *a, size_t rank, size_t iteration,
                       enum lg_column column)
{
    if (!a->run->imported && !a->rank[rank]->has_device)
        return LG_NULL;
    if (lg_aligned_value(a, rank, iteration, LG_COL_h2d_copies) == 0)
        return LG_NULL;
    return lg_aligned_value(a, rank, iteration, column);
}

static int64_t difference(int64_t a, int64_t b)
{
    return a == LG_NULL || b == LG_NULL ? LG_NULL : a - b;
}

void lg_aligned_policy_row(const struct lg_aligned *a, size_t rank, size_t iteration,
                           struct lg_policy_row *row)
{
    static const enum lg_column source[LG_METRIC_COUNT][2] = {
        [LG_METRIC_input_wait] = {LG_COL_input_wait_ns, LG_COL_gpu_input_wait_ns},
        [LG_METRIC_h2d] = {LG_COL_h2d_ns, LG_COL_gpu_h2d_ns},
        [LG_METRIC_forward] = {LG_COL_forward_ns, LG_COL_gpu_forward_ns},
        [LG_METRIC_backward] = {LG_COL_backward_ns, LG_COL_gpu_backward_ns},
        [LG_METRIC_optimizer_step] = {LG_COL_optimizer_ns, LG_COL_gpu_optimizer_ns},
        [LG_METRIC_traced_step_time] = {LG_COL_dur_ns, LG_COL_gpu_dur_ns},
    };

    row->id = 0;
    row->rank = a->rank[rank]->rank;
    row->step = a->key[iteration];
    row->present = 0;
    for (int m = 0; m < LG_METRIC_COUNT; m++) {
        for (int clock = 0; clock < 2; clock++)
            row->value[m][clock] = m == LG_METRIC_h2d
                                       ? lg_aligned_h2d(a, rank, iteration, source[m][clock])
                                       : lg_aligned_value(a, rank, iteration, source[m][clock]);
        if (row->value[m][0] != LG_NULL || row->value[m][1] != LG_NULL)
            row->present |= (uint8_t)(1u << m);
    }
    for (int clock = 0; clock < 2; clock++)
        row->value[LG_METRIC_traced_step_time][clock] = difference(
            row->value[LG_METRIC_traced_step_time][clock], row->value[LG_METRIC_input_wait][clock]);
}

bool lg_rank_measured(const struct lg_rank *rank, enum lg_column column)
{
    const int64_t *value = rank->value[column];

    for (size_t i = 0; value && i < rank->n; i++)
        if (value[i] != LG_NULL)
            return true;
    return false;
}
