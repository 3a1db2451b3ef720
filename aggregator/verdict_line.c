/*
 * verdict_line.c - the lines that `laggard run` writes at its end: the verdict and the next
 * command. Runs in the recorder after the command has ended, and must not fail loudly there.
 */
#include "aggregator/cmd.h"
#include "aggregator/load.h"

int report_verdict_line(const char *run_dir)
{
    struct error error;
    struct lg_run *run = load_run(run_dir, &error);
    if (!run)
        return -1;
    struct lg_diagnosis *d = lg_diagnose(run, NULL);
    lg_run_free(run);
    const struct lg_verdict *v = &d->verdict;
    if (v->level >= LG_LEVEL_WARNING)
        error_say("", "%s (%s): %s", lg_kind_name(v->kind), lg_level_name(v->level), v->sentence);
    else
        error_say("", "%s: %s", lg_kind_name(v->kind), v->sentence);
    lg_diagnosis_free(d);
    return 0;
}
