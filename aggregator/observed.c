/*
 * observed.c - what the rows can't tell: coverage per source of knowledge, signals that some ranks
 * lack, and notes about what was left out. A verdict may not be better than this. Runs in the
 * reading commands.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/cycles.h"
#include "aggregator/rules.h"

/* below this part of the step the host does not wait for its device */
/* ---- what a rank has ---- */

#define SYNC_COLUMN(stage)     LG_COL_##stage##_sync_ns,
#define GPU_SYNC_COLUMN(stage) LG_COL_gpu_##stage##_sync_ns,
static const enum lg_column host_sync[] = {LG_STAGES(SYNC_COLUMN)};
static const enum lg_column device_sync[] = {LG_STAGES(GPU_SYNC_COLUMN)};

static bool any_measured(const struct lg_rank *rank, const enum lg_column *column)
{
    for (int s = 0; s < LG_STAGE_COUNT; s++)
        if (lg_rank_measured(rank, column[s]))
            return true;
    return false;
}

static bool has_input(const struct lg_rank *rank)
{
    return lg_rank_measured(rank, LG_COL_input_wait_ns) ||
           lg_rank_measured(rank, LG_COL_gpu_input_wait_ns);
}

static bool has_collectives(const struct lg_rank *rank)
{
    return any_measured(rank, host_sync);
}

static bool has_device_times(const struct lg_rank *rank)
{
    return lg_rank_measured(rank, LG_COL_gpu_dur_ns);
}

static bool has_torch(const struct lg_rank *rank)
{
    return (rank->seen & LG_SEEN_TORCH) && !(rank->seen & LG_SEEN_TORCH_PARTLY);
}

static bool uses_torch(const struct lg_rank *rank)
{
    return rank->seen & LG_SEEN_TORCH;
}

/* Would a slow device of this rank show? In its device-side waiting, or on the host if that does
 * not wait for the device. */
static bool shows_device_skew(const struct lg_rank *rank)
{
    return !lg_rank_uses_device(rank) || any_measured(rank, device_sync) ||
           lg_rank_ignores_device(rank);
}

static bool any_bit(const struct lg_rank *rank, enum lg_column column, int64_t bits)
{
    for (size_t i = 0; rank->value[column] && i < rank->n; i++)
        if (rank->value[column][i] != LG_NULL && (rank->value[column][i] & bits))
            return true;
    return false;
}

/* Nothing tells its input from its forward: a measured 0 says little then. */
static bool hides_input(const struct lg_rank *rank)
{
    return rank->n > 0 && has_input(rank) &&
           !any_bit(rank, LG_COL_sources, LG_SOURCE_label_input | LG_SOURCE_io) &&
           !any_bit(rank, LG_COL_flags, LG_FLAG_gap_input);
}

static bool any_hides_input(const struct lg_run *run)
{
    for (size_t i = 0; !run->imported && i < run->n_ranks; i++)
        if (hides_input(&run->ranks[i]))
            return true;
    return false;
}

/* ---- coverage ---- */

struct subject {
    const char *name;
    bool (*has)(const struct lg_rank *rank);
    bool (*concerns)(const struct lg_rank *rank); /* NULL: every rank */
    const char *none;                             /* why, when no rank has it */
    const char *unrelated;                        /* why, when it concerns no rank */
};

static const struct subject subjects[] = {
    {"input", has_input, NULL, "waiting for input was not measured", ""},
    {"collectives", has_collectives, NULL, "no collective was seen", ""},
    {"device", has_device_times, lg_rank_uses_device,
     "a device was used, but its times were not measured", "no device was seen"},
    {"torch", has_torch, uses_torch, "PyTorch's probes were not all installed",
     "no PyTorch was seen"},
};

static bool known(const struct lg_diagnosis *d, const char *name)
{
    for (size_t i = 0; i < d->n_coverage; i++)
        if (strcmp(d->coverage[i].name, name) == 0)
            return true;
    return false;
}

static void add_coverage(struct lg_diagnosis *d, const char *name, enum lg_coverage_state state,
                         char *why)
{
    d->coverage = lg_realloc(d->coverage, d->n_coverage + 1, sizeof(*d->coverage));
    d->coverage[d->n_coverage++] = (struct lg_coverage){.name = name, .state = state, .why = why};
}

/* ---- calls that may pass every hook ---- */

static bool any_rank_saw(const struct lg_run *run, uint32_t bit)
{
    for (size_t i = 0; i < run->n_ranks; i++)
        if (run->ranks[i].n > 0 && (run->ranks[i].seen & bit))
            return true;
    return false;
}

static const char *why_unrelated(const struct subject *s, const struct lg_run *run)
{
    if (s->has == has_device_times && any_rank_saw(run, LG_SEEN_DRIVER))
        return "CUDA's driver is loaded, but no launch and no copy was seen: a runtime that is "
               "linked statically, or called through dlsym, is not observed";
    return s->unrelated;
}

static char *why_none(const struct subject *s, const struct lg_run *run)
{
    enum lg_coverage_state state;
    char *why = s->has == has_collectives ? lg_nccl_coverage(run, false, &state) : NULL;

    if (why)
        return why;
    if (s->has == has_collectives && run->n_ranks > 1 && !run->imported)
        return lg_strdup(
            "no collective was seen: NCCL that is linked statically, or called through dlsym, "
            "is not observed");
    return lg_strdup(s->none);
}

static void cover(struct lg_diagnosis *d, const struct lg_run *run, const struct subject *s)
{
    int32_t *without = lg_alloc(run->n_ranks, sizeof(*without));
    size_t n_without = 0, concerned = 0;

    for (size_t i = 0; i < run->n_ranks; i++) {
        const struct lg_rank *rank = &run->ranks[i];

        if (rank->n == 0 || (s->concerns && !s->concerns(rank)))
            continue;
        concerned++;
        if (!s->has(rank))
            without[n_without++] = rank->rank;
    }
    if (concerned == 0) {
        add_coverage(d, s->name, LG_NOT_OBSERVED, lg_strdup(why_unrelated(s, run)));
    } else if (n_without == concerned) {
        add_coverage(d, s->name, LG_NOT_OBSERVED, why_none(s, run));
    } else if (n_without > 0) {
        char *list = lg_rank_list(without, n_without);

        add_coverage(d, s->name, LG_PARTIAL, lg_format("not on %s", list));
        free(list);
    } else if (s->has == has_input && any_hides_input(run)) {
        add_coverage(d, s->name, LG_PARTIAL,
                     lg_strdup("no DataLoader and no read was seen: what the program does to get "
                               "its batches counts as forward"));
    } else {
        enum lg_coverage_state state = LG_OBSERVED;
        char *why = s->has == has_collectives ? lg_nccl_coverage(run, true, &state) : NULL;

        add_coverage(d, s->name, state, why ? why : lg_strdup(""));
    }
    free(without);
}

static void fill_coverage(struct lg_diagnosis *d, const struct lg_run *run)
{
    for (size_t i = 0; i < run->n_coverage; i++)
        add_coverage(d, run->coverage[i].name, run->coverage[i].state,
                     lg_strdup(run->coverage[i].why));
    for (size_t i = 0; i < sizeof(subjects) / sizeof(subjects[0]); i++) {
        if (known(d, subjects[i].name))
            continue;
        if (run->imported && subjects[i].has == has_torch)
            add_coverage(d, subjects[i].name, LG_NOT_OBSERVED, lg_strdup("the rows were imported"));
        else
            cover(d, run, &subjects[i]);
    }
}

/* ---- gaps: signals that some ranks lack ---- */

/* Ranks without the metric into list[]; returns how many. */
static size_t ranks_without(const struct lg_policy_result *p, int metric, int32_t *list)
{
    size_t n = 0;

    for (size_t i = 0; i < p->n_ranks; i++)
        if (!(p->ranks[i].available >> metric & 1))
            list[n++] = p->ranks[i].rank;
    return n;
}

/* Missing is what the policy calls so, and what only some ranks have: a share over the others would
 * be taken for the whole. */
static unsigned missing_signals(const struct lg_policy_result *p, int32_t *list)
{
    unsigned missing = 0;

    for (int m = 0; m < LG_METRIC_COUNT; m++) {
        size_t n = m == LG_METRIC_h2d ? 0 : ranks_without(p, m, list);

        if (n > 0 && (n < p->n_ranks || (p->missing >> m & 1)))
            missing |= 1u << m;
    }
    return missing;
}

/* "rank 2: forward, backward": metrics that the same ranks lack stand together. */
static void add_signal_gaps(const struct lg_policy_result *p, struct lg_texts *gaps)
{
    int32_t *list = lg_alloc(p->n_ranks, sizeof(*list)),
            *other = lg_alloc(p->n_ranks, sizeof(*list));
    unsigned missing = missing_signals(p, list);

    for (int m = 0; m < LG_METRIC_COUNT; m++) {
        struct lg_texts names = {0};
        size_t n;
        char *who, *what;

        if (!(missing >> m & 1))
            continue;
        n = ranks_without(p, m, list);
        for (int k = m; k < LG_METRIC_COUNT; k++) {
            if (!(missing >> k & 1) || ranks_without(p, k, other) != n ||
                memcmp(list, other, n * sizeof(*list)) != 0)
                continue;
            missing &= ~(1u << k);
            lg_texts_add(&names, lg_strdup(lg_metric_name(k)));
        }
        what = lg_texts_join(&names, ", ");
        who = n == p->n_ranks && n > 1 ? lg_strdup("all ranks") : lg_rank_list(list, n);
        lg_texts_add(gaps, lg_format("%s: %s", who, what));
        free(who);
        free(what);
        lg_texts_free(&names);
    }
    free(list);
    free(other);
}

static void add_misaligned(const struct lg_aligned *a, struct lg_texts *gaps)
{
    for (size_t i = 0; i < a->n_misaligned; i++)
        lg_texts_add(gaps,
                     lg_format("rank %" PRId32 ": its %s match no other rank's",
                               a->misaligned[i]->rank, a->by_collective ? "collectives" : "steps"));
}

/* Why there is nothing to compare: no step in the range, or none in common. */
static void add_no_common_step(const struct lg_aligned *a, struct lg_texts *gaps)
{
    struct lg_texts ranges = {0};
    char *joined;

    if (a->n > 0 || a->n_ranks == 0)
        return;
    if (a->before_range > 0) {
        lg_texts_add(gaps, lg_strdup("no step lies in the range that was asked for"));
        return;
    }
    for (size_t r = 0; r < a->n_ranks && r < 4; r++)
        lg_texts_add(&ranges,
                     lg_format("rank %" PRId32 " has %" PRId64 "-%" PRId64, a->rank[r]->rank,
                               a->rank[r]->step[0], a->rank[r]->step[a->rank[r]->n - 1]));
    joined = lg_texts_join(&ranges, ", ");
    lg_texts_add(gaps, lg_format("no step that all ranks have (%s%s)", joined,
                                 a->n_ranks > 4 ? ", ..." : ""));
    free(joined);
    lg_texts_free(&ranges);
}

static void find_gaps(const struct lg_aligned *a, const struct lg_policy_result *published,
                      const struct lg_diagnosis *d, struct lg_texts *gaps)
{
    add_signal_gaps(published, gaps);
    add_misaligned(a, gaps);
    add_no_common_step(a, gaps);
    if (d->n_missing > 0) {
        char *list = lg_rank_list(d->missing, d->n_missing);

        lg_texts_add(gaps, lg_format("%s: no rows", list));
        free(list);
    }
}

/* ---- notes ---- */

static bool has_loss(const struct lg_run *run, int32_t rank)
{
    for (size_t i = 0; i < run->n_losses; i++)
        if (run->losses[i].rank == rank)
            return true;
    return false;
}

/* Of ranks with a loss it is known why. */
static void note_missing_ranks(struct lg_diagnosis *d, const struct lg_run *run)
{
    int32_t *silent = lg_alloc(d->n_missing, sizeof(*silent));
    size_t n = 0;

    for (size_t i = 0; i < d->n_missing; i++)
        if (!has_loss(run, d->missing[i]))
            silent[n++] = d->missing[i];
    if (n > 0) {
        char *list = lg_rank_list(silent, n);

        lg_texts_add(&d->notes,
                     lg_format("%zu of %zu ranks left no rows (%s): was the library loaded there, "
                               "or the environment cleared?",
                               n, d->n_missing + d->n_seen, list));
        free(list);
    }
    free(silent);
}

static void note_left_out(struct lg_diagnosis *d, const struct lg_aligned *a)
{
    static const struct {
        unsigned flag;
        const char *name;
    } why[] = {
        {LG_FLAG_first, "start-up"},
        {LG_FLAG_warm_up, "warm-up"},
        {LG_FLAG_compile, "compilation"},
        {LG_FLAG_epoch_start, "begin of an epoch"},
    };
    struct lg_texts reasons = {0};
    char *joined;

    if (a->n_used == a->n)
        return;
    for (size_t i = 0; i < sizeof(why) / sizeof(why[0]); i++) {
        size_t n = 0;

        for (size_t k = 0; k < a->n; k++)
            n += (a->left_out[k] & why[i].flag) != 0;
        if (n > 0)
            lg_texts_add(&reasons, lg_format("%s %zu", why[i].name, n));
    }
    joined = lg_texts_join(&reasons, ", ");
    lg_texts_add(&d->notes, lg_format("%zu of %zu common steps are kept out of the statistics (%s)",
                                      a->n - a->n_used, a->n, joined));
    free(joined);
    lg_texts_free(&reasons);
}

static int by_count(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;

    return (x > y) - (x < y);
}

/* More steps than the others have is no slowness. */
static void note_uneven_ranks(struct lg_diagnosis *d, const struct lg_aligned *a)
{
    size_t *count = lg_alloc(a->n_ranks, sizeof(*count)), typical;

    for (size_t r = 0; r < a->n_ranks; r++)
        count[r] = a->rank[r]->n;
    qsort(count, a->n_ranks, sizeof(*count), by_count);
    typical = a->n_ranks ? count[(a->n_ranks - 1) / 2] : 0;
    free(count);
    for (size_t r = 0; r < a->n_ranks; r++) {
        size_t n = a->rank[r]->n;

        /* one step, or a few of a run in progress, is where the ranks happened to end */
        if (n > typical + 1 && !(d->running && n <= typical + LG_HELD))
            lg_texts_add(&d->notes,
                         lg_format("rank %" PRId32 " runs %zu steps more than the others (not "
                                   "compared)",
                                   a->rank[r]->rank, n - typical));
        else if (n + 1 < typical && !(d->running && n + LG_HELD >= typical))
            lg_texts_add(&d->notes,
                         lg_format("rank %" PRId32 " has %zu steps fewer than the others",
                                   a->rank[r]->rank, typical - n));
    }
}

static void note_undeclared(struct lg_diagnosis *d, const struct lg_scope *scope)
{
    int32_t *list;
    size_t n = 0, e = 0;

    if (scope->n_expected == 0)
        return;
    list = lg_alloc(d->n_seen, sizeof(*list));
    for (size_t i = 0; i < d->n_seen; i++) {
        while (e < scope->n_expected && scope->expected[e] < d->seen[i])
            e++;
        if (e == scope->n_expected || scope->expected[e] != d->seen[i])
            list[n++] = d->seen[i];
    }
    if (n > 0) {
        char *text = lg_rank_list(list, n);

        lg_texts_add(&d->notes, lg_format("%s left rows, but %s not among the declared ranks", text,
                                          n == 1 ? "is" : "are"));
        free(text);
    }
    free(list);
}

static void note_blind_spots(struct lg_diagnosis *d, const struct lg_aligned *a,
                             const struct lg_observed *o)
{
    bool device = false;

    for (size_t r = 0; r < a->n_ranks; r++)
        device = device || has_device_times(a->rank[r]);
    d->device_events = device && !a->run->imported;
    if (!o->device_skew)
        lg_texts_add(&d->notes,
                     lg_strdup("device-side skew is not observable: nobody measured what "
                               "the devices wait for each other"));
    if (o->several && !o->collectives)
        lg_texts_add(&d->notes,
                     lg_strdup("time in collectives was not measured on every rank: a rank that is "
                               "slow inside backward can't be told from one that waits there"));
    if (device && d->published.clock == LG_CLOCK_CPU && a->n_used > 0)
        lg_texts_add(&d->notes, lg_strdup("some device times are missing: the published policy ran "
                                          "on the host's clock"));
}

/* ---- the whole ---- */

static void add_loss(struct lg_diagnosis *d, const struct lg_loss_entry *loss)
{
    d->losses = lg_realloc(d->losses, d->n_losses + 1, sizeof(*d->losses));
    d->losses[d->n_losses] = *loss;
    d->losses[d->n_losses++].text = lg_strdup(loss->text);
}

static void fill_losses(struct lg_diagnosis *d, const struct lg_aligned *a)
{
    char *text;

    for (size_t i = 0; i < a->run->n_losses; i++)
        add_loss(d, &a->run->losses[i]);
    if (a->pending_device == 0)
        return;
    text = lg_format("the last %zu steps are not compared: their device times had not arrived",
                     a->pending_device);
    add_loss(d, &(struct lg_loss_entry){.rank = LG_NO_RANK,
                                        .reason = LG_LOSS_none,
                                        .rows = (int64_t)a->pending_device,
                                        .step = a->n ? a->step[a->n - 1] + 1 : LG_NULL,
                                        .text = text});
    free(text);
}

void lg_observe(const struct lg_scope *scope, const struct lg_policy_result *published,
                struct lg_diagnosis *d, struct lg_observed *o)
{
    const struct lg_aligned *a = scope->aligned;
    bool traced = !a->run->imported, any = false;

    *o = (struct lg_observed){.collectives = true, .device_skew = true};
    o->several = a->n_ranks + a->n_misaligned > 1;
    for (size_t r = 0; r < a->n_ranks; r++) {
        bool collectives = has_collectives(a->rank[r]);

        o->collectives = o->collectives && collectives;
        any = any || collectives || lg_rank_measured(a->rank[r], LG_COL_collective_seq);
        if (o->several && !shows_device_skew(a->rank[r]))
            o->device_skew = false;
    }
    o->input_unseen = any_hides_input(a->run);
    o->no_collectives_seen = traced && o->several && !any;
    find_gaps(a, published, d, &o->gaps);
    fill_coverage(d, a->run);
    fill_losses(d, a);
    note_missing_ranks(d, a->run);
    note_left_out(d, a);
    note_uneven_ranks(d, a);
    note_undeclared(d, scope);
    note_blind_spots(d, a, o);
}

void lg_observed_free(struct lg_observed *o)
{
    lg_texts_free(&o->gaps);
}
