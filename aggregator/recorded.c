/*
 * recorded.c - see recorded.h. Runs in the reading commands.
 *
 * Recorders on several hosts of one run may have started at the same moment and given it several
 * numbers; so a rank is of an earlier run only if that had ended before the newest began.
 */
#include "aggregator/recorded.h"

#include <stdlib.h>
#include <string.h>

#include "aggregator/rundir.h"

struct command {
    struct rundir_info info;
    bool has_rank; /* one that is nobody's earlier attempt */
};

struct commands {
    size_t n;
    struct command *command;
};

static void add_command(void *context, const struct rundir_info *info)
{
    struct commands *all = context;

    all->command = lg_realloc(all->command, all->n + 1, sizeof(*all->command));
    all->command[all->n++] = (struct command){.info = *info};
}

/* A rank that was started without the run's number (an environment that passed only a part of ours)
 * is told by its time. */
static bool is_of(const struct rank_info *rank, const struct rundir_info *info)
{
    if (*rank->run_id)
        return strcmp(rank->run_id, info->run_id) == 0;
    return rank->real_ns != LG_NULL && rank->real_ns >= info->start_ns &&
           (info->end_ns == 0 || rank->real_ns <= info->end_ns);
}

/* The latest to start of those that have ranks, or NULL. */
static const struct command *newest_of(const struct commands *all)
{
    const struct command *newest = NULL;

    for (size_t i = 0; i < all->n; i++)
        if (all->command[i].has_rank &&
            (!newest || all->command[i].info.start_ns > newest->info.start_ns))
            newest = &all->command[i];
    return newest;
}

static bool was_over(const struct command *c, const struct command *newest)
{
    return c->info.end_ns != 0 && c->info.end_ns < newest->info.start_ns;
}

/* True if all that is known of the rank's run had ended before the newest began. */
static bool is_earlier(const struct commands *all, const struct rank_info *rank,
                       const struct command *newest)
{
    bool earlier = false;

    for (size_t i = 0; i < all->n; i++) {
        if (!is_of(rank, &all->command[i].info))
            continue;
        if (!was_over(&all->command[i], newest))
            return false;
        earlier = true;
    }
    return earlier;
}

/* ---- how it ended ---- */

/* The worse the sooner told. */
static int badness(const struct rundir_info *info)
{
    if (info->end_ns != 0)
        return info->signal || info->exit_status > 0 ? 3 : 0;
    return rundir_in_progress(info) ? 1 : 2;
}

static void tell_outcome(struct lg_run *run, const struct rundir_info *info, bool several)
{
    char outcome[256];

    rundir_outcome(info, outcome, sizeof(outcome));
    free(run->outcome);
    run->outcome = several ? lg_format("%s: %s", info->host, outcome) : lg_strdup(outcome);
    run->failed = badness(info) >= 2;
    run->exit_status = info->end_ns != 0 ? info->exit_status : -1;
    run->signal = info->signal;
}

static void take_commands(struct lg_run *run, const struct commands *all,
                          const struct command *newest)
{
    const struct rundir_info *worst = NULL;
    size_t n = 0;

    for (size_t i = 0; i < all->n; i++) {
        const struct command *c = &all->command[i];

        if (!c->has_rank || was_over(c, newest))
            continue;
        n++;
        run->running |= rundir_in_progress(&c->info);
        if (!worst || badness(&c->info) > badness(worst))
            worst = &c->info;
    }
    if (worst) /* the newest is one of them */
        tell_outcome(run, worst, n > 1);
    if (*newest->info.command)
        run->command = lg_strdup(newest->info.command);
}

/* ---- notes ---- */

/* Commands of this directory that the report is not about since they left no rank. */
static void note_without_rank(struct lg_run *run, const struct commands *all,
                              const struct command *newest)
{
    for (size_t i = 0; i < all->n; i++) {
        const struct command *c = &all->command[i];
        char outcome[256];

        if (c->has_rank || (newest && c->info.start_ns < newest->info.start_ns))
            continue;
        rundir_outcome(&c->info, outcome, sizeof(outcome));
        lg_run_add_note(
            run, lg_format("`%s` was run in this directory %sand %s (%s%s%s)", c->info.command,
                           newest ? "later " : "",
                           rundir_in_progress(&c->info) ? "has no rank so far" : "left no rank",
                           outcome, *c->info.untraced ? "; untraced: " : "", c->info.untraced));
    }
}

static void note_earlier(struct lg_run *run, const struct recorded_rank *rank, size_t n)
{
    size_t earlier = 0;

    for (size_t i = 0; i < n; i++)
        earlier += !rank[i].keep;
    if (earlier > 0)
        lg_run_add_note(run, lg_format("ranks that only an earlier run in this directory had: %zu, "
                                       "not looked at",
                                       earlier));
}

void recorded_settle(struct lg_run *run, const char *dir, struct recorded_rank *rank, size_t n)
{
    struct commands all = {0};
    const struct command *newest;

    rundir_each(dir, add_command, &all);
    for (size_t c = 0; c < all.n; c++)
        for (size_t i = 0; i < n; i++)
            all.command[c].has_rank |= is_of(rank[i].info, &all.command[c].info);
    newest = newest_of(&all);
    for (size_t i = 0; i < n; i++)
        rank[i].keep = !newest || !is_earlier(&all, rank[i].info, newest);
    if (newest)
        take_commands(run, &all, newest);
    note_without_rank(run, &all, newest);
    note_earlier(run, rank, n);
    free(all.command);
}
