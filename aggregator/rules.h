/*
 * rules.h - how the diagnosis is put together. Internal to diagnose.c and its parts:
 *
 *     aligned.c         the iterations that all ranks have in common
 *     cycles.c, arrival.c  what happened between collectives, and who was late (arrival.h)
 *     rule_*.c          one rule a file: a scope in, findings out
 *     accuse.c, cause.c, evidence.c  what a finding says about a rank
 *     explained.c       findings that are only the symptoms of a straggler
 *     frontier.c, recurrence.c, ambiguous.c  accounting, patterns, doubt
 *     verdict_merge.c   all rules over a scope, their findings in order; the scope that answers
 *     verdict.c         decides what the report answers
 *     observed.c        what was not observed: coverage, notes, whether BALANCED may be said
 *     nccl_coverage.c   copies of NCCL, and calls of them that pass every hook
 *     means.c           means per rank
 *     sentence.c, next.c  the answer in words, and what to look at next
 *
 * A rule is a function over a judgement, which holds a prepared scope and takes the findings; add
 * it to the tables in verdict_merge.c.
 */
#ifndef LAGGARD_AGGREGATOR_RULES_H
#define LAGGARD_AGGREGATOR_RULES_H

#include "aggregator/aligned.h"
#include "aggregator/diagnose.h"

struct lg_arrivals;
struct lg_cycles;

/* A stretch of comparable iterations: aligned->used[from .. to). */
struct lg_scope {
    const struct lg_aligned *aligned;
    size_t from, to;
    enum lg_strategy strategy;
    const int32_t *expected; /* declared ranks, sorted; n_expected 0: none */
    size_t n_expected;
};

/* What the rows can't tell, and about which ranks. */
struct lg_observed {
    bool several;      /* more than one rank is compared, or declared */
    bool collectives;  /* host time in collectives is known on every compared rank */
    bool device_skew;  /* whether a slow device would be seen: true too if there is no device */
    bool input_unseen; /* some rank shows no loader, no gap before its forward and no read: if it
                          fetches batches, that counts as forward */
    bool no_collectives_seen; /* ranks that ran together, and no trace of a collective */
    struct lg_texts gaps;     /* signals that some ranks lack, "rank 2: forward" */
};

/* What all rules say about one scope. */
struct lg_judgement {
    struct lg_scope scope;
    struct lg_policy_result published; /* the published policy over the scope */
    struct lg_arrivals *arrivals;      /* while the rules run; NULL: those on arrival abstain */
    const char *abstain;               /* why they do, NULL: they don't; static */
    bool brief;    /* findings without evidence and words, no suspects, no frontier */
    bool one_rank; /* rules on recurrence are to speak about rank `only` alone */
    size_t only;   /* index of a compared rank */
    size_t n_findings;
    struct lg_finding *findings; /* owned; the answer's first */
    size_t n_suspects;
    struct lg_suspect *suspects; /* owned; best first */
    struct lg_frontier frontier;
};

/* Runs every rule over the scope. Fills *j: lg_judgement_free(). A brief judgement has the same
 * findings, but of each only what it accuses of; it takes a part of the time. */
void lg_judge(const struct lg_scope *scope, struct lg_cycles *cycles, bool brief,
              struct lg_judgement *j);
void lg_judgement_free(struct lg_judgement *j);
/* The finding that answers for the scope, or NULL: nothing was found, or nothing that may be
 * answered with. */
const struct lg_finding *lg_judgement_answer(const struct lg_judgement *j);
/* Of judgements over the whole run and, brief ones, its tumbling windows (in order, `full` steps
 * each but perhaps the last) the one that the report is about; its first finding is the answer
 * then, with the steps of all windows in a row that agree on it. A window is judged again, in full.
 */
struct lg_judgement *lg_choose_scope(struct lg_judgement *whole, struct lg_judgement *window,
                                     size_t n_windows, size_t full, struct lg_cycles *cycles);

/* ---- rules: append their findings to the judgement ---- */

/* Those that exclude each other; true if the rule spoke. They need j->arrivals. */
bool lg_rule_uneven(struct lg_judgement *j);
bool lg_rule_persistent(struct lg_judgement *j);
bool lg_rule_stretch(struct lg_judgement *j);
bool lg_rule_imbalance(struct lg_judgement *j);
bool lg_rule_periodic(struct lg_judgement *j);
bool lg_rule_pauses(struct lg_judgement *j);
bool lg_rule_sparse(struct lg_judgement *j);
bool lg_rule_rotating(struct lg_judgement *j);
/* Puts one finding in place of those that name all ranks of one host. */
void lg_rule_host_slow(struct lg_judgement *j);
/* Those that always speak; they may find j->arrivals NULL. */
void lg_rule_published(struct lg_judgement *j);
void lg_rule_comm_bound(struct lg_judgement *j);
void lg_rule_sync_bound(struct lg_judgement *j);

/* The published policy over a scope. Fills *result (free it with lg_policy_result_free()). */
void lg_published_run(const struct lg_scope *scope, struct lg_policy_result *result);
/* What it says, "INPUT_STRAGGLER (critical), rank 3"; owned by the caller. */
char *lg_published_text(const struct lg_policy_result *result);

/* ---- parts ---- */

/* True for a finding that names a slow rank, or a slow host, not just below a warning. */
bool lg_names_straggler(const struct lg_finding *finding);
/* What the others wait for the stragglers found so far, ns per step of the scope; 0: for none. */
double lg_waited_for_stragglers(const struct lg_judgement *j);
/* Takes out findings about all ranks that would not be there without the stragglers. */
void lg_mark_explained(struct lg_judgement *j);
/* A rank's part of the step that a bound kind is about: its mean in ms (NAN: not available), and
 * the ns of it that the rank was blocked in collectives (0: not measured). `rank` is an index. */
double lg_bound_part(const struct lg_policy_result *result, size_t rank, enum lg_kind kind);
double lg_bound_sync(const struct lg_judgement *j, size_t rank, enum lg_kind kind);
/* Part of the step that the policy calls computation and that is time blocked in collectives,
 * median rank; NAN: not measured on every rank. `p` is the policy's answer over the scope. */
double lg_compute_wait_share(const struct lg_scope *scope, const struct lg_policy_result *p);

struct lg_finding *lg_add_finding(struct lg_judgement *j, enum lg_kind kind);
void lg_finding_free(struct lg_finding *finding);
struct lg_steps lg_scope_steps(const struct lg_scope *scope);
/* Level, accused rank and stage that a published issue stands for. */
enum lg_level lg_issue_level(const struct lg_policy_issue *issue);
int32_t lg_issue_rank(const struct lg_policy_issue *issue);
enum lg_blame lg_kind_blame(enum lg_kind kind);

/* `published` is the policy's answer over the scope that the report is about. */
void lg_observe(const struct lg_scope *scope, const struct lg_policy_result *published,
                struct lg_diagnosis *d, struct lg_observed *o);
/* Copies of NCCL that the ranks have, and whether all of their calls could be seen: the coverage of
 * collectives where it is more than what `seen` (some rank's were measured) tells; owned by the
 * caller. NULL: nothing to say of copies, `state` is left alone. */
char *lg_nccl_coverage(const struct lg_run *run, bool seen, enum lg_coverage_state *state);
/* What the rules on arrival did not look at, and why. */
void lg_note_arrivals(struct lg_diagnosis *d, const struct lg_cycles *cycles,
                      const struct lg_judgement *whole);
void lg_observed_free(struct lg_observed *o);
void lg_means(const struct lg_aligned *aligned, struct lg_diagnosis *d);
/* The verdict from the judgement that the report is about; its findings go to the diagnosis. */
void lg_decide(struct lg_diagnosis *d, struct lg_judgement *j, const struct lg_observed *o);
/* The verdict in words, where its rule has not said it already; owned by the caller. */
char *lg_sentence(const struct lg_diagnosis *d, const struct lg_judgement *j,
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
