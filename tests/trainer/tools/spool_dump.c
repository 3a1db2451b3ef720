/*
 * spool_dump.c - prints spools as JSON lines: one line for the file, then one for each row, in the
 * order in which a reader takes them. Context: test program; so the library's rows can be tested
 * without the programs that read them in earnest.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schema/spool.h"

static const char *const columns[] = {
#define COLUMN(name, table, unit, meaning) #name,
#include "schema/columns.def"
#undef COLUMN
};

static struct lg_spool *load(const char *path)
{
    FILE *f = fopen(path, "rb");
    struct lg_spool *s = malloc(LG_SPOOL_BYTES);
    if (!f || !s || fread(s, LG_SPOOL_BYTES, 1, f) != 1 ||
        memcmp(s->magic, LG_SPOOL_MAGIC, 8) != 0) {
        fprintf(stderr, "spool-dump: not a spool: '%s'\n", path);
        exit(2);
    }
    fclose(f);
    return s;
}

static void print_row(const struct lg_slot *row, const char *from)
{
    printf("{\"from\":\"%s\",\"step\":%llu", from, (unsigned long long)row->step);
    for (int i = 0; i < LG_COLUMNS; i++)
        if (row->value[i] == LG_NULL)
            printf(",\"%s\":null", columns[i]);
        else
            printf(",\"%s\":%lld", columns[i], (long long)row->value[i]);
    puts("}");
}

/* The newer copy of the open row; NULL: never written. */
static const struct lg_slot *newest(const struct lg_slot *copies)
{
    const struct lg_slot *best = copies[0].serial >= copies[1].serial ? &copies[0] : &copies[1];
    return best->serial ? best : NULL;
}

static void dump(const char *path)
{
    struct lg_spool *s = load(path);
    printf("{\"file\":\"%s\",\"pid\":%u,\"rank\":%d,\"world\":%d,\"rank_source\":%u,\"seen\":%u,"
           "\"ended\":%u,\"exit_status\":%u,\"stop_reason\":%u,\"steps_complete\":%llu}\n",
           path, s->pid, s->rank, s->world, s->rank_source, s->seen, s->ended, s->exit_status,
           s->stop_reason, (unsigned long long)s->steps_complete);
    const struct lg_slot *ring = lg_spool_ring(s), *held = lg_spool_held(s);
    uint64_t first = s->head > LG_SLOTS ? s->head - LG_SLOTS : 0;
    for (uint64_t i = first; i < s->head; i++)
        print_row(&ring[i % LG_SLOTS], "ring");
    for (unsigned i = 0; i < s->held_count && i < LG_HELD; i++)
        print_row(&held[i], "held");
    const struct lg_slot *open = newest(lg_spool_provisional(s));
    if (open)
        print_row(open, "provisional");
    free(s);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        dump(argv[i]);
    return 0;
}
