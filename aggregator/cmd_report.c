/*
 * cmd_report.c - `laggard report RUN`: loads a run, has it diagnosed and prints the result.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/cmd.h"
#include "aggregator/json_print.h"
#include "aggregator/load.h"
#include "aggregator/report.h"

static const char help_text[] =
    "usage: laggard report RUN [options]\n"
    "\n"
    "Says which rank is slow, in which stage, how often and what it costs, or why\n"
    "that can't be said. RUN is a run directory or a rank database.\n"
    "\n"
    "  --format text|json       text for people (the default), JSON for programs\n"
    "                           (report.schema.json in share/laggard)\n"
    "  -o FILE, --output FILE   write there instead of to standard output\n"
    "  --window N               steps per window (100)\n"
    "  --steps A:B              only the steps A to B; either may be left out\n"
    "  --fail-on LEVEL          exit status 3 when the verdict is at least this\n"
    "                           severe: warning or critical\n"
    "  -h, --help               this text\n"
    "\n"
    "Exit status: 0; 2 bad usage or unreadable input; 3 see --fail-on.\n";

struct report_options {
    const char *run, *output, *steps;
    bool json;
    enum lg_level fail_on; /* LG_LEVEL_NONE: never */
    struct lg_diagnose_options diagnose;
};

/* A whole number from 0 up to `end` (a character or '\0'); NULL when there is none. */
static const char *take_number(const char *text, char end, int64_t *number)
{
    char *stop;
    if (*text < '0' || *text > '9')
        return NULL;
    errno = 0;
    *number = strtoll(text, &stop, 10);
    return errno || *stop != end ? NULL : stop;
}

static int take_format(struct report_options *o, const char *text, struct error *error)
{
    if (strcmp(text, "html") == 0)
        return error_set(error, "report: --format html is not there yet; text and json are");
    if (strcmp(text, "text") != 0 && strcmp(text, "json") != 0)
        return error_set(error, "report: --format %s: text or json is wanted", text);
    o->json = *text == 'j';
    return 0;
}

static int take_window(struct report_options *o, const char *text, struct error *error)
{
    int64_t number;
    if (!take_number(text, '\0', &number) || number < 1 || number > INT32_MAX)
        return error_set(error, "report: --window %s: a number of steps from 1 on is wanted", text);
    o->diagnose.window = (size_t)number;
    return 0;
}

static int take_steps(struct report_options *o, const char *text, struct error *error)
{
    int64_t *first = &o->diagnose.first_step, *last = &o->diagnose.last_step;
    const char *colon = *text == ':' ? text : take_number(text, ':', first);
    if (!colon || (colon[1] ? !take_number(colon + 1, '\0', last) : *text == ':'))
        return error_set(error, "report: --steps %s: A:B, A: or :B is wanted", text);
    if (*first != LG_NULL && *last != LG_NULL && *first > *last)
        return error_set(error, "report: --steps %s: the first step comes after the last", text);
    return 0;
}

static int take_fail_on(struct report_options *o, const char *text, struct error *error)
{
    for (int level = LG_LEVEL_WARNING; level <= LG_LEVEL_CRITICAL; level++)
        if (strcmp(text, lg_level_name((enum lg_level)level)) == 0)
            o->fail_on = (enum lg_level)level;
    if (o->fail_on == LG_LEVEL_NONE)
        return error_set(error, "report: --fail-on %s: warning or critical is wanted", text);
    return 0;
}

static int take_option(struct report_options *o, int option, struct error *error)
{
    switch (option) {
    case 'f':
        return take_format(o, optarg, error);
    case 'w':
        return take_window(o, optarg, error);
    case 's':
        o->steps = optarg;
        return take_steps(o, optarg, error);
    case 'F':
        return take_fail_on(o, optarg, error);
    default:
        o->output = optarg;
        return 0;
    }
}

/* 0; 1: help was asked for; -1 with a line in error */
static int take_arguments(struct report_options *o, int argc, char **argv, struct error *error)
{
    static const struct option options[] = {{"format", required_argument, NULL, 'f'},
                                            {"output", required_argument, NULL, 'o'},
                                            {"window", required_argument, NULL, 'w'},
                                            {"steps", required_argument, NULL, 's'},
                                            {"fail-on", required_argument, NULL, 'F'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    int option;
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":o:h", options, NULL)) != -1) {
        if (option == 'h')
            return 1;
        if (option == ':')
            return error_set(error, "report: %s wants a value", argv[optind - 1]);
        if (option == '?')
            return error_set(error, "report: unknown option %s (see laggard report --help)",
                             argv[optind - 1]);
        if (take_option(o, option, error))
            return -1;
    }
    if (optind == argc)
        return error_set(error, "report: no RUN given (see laggard report --help)");
    if (optind + 1 < argc)
        return error_set(error, "report: one RUN at a time, not also %s", argv[optind + 1]);
    o->run = argv[optind];
    return 0;
}

static int print_report(const struct lg_diagnosis *d, bool json, FILE *out)
{
    if (!json) {
        report_text(d, out);
        return 0;
    }
    json_t *report = report_json(d);
    /* 15 digits: what a double holds for certain */
    int rc = json_print(report, JSON_INDENT(2) | JSON_REAL_PRECISION(15), out);
    fputc('\n', out);
    json_decref(report);
    return rc;
}

static int write_report(const struct lg_diagnosis *d, const struct report_options *o,
                        struct error *error)
{
    FILE *out = o->output ? fopen(o->output, "we") : stdout;
    if (!out)
        return error_set(error, "%s: %s", o->output, strerror(errno));
    int built = print_report(d, o->json, out);
    int failed = fflush(out) != 0 || ferror(out);
    int reason = errno;
    if (built != 0 && !failed) {
        failed = 1;
        reason = ENOMEM;
    }
    if (o->output && fclose(out) != 0 && !failed) {
        failed = 1;
        reason = errno;
    }
    return failed ? error_set(error, "%s: %s", o->output ? o->output : "standard output",
                              strerror(reason))
                  : 0;
}

/* A range without a step is a slip of the one who asked, not a property of the run. */
static int check_steps(const struct lg_diagnosis *d, const struct lg_run *run,
                       const struct report_options *o, struct error *error)
{
    struct lg_diagnosis *all;
    int64_t first, last, count;
    if (d->steps.count > 0 ||
        (o->diagnose.first_step == LG_NULL && o->diagnose.last_step == LG_NULL))
        return 0;
    all = lg_diagnose(run, NULL);
    first = all->steps.first;
    last = all->steps.last;
    count = all->steps.count;
    lg_diagnosis_free(all);
    return count == 0
               ? 0
               : error_set(error,
                           "report: no step of --steps %s is there: the ranks have the steps "
                           "%lld-%lld in common",
                           o->steps, (long long)first, (long long)last);
}

int cmd_report(int argc, char **argv)
{
    struct report_options o = {.diagnose = {.first_step = LG_NULL, .last_step = LG_NULL}};
    struct error error;
    int rc = take_arguments(&o, argc, argv, &error);
    if (rc > 0) {
        fputs(help_text, stdout);
        return 0;
    }
    struct lg_run *run = rc ? NULL : load_run(o.run, &error);
    if (!run)
        return error_exit(&error);
    struct lg_diagnosis *d = lg_diagnose(run, &o.diagnose);
    rc = check_steps(d, run, &o, &error);
    lg_run_free(run);
    if (rc == 0)
        rc = write_report(d, &o, &error);
    bool reached = o.fail_on != LG_LEVEL_NONE && d->verdict.level >= o.fail_on;
    lg_diagnosis_free(d);
    if (rc)
        return error_exit(&error);
    return reached ? 3 : 0;
}
