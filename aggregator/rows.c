/*
 * rows.c - making, growing and freeing the in-memory form of a run (rows.h). Runs in the reading
 * commands only.
 */
#include "aggregator/rows.h"

#include "aggregator/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void say_and_exit(void)
{
    error_say("", "out of memory");
    exit(1);
}

void (*lg_out_of_memory)(void) = say_and_exit;

static void *or_die(void *block)
{
    if (!block)
        lg_out_of_memory();
    return block;
}

void *lg_alloc(size_t count, size_t size)
{
    return or_die(calloc(count ? count : 1, size));
}

void *lg_realloc(void *block, size_t count, size_t size)
{
    return or_die(reallocarray(block, count ? count : 1, size));
}

char *lg_strdup(const char *text)
{
    return or_die(strdup(text));
}

char *lg_format(const char *format, ...)
{
    va_list arguments;
    char *text = NULL;

    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0)
        text = NULL;
    va_end(arguments);
    return or_die(text);
}

struct lg_run *lg_run_new(void)
{
    struct lg_run *run = lg_alloc(1, sizeof(*run));

    run->world = run->exit_status = -1;
    return run;
}

static void free_rank(struct lg_rank *rank)
{
    free(rank->step);
    free(rank->nccl);
    for (int c = 0; c < LG_COLUMNS; c++)
        free(rank->value[c]);
}

void lg_run_free(struct lg_run *run)
{
    if (!run)
        return;
    for (size_t i = 0; i < run->n_ranks; i++)
        free_rank(&run->ranks[i]);
    for (size_t i = 0; i < run->n_coverage; i++)
        free(run->coverage[i].why);
    for (size_t i = 0; i < run->n_losses; i++)
        free(run->losses[i].text);
    for (size_t i = 0; i < run->n_notes; i++)
        free(run->notes[i]);
    free(run->notes);
    free(run->outcome);
    free(run->ranks);
    free(run->coverage);
    free(run->losses);
    free(run->expected);
    free(run->dir);
    free(run->command);
    free(run->strategy);
    free(run);
}

void lg_run_add_note(struct lg_run *run, char *text)
{
    run->notes = lg_realloc(run->notes, run->n_notes + 1, sizeof(*run->notes));
    run->notes[run->n_notes++] = text;
}

void lg_run_drop_rank(struct lg_run *run, size_t index)
{
    free_rank(&run->ranks[index]);
    run->n_ranks--;
    memmove(&run->ranks[index], &run->ranks[index + 1],
            (run->n_ranks - index) * sizeof(*run->ranks));
}

struct lg_rank *lg_run_add_rank(struct lg_run *run, int32_t rank)
{
    struct lg_rank *r;

    run->ranks = lg_realloc(run->ranks, run->n_ranks + 1, sizeof(*run->ranks));
    r = &run->ranks[run->n_ranks++];
    memset(r, 0, sizeof(*r));
    r->rank = rank;
    r->world = -1;
    r->attempts = 1;
    r->stop_step = LG_NULL;
    return r;
}

static int by_number(const void *a, const void *b)
{
    int32_t x = ((const struct lg_rank *)a)->rank, y = ((const struct lg_rank *)b)->rank;

    return (x > y) - (x < y);
}

void lg_run_sort(struct lg_run *run)
{
    if (run->n_ranks)
        qsort(run->ranks, run->n_ranks, sizeof(*run->ranks), by_number);
}

void lg_run_add_coverage(struct lg_run *run, const char *name, enum lg_coverage_state state,
                         const char *why)
{
    run->coverage = lg_realloc(run->coverage, run->n_coverage + 1, sizeof(*run->coverage));
    run->coverage[run->n_coverage++] =
        (struct lg_coverage){.name = name, .state = state, .why = lg_strdup(why)};
}

void lg_run_add_loss(struct lg_run *run, int32_t rank, enum lg_loss reason, int64_t rows,
                     int64_t step, const char *text)
{
    run->losses = lg_realloc(run->losses, run->n_losses + 1, sizeof(*run->losses));
    run->losses[run->n_losses++] = (struct lg_loss_entry){
        .rank = rank, .reason = reason, .rows = rows, .step = step, .text = lg_strdup(text)};
}

const struct lg_rank *lg_run_find(const struct lg_run *run, int32_t rank)
{
    for (size_t i = 0; i < run->n_ranks; i++)
        if (run->ranks[i].rank == rank)
            return &run->ranks[i];
    return NULL;
}

static void fill_null(int64_t *value, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        value[i] = LG_NULL;
}

void lg_rank_use_column(struct lg_rank *rank, enum lg_column column)
{
    if (rank->value[column])
        return;
    rank->value[column] = lg_realloc(NULL, rank->capacity, sizeof(int64_t));
    fill_null(rank->value[column], 0, rank->n);
}

void lg_rank_reserve(struct lg_rank *rank, size_t rows)
{
    if (rows <= rank->capacity)
        return;
    rank->capacity = rows;
    rank->step = lg_realloc(rank->step, rows, sizeof(int64_t));
    for (int c = 0; c < LG_COLUMNS; c++)
        if (rank->value[c])
            rank->value[c] = lg_realloc(rank->value[c], rows, sizeof(int64_t));
}

size_t lg_rank_append(struct lg_rank *rank, int64_t step)
{
    size_t row = rank->n;

    if (row == rank->capacity)
        lg_rank_reserve(rank, row ? 2 * row : 64);
    rank->step[row] = step;
    for (int c = 0; c < LG_COLUMNS; c++)
        if (rank->value[c])
            rank->value[c][row] = LG_NULL;
    rank->n++;
    return row;
}
