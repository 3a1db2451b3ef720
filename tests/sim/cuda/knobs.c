/*
 * knobs.c - how long things take: settings and rules from the environment, for this rank, now.
 * Context: inside the stand-in libcudart, any thread. Read at the first use and again when the rank
 * becomes known; a setting that can't be read ends the process with one line and status 2.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

#define MAX_RULES 64

/* One rule of SIM_RULES: WHAT@RANKS[@WHEN]:EFFECT */
struct rule {
    unsigned int works; /* bits of enum sim_work */
    double from, to;    /* steps, or seconds since the start */
    uint64_t every;     /* 0: each step between; n: each n-th from `from` on */
    enum { ALWAYS, STEPS, SECONDS } when;
    enum { TIMES, PLUS, SET } effect;
    double value; /* factor, or nanoseconds */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_knobs knobs;
static struct rule rules[MAX_RULES];
static size_t rule_count;
static _Atomic int loaded, known_rank = -1;
static _Atomic uint64_t step, collectives;
static uint64_t start_ns;

__attribute__((constructor)) static void remember_start(void)
{
    start_ns = sim_now();
}

static void unreadable(const char *name, const char *text)
{
    fprintf(stderr, "sim: can't read %s=%s\n", name, text);
    _exit(2);
}

/* ---- whose settings */

static int rank_of_environment(void)
{
    static const char *const names[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                        "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);
        if (text && isdigit((unsigned char)*text))
            return atoi(text);
    }
    return -1;
}

static int rank(void)
{
    int r = atomic_load(&known_rank);
    if (r < 0)
        r = rank_of_environment();
    return r < 0 ? 0 : r;
}

API void simRank(int r)
{
    atomic_store(&known_rank, r);
    atomic_store(&loaded, 0);
}

API void simRankFound(int r)
{
    if (atomic_load(&known_rank) < 0 && rank_of_environment() < 0)
        simRank(r);
}

/* ---- single settings */

API double simSetting(const char *name, double otherwise)
{
    const char *text = getenv(name);
    if (!text || !*text)
        return otherwise;
    const char *at = text;
    for (int left = rank();; left--) {
        char *end;
        double value = strtod(at, &end);
        if (end == at || (*end && *end != ',') || value < 0)
            unreadable(name, text);
        if (left <= 0 || !*end)
            return value;
        at = end + 1;
    }
}

/* ---- rules */

/* "3", "0-2", "1,4-6", "*" */
static int has_rank(const char *ranks, int r)
{
    for (const char *at = ranks; *at;) {
        char *end;
        if (*at == '*')
            return 1;
        long from = strtol(at, &end, 10), to = from;
        if (end == at)
            return -1;
        if (*end == '-')
            to = strtol(end + 1, &end, 10);
        if (*end && *end != ',')
            return -1;
        if (from <= r && r <= to)
            return 1;
        at = *end ? end + 1 : end;
    }
    return 0;
}

static unsigned int works_named(const char *name)
{
#define SIM_WORK_ROW(id, text, computing) {text, 1u << SIM_##id, computing},
    static const struct {
        const char *name;
        unsigned int bit;
        int computing;
    } works[] = {SIM_WORKS(SIM_WORK_ROW)};
#undef SIM_WORK_ROW
    unsigned int found = 0;
    for (size_t i = 0; i < sizeof works / sizeof *works; i++)
        if (!strcmp(name, works[i].name) || !strcmp(name, "any") ||
            (works[i].computing && !strcmp(name, "compute")))
            found |= works[i].bit;
    return strcmp(name, "copy") ? found : 1u << SIM_H2D | 1u << SIM_D2H;
}

/* "step20", "step20-40", "step20-", "step0-/10", "time1.5-3" */
static int parse_when(struct rule *rule, char *text)
{
    rule->when = strncmp(text, "step", 4) ? SECONDS : STEPS;
    if (rule->when == SECONDS && strncmp(text, "time", 4))
        return 0;
    char *at = text + 4, *end;
    rule->from = rule->to = strtod(at, &end);
    if (end == at)
        return 0;
    if (*end == '-') {
        at = end + 1;
        rule->to = strtod(at, &end);
        if (end == at)
            rule->to = 1e18;
    }
    if (*end == '/' && rule->when == STEPS) {
        at = end + 1;
        rule->every = strtoull(at, &end, 10);
    }
    return !*end;
}

/* "x3", "+5ms", "10us" */
static int parse_effect(struct rule *rule, char *text)
{
    rule->effect = *text == 'x' ? TIMES : *text == '+' ? PLUS : SET;
    char *at = rule->effect == SET ? text : text + 1, *end;
    rule->value = strtod(at, &end);
    if (end == at || rule->value < 0)
        return 0;
    if (rule->effect == TIMES)
        return !*end;
    double unit = !strcmp(end, "ns")   ? 1
                  : !strcmp(end, "us") ? 1e3
                  : !strcmp(end, "ms") ? 1e6
                  : !strcmp(end, "s")  ? 1e9
                                       : 0;
    rule->value *= unit;
    return unit > 0;
}

/* Reads one rule; keeps it if it is about this rank. Returns 0 if it can't be read. */
static int parse_rule(char *text)
{
    struct rule rule = {.when = ALWAYS};
    char *effect = strchr(text, ':'), *save = NULL;
    if (!effect)
        return 0;
    *effect++ = 0;
    char *what = strtok_r(text, "@", &save);
    char *ranks = strtok_r(NULL, "@", &save), *when = strtok_r(NULL, "@", &save);
    rule.works = what ? works_named(what) : 0;
    int mine = ranks ? has_rank(ranks, rank()) : -1;
    if (!rule.works || mine < 0 || (when && !parse_when(&rule, when)) ||
        !parse_effect(&rule, effect))
        return 0;
    if (mine && rule_count == MAX_RULES)
        return 0;
    if (mine)
        rules[rule_count++] = rule;
    return 1;
}

static void load_rules(void)
{
    const char *text = getenv("SIM_RULES");
    rule_count = 0;
    if (!text)
        return;
    char *copy = strdup(text), *save = NULL;
    for (char *at = strtok_r(copy, "; \n", &save); at; at = strtok_r(NULL, "; \n", &save))
        if (!parse_rule(at))
            unreadable("SIM_RULES", text);
    free(copy);
}

static int applies(const struct rule *rule, enum sim_work work)
{
    if (!(rule->works >> work & 1))
        return 0;
    if (rule->when == SECONDS) {
        double seconds = (double)(sim_now() - start_ns) / 1e9;
        return rule->from <= seconds && seconds < rule->to;
    }
    if (rule->when == ALWAYS)
        return 1;
    uint64_t now = atomic_load(&step);
    if (!now && knobs.step_collectives > 0)
        now = atomic_load(&collectives) / (uint64_t)knobs.step_collectives;
    return rule->from <= (double)now && (double)now <= rule->to &&
           (!rule->every || (now - (uint64_t)rule->from) % rule->every == 0);
}

/* ---- all settings */

static void load(void)
{
    pthread_mutex_lock(&lock);
    if (!atomic_load(&loaded)) {
#define SIM_KNOB_LOAD(field, name, otherwise, unit)                                                \
    knobs.field = simSetting(name, otherwise) * unit;
        SIM_KNOBS(SIM_KNOB_LOAD)
#undef SIM_KNOB_LOAD
        load_rules();
        atomic_store(&loaded, 1);
    }
    pthread_mutex_unlock(&lock);
}

const struct sim_knobs *sim_knobs(void)
{
    if (!atomic_load_explicit(&loaded, memory_order_acquire))
        load();
    return &knobs;
}

int sim_devices(void)
{
    double n = sim_knobs()->devices;
    return n < 0 ? 0 : n > MAX_DEVICES ? MAX_DEVICES : (int)n;
}

API void simStep(uint64_t now)
{
    atomic_store(&step, now);
}

API void simCollectiveIssued(void)
{
    atomic_fetch_add(&collectives, 1);
}

/* ---- durations */

static double at_rate(double fixed_ns, uint64_t bytes, double mbps)
{
    return fixed_ns + (mbps > 0 ? (double)bytes * 1000 / mbps : 0);
}

static double duration(const struct sim_knobs *k, enum sim_work work, uint64_t amount)
{
    switch (work) {
    case SIM_KERNEL:
        return (k->kernel_ns + k->block_ns * (double)amount) * k->factor;
    case SIM_GEMM:
        return k->gemm_ns * k->factor;
    case SIM_MEMSET:
        return k->kernel_ns * k->factor;
    case SIM_D2D:
        return at_rate(k->copy_ns, amount, k->d2d_mbps) * k->factor;
    case SIM_H2D:
    case SIM_D2H:
        return at_rate(k->copy_ns, amount, k->copy_mbps);
    case SIM_NCCL:
        return at_rate(k->nccl_ns, amount, k->nccl_mbps);
    case SIM_PAGEABLE:
        return at_rate(k->pageable_ns, amount, k->pageable_mbps);
    case SIM_HOST_ALLOC:
        return k->host_alloc_ns;
    case SIM_WORK_COUNT:
        break;
    }
    return 0;
}

API uint64_t simDuration(enum sim_work work, uint64_t amount)
{
    const struct sim_knobs *k = sim_knobs();
    double ns = duration(k, work, amount);
    for (const struct rule *r = rules; r < rules + rule_count; r++)
        if (applies(r, work))
            ns = r->effect == TIMES ? ns * r->value : r->effect == PLUS ? ns + r->value : r->value;
    return (uint64_t)(ns + 0.5);
}
