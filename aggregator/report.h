/*
 * report.h - the forms in which a diagnosis leaves the program: text for people, JSON for programs.
 * The writers print what diagnose.h holds and judge nothing themselves. Runs in the reading
 * commands.
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

/* The part of report_text() about who comes late to the collectives; nothing if nobody could tell.
 */
void report_text_arrivals(const struct lg_diagnosis *diagnosis, FILE *out);

#endif
