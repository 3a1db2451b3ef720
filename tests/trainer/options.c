/*
 * options.c - the trainer's command line and its schedule of faults. Context: test program.
 */
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer.h"

#define STAGE_NAME(name) #name,
const char *const stage_names[STAGES] = {TRAINER_STAGES(STAGE_NAME)};

/* Numbers: NUMBER(option, field, default, smallest, meaning) */
#define NUMBERS(NUMBER)                                                                            \
    NUMBER("ranks", ranks, 0, 1,                                                                   \
           "start so many ranks (without it: one rank, RANK and WORLD_SIZE)")                      \
    NUMBER("rank", rank, -1, 0, "internal: be this rank")                                          \
    NUMBER("steps", steps, 60, 1, "training steps")                                                \
    NUMBER("epoch", epoch, 20, 1, "steps of an epoch")                                             \
    NUMBER("buckets", buckets, 4, 1, "gradient all-reduces a step")                                \
    NUMBER("params", params, 1024, 1, "size of the model")                                         \
    NUMBER("batch-bytes", batch_bytes, 65536, 8, "size of a batch")                                \
    NUMBER("launches", launches, 4, 1, "kernel launches of a forward")                             \
    NUMBER("seed", seed, 1, 0, "of data and jitter")                                               \
    NUMBER("input-us", us[STAGE_input], 500, 0, "time of a batch's reads")                         \
    NUMBER("h2d-us", us[STAGE_h2d], 0, 0, "time of its copy on top of its bytes'")                 \
    NUMBER("forward-us", us[STAGE_forward], 2000, 0, "time of a forward")                          \
    NUMBER("backward-us", us[STAGE_backward], 4000, 0, "time of a backward")                       \
    NUMBER("optimizer-us", us[STAGE_optimizer], 500, 0, "time of the optimizer")                   \
    NUMBER("host-us", us[STAGE_host], 0, 0, "time between optimizer and next input")               \
    NUMBER("jitter", jitter, 0, 0, "percent by which stages vary")                                 \
    NUMBER("lengths", lengths, 0, 0,                                                               \
           "percent by which sequence lengths vary: forward, backward, bytes copied")              \
    NUMBER("accumulate", accumulate, 1, 1, "batches of a step")                                    \
    NUMBER("validate", validate, 0, 0, "validation batches after each epoch")

/* FLAG(option, statement, meaning) */
#define FLAGS(FLAG)                                                                                \
    FLAG("prefetch", o->prefetch = true, "a thread reads ahead")                                   \
    FLAG("item", o->item = true, "fetch the loss from the device at each step")                    \
    FLAG("no-env", o->no_env = true, "ranks find no RANK and WORLD_SIZE in their environment")     \
    FLAG("cuda13", o->cuda13 = true, "launch like programs built with CUDA 13")

/* TEXT(option, statement with `text`, argument, meaning) */
#define TEXTS(TEXT)                                                                                \
    TEXT("source", parse_source(o, text), "file|ram|rank0", "where batches come from")             \
    TEXT("checkpoint", parse_checkpoint(o, text), "EVERY:BYTES", "rank 0 writes a file")           \
    TEXT("fault", parse_fault(o, text),                                                            \
         "RANK:STAGE:US[:every=K][:phase=P][:from=A][:to=B][:bucket=N][:rotate]",                  \
         "make a rank (* = all) slow in input, h2d, forward, backward, optimizer or host")         \
    TEXT("dir", o->dir = text, "DIR", "shards and checkpoints (default: a new one, removed)")      \
    TEXT("truth", o->truth = text, "DIR", "write what really happened: rank-R.jsonl")

static void die(const char *what, const char *text)
{
    fprintf(stderr, "trainer: %s '%s'\n", what, text);
    exit(2);
}

static long number(const char *text, long smallest)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (!*text || *end || value < smallest)
        die("not a number in range:", text);
    return value;
}

static void parse_source(struct options *o, const char *text)
{
    static const char *const names[] = {"file", "ram", "rank0"};
    for (unsigned i = 0; i < 3; i++)
        if (!strcmp(text, names[i])) {
            o->source = (enum source)i;
            return;
        }
    die("unknown source", text);
}

static void parse_checkpoint(struct options *o, const char *text)
{
    char end;
    if (sscanf(text, "%ld:%ld%c", &o->checkpoint_every, &o->checkpoint_bytes, &end) != 2 ||
        o->checkpoint_every < 1 || o->checkpoint_bytes < 0)
        die("not EVERY:BYTES:", text);
}

static enum stage parse_stage(const char *name)
{
    for (int i = 0; i < STAGES; i++)
        if (!strcmp(name, stage_names[i]))
            return (enum stage)i;
    die("unknown stage", name);
    return STAGES;
}

static void parse_condition(struct fault *f, const char *word)
{
    if (!strncmp(word, "every=", 6))
        f->every = number(word + 6, 1);
    else if (!strncmp(word, "phase=", 6))
        f->phase = number(word + 6, 0);
    else if (!strncmp(word, "from=", 5))
        f->from = number(word + 5, 0);
    else if (!strncmp(word, "to=", 3))
        f->to = number(word + 3, 0);
    else if (!strncmp(word, "bucket=", 7))
        f->bucket = number(word + 7, 0);
    else if (!strcmp(word, "rotate"))
        f->rotate = true;
    else
        die("unknown condition of a fault:", word);
}

static void parse_fault(struct options *o, const char *text)
{
    if (o->faults == MAX_FAULTS)
        die("too many faults:", text);
    struct fault *f = &o->fault[o->faults++];
    *f = (struct fault){.every = 1, .to = LONG_MAX, .bucket = 1};
    char copy[256], *rest = copy;
    snprintf(copy, sizeof copy, "%s", text);
    const char *rank = strsep(&rest, ":"), *stage = strsep(&rest, ":"), *us = strsep(&rest, ":");
    if (!us)
        die("not RANK:STAGE:US:", text);
    f->rank = strcmp(rank, "*") ? (int)number(rank, 0) : -1;
    f->stage = parse_stage(stage);
    f->us = number(us, 0);
    while (rest)
        parse_condition(f, strsep(&rest, ":"));
}

static void usage(void)
{
    puts("trainer: data-parallel training of a small linear model\n");
#define NUMBER(name, field, otherwise, smallest, meaning)                                          \
    printf("  --%-14s %s (%ld)\n", name, meaning, (long)otherwise);
    NUMBERS(NUMBER)
#undef NUMBER
#define FLAG(name, statement, meaning) printf("  --%-14s %s\n", name, meaning);
    FLAGS(FLAG)
#undef FLAG
#define TEXT(name, statement, argument, meaning)                                                   \
    printf("  --%-14s %s\n  %16s %s\n", name, argument, "", meaning);
    TEXTS(TEXT)
#undef TEXT
    exit(0);
}

static void set_option(struct options *o, const char *name, const char *text)
{
    if (!strcmp(name, "help"))
        usage();
#define NUMBER(option, field, otherwise, smallest, meaning)                                        \
    if (!strcmp(name, option))                                                                     \
        o->field = number(text, smallest);
    NUMBERS(NUMBER)
#undef NUMBER
#define FLAG(option, statement, meaning)                                                           \
    if (!strcmp(name, option))                                                                     \
        statement;
    FLAGS(FLAG)
#undef FLAG
#define TEXT(option, statement, argument, meaning)                                                 \
    if (!strcmp(name, option))                                                                     \
        statement;
    TEXTS(TEXT)
#undef TEXT
}

/* A rank that somebody else started: RANK and WORLD_SIZE tell. */
static void from_environment(struct options *o)
{
    const char *rank = getenv("RANK"), *world = getenv("WORLD_SIZE");
    o->ranks = world ? number(world, 1) : 1;
    o->rank = rank ? number(rank, 0) : 0;
    if (o->ranks > 1 && !o->dir)
        die("ranks started one by one need a common --dir; WORLD_SIZE is", world);
}

struct options parse_options(int argc, char **argv)
{
#define NUMBER(name, field, otherwise, smallest, meaning) {name, required_argument, NULL, 1},
#define FLAG(name, statement, meaning)                    {name, no_argument, NULL, 1},
#define TEXT(name, statement, argument, meaning)          {name, required_argument, NULL, 1},
    static const struct option table[] = {
        NUMBERS(NUMBER) FLAGS(FLAG) TEXTS(TEXT){"help", no_argument, NULL, 1}, {NULL, 0, NULL, 0}};
#undef NUMBER
#undef FLAG
#undef TEXT
    struct options o = {0};
#define NUMBER(name, field, otherwise, smallest, meaning) o.field = otherwise;
    NUMBERS(NUMBER)
#undef NUMBER
    int c, index = 0;
    while ((c = getopt_long(argc, argv, "", table, &index)) != -1) {
        if (c != 1)
            exit(2);
        set_option(&o, table[index].name, optarg);
    }
    if (optind < argc)
        die("unexpected argument", argv[optind]);
    if (o.ranks == 0)
        from_environment(&o);
    if (o.rank >= o.ranks)
        die("no such rank", argv[0]);
    if (o.buckets > o.params || o.batch_bytes / (long)sizeof(float) < o.params + 1)
        die("a batch must hold one sample, a bucket one parameter;", "see --params, --batch-bytes");
    return o;
}

static bool applies(const struct options *o, const struct fault *f, enum stage stage, long rank,
                    long step)
{
    long culprit = f->rotate ? (f->rank + step) % o->ranks : f->rank;
    return f->stage == stage && (f->rank < 0 || culprit == rank) && step >= f->from &&
           step <= f->to && step % f->every == f->phase % f->every;
}

long fault_us(const struct options *o, enum stage stage, long rank, long step)
{
    long us = 0;
    for (int i = 0; i < o->faults; i++)
        if (applies(o, &o->fault[i], stage, rank, step))
            us += o->fault[i].us;
    return us;
}

/* What launches cost before the first all-reduce is forward's for a tracer that sees calls only, so
 * a backward's fault comes before the second one where there is one. */
long bucket_fault_us(const struct options *o, long rank, long step, long bucket)
{
    long us = 0;
    for (int i = 0; i < o->faults; i++) {
        const struct fault *f = &o->fault[i];
        long before = f->bucket < o->buckets ? f->bucket : o->buckets - 1;
        if (before == bucket && applies(o, f, STAGE_backward, rank, step))
            us += f->us;
    }
    return us;
}

/* Log-normal. The same for a step's forward and backward. */
double length_of(const struct options *o, long rank, long step)
{
    uint64_t state = random_seed((uint64_t)o->seed, (uint64_t)rank + 7000, (uint64_t)step);
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += random_unit(&state);
    return exp(sum * (double)o->lengths / 100);
}

long stage_us(const struct options *o, enum stage stage, long rank, long step)
{
    uint64_t state = random_seed((uint64_t)o->seed, (uint64_t)(rank * STAGES + (long)stage),
                                 (uint64_t)step + 1000);
    double swing = (2 * random_unit(&state) - 1) * (double)o->jitter / 100;
    double length =
        stage == STAGE_forward || stage == STAGE_backward ? length_of(o, rank, step) : 1;
    return (long)((double)o->us[stage] * (1 + swing) * length);
}
