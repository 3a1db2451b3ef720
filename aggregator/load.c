/*
 * load.c - reads the rank databases of a run into memory: several at a time, only the columns that
 * the diagnosis needs, and of those only the ones that were measured. Runs in the reading commands.
 *
 * A database that can't be read costs its rank, not the report.
 */
#include "aggregator/load.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "aggregator/process.h"
#include "aggregator/rankdb.h"
#include "aggregator/recorded.h"

#define MAX_THREADS 8

/* What a file gave besides its rows. */
struct loaded {
    bool opened;
    bool damaged;
    struct error error;
    struct rank_info info;
    char strategy[32], command[1024];
    char *expected; /* JSON list, NULL: none; owned */
    size_t n_losses;
    struct rank_loss *losses; /* owned */
};

struct loading {
    const struct run_files *files;
    struct lg_run *run;
    size_t n;             /* newest files: one per rank */
    const size_t *number; /* which of files->file */
    struct loaded *loaded;
    uint64_t columns;
    atomic_size_t next;
};

/* --- one rank ------------------------------------------------------------------------------ */

struct filling {
    struct lg_rank *rank;
    const uint64_t columns;
};

/* Columns are made when they first have a value: most runs lack a third of them. */
static int take_step(void *context, int64_t step, const int64_t value[LG_COLUMNS])
{
    struct filling *filling = context;
    struct lg_rank *rank = filling->rank;
    size_t row = lg_rank_append(rank, step);
    for (uint64_t left = filling->columns; left; left &= left - 1) {
        int c = __builtin_ctzll(left);
        if (value[c] == LG_NULL)
            continue;
        if (!rank->value[c])
            lg_rank_use_column(rank, (enum lg_column)c);
        rank->value[c][row] = value[c];
    }
    return 0;
}

static int take_loss(void *context, const struct rank_loss *loss)
{
    struct loaded *loaded = context;
    loaded->losses = lg_realloc(loaded->losses, loaded->n_losses + 1, sizeof(*loaded->losses));
    loaded->losses[loaded->n_losses++] = *loss;
    return 0;
}

static void take_library(void *context, const struct rank_library *library)
{
    struct lg_rank *rank = context;
    if (strcmp(library->kind, "program") == 0)
        return;
    rank->nccl = lg_realloc(rank->nccl, rank->n_nccl + 1, sizeof(*rank->nccl));
    struct lg_nccl_copy *copy = &rank->nccl[rank->n_nccl++];
    copy->communicators = library->communicators;
    snprintf(copy->path, sizeof(copy->path), "%s", library->path);
    snprintf(copy->version, sizeof(copy->version), "%s", library->version);
}

static void read_meta(struct rankdb *db, struct loaded *loaded)
{
    size_t room = 1 << 20;
    char *expected = lg_alloc(room, 1);
    rankdb_get_meta(db, "strategy", loaded->strategy, sizeof(loaded->strategy));
    rankdb_get_meta(db, "command", loaded->command, sizeof(loaded->command));
    if (rankdb_get_meta(db, "expected_ranks", expected, room) == 1)
        loaded->expected = lg_strdup(expected);
    free(expected);
}

static int read_rank(struct rankdb *db, struct lg_rank *rank, uint64_t columns,
                     struct loaded *loaded, struct error *error)
{
    int64_t first, last, rows;
    struct filling filling = {rank, columns};
    if (rankdb_get_rank(db, &loaded->info, error) || rankdb_extent(db, &first, &last, &rows, error))
        return -1;
    read_meta(db, loaded);
    rankdb_each_library(db, take_library, rank);
    if (rows > 0)
        lg_rank_reserve(rank, (size_t)rows);
    return rankdb_each_step(db, INT64_MIN, INT64_MAX, columns, take_step, &filling, error) ||
                   rankdb_each_loss(db, take_loss, loaded, error)
               ? -1
               : 0;
}

static void load_one(struct loading *loading, size_t i)
{
    const struct run_file *file = &loading->files->file[loading->number[i]];
    struct loaded *loaded = &loading->loaded[i];
    struct rankdb *db = rankdb_open(file->path, &loaded->error);
    loaded->opened = db != NULL;
    loaded->damaged =
        !db || read_rank(db, &loading->run->ranks[i], loading->columns, loaded, &loaded->error);
    rankdb_close(db);
}

static void *load_some(void *context)
{
    struct loading *loading = context;
    for (size_t i; (i = atomic_fetch_add(&loading->next, 1)) < loading->n;)
        load_one(loading, i);
    return NULL;
}

/* As many threads as there are processors; without threads it goes slower. */
static void load_all(struct loading *loading)
{
    pthread_t thread[MAX_THREADS];
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    int n = 0;
    while (n < MAX_THREADS && n + 1 < processors && (size_t)n + 1 < loading->n &&
           pthread_create(&thread[n], NULL, load_some, loading) == 0)
        n++;
    load_some(loading);
    while (n-- > 0)
        pthread_join(thread[n], NULL);
}

/* --- what is known about a rank ------------------------------------------------------------ */

static int64_t known_or(int64_t value, int64_t otherwise)
{
    return value == LG_NULL ? otherwise : value;
}

static enum lg_rank_end rank_end(const struct rank_info *info, bool in_progress)
{
    struct process_id id = {.pid = info->pid, .start = (uint64_t)info->proc_start};
    if (info->killed == 1)
        return LG_RANK_END_KILLED;
    if (info->ended == 1)
        return LG_RANK_END_EXIT;
    if (info->pid == LG_NULL || info->proc_start == LG_NULL || !*info->boot_id)
        return LG_RANK_END_UNKNOWN;
    snprintf(id.boot_id, sizeof(id.boot_id), "%s", info->boot_id);
    enum process_state state = process_state(&id);
    if (state == PROCESS_ALIVE || (state == PROCESS_ELSEWHERE && in_progress))
        return LG_RANK_END_RUNNING;
    return LG_RANK_END_UNKNOWN;
}

static void fill_rank(struct lg_rank *rank, const struct rank_info *info, bool in_progress)
{
    rank->world = (int32_t)known_or(info->world_size, -1);
    snprintf(rank->host, sizeof(rank->host), "%s", info->host);
    rank->pid = known_or(info->pid, 0);
    rank->end = rank_end(info, in_progress);
    rank->exit_status = (int32_t)known_or(info->exit_status, 0);
    rank->seen = (uint32_t)known_or(info->seen, 0);
    rank->has_device = rank->seen & LG_SEEN_CUDA;
}

/* --- losses -------------------------------------------------------------------------------- */

#define LOSS(number, name, meaning) {#name, LG_LOSS_##name, meaning},
static const struct {
    const char *name;
    enum lg_loss reason;
    const char *meaning;
} loss_reasons[] = {
#include "schema/bits.def"
};
#define LOSS_REASONS (sizeof(loss_reasons) / sizeof(loss_reasons[0]))

static size_t find_reason(const char *name)
{
    for (size_t i = 0; i < LOSS_REASONS; i++)
        if (strcmp(loss_reasons[i].name, name) == 0)
            return i;
    return 0; /* a reason of a later version: its text still says something */
}

/* "recording stopped at step 37 (no space for the spool), 12 rows lost"; at step 0: nothing was */
static char *loss_text(const struct rank_loss *loss, size_t reason)
{
    char at[48] = "", rows[48] = "";
    const char *meaning = reason ? loss_reasons[reason].meaning : loss->reason;
    if (loss->step >= 0)
        snprintf(at, sizeof(at), " at step %" PRId64, loss->step);
    if (loss->rows != LG_NULL && loss->rows > 0)
        snprintf(rows, sizeof(rows), ", %" PRId64 " rows lost", loss->rows);
    switch (loss_reasons[reason].reason) {
    case LG_LOSS_damaged:
    case LG_LOSS_not_loaded:
    case LG_LOSS_none:
        return lg_format("%s%s%s%s%s", meaning, at, rows, *loss->detail ? ": " : "", loss->detail);
    default:
        if (loss->step == 0)
            return lg_format("nothing was recorded (%s)%s", meaning, rows);
        return lg_format("recording stopped%s (%s)%s", at, meaning, rows);
    }
}

static void add_rank_loss(struct lg_run *run, struct lg_rank *rank, const struct rank_loss *loss)
{
    /* add_killed() says it, with the last step that is really there */
    if (strcmp(loss->reason, "killed") == 0)
        return;

    size_t reason = find_reason(loss->reason);
    char *text = loss_text(loss, reason);
    lg_run_add_loss(run, rank->rank, loss_reasons[reason].reason, loss->rows,
                    loss->step < 0 ? LG_NULL : loss->step, text);
    free(text);
    if (loss->rows != LG_NULL &&
        __builtin_add_overflow(rank->rows_lost, loss->rows, &rank->rows_lost))
        rank->rows_lost = INT64_MAX; /* a damaged database may say anything */
    if (loss->step >= 0) {
        rank->stop_reason = loss_reasons[reason].reason;
        rank->stop_step = loss->step;
    }
}

static void add_killed(struct lg_run *run, const struct lg_rank *rank)
{
    char *text = rank->n ? lg_format("ends at step %" PRId64 " (killed)", rank->step[rank->n - 1])
                         : lg_strdup("was killed before its first step");
    lg_run_add_loss(run, rank->rank, LG_LOSS_killed, LG_NULL,
                    rank->n ? rank->step[rank->n - 1] : LG_NULL, text);
    free(text);
}

static void add_losses(struct lg_run *run, struct lg_rank *rank, const struct loaded *loaded)
{
    bool killed = rank->end == LG_RANK_END_KILLED;
    if (loaded->damaged) {
        char *text = rank->n ? lg_format("%s; %zu rows could be read", loaded->error.text, rank->n)
                             : lg_strdup(loaded->error.text);
        lg_run_add_loss(run, rank->rank, LG_LOSS_damaged, LG_NULL, LG_NULL, text);
        free(text);
    }
    for (size_t i = 0; i < loaded->n_losses; i++) {
        add_rank_loss(run, rank, &loaded->losses[i]);
        killed |= strcmp(loaded->losses[i].reason, "killed") == 0;
    }
    if (killed)
        add_killed(run, rank);
}

/* --- the run ------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static void take_expected(struct lg_run *run, const char *list)
{
    json_t *array = json_loads(list, 0, NULL), *value;
    size_t i;
    if (json_is_array(array) && !run->expected) {
        run->expected = lg_alloc(json_array_size(array), sizeof(*run->expected));
        json_array_foreach(array, i, value)
        {
            if (json_is_integer(value))
                run->expected[run->n_expected++] = (int32_t)json_integer_value(value);
        }
        qsort(run->expected, run->n_expected, sizeof(*run->expected), by_value);
    }
    json_decref(array);
}

/* Without a declaration the ranks that have a database are those that were there, even where it
 * can't be read. */
static void expect_files(struct lg_run *run)
{
    if (run->n_expected || run->world > 0)
        return;
    free(run->expected);
    run->expected = lg_alloc(run->n_ranks, sizeof(*run->expected));
    for (size_t i = 0; i < run->n_ranks; i++)
        run->expected[run->n_expected++] = run->ranks[i].rank;
}

static void free_loaded(struct loaded *loaded)
{
    free(loaded->expected);
    free(loaded->losses);
}

static void take_rank(struct loading *loading, size_t i)
{
    struct lg_run *run = loading->run;
    struct lg_rank *rank = &run->ranks[i];
    struct loaded *loaded = &loading->loaded[i];
    if (loaded->opened && *loaded->info.rank_source) {
        fill_rank(rank, &loaded->info, run->running);
        run->imported |= strcmp(loaded->info.rank_source, "imported") == 0;
        run->world = rank->world > run->world ? rank->world : run->world;
        if (!run->strategy && *loaded->strategy)
            run->strategy = lg_strdup(loaded->strategy);
        if (!run->command && *loaded->command)
            run->command = lg_strdup(loaded->command);
        if (loaded->expected)
            take_expected(run, loaded->expected);
    }
    add_losses(run, rank, loaded);
}

/* Of a directory that several runs used the report is on the newest. */
static void settle_run(struct loading *loading)
{
    struct recorded_rank *rank = lg_alloc(loading->n, sizeof(*rank));
    size_t kept = 0, n = loading->n;
    for (size_t i = 0; i < n; i++)
        rank[i].info = &loading->loaded[i].info;
    recorded_settle(loading->run, loading->files->path, rank, n);
    for (size_t i = 0; i < n; i++) {
        if (rank[i].keep) {
            loading->loaded[kept++] = loading->loaded[i];
            continue;
        }
        lg_run_drop_rank(loading->run, kept);
        free_loaded(&loading->loaded[i]);
    }
    loading->n = kept;
    free(rank);
}

/* A rank's seen bits tell FSDP where nobody declared a strategy. */
static void settle_strategy(struct lg_run *run)
{
    for (size_t i = 0; i < run->n_ranks && !run->strategy; i++)
        if (run->ranks[i].seen & LG_SEEN_FSDP)
            run->strategy = lg_strdup("fsdp");
}

static void take_results(struct loading *loading)
{
    struct lg_run *run = loading->run;
    if (loading->files->directory)
        settle_run(loading);
    bool in_progress = run->running;
    for (size_t i = 0; i < loading->n; i++) {
        take_rank(loading, i);
        in_progress |= run->ranks[i].end == LG_RANK_END_RUNNING;
    }
    run->running = in_progress;
    if (!loading->files->directory)
        run->world = -1; /* one rank's database is asked about that rank alone */
    settle_strategy(run);
    expect_files(run);
    if (loading->files->uncollected)
        lg_run_add_loss(run, LG_NO_RANK, LG_LOSS_database, LG_NULL, LG_NULL, loading->files->note);
}

static int check_any(const struct loading *loading, struct error *error)
{
    size_t bad = 0;
    for (size_t i = 0; i < loading->n; i++)
        bad += loading->loaded[i].damaged && loading->run->ranks[i].n == 0;
    if (bad < loading->n)
        return 0;
    if (loading->n == 1)
        return error_set(error, "%s", loading->loaded[0].error.text);
    return error_set(error, "%s: none of its %zu rank databases can be read; the first: %s",
                     loading->files->path, loading->n, loading->loaded[0].error.text);
}

static void make_ranks(const struct run_files *files, struct loading *loading, size_t *number)
{
    size_t attempts = 0;
    for (size_t f = 0; f < files->n; f++) {
        attempts++;
        if (!files->file[f].newest)
            continue;
        number[loading->n++] = f;
        lg_run_add_rank(loading->run, (int32_t)files->file[f].rank)->attempts = (uint32_t)attempts;
        attempts = 0;
    }
}

struct lg_run *load_files(const struct run_files *files, struct error *error)
{
    size_t *number = lg_alloc(files->n, sizeof(*number));
    struct loading loading = {.files = files, .run = lg_run_new(), .number = number};
    loading.run->dir = lg_strdup(files->path);
    make_ranks(files, &loading, number);
    loading.loaded = lg_alloc(loading.n, sizeof(*loading.loaded));
    for (int c = 0; c < LG_COLUMNS; c++)
        if (lg_diagnose_needs((enum lg_column)c))
            loading.columns |= UINT64_C(1) << c;
    load_all(&loading);
    int rc = check_any(&loading, error);
    if (rc == 0)
        take_results(&loading);
    for (size_t i = 0; i < loading.n; i++)
        free_loaded(&loading.loaded[i]);
    free(loading.loaded);
    free(number);
    if (rc == 0)
        return loading.run;
    lg_run_free(loading.run);
    return NULL;
}

struct lg_run *load_run(const char *path, struct error *error)
{
    struct run_files files;
    struct lg_run *run = NULL;
    if (run_files_find(path, &files, error) == 0)
        run = load_files(&files, error);
    run_files_free(&files);
    return run;
}
