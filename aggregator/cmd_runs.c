/*
 * cmd_runs.c - `laggard runs [DIR]`: the runs in a directory, oldest first, two lines each: when,
 * where and with what result, and the command. Runs in a reader.
 */
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "aggregator/cmd.h"
#include "aggregator/load.h"
#include "aggregator/rundir.h"

static const char help_text[] =
    "usage: laggard runs [DIR]\n"
    "\n"
    "Lists the runs in DIR (the current directory), oldest first: date, ranks seen of\n"
    "those expected, steps, verdict, how a command ended that did not end well,\n"
    "directory, and below it the command.\n"
    "\n"
    "  -h, --help  this text\n";

struct found {
    char *path;
    int64_t time_ns; /* CLOCK_REALTIME of its start, else when the directory last changed */
};

struct list {
    size_t n;
    struct found *found;
};

/* Adds the directory if it holds a run. */
static void consider(struct list *list, const char *path)
{
    struct run_files files;
    struct rundir_info info;
    struct stat st;
    if (stat(path, &st) || !S_ISDIR(st.st_mode))
        return;
    bool told = rundir_newest(path, &info, NULL) == 0;
    bool run = told;
    if (!told && run_files_list(path, &files, NULL) == 0)
        run = files.n > 0;
    if (!told)
        run_files_free(&files);
    if (!run)
        return;
    list->found = lg_realloc(list->found, list->n + 1, sizeof(*list->found));
    list->found[list->n].path = lg_strdup(path);
    list->found[list->n++].time_ns =
        told && info.start_ns ? info.start_ns : st.st_mtim.tv_sec * INT64_C(1000000000);
}

static int find_runs(struct list *list, const char *dir)
{
    DIR *entries = opendir(dir);
    if (!entries)
        return -1;
    consider(list, dir);
    for (struct dirent *entry; (entry = readdir(entries));) {
        if (entry->d_name[0] == '.')
            continue;
        char *path = strcmp(dir, ".") == 0 ? lg_strdup(entry->d_name)
                                           : lg_format("%s/%s", dir, entry->d_name);
        consider(list, path);
        free(path);
    }
    closedir(entries);
    return 0;
}

static int by_time(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    if (x->time_ns != y->time_ns)
        return x->time_ns < y->time_ns ? -1 : 1;
    return strcmp(x->path, y->path);
}

/* --- one run ------------------------------------------------------------------------------- */

static char *verdict_text(const struct lg_diagnosis *d)
{
    const struct lg_verdict *v = &d->verdict;
    const char *stage = lg_blame_name(v->stage), *running = d->running ? " so far" : "";
    char *outcome = d->failed ? lg_format(" [%s]", d->outcome) : lg_strdup(""), *text;
    if (v->rank == LG_NO_RANK)
        text = lg_format("%s%s%s", lg_kind_name(v->kind), running, outcome);
    else
        text = lg_format("%s rank %d%s%s%s%s", lg_kind_name(v->kind), (int)v->rank,
                         stage ? " " : "", stage ? stage : "", running, outcome);
    free(outcome);
    return text;
}

static void print_result(const char *path, char **command)
{
    struct error error;
    struct lg_run *run = load_run(path, &error);
    char *shown = lg_strdup(path);
    error_clean(shown);
    if (!run) {
        /* the message begins with the path, which the line has already */
        size_t length = strlen(shown);
        bool prefix = strncmp(error.text, shown, length) == 0 && error.text[length] == ':';
        printf("%9s %7s  %s  (%s)\n", "-", "-", shown,
               prefix ? error.text + length + 2 : error.text);
        free(shown);
        return;
    }
    struct lg_diagnosis *d = lg_diagnose(run, NULL);
    lg_run_free(run);
    char *verdict = verdict_text(d);
    char *ranks = lg_format("%zu/%zu", d->n_seen, d->n_seen + d->n_missing);
    printf("%9s %7lld  %s  %s\n", ranks, (long long)d->steps.count, shown, verdict);
    if (d->command)
        *command = lg_strdup(d->command);
    free(shown);
    free(ranks);
    free(verdict);
    lg_diagnosis_free(d);
}

static void print_run(const struct found *found)
{
    char date[32] = "";
    char *command = NULL;
    time_t seconds = (time_t)(found->time_ns / INT64_C(1000000000));
    struct tm local;
    if (localtime_r(&seconds, &local))
        strftime(date, sizeof(date), "%Y-%m-%d %H:%M", &local);
    printf("%-16s ", date);
    print_result(found->path, &command);
    if (command) {
        error_clean(command);
        printf("    %.74s%s\n", command, strlen(command) > 74 ? "..." : "");
    }
    free(command);
}

int cmd_runs(int argc, char **argv)
{
    struct list list = {0, NULL};
    struct error error;
    const char *dir = argc > 1 ? argv[1] : ".";
    if (strcmp(dir, "--help") == 0 || strcmp(dir, "-h") == 0) {
        fputs(help_text, stdout);
        return 0;
    }
    if (argc > 2 || *dir == '-') {
        error_set(&error, "runs: one directory at most (see laggard runs --help)");
        return error_exit(&error);
    }
    if (find_runs(&list, dir)) {
        error_set(&error, "%s: %s", dir, strerror(errno));
        return error_exit(&error);
    }
    if (list.n == 0) {
        printf("no runs in %s\n", dir);
        return 0;
    }
    qsort(list.found, list.n, sizeof(*list.found), by_time);
    printf("%-16s %9s %7s  %s\n", "date", "ranks", "steps", "run and verdict");
    for (size_t i = 0; i < list.n; i++) {
        print_run(&list.found[i]);
        free(list.found[i].path);
    }
    free(list.found);
    return 0;
}
