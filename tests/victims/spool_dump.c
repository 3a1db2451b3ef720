/*
 * spool_dump.c - prints spools as JSON, one object a line, for the tests of the library: header,
 * rows of the ring, held rows, provisional copies, workers, groups. A program of the tests' own: it
 * includes the contract (schema/) and neither the library nor the aggregator, so it can't share
 * their mistakes. Expects sound spools; anything else ends it with exit status 2.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "schema/spool.h"

static const char *const names[] = {
#define COLUMN(name, table, unit, meaning) #name,
#include "schema/columns.def"
#undef COLUMN
};

static void print_slot(const struct lg_slot *s, const char *separator)
{
    printf("%s{\"state\": %u, \"serial\": %u, \"step\": %" PRIu64, separator, s->state, s->serial,
           s->step);
    for (int i = 0; i < LG_COLUMNS; i++)
        if (s->value[i] == LG_NULL)
            printf(", \"%s\": null", names[i]);
        else
            printf(", \"%s\": %" PRId64, names[i], s->value[i]);
    printf("}");
}

static void print_slots(const char *key, const struct lg_slot *slots, uint64_t from, uint64_t to,
                        uint64_t room)
{
    printf(", \"%s\": [", key);
    for (uint64_t i = from; i < to; i++)
        print_slot(&slots[i % room], i > from ? ", " : "");
    printf("]");
}

static void print_workers(struct lg_spool *s)
{
    const struct lg_worker *w = lg_spool_workers(s);
    const char *separator = "";
    printf(", \"workers\": [");
    for (unsigned i = 0; i < LG_WORKERS; i++) {
        if (w[i].pid == 0)
            continue;
        printf("%s{\"pid\": %u, \"ended\": %u, \"begin_ns\": %" PRIu64 ", \"reads\": %" PRIu64
               ", \"read_bytes\": %" PRIu64 ", \"read_ns\": %" PRIu64 "}",
               separator, w[i].pid, w[i].ended, w[i].begin_ns, w[i].reads, w[i].read_bytes,
               w[i].read_ns);
        separator = ", ";
    }
    printf("]");
}

static void print_groups(struct lg_spool *s)
{
    const struct lg_group *g = lg_spool_groups(s);
    const char *separator = "";
    printf(", \"groups\": [");
    for (unsigned i = 0; i < LG_GROUPS; i++) {
        if (g[i].id == 0)
            continue;
        printf("%s{\"rank\": %d, \"size\": %d, \"seq\": %" PRIu64 ", \"bytes\": %" PRIu64
               ", \"kind\": %u}",
               separator, g[i].rank, g[i].size, g[i].seq, g[i].bytes, g[i].kind);
        separator = ", ";
    }
    printf("]");
}

static void print_header(const char *path, const struct lg_spool *s)
{
    printf("{\"path\": \"%s\", \"version\": %u, \"columns\": %u, \"file_bytes\": %" PRIu64, path,
           s->version, s->columns, s->file_bytes);
    printf(", \"pid\": %u, \"parent_pid\": %u, \"seq\": %u, \"proc_start\": %" PRIu64, s->pid,
           s->parent_pid, s->seq, s->proc_start);
    printf(", \"host\": \"%s\", \"run_id\": \"%s\", \"torch_path\": \"%s\"", s->host, s->run_id,
           s->torch_path);
    printf(", \"rank\": %d, \"world\": %d, \"local_rank\": %d, \"rank_source\": %u, \"seen\": %u",
           s->rank, s->world, s->local_rank, s->rank_source, s->seen);
    printf(", \"head\": %" PRIu64 ", \"tail\": %" PRIu64 ", \"steps_complete\": %" PRIu64, s->head,
           s->tail, s->steps_complete);
    printf(", \"ended\": %u, \"exit_status\": %u, \"stop_reason\": %u, \"next_file\": %u", s->ended,
           s->exit_status, s->stop_reason, s->next_file);
    printf(", \"stop_step\": %" PRIu64 ", \"rows_lost\": %" PRIu64
           ", \"entries_dropped\": %" PRIu64,
           s->stop_step, s->rows_lost, s->entries_dropped);
}

static int dump(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0 || (uint64_t)st.st_size != LG_SPOOL_BYTES) {
        fprintf(stderr, "spool-dump: %s: not a spool file\n", path);
        return 2;
    }
    struct lg_spool *s = mmap(NULL, LG_SPOOL_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (s == MAP_FAILED || memcmp(s->magic, LG_SPOOL_MAGIC, sizeof s->magic) != 0 ||
        s->head < s->tail || s->head - s->tail > LG_SLOTS || s->held_count > LG_HELD) {
        fprintf(stderr, "spool-dump: %s: not a sound spool\n", path);
        return 2;
    }
    print_header(path, s);
    print_workers(s);
    print_groups(s);
    print_slots("rows", lg_spool_ring(s), s->tail, s->head, LG_SLOTS);
    print_slots("held", lg_spool_held(s), 0, s->held_count, LG_HELD);
    print_slots("provisional", lg_spool_provisional(s), 0, 2, 2);
    printf("}\n");
    munmap(s, LG_SPOOL_BYTES);
    return 0;
}

int main(int argc, char **argv)
{
    int status = 0;
    for (int i = 1; i < argc && status == 0; i++)
        status = dump(argv[i]);
    return status;
}
