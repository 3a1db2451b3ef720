/*
 * collect.c - see collect.h. Runs in every reading command before it reads, and at the end of
 * `laggard run`.
 */
#include "aggregator/collect.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "aggregator/recorder.h"
#include "aggregator/rundir.h"
#include "aggregator/spool_place.h"
#include "schema/spool.h"

#define PASSES       6   /* more than the recorder waits for the rest of a process */
#define ENDING_TRIES 200 /* 10 ms each, for processes that are being taken apart */

/* Where spools of a run may lie. */
struct places {
    char (*dir)[PATH_MAX];
    size_t n;
    int recorders, in_progress;
    const char *run_dir;
};

static void add_place(struct places *places, const char *dir)
{
    char(*grown)[PATH_MAX] = realloc(places->dir, (places->n + 1) * sizeof(*grown));
    if (!grown)
        return;
    places->dir = grown;
    snprintf(grown[places->n++], PATH_MAX, "%s", dir);
}

static int ends_with(const char *name, const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);
    return n > m && strcmp(name + n - m, suffix) == 0;
}

static int has_spools(const char *path)
{
    int found = 0;
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && !found && (e = readdir(dir));)
        found = ends_with(e->d_name, LG_SPOOL_SUFFIX) || ends_with(e->d_name, LG_LOST_SUFFIX);
    if (dir)
        closedir(dir);
    return found;
}

/* A run that came from elsewhere may name the spools of another one. Where the owner's run is no
 * more, this one may be it, under a new name. */
static int is_spool_place_of(const char *dir, const char *run_dir)
{
    char owner[PATH_MAX];
    struct process_id recorder;
    struct stat its, ours;
    if (spool_place_owner(dir, owner, &recorder) != 0)
        return 0;
    return stat(owner, &its) != 0 ||
           (stat(run_dir, &ours) == 0 && its.st_dev == ours.st_dev && its.st_ino == ours.st_ino);
}

static void add_recorder(void *context, const struct rundir_info *info)
{
    struct places *places = context;

    places->recorders++;
    if (info->end_ns == 0 && strcmp(info->recorder.boot_id, process_boot_id()) == 0)
        process_await_end(&info->recorder); /* killed just now: it still holds its spools */
    if (rundir_in_progress(info)) {
        places->in_progress++;
        return; /* its own spools are its own business */
    }
    if (*info->spool_dir && strcmp(info->recorder.boot_id, process_boot_id()) == 0 &&
        is_spool_place_of(info->spool_dir, places->run_dir))
        add_place(places, info->spool_dir);
}

/* A link in a run that came from elsewhere may lead to the spools of another one. */
static int is_real_directory(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* RUN, RUN/spool and RUN/spool/HOST: what processes without a recorder on their host wrote. */
static void add_run_places(struct places *places, const char *run_dir)
{
    char path[PATH_MAX], host[PATH_MAX];

    add_place(places, run_dir);
    if (snprintf(path, sizeof(path), "%s/spool", run_dir) >= (int)sizeof(path) ||
        !is_real_directory(path))
        return;
    add_place(places, path);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (*e->d_name != '.' &&
            snprintf(host, sizeof(host), "%s/%s", path, e->d_name) < (int)sizeof(host) &&
            is_real_directory(host))
            add_place(places, host);
    if (dir)
        closedir(dir);
}

static void keep_places_with_spools(struct places *places)
{
    size_t kept = 0;
    for (size_t i = 0; i < places->n; i++)
        if (has_spools(places->dir[i]))
            memmove(places->dir[kept++], places->dir[i], PATH_MAX);
    places->n = kept;
}

static void take_result(const struct recorder *r, struct collect_result *result)
{
    struct recorder_result state;
    recorder_result(r, &state);
    result->collected = state.finished;
    result->running = state.running;
    result->failed = state.failed;
    if (state.failed > 0)
        snprintf(result->note, sizeof(result->note), "%s", state.note);
}

static void record(const char *run_dir, const char *database_dir, const struct places *places,
                   struct collect_result *result)
{
    struct recorder_options options = {.run_dir = run_dir,
                                       .database_dir = database_dir,
                                       .run_over =
                                           places->recorders > 0 && places->in_progress == 0};
    const struct timespec pause = {0, 10000000};
    struct recorder *r = recorder_new(&options, NULL);
    if (!r)
        return;
    for (size_t i = 0; i < places->n; i++)
        recorder_add_dir(r, places->dir[i]);
    for (int i = 0; i < PASSES; i++) {
        recorder_pass(r);
        take_result(r, result);
        if (result->failed == 0)
            break;
    }
    /* a killed process lives on for some ms: its last rows are not to be missed just for that */
    for (int i = 0; i < ENDING_TRIES && recorder_has_ending(r); i++) {
        nanosleep(&pause, NULL);
        recorder_pass(r);
        take_result(r, result);
    }
    recorder_free(r);
}

/* Directories that are empty now. RUN itself is in use: it holds more than that. */
static void tidy(const char *run_dir, const struct places *places)
{
    char path[PATH_MAX + 8];
    for (size_t i = 0; i < places->n; i++) {
        if (strcmp(places->dir[i], run_dir) == 0)
            continue;
        if (strncmp(places->dir[i], run_dir, strlen(run_dir)) == 0)
            rmdir(places->dir[i]);
        else
            spool_place_remove(places->dir[i]);
    }
    snprintf(path, sizeof(path), "%s/spool", run_dir);
    rmdir(path);
}

/* Another user's run is only read: root, too, makes no files where somebody else decides on names.
 */
static int own_directory(const char *dir)
{
    struct stat st;
    if (stat(dir, &st) != 0)
        return 0;
    errno = EPERM;
    return st.st_uid == geteuid() || st.st_uid == 0;
}

/* Collects what is in `places` into the run. */
static void collect_places(const char *run_dir, struct places *places,
                           struct collect_result *result)
{
    char local[PATH_MAX] = "", database_dir[PATH_MAX];

    keep_places_with_spools(places);
    if (places->n == 0)
        return;
    if (!own_directory(run_dir) || access(run_dir, W_OK | X_OK) != 0) {
        result->failed = 1;
        snprintf(result->note, sizeof(result->note), "%.400s: rows wait to be collected, but: %s",
                 run_dir, strerror(errno));
        return;
    }
    /* a recorder that wrote its databases beside its spools left them there */
    for (size_t i = 0; i < places->n && !*local; i++)
        if (strncmp(places->dir[i], run_dir, strlen(run_dir)) != 0)
            snprintf(local, sizeof(local), "%s", places->dir[i]);
    int own = !*local && rundir_is_network(run_dir) && spool_place_make(run_dir, local, NULL) == 0;
    recorder_database_dir(run_dir, local, database_dir);
    record(run_dir, database_dir, places, result);
    tidy(run_dir, places);
    if (own)
        spool_place_remove(local);
}

void collect_run(const char *run_dir, struct collect_result *result)
{
    struct collect_result unused;
    struct places places = {0};
    struct stat st;
    char path[PATH_MAX];

    if (!result)
        result = &unused;
    memset(result, 0, sizeof(*result));
    if (!realpath(run_dir, path) || stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return;
    places.run_dir = path;
    rundir_each(path, add_recorder, &places);
    add_run_places(&places, path);
    collect_places(path, &places, result);
    free(places.dir);
}

/* ---- leftovers ---- */

static void remove_spools(const char *dir)
{
    char path[PATH_MAX + NAME_MAX + 2];
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (*e->d_name == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
        unlink(path);
    }
    if (d)
        closedir(d);
    spool_place_remove(dir);
}

static void collect_leftover(void *context, const char *dir)
{
    char run_dir[PATH_MAX];
    struct process_id recorder;
    struct places places = {0};
    struct collect_result result = {0};

    (void)context;
    if (spool_place_owner(dir, run_dir, &recorder) != 0)
        return;
    enum process_state state = process_state(&recorder);
    if (state == PROCESS_ALIVE)
        return;
    /* elsewhere: an earlier boot of this host, or the place is shared with a host where it lives */
    places.recorders = state == PROCESS_GONE;
    if (state == PROCESS_ELSEWHERE && access(run_dir, F_OK) != 0)
        return;
    if (access(run_dir, F_OK) != 0 && errno == ENOENT) {
        remove_spools(dir); /* the user removed the run */
        return;
    }
    add_place(&places, dir);
    collect_places(run_dir, &places, &result);
    spool_place_remove(dir);
    free(places.dir);
}

void collect_leftovers(void)
{
    spool_place_each(collect_leftover, NULL);
}
