/*
 * rules.h - how the diagnosis is put together. Internal to diagnose.c and its parts:
 *
 *     aligned.c         the iterations that all ranks have in common
 *     rule_*.c          one rule a file: a scope in, findings out
 *     verdict.c         orders the findings, decides what the report answers
 *     observed.c        what was not observed: coverage, notes, whether BALANCED may be said
 *     means.c           means per rank
 *     sentence.c, next.c  the answer in words, and what to look at next
 *
 * A rule is a function over a scope; add it to the table in diagnose.c.
 */
#ifndef LAGGARD_AGGREGATOR_RULES_H
#define LAGGARD_AGGREGATOR_RULES_H

#include "aggregator/aligned.h"
#include "aggregator/diagnose.h"

/* Room for a window's rows, used again from window to window; free rows. */
struct lg_scratch {
    struct lg_policy_row *rows;
    size_t capacity;
};

/* A stretch of comparable iterations: aligned->used[from .. to). */
struct lg_scope {
    const struct lg_aligned *aligned;
    size_t from, to;
    enum lg_strategy strategy;
    const int32_t *expected; /* declared ranks, sorted; n_expected 0: none */
    size_t n_expected;
    struct lg_scratch *scratch;
};

/* What the rows can't tell, and about which ranks. */
struct lg_observed {
    bool several;     /* more than one rank is compared, or declared */
    bool collectives; /* host time in collectives is known on every compared rank */
    bool device_skew; /* whether a slow device would be seen: true too if there is no device */
    bool no_collectives_seen; /* ranks that ran together, and no trace of a collective */
    struct lg_texts gaps;     /* signals that some ranks lack, "rank 2: forward" */
};

/* ---- rules: append their findings to the diagnosis ---- */

/* The published policy over a scope. Fills *result (free it with lg_policy_result_free()). */
void lg_published_run(const struct lg_scope *scope, struct lg_policy_result *result);
/* Its findings from d->published and d->published_steps. */
void lg_rule_published(const struct lg_scope *scope, struct lg_diagnosis *d);

/* ---- parts ---- */

struct lg_finding *lg_add_finding(struct lg_diagnosis *d, enum lg_kind kind);
struct lg_steps lg_scope_steps(const struct lg_scope *scope);
/* Level, accused rank and stage that a published issue stands for. */
enum lg_level lg_issue_level(const struct lg_policy_issue *issue);
int32_t lg_issue_rank(const struct lg_policy_issue *issue);
enum lg_blame lg_kind_blame(enum lg_kind kind);

void lg_observe(const struct lg_scope *scope, struct lg_diagnosis *d, struct lg_observed *o);
void lg_observed_free(struct lg_observed *o);
void lg_means(const struct lg_aligned *aligned, struct lg_diagnosis *d);
void lg_decide(struct lg_diagnosis *d, const struct lg_observed *o);
/* The verdict in words; owned by the caller. */
char *lg_sentence(const struct lg_diagnosis *d, const struct lg_scope *scope,
                  const struct lg_observed *o);
void lg_advise(struct lg_diagnosis *d, const struct lg_run *run);

/* ---- texts ---- */

void lg_texts_add(struct lg_texts *texts, char *text); /* takes the text over */
void lg_texts_free(struct lg_texts *texts);
char *lg_texts_join(const struct lg_texts *texts, const char *separator);
/* "rank 3", "ranks 0-2, 5 and 2 more"; the list is sorted. */
char *lg_rank_list(const int32_t *rank, size_t n);
/* "3.21 ms": three digits that count. The text lives to the end of the full expression. */
struct lg_ms {
    char text[32];
};
struct lg_ms lg_ms(double ms);

#endif
