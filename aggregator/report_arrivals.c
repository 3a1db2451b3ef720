/*
 * report_arrivals.c - the text report's part about who comes late to the collectives: suspects, and
 * where each ms of the step comes from. Runs in a reader.
 */
#include "aggregator/report.h"

#include <math.h>
#include <stdlib.h>

#define BAR           30 /* characters of the longest bar */
#define SHOWN         5  /* suspects */
#define SUSPECT_SHARE 0.02

static void print_ms(FILE *out, int64_t ns)
{
    if (ns == LG_NULL)
        fprintf(out, "%10s", "-");
    else
        fprintf(out, "%10.2f", (double)ns / 1e6);
}

static void print_suspects(const struct lg_diagnosis *d, FILE *out)
{
    for (size_t i = 0; i < d->n_suspects && i < SHOWN; i++) {
        const struct lg_suspect *s = &d->suspects[i];
        const char *stage = lg_blame_name(s->stage);
        if (!(s->share >= SUSPECT_SHARE))
            break;
        if (i == 0)
            fprintf(out,
                    "\nWho makes the others wait, means in ms a step, split by stage\n"
                    "%7s  %-16s%10s%10s%9s\n",
                    "rank", "stage", "late", "to gain", "share");
        fprintf(out, "%7d  %-16s", (int)s->rank, stage ? stage : "-");
        print_ms(out, s->late_ns_per_step);
        print_ms(out, s->gain_ns_per_step);
        fprintf(out, "%8.1f%%\n", 100 * s->share);
    }
}

static void print_line(FILE *out, const char *name, int64_t ns, const struct lg_frontier *f,
                       int32_t leader)
{
    double part = f->exposed_ns > 0 ? (double)ns / (double)f->exposed_ns : 0;
    int bar = (int)lround(part * BAR);
    fprintf(out, "  %-16s%10.2f%8.1f%% ", name, (double)ns / 1e6 / (double)f->cycles, 100 * part);
    for (int i = 0; i < bar; i++)
        fputc('#', out);
    if (leader != LG_NO_RANK)
        fprintf(out, "%srank %d leads", bar ? " " : "", (int)leader);
    fputc('\n', out);
}

static void print_frontier(const struct lg_diagnosis *d, FILE *out)
{
    const struct lg_frontier *f = &d->frontier;
    if (f->n_stages == 0 || f->cycles == 0)
        return;
    fprintf(out, "\nWhere each ms of the step comes from, from collective to collective\n");
    for (size_t i = 0; i < f->n_stages; i++)
        if (f->increment_ns[i] > 0)
            print_line(out, f->stage[i], f->increment_ns[i], f, f->leader[i]);
    print_line(out, "transfer", f->transfer_ns, f, LG_NO_RANK);
    fprintf(out, "  %-16s%10.2f\n", "step", (double)f->exposed_ns / 1e6 / (double)f->cycles);
}

void report_text_arrivals(const struct lg_diagnosis *d, FILE *out)
{
    print_suspects(d, out);
    print_frontier(d, out);
}
