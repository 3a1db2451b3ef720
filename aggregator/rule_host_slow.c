/*
 * rule_host_slow.c - when all ranks of one host are late, and nobody elsewhere, it is the host that
 * is slow: one finding in place of one per rank. Runs in the reading commands.
 */
#include <stdlib.h>
#include <string.h>

#include "aggregator/accuse.h"

#define FEWEST 2 /* ranks on the host; of a single one nothing can be told apart */

static const struct lg_rank *rank_of(const struct lg_judgement *j, const struct lg_finding *f)
{
    return lg_run_find(j->scope.aligned->run, f->rank);
}

/* The host of all findings so far, if they name exactly its ranks and there are other hosts. */
static const char *common_host(const struct lg_judgement *j)
{
    const struct lg_aligned *a = j->scope.aligned;
    const char *host;
    size_t here = 0;

    if (j->n_findings < FEWEST || j->findings[0].rank == LG_NO_RANK)
        return NULL;
    host = rank_of(j, &j->findings[0])->host;
    for (size_t i = 0; i < j->n_findings; i++)
        if (j->findings[i].rank == LG_NO_RANK ||
            strcmp(rank_of(j, &j->findings[i])->host, host) != 0)
            return NULL;
    for (size_t r = 0; r < a->n_ranks; r++)
        here += strcmp(a->rank[r]->host, host) == 0;
    return *host && here == j->n_findings && here < a->n_ranks ? host : NULL;
}

/* The findings' stage, or none if they differ. */
static enum lg_blame common_stage(const struct lg_judgement *j)
{
    enum lg_blame stage = j->findings[0].stage;

    for (size_t i = 1; i < j->n_findings; i++)
        if (j->findings[i].stage != stage)
            return LG_BLAME_NONE;
    return stage;
}

/* Of the ranks' findings the best score, the largest cost, and who they are. */
static void sum_up(struct lg_judgement *j, struct lg_finding *f, const char *host)
{
    int32_t *rank = lg_alloc(j->n_findings, sizeof(*rank));
    json_t *list = json_array();
    char *who;

    for (size_t i = 0; i < j->n_findings; i++) {
        const struct lg_finding *each = &j->findings[i];

        rank[i] = each->rank;
        json_array_append_new(list, json_integer(each->rank));
        if (i == 0 || each->score > f->score)
            f->score = each->score;
        if (i == 0 || each->cost_ns_per_step > f->cost_ns_per_step)
            f->cost_ns_per_step = each->cost_ns_per_step;
    }
    if (j->brief) {
        json_decref(list);
        free(rank);
        return;
    }
    who = lg_rank_list(rank, j->n_findings);
    json_object_set_new(f->evidence, "host", json_string(host));
    json_object_set_new(f->evidence, "ranks", list);
    json_object_set(f->evidence, "late_ms", json_object_get(j->findings[0].evidence, "late_ms"));
    json_object_set(f->evidence, "step_ms", json_object_get(j->findings[0].evidence, "step_ms"));
    f->sentence = lg_format("All ranks of host %s (%s) come late to the collectives, most of all "
                            "for %s, and no rank elsewhere does; the others wait for them up to %s "
                            "a step (%.0f %%).",
                            host, who, lg_stage_words(f->stage),
                            lg_ms((double)f->cost_ns_per_step / 1e6).text, 100 * f->score);
    free(who);
    free(rank);
}

void lg_rule_host_slow(struct lg_judgement *j)
{
    const char *host = common_host(j);
    struct lg_finding f;

    if (!host)
        return;
    f = (struct lg_finding){
        .kind = LG_HOST_SLOW,
        .rank = LG_NO_RANK,
        .stage = common_stage(j),
        .rule = LG_RULE_ARRIVAL,
        .steps = j->findings[0].steps,
        .recurrence = j->findings[0].recurrence,
        .period = j->findings[0].period,
        .evidence = json_object(),
    };
    sum_up(j, &f, host);
    f.level = lg_level_of(j, f.score);
    for (size_t i = 0; i < j->n_findings; i++)
        lg_finding_free(&j->findings[i]);
    j->findings[0] = f;
    j->n_findings = 1;
}
