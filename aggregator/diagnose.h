/*
 * diagnose.h - what a run's rows say: verdict, findings, the published policy's own answer,
 * windows, means per rank, coverage and losses. It is the content of `laggard report`, in memory;
 * the report writers (text, JSON, HTML) print it and add nothing. Runs in the reading commands.
 *
 * Memory: lg_diagnose() returns a block that owns all it points to; lg_diagnosis_free() frees it.
 * It keeps no pointer into the run: the run may be freed first. Texts without "owned" are static.
 *
 * "Not measured" is LG_NULL in an int64_t, NAN in a double and LG_NO_RANK in a rank: writers print
 * null or "not measured", never 0. Times are ns, shares and scores fractions of 1.
 */
#ifndef LAGGARD_AGGREGATOR_DIAGNOSE_H
#define LAGGARD_AGGREGATOR_DIAGNOSE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aggregator/policy.h"
#include "aggregator/rows.h"

#define LG_NO_RANK (-1)

/* JSON "severity" of verdict, findings and windows. */
enum lg_level { LG_LEVEL_NONE, LG_LEVEL_INFO, LG_LEVEL_WARNING, LG_LEVEL_CRITICAL };
const char *lg_level_name(enum lg_level level);

/* What a verdict or finding accuses: JSON "stage". LG_BLAME_NONE is null, host is column `other`.
 */
#define LG_BLAMES(X)                                                                               \
    X(NONE, NULL)                                                                                  \
    X(INPUT, "input")                                                                              \
    X(H2D, "h2d")                                                                                  \
    X(FORWARD, "forward")                                                                          \
    X(BACKWARD, "backward")                                                                        \
    X(FORWARD_BACKWARD, "forward+backward")                                                        \
    X(OPTIMIZER, "optimizer")                                                                      \
    X(HOST, "host")                                                                                \
    X(SYNC, "sync")
#define LG_BLAME_ENUM(id, text) LG_BLAME_##id,
enum lg_blame { LG_BLAMES(LG_BLAME_ENUM) LG_BLAME_COUNT };
const char *lg_blame_name(enum lg_blame blame); /* NULL for LG_BLAME_NONE */

/* Which rule said it: JSON "policy". */
enum lg_rule { LG_RULE_NONE, LG_RULE_PUBLISHED, LG_RULE_ARRIVAL };
const char *lg_rule_name(enum lg_rule rule); /* NULL for LG_RULE_NONE */

enum lg_recurrence {
    LG_RECURRENCE_NONE, /* null: not looked at, or nothing recurs */
    LG_RECURRENCE_PERSISTENT,
    LG_RECURRENCE_ROTATING,
    LG_RECURRENCE_PERIODIC,
    LG_RECURRENCE_SPARSE
};
const char *lg_recurrence_name(enum lg_recurrence recurrence); /* NULL for none */

/* A list of texts; entries are owned by it. */
struct lg_texts {
    size_t n;
    char **text;
};

/* Step numbers as the training counts them (those of the lowest rank with rows), both included;
 * LG_NULL: there are none. */
struct lg_steps {
    int64_t first, last;
    int64_t count; /* steps that were used between them, 0: none */
};

struct lg_finding {
    enum lg_kind kind;
    enum lg_level level;
    int32_t rank; /* LG_NO_RANK: nobody is accused */
    enum lg_blame stage;
    enum lg_rule rule;
    double score;             /* NAN: none */
    int64_t cost_ns_per_step; /* LG_NULL: none */
    struct lg_steps steps;
    enum lg_recurrence recurrence;
    int64_t period;   /* in steps, LG_NULL unless periodic */
    json_t *evidence; /* object, owned; {} when there is none */
    char *sentence;   /* owned; NULL for findings of the published policy but the verdict's */
    bool ambiguous;   /* names a rank though another explanation fits as well */
    char *settle;     /* what would settle it; owned, NULL unless ambiguous */
};

/* The report's answer: the first finding, or why there is none. */
struct lg_verdict {
    enum lg_kind kind;
    enum lg_level level; /* NONE: BALANCED, or nothing could be judged */
    int32_t rank;
    enum lg_blame stage;
    enum lg_rule rule;
    enum lg_recurrence recurrence;
    int64_t period;
    double score;
    int64_t cost_ns_per_step;
    bool ambiguous;
    struct lg_steps steps;
    char *sentence;        /* owned; one sentence with numbers, ends with a full stop */
    char *published_alone; /* owned; what the published policy alone would have said of these steps,
                              NULL: the same */
    struct lg_texts next;
};

struct lg_suspect {
    int32_t rank;
    enum lg_blame stage;
    int64_t late_ns_per_step;
    int64_t gain_ns_per_step; /* LG_NULL: not known */
    double share;             /* of the scope's time */
};

struct lg_window {
    struct lg_steps steps;
    enum lg_clock clock;
    enum lg_kind kind;
    enum lg_level level;
    int32_t rank;
    enum lg_blame stage;
    double score;
};

/* Means per step over the compared steps in which the column was measured (h2d: a step without a
 * copy is 0 once the rank has copied). */
struct lg_rank_means {
    int32_t rank;
    char host[64];
    enum lg_rank_end end;
    int64_t rows;                  /* all rows of the rank */
    int64_t first_step, last_step; /* of those, LG_NULL: no rows */
    int64_t steps;                 /* compared steps, which the means are over */
    double mean[LG_COLUMNS];       /* unit of the column; NAN: not measured or not loaded */
    double sync_ns;                /* sum of the stages' sync parts */
};

/* Where each ns of the exposed step comes from; n_stages is 0 when it could not be computed. */
struct lg_frontier {
    size_t n_stages;
    const char *stage[12];
    int64_t increment_ns[12]; /* sums over the cycles */
    int32_t leader[12];       /* LG_NO_RANK: co-critical */
    int64_t transfer_ns, exposed_ns;
    int64_t cycles;
};

struct lg_diagnosis {
    /* the run */
    char *dir, *command; /* owned, may be NULL */
    bool running;
    bool device_events; /* some rank was measured by timed events of ours on its device */
    char *outcome;      /* how the command ended, in words; owned; NULL: nothing is known of it */
    bool failed;        /* ... not well, or nobody knows how */
    int exit_status, signal; /* of the command: -1 not known; 0 no signal */
    uint32_t attempts;       /* most processes that were one rank in turn; the newest is reported */
    int32_t world;           /* declared world size, -1: not known */
    enum lg_strategy strategy;
    bool one_process;         /* ... which then means nothing: there is nobody to work with */
    enum lg_clock clock;      /* of `published` */
    size_t n_seen, n_missing; /* ranks with rows; declared ranks without */
    int32_t *seen, *missing;  /* sorted */
    struct lg_steps steps;    /* steps that every compared rank has; count: how many */
    size_t window;            /* steps per window */

    struct lg_verdict verdict;
    size_t n_findings;
    struct lg_finding *findings; /* best first; the verdict's is the first, if it is one */
    size_t n_suspects;
    struct lg_suspect *suspects;       /* best first */
    struct lg_policy_result published; /* the published policy, over the last `window` steps */
    struct lg_steps published_steps;
    double compute_wait_share; /* part of the step that is counted as computation there and is time
                                  blocked in collectives; NAN: not measured */
    size_t n_windows;
    struct lg_window *windows; /* in order of steps */
    size_t n_means;
    struct lg_rank_means *means; /* by rank */
    struct lg_frontier frontier;
    size_t n_coverage;
    struct lg_coverage *coverage;
    size_t n_losses;
    struct lg_loss_entry *losses;
    struct lg_texts notes; /* what was not observed or left out, a clause each */
};

struct lg_diagnose_options {
    size_t window;                 /* steps per window, 0: 100 */
    int64_t first_step, last_step; /* only these, both included; LG_NULL: no limit */
};

/* True for the columns that lg_diagnose() reads: the loader need not load others for a report. */
bool lg_diagnose_needs(enum lg_column column);

/* `options` may be NULL. Never fails: a run without usable rows gets the verdict NO_DATA,
 * INCOMPLETE_DATA or WARMUP. */
struct lg_diagnosis *lg_diagnose(const struct lg_run *run,
                                 const struct lg_diagnose_options *options);
void lg_diagnosis_free(struct lg_diagnosis *diagnosis);

/* A published issue's evidence as the JSON object of the report (new reference). */
json_t *lg_policy_evidence_json(const struct lg_policy_result *result,
                                const struct lg_policy_issue *issue);

#endif
