/*
 * run_files.c - finds the rank databases behind a RUN argument and says clearly when there are
 * none. Runs in the reading commands.
 */
#include "aggregator/run_files.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "aggregator/collect.h"
#include "aggregator/rankdb.h"
#include "aggregator/rows.h"
#include "aggregator/rundir.h"

static void add_file(struct run_files *files, char *path, int64_t rank, int64_t attempt)
{
    files->file = lg_realloc(files->file, files->n + 1, sizeof(*files->file));
    files->file[files->n++] = (struct run_file){path, rank, attempt, false};
}

static int by_rank(const void *a, const void *b)
{
    const struct run_file *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return (x->attempt > y->attempt) - (x->attempt < y->attempt);
}

static void sort_files(struct run_files *files)
{
    if (files->n)
        qsort(files->file, files->n, sizeof(*files->file), by_rank);
    for (size_t i = 0; i < files->n; i++)
        files->file[i].newest = i + 1 == files->n || files->file[i + 1].rank != files->file[i].rank;
}

/* Opening a FIFO would wait for a writer. */
static bool is_fifo(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISFIFO(st.st_mode);
}

int run_files_list(const char *dir, struct run_files *files, struct error *error)
{
    int64_t rank, attempt;
    memset(files, 0, sizeof(*files));
    files->path = lg_strdup(dir);
    files->directory = true;
    DIR *list = opendir(dir);
    if (!list)
        return error_set(error, "%s: %s", dir, strerror(errno));
    for (struct dirent *entry; (entry = readdir(list));)
        if (rankdb_parse_name(entry->d_name, &rank, &attempt) && rank <= INT32_MAX) {
            char *path = lg_format("%s/%s", dir, entry->d_name);
            if (is_fifo(path))
                free(path);
            else
                add_file(files, path, rank, attempt);
        }
    closedir(list);
    sort_files(files);
    return 0;
}

/* Why a directory may hold no rank database. */
static int no_ranks(const struct run_files *files, struct error *error)
{
    struct rundir_info info;
    char outcome[256];
    const char *dir = files->path;
    if (files->uncollected)
        return error_set(error, "%s", files->note);
    if (rundir_newest(dir, &info, NULL))
        return error_set(error, "%s: not a run (no rank database in it)", dir);
    if (*info.untraced)
        return error_set(error, "%s: empty run: the command ran untraced: %s", dir, info.untraced);
    if (rundir_in_progress(&info))
        return error_set(error,
                         "%s: no rank has appeared so far: no process of the command has begun to "
                         "train yet (no backward pass, collective or kernel launch seen)",
                         dir);
    rundir_outcome(&info, outcome, sizeof(outcome));
    return error_set(
        error,
        "%s: empty run: no rank appeared (the command: %s): nothing began to train, or the library "
        "was "
        "not loaded (static or setuid program, LD_PRELOAD cleared); see laggard doctor",
        dir, outcome);
}

static int find_in_directory(const char *dir, struct run_files *files, struct error *error)
{
    struct collect_result collected;
    if (rundir_check(dir, error))
        return -1;
    collect_run(dir, &collected);
    if (run_files_list(dir, files, error))
        return -1;
    files->uncollected = collected.failed;
    snprintf(files->note, sizeof(files->note), "%s", collected.note);
    return files->n ? 0 : no_ranks(files, error);
}

static int find_single(const char *path, struct run_files *files, struct error *error)
{
    struct rank_info info;
    struct rankdb *db = rankdb_open(path, error);
    if (!db)
        return -1;
    int rc = rankdb_get_rank(db, &info, error);
    rankdb_close(db);
    if (rc == 0 && (info.rank < 0 || info.rank > INT32_MAX))
        rc = error_set(error, "%s: damaged (rank %lld)", path, (long long)info.rank);
    if (rc == 0)
        add_file(files, lg_strdup(path), info.rank, info.attempt);
    sort_files(files);
    return rc;
}

int run_files_find(const char *run, struct run_files *files, struct error *error)
{
    struct stat st;
    memset(files, 0, sizeof(*files));
    if (stat(run, &st))
        return errno == ENOENT || errno == ENOTDIR
                   ? error_set(error, "%s: no such run", run)
                   : error_set(error, "%s: %s", run, strerror(errno));
    if (S_ISDIR(st.st_mode))
        return find_in_directory(run, files, error);
    if (!S_ISREG(st.st_mode))
        return error_set(error, "%s: not a run (neither a directory nor a file)", run);
    files->path = lg_strdup(run);
    return find_single(run, files, error);
}

void run_files_free(struct run_files *files)
{
    for (size_t i = 0; i < files->n; i++)
        free(files->file[i].path);
    free(files->file);
    free(files->path);
    memset(files, 0, sizeof(*files));
}
