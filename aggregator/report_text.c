/*
 * report_text.c - the diagnosis for people, below 80 columns: the verdict, its evidence (stages per
 * rank, windows, shares, findings), what was not observed or lost, what to run next. Runs in a
 * reader.
 */
#include "aggregator/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rankdb.h"

#define WIDTH 79
/* More ranks than this are not all listed: those with the most own time are, then the rest is
 * summed up in the rows for all ranks. */
#define MAX_RANK_ROWS   32
#define SHOWN_OF_MANY   16
#define MAX_WINDOW_ROWS 16
#define MAX_HOSTS       12
#define MAX_LOSS_ROWS   16
/* A cell is marked when it exceeds the median of its column by this part of the median step. */
#define MARK_SHARE 0.05

/* --- words --------------------------------------------------------------------------------- */

/* Command lines and paths land in terminals: no control characters. */
static void print_word(FILE *out, const char *text, int length)
{
    char *word = lg_format("%.*s", length, text);
    error_clean(word);
    fputs(word, out);
    free(word);
}

/* A percent sign stays with its number. */
static int word_length(const char *text)
{
    size_t length = strcspn(text, " \n");
    if (strncmp(text + length, " %", 2) == 0)
        length += 1 + strcspn(text + length + 1, " \n");
    return (int)length;
}

/* Prints words with line breaks before column WIDTH; `indent` is where later lines begin. `end` is
 * what a line that goes on ends with. */
static void wrap_with(FILE *out, int column, int indent, const char *text, const char *end)
{
    int width = WIDTH - (int)strlen(end);
    while (*text) {
        int length = word_length(text);
        if (column > indent && column + 1 + length > width) {
            fprintf(out, "%s\n%*s", end, indent, "");
            column = indent;
        } else if (column > indent) {
            fputc(' ', out);
            column++;
        }
        print_word(out, text, length);
        column += length;
        text += length;
        text += strspn(text, " \n");
    }
    fputc('\n', out);
}

static void wrap(FILE *out, int column, int indent, const char *text)
{
    wrap_with(out, column, indent, text, "");
}

static void heading(FILE *out, const char *text)
{
    fprintf(out, "\n%s\n", text);
}

static void item(FILE *out, const char *text)
{
    fputs("  - ", out);
    wrap(out, 4, 4, text);
}

static void labelled(FILE *out, const char *label, const char *text)
{
    fprintf(out, "%-9s", label);
    wrap(out, 9, 9, text);
}

/* "0, 1, 5-9" into a new string. */
static char *rank_list(const int32_t *rank, size_t n)
{
    char *list = lg_strdup("");
    for (size_t i = 0; i < n;) {
        size_t end = i;
        while (end + 1 < n && rank[end + 1] == rank[end] + 1)
            end++;
        char *longer = end > i + 1 ? lg_format("%s%s%d-%d", list, i ? ", " : "", rank[i], rank[end])
                                   : lg_format("%s%s%d", list, i ? ", " : "", rank[i]);
        free(list);
        list = longer;
        i = end > i + 1 ? end + 1 : i + 1;
    }
    return list;
}

static char *steps_text(const struct lg_steps *s)
{
    if (s->count == 0 || s->first == LG_NULL)
        return lg_strdup("none");
    return s->first == s->last ? lg_format("%lld", (long long)s->first)
                               : lg_format("%lld-%lld", (long long)s->first, (long long)s->last);
}

/* --- head ---------------------------------------------------------------------------------- */

static void print_verdict(const struct lg_diagnosis *d, FILE *out)
{
    const struct lg_verdict *v = &d->verdict;
    char *line =
        v->level >= LG_LEVEL_WARNING
            ? lg_format("%s (%s): %s", lg_kind_name(v->kind), lg_level_name(v->level), v->sentence)
            : lg_format("%s: %s", lg_kind_name(v->kind), v->sentence);
    wrap(out, 0, 0, line);
    free(line);
    if (v->ambiguous)
        wrap(out, 0, 0, "(Ambiguous: the evidence fits another explanation as well.)");
    if (v->published_alone) {
        line = lg_format("(The published policy alone: %s.)", v->published_alone);
        wrap(out, 0, 0, line);
        free(line);
    }
    if (d->running)
        wrap(out, 0, 0, "(So far: the run is still in progress.)");
    if (d->failed) {
        line = lg_format(d->exit_status < 0 ? "(How the command ended is %s.)"
                                            : "(The command failed: %s.)",
                         d->outcome);
        wrap(out, 0, 0, line);
        free(line);
    }
    fputc('\n', out);
}

static void print_ranks_line(const struct lg_diagnosis *d, FILE *out)
{
    size_t world = d->world > 0 ? (size_t)d->world : d->n_seen + d->n_missing;
    char *missing = rank_list(d->missing, d->n_missing);
    char *line = d->n_missing ? lg_format("%zu of %zu; without rows: rank%s %s", d->n_seen, world,
                                          d->n_missing > 1 ? "s" : "", missing)
                              : lg_format("%zu of %zu", d->n_seen, world);
    labelled(out, "Ranks", line);
    free(line);
    free(missing);
}

/* Which ranks are on which host, when there are several. Ranks of a host mostly follow each other.
 */
static void print_hosts(const struct lg_diagnosis *d, FILE *out)
{
    char *line = lg_strdup("");
    size_t blocks = 0;
    for (size_t i = 0, next; i < d->n_means && blocks <= MAX_HOSTS; i = next) {
        const struct lg_rank_means *m = &d->means[i];
        for (next = i + 1; next < d->n_means && strcmp(d->means[next].host, m->host) == 0;)
            next++;
        char *longer =
            blocks++ == MAX_HOSTS
                ? lg_format("%s, ...", line)
                : lg_format("%s%s%s (%d-%d)", line, i ? ", " : "", *m->host ? m->host : "unknown",
                            (int)m->rank, (int)d->means[next - 1].rank);
        free(line);
        line = longer;
    }
    if (blocks > 1)
        labelled(out, "Hosts", line);
    free(line);
}

static void print_head(const struct lg_diagnosis *d, FILE *out)
{
    if (d->dir && d->attempts > 1) {
        char *dir = lg_format("%s (attempt %u; WHERE attempt >= 0 shows all of them)", d->dir,
                              (unsigned)d->attempts);
        labelled(out, "Run", dir);
        free(dir);
    } else if (d->dir) {
        labelled(out, "Run", d->dir);
    }
    if (d->command && *d->command)
        labelled(out, "Command", d->command);
    print_ranks_line(d, out);
    print_hosts(d, out);
    char *steps = steps_text(&d->steps);
    char *line = lg_format("%s (%lld%s, in windows of %zu); %s clock, %s%s", steps,
                           (long long)d->steps.count, d->one_process ? "" : " common", d->window,
                           d->clock == LG_CLOCK_GPU ? "device" : "host",
                           d->one_process ? "one process" : "strategy ",
                           d->one_process ? "" : lg_strategy_name(d->strategy));
    labelled(out, "Steps", line);
    if (d->device_events)
        labelled(out, "Device", "measured by timed events of our own on the compute stream");
    free(line);
    free(steps);
}

/* --- table of stages ----------------------------------------------------------------------- */

/* One clock's columns: a stage's own time is the stage without its sync part. */
struct clock_columns {
    const char *title;
    int dur, stage[LG_STAGE_COUNT], sync[LG_STAGE_COUNT], compute; /* compute -1: none */
};

#define STAGE_COLUMN(name)     LG_COL_##name##_ns,
#define SYNC_COLUMN(name)      LG_COL_##name##_sync_ns,
#define GPU_STAGE_COLUMN(name) LG_COL_gpu_##name##_ns,
#define GPU_SYNC_COLUMN(name)  LG_COL_gpu_##name##_sync_ns,
static const struct clock_columns clocks[] = {
    {"Stages on the host, own time in ms a step; sync: blocked in collectives",
     LG_COL_dur_ns,
     {LG_STAGES(STAGE_COLUMN)},
     {LG_STAGES(SYNC_COLUMN)},
     LG_COL_compute_ns},
    {"Stages on the device, own time in ms a step; sync: standing still for others",
     LG_COL_gpu_dur_ns,
     {LG_STAGES(GPU_STAGE_COLUMN)},
     {LG_STAGES(GPU_SYNC_COLUMN)},
     -1},
};

/* The cells of a row, in print order: step, stages, sync; NAN is not measured. */
enum { CELL_STEP, CELL_STAGE, CELL_SYNC = CELL_STAGE + LG_STAGE_COUNT, CELLS };

struct stage_row {
    int32_t rank;
    double cell[CELLS]; /* ns */
};

struct stage_table {
    const struct clock_columns *clock;
    bool merged; /* forward and backward can't be told apart: forward's column shows their sum */
    size_t n;
    struct stage_row *rows;
    double median[CELLS];
};

static double own_time(const struct lg_rank_means *m, int stage, int sync)
{
    return isnan(m->mean[sync]) ? m->mean[stage] : m->mean[stage] - m->mean[sync];
}

/* Sum of what is there; NAN when nothing is. */
static double sum_measured(double a, double b)
{
    if (isnan(a))
        return b;
    return isnan(b) ? a : a + b;
}

static struct stage_row stage_row(const struct lg_rank_means *m, const struct clock_columns *clock,
                                  bool merged)
{
    struct stage_row row = {.rank = m->rank};
    row.cell[CELL_STEP] = m->mean[clock->dur];
    row.cell[CELL_SYNC] = NAN;
    for (int s = 0; s < LG_STAGE_COUNT; s++) {
        row.cell[CELL_STAGE + s] = own_time(m, clock->stage[s], clock->sync[s]);
        row.cell[CELL_SYNC] = sum_measured(row.cell[CELL_SYNC], m->mean[clock->sync[s]]);
    }
    if (merged) {
        double sync = sum_measured(m->mean[clock->sync[LG_STAGE_forward]],
                                   m->mean[clock->sync[LG_STAGE_backward]]);
        double compute = m->mean[clock->compute];
        row.cell[CELL_STAGE + LG_STAGE_forward] = isnan(sync) ? compute : compute - sync;
        row.cell[CELL_STAGE + LG_STAGE_backward] = NAN;
    }
    return row;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Collects the measured values of a column; returns how many. */
static size_t column_values(const struct stage_table *t, int cell, double *values)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++)
        if (!isnan(t->rows[i].cell[cell]))
            values[n++] = t->rows[i].cell[cell];
    return n;
}

static void fill_medians(struct stage_table *t)
{
    double *values = lg_alloc(t->n, sizeof(*values));
    for (int c = 0; c < CELLS; c++) {
        size_t n = column_values(t, c, values);
        qsort(values, n, sizeof(*values), by_value);
        t->median[c] = n ? (values[(n - 1) / 2] + values[n / 2]) / 2 : NAN;
    }
    free(values);
}

static bool any_mean(const struct lg_diagnosis *d, int column)
{
    for (size_t i = 0; column >= 0 && i < d->n_means; i++)
        if (!isnan(d->means[i].mean[column]))
            return true;
    return false;
}

static void make_table(const struct lg_diagnosis *d, const struct clock_columns *clock,
                       struct stage_table *t)
{
    memset(t, 0, sizeof(*t));
    t->clock = clock;
    t->merged = any_mean(d, clock->compute) && !any_mean(d, clock->stage[LG_STAGE_forward]) &&
                !any_mean(d, clock->stage[LG_STAGE_backward]);
    t->rows = lg_alloc(d->n_means, sizeof(*t->rows));
    for (size_t i = 0; i < d->n_means; i++)
        if (d->means[i].steps > 0)
            t->rows[t->n++] = stage_row(&d->means[i], clock, t->merged);
    fill_medians(t);
}

static void print_number(FILE *out, double ns, char mark)
{
    if (isnan(ns)) {
        fprintf(out, "%8s ", "-");
    } else {
        double ms = ns / 1e6;
        fprintf(out, "%8.*f%c", fabs(ms) < 10000 ? 2 : 0, ms, mark);
    }
}

static bool stands_out(const struct stage_table *t, const struct stage_row *row, int cell)
{
    bool stage = cell >= CELL_STAGE && cell < CELL_SYNC;
    return stage && t->n > 1 &&
           row->cell[cell] - t->median[cell] > MARK_SHARE * t->median[CELL_STEP];
}

/* Returns whether a cell was marked. */
static bool print_row(FILE *out, const struct stage_table *t, const struct stage_row *row,
                      bool accused)
{
    bool marked = false;
    fprintf(out, "%c%6d", accused ? '>' : ' ', (int)row->rank);
    for (int c = 0; c < CELLS; c++) {
        if (t->merged && c == CELL_STAGE + LG_STAGE_backward)
            continue;
        bool mark = stands_out(t, row, c);
        marked |= mark;
        print_number(out, row->cell[c], mark ? '<' : ' ');
    }
    fputc('\n', out);
    return marked;
}

static void print_table_head(FILE *out, const struct stage_table *t)
{
    static const char *const names[CELLS] = {"step",     "input", "h2d",   "forward",
                                             "backward", "optim", "other", "sync"};
    heading(out, t->clock->title);
    fprintf(out, "%7s", "rank");
    for (int c = 0; c < CELLS; c++) {
        if (t->merged && c == CELL_STAGE + LG_STAGE_backward)
            continue;
        fprintf(out, "%8s ",
                t->merged && c == CELL_STAGE + LG_STAGE_forward ? "fwd+bwd" : names[c]);
    }
    fputc('\n', out);
}

/* Rows over all ranks: the mean, and how far the ranks lie apart (standard deviation / mean). */
static void print_totals(FILE *out, const struct stage_table *t)
{
    double *values = lg_alloc(t->n, sizeof(*values));
    double mean[CELLS], cov[CELLS];
    for (int c = 0; c < CELLS; c++) {
        size_t n = column_values(t, c, values);
        double sum = 0, squares = 0;
        for (size_t i = 0; i < n; i++)
            sum += values[i];
        mean[c] = n ? sum / (double)n : NAN;
        for (size_t i = 0; i < n; i++)
            squares += (values[i] - mean[c]) * (values[i] - mean[c]);
        cov[c] = n && mean[c] > 0 ? 100 * sqrt(squares / (double)n) / mean[c] : NAN;
    }
    free(values);
    for (int line = 0; line < 2; line++) {
        fprintf(out, "%7s", line ? "spread" : "*");
        for (int c = 0; c < CELLS; c++) {
            if (t->merged && c == CELL_STAGE + LG_STAGE_backward)
                continue;
            if (line == 0)
                print_number(out, mean[c], ' ');
            else if (isnan(cov[c]))
                fprintf(out, "%8s ", "-");
            else
                fprintf(out, "%7.1f%% ", cov[c]);
        }
        fputc('\n', out);
    }
}

/* Own time of the step: what the rank did itself. The victims' sync is not part of it. */
static double own_step(const struct stage_row *row)
{
    return isnan(row->cell[CELL_SYNC]) ? row->cell[CELL_STEP]
                                       : row->cell[CELL_STEP] - row->cell[CELL_SYNC];
}

static int by_own_step(const void *a, const void *b)
{
    const struct stage_row *x = a, *y = b;
    double ox = own_step(x), oy = own_step(y);
    if (ox > oy || ox < oy)
        return ox < oy ? 1 : -1;
    return x->rank - y->rank;
}

static void print_stages(const struct lg_diagnosis *d, const struct clock_columns *clock, FILE *out)
{
    struct stage_table t;
    make_table(d, clock, &t);
    if (t.n > 0 && !isnan(t.median[CELL_STEP])) {
        bool many = t.n > MAX_RANK_ROWS, marked = false;
        if (many)
            qsort(t.rows, t.n, sizeof(*t.rows), by_own_step);
        print_table_head(out, &t);
        for (size_t i = 0; i < (many ? SHOWN_OF_MANY : t.n); i++)
            marked |= print_row(out, &t, &t.rows[i], t.rows[i].rank == d->verdict.rank);
        if (many) {
            fprintf(out, "%7s (%zu more ranks, by own time; all: --format json)\n", "...",
                    t.n - SHOWN_OF_MANY);
        }
        if (t.n > 1)
            print_totals(out, &t);
        fprintf(out, "%s-: not measured\n",
                t.n > 1 ? "*: mean of all ranks; spread: standard deviation / mean; " : "");
        if (marked)
            fprintf(out, "<: above the median rank by more than 5 %% of a step\n");
    }
    free(t.rows);
}

/* --- findings ------------------------------------------------------------------------------ */

static void print_evidence_value(FILE *out, const json_t *value);

/* "key value, key value" */
static void print_pairs(FILE *out, const json_t *object)
{
    const char *key, *comma = "";
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        fprintf(out, "%s%s ", comma, key);
        print_evidence_value(out, value);
        comma = ", ";
    }
}

static void print_list(FILE *out, const json_t *array)
{
    size_t i;
    json_t *value;
    json_array_foreach(array, i, value)
    {
        fputs(i ? ", " : "", out);
        print_evidence_value(out, value);
    }
}

static void print_evidence_value(FILE *out, const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_REAL:
        fprintf(out, "%.4g", json_real_value(value));
        break;
    case JSON_INTEGER:
        fprintf(out, "%lld", (long long)json_integer_value(value));
        break;
    case JSON_STRING:
        fputs(json_string_value(value), out);
        break;
    case JSON_OBJECT:
    case JSON_ARRAY:
        fputc('(', out);
        json_is_object(value) ? print_pairs(out, value) : print_list(out, value);
        fputc(')', out);
        break;
    case JSON_NULL:
        fputs("not measured", out);
        break;
    default:
        fputs(json_is_true(value) ? "yes" : "no", out);
    }
}

static void print_evidence(FILE *out, const json_t *evidence)
{
    char *text = NULL;
    size_t size = 0;
    FILE *memory = json_object_size(evidence) ? open_memstream(&text, &size) : NULL;
    if (!memory)
        return;
    print_pairs(memory, evidence);
    fclose(memory);
    fputs("    ", out);
    wrap(out, 4, 4, text);
    free(text);
}

/* "KIND (warning), rank 2, forward, score 0.31, steps 0-99" */
static char *accusation(enum lg_kind kind, enum lg_level level, int32_t rank, enum lg_blame stage,
                        double score)
{
    char *who = rank == LG_NO_RANK ? lg_strdup("") : lg_format(", rank %d", rank);
    char *number = isnan(score) ? lg_strdup("") : lg_format(", score %.2f", score);
    const char *where = lg_blame_name(stage);
    char *text = lg_format("%s (%s)%s%s%s%s", lg_kind_name(kind), lg_level_name(level), who,
                           where ? ", " : "", where ? where : "", number);
    free(who);
    free(number);
    return text;
}

static void print_findings(const struct lg_diagnosis *d, FILE *out)
{
    if (d->n_findings)
        heading(out, "Findings");
    for (size_t i = 0; i < d->n_findings; i++) {
        const struct lg_finding *f = &d->findings[i];
        char *what = accusation(f->kind, f->level, f->rank, f->stage, f->score);
        char *steps = steps_text(&f->steps);
        char *line = f->steps.count ? lg_format("%s, steps %s", what, steps) : lg_strdup(what);
        item(out, line);
        if (f->sentence && i > 0) { /* the first one's is the verdict's */
            fputs("    ", out);
            wrap(out, 4, 4, f->sentence);
        }
        print_evidence(out, f->evidence);
        free(line);
        free(steps);
        free(what);
    }
}

/* --- windows and shares -------------------------------------------------------------------- */

static bool same_answer(const struct lg_window *a, const struct lg_window *b)
{
    return a->kind == b->kind && a->level == b->level && a->rank == b->rank && a->stage == b->stage;
}

/* Neighbours with the same answer share a line: what matters is where the answer changes. */
static void print_windows(const struct lg_diagnosis *d, FILE *out)
{
    size_t lines = 0;
    if (d->n_windows)
        heading(out, "Windows");
    for (size_t i = 0, next; i < d->n_windows; i = next) {
        const struct lg_window *w = &d->windows[i];
        for (next = i + 1; next < d->n_windows && same_answer(w, &d->windows[next]);)
            next++;
        if (lines++ == MAX_WINDOW_ROWS) {
            fprintf(out, "  ... (%zu more windows: --format json)\n", d->n_windows - i);
            return;
        }
        struct lg_steps range = {w->steps.first, d->windows[next - 1].steps.last, 1};
        char *steps = steps_text(&range);
        char *what =
            accusation(w->kind, w->level, w->rank, w->stage, next - i > 1 ? NAN : w->score);
        char *line = next - i > 1 ? lg_format("%s (%zu windows)", what, next - i) : lg_strdup(what);
        fprintf(out, "  %-17s  ", steps);
        wrap(out, 21, 21, line);
        free(line);
        free(what);
        free(steps);
    }
}

/* "", " (31.2 % of the step blocked in collectives)": what is counted as computation holds waiting.
 */
static char *waiting_words(const struct lg_diagnosis *d)
{
    if (!isnan(d->compute_wait_share) && d->published.n_ranks > 1)
        return lg_format(" (of the step %.1f %% is waiting in collectives there)",
                         100 * d->compute_wait_share);
    return lg_strdup(d->published.n_ranks > 1 ? " (waits in collectives included: not told apart)"
                                              : "");
}

static void print_shares(const struct lg_diagnosis *d, FILE *out)
{
    const struct lg_policy_result *p = &d->published;
    static const char *const names[LG_SHARE_COUNT] = {"input", "h2d", "compute", "residual"};
    if (p->steps_used == 0)
        return;
    char *steps = steps_text(&d->published_steps), *waiting = waiting_words(d);
    fprintf(out, "\nShares of the step, median rank, last window: steps %s (%s clock):\n  ", steps,
            p->clock == LG_CLOCK_GPU ? "device" : "host");
    char *line = lg_strdup("");
    for (int s = 0; s < LG_SHARE_COUNT; s++) {
        char *share = isnan(p->share[s]) ? lg_strdup("-") : lg_format("%.1f %%", 100 * p->share[s]);
        char *longer = lg_format("%s%s%s %s%s", line, s ? ", " : "", names[s], share,
                                 s == LG_SHARE_compute && !isnan(p->share[s]) ? waiting : "");
        free(line);
        free(share);
        line = longer;
    }
    wrap(out, 2, 2, line);
    free(line);
    free(waiting);
    free(steps);
}

/* --- what is there, and what not
 * --------------------------------------------------------------------- */

/* What was observed and is worth a line. */
static void print_observed(const struct lg_diagnosis *d, FILE *out)
{
    bool head = false;
    for (size_t i = 0; i < d->n_coverage; i++) {
        const struct lg_coverage *c = &d->coverage[i];
        if (c->state != LG_OBSERVED || !*c->why)
            continue;
        if (!head)
            heading(out, "Observed");
        head = true;
        char *line = lg_format("%s: %s", c->name, c->why);
        item(out, line);
        free(line);
    }
}

static void print_not_observed(const struct lg_diagnosis *d, FILE *out)
{
    bool head = false;
    for (size_t i = 0; i < d->n_coverage; i++) {
        const struct lg_coverage *c = &d->coverage[i];
        if (c->state == LG_OBSERVED)
            continue;
        if (!head)
            heading(out, "Not observed");
        head = true;
        char *line = lg_format("%s%s%s%s", c->name, c->state == LG_PARTIAL ? " (in part)" : "",
                               *c->why ? ": " : "", c->why);
        item(out, line);
        free(line);
    }
    for (size_t i = 0; i < d->notes.n; i++) {
        if (!head)
            heading(out, "Not observed");
        head = true;
        item(out, d->notes.text[i]);
    }
}

/* The ranks from losses[first] on that have the same text, as "rank 3" or "ranks 0-3, 7"; marks
 * them as said. */
static char *losers(const struct lg_diagnosis *d, size_t first, bool *said)
{
    int32_t *rank = lg_alloc(d->n_losses, sizeof(*rank));
    size_t n = 0;
    for (size_t i = first; i < d->n_losses; i++)
        if (!said[i] && strcmp(d->losses[i].text, d->losses[first].text) == 0) {
            said[i] = true;
            rank[n++] = d->losses[i].rank;
        }
    char *list = rank_list(rank, n);
    char *text = lg_format("rank%s %s: ", n > 1 ? "s" : "", list);
    free(list);
    free(rank);
    return text;
}

static void print_losses(const struct lg_diagnosis *d, FILE *out)
{
    bool *said = lg_alloc(d->n_losses, sizeof(*said));
    size_t lines = 0;
    if (d->n_losses)
        heading(out, "Lost or missing");
    for (size_t i = 0; i < d->n_losses; i++) {
        if (said[i])
            continue;
        if (lines++ == MAX_LOSS_ROWS) {
            fprintf(out, "  ... (more: --format json)\n");
            break;
        }
        char *who = d->losses[i].rank == LG_NO_RANK ? lg_strdup("") : losers(d, i, said);
        char *line = lg_format("%s%s", who, d->losses[i].text);
        item(out, line);
        free(line);
        free(who);
    }
    free(said);
}

static bool is_command(const char *text)
{
    return strncmp(text, "laggard ", 8) == 0 || strncmp(text, "nsys ", 5) == 0;
}

/* Commands can be copied as they stand: a backslash ends a line of theirs that goes on, between
 * double quotes as well. */
static void print_next(const struct lg_diagnosis *d, FILE *out)
{
    if (d->verdict.next.n)
        heading(out, "Next");
    for (size_t i = 0; i < d->verdict.next.n; i++) {
        const char *text = d->verdict.next.text[i];
        fputs("  - ", out);
        wrap_with(out, 4, 4, text, is_command(text) ? " \\" : "");
    }
}

void report_text(const struct lg_diagnosis *d, FILE *out)
{
    print_verdict(d, out);
    print_head(d, out);
    for (size_t c = 0; c < sizeof(clocks) / sizeof(clocks[0]); c++)
        print_stages(d, &clocks[c], out);
    print_shares(d, out);
    report_text_arrivals(d, out);
    print_windows(d, out);
    print_findings(d, out);
    print_observed(d, out);
    print_not_observed(d, out);
    print_losses(d, out);
    print_next(d, out);
}
