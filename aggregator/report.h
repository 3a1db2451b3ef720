/*
 * report.h - the forms in which a diagnosis leaves the program: text for people, JSON for programs,
 * one line for the end of `laggard run`. The writers print what diagnose.h holds and judge nothing
 * themselves. Runs in the reading commands and, for the one line, at the end of `laggard run`.
 */
#ifndef LAGGARD_AGGREGATOR_REPORT_H
#define LAGGARD_AGGREGATOR_REPORT_H

#include <jansson.h>
#include <stdio.h>

#include "aggregator/diagnose.h"

/* Below 80 columns, verdict first; times in ms. */
void report_text(const struct lg_diagnosis *diagnosis, FILE *out);

/* The report of schema/report.schema.json; new reference, NULL when memory is out. */
json_t *report_json(const struct lg_diagnosis *diagnosis);

/*
 * Loads the run and prints one line, "laggard: KIND (severity): sentence", and, where there is one,
 * a second with the next command. Never fails loudly: a run that can't be read gives a line that
 * says why. Returns 0, or -1 when no verdict could be given.
 */
int report_verdict_line(const char *run_dir, FILE *out);

#endif
