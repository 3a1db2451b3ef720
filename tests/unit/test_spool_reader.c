/*
 * test_spool_reader.c - a spool is read as schema/spool.h says, and whatever else a file may hold
 * is refused or skipped.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "aggregator/spool_reader.h"
#include "tests/unit/spool_writer.h"

static char dir[64];
static char path[256];
static struct process_id writer;

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/laggard-test-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    writer = writer_nobody();
    writer_name(path, sizeof(path), dir, &writer, 0);
    return 0;
}

static int remove_dir(void **state)
{
    char command[100];
    (void)state;
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    return system(command);
}

static struct lg_spool *new_spool(void)
{
    return writer_open(dir, &writer, 0, 2, 4);
}

static struct spool open_spool(int writable)
{
    struct error error = {""};
    struct spool spool;
    if (spool_open(&spool, path, writable, &error) != SPOOL_OPENED)
        fail_msg("%s", error.text);
    return spool;
}

struct rows {
    int64_t n, step[3 * LG_SLOTS];
    int64_t stop_at; /* fails at this many rows, 0: never */
};

static int take(void *context, int64_t step, int64_t value[LG_COLUMNS])
{
    struct rows *rows = context;
    if (rows->stop_at && rows->n + 1 == rows->stop_at)
        return -1;
    assert_true(rows->n < 3 * LG_SLOTS);
    assert_true(step >= 0);
    assert_true(value[LG_COL_dur_ns] == LG_NULL || value[LG_COL_dur_ns] >= 0);
    rows->step[rows->n++] = step;
    return 0;
}

static struct rows *no_rows(void)
{
    static struct rows rows;
    memset(&rows, 0, sizeof(rows));
    return &rows;
}

/* ---- what a good spool says ---- */

static int check_row(void *context, int64_t step, int64_t value[LG_COLUMNS])
{
    int64_t *next = context;
    assert_int_equal(step, *next);
    for (int c = 0; c < LG_COLUMNS; c++)
        assert_int_equal(value[c], writer_value(step, c));
    ++*next;
    return 0;
}

static void test_rows(void **state)
{
    struct lg_spool *w = new_spool();
    struct spool_pass pass;
    int64_t next = 0;
    (void)state;
    for (int step = 0; step < 100; step++)
        assert_int_equal(writer_row(w, step, LG_SLOT_COMPLETE), 1);
    struct spool spool = open_spool(1);
    spool_ready_rows(&spool, spool_tail(&spool), 0, check_row, &next, &pass);
    assert_int_equal(next, 100);
    assert_int_equal(pass.rows, 100);
    assert_int_equal(pass.damaged, 0);
    assert_int_equal(w->tail, 0); /* not before they are durable */
    spool_release(&spool, pass.tail);
    assert_int_equal(w->tail, 100);
    spool_close(&spool);
    writer_close(w);
}

/* Round the ring more than once. */
static void test_ring(void **state)
{
    struct lg_spool *w = new_spool();
    struct spool spool = open_spool(1);
    struct spool_pass pass;
    int64_t next = 0, step = 0;
    (void)state;
    while (step < 3 * (int64_t)LG_SLOTS) {
        while (writer_row(w, step, LG_SLOT_COMPLETE))
            step++;
        spool_ready_rows(&spool, spool_tail(&spool), 0, check_row, &next, &pass);
        spool_release(&spool, pass.tail);
        assert_int_equal(next, step);
    }
    spool_close(&spool);
    writer_close(w);
}

/* Device times may still arrive: wait for them, but not for ever. */
static void test_patience(void **state)
{
    struct lg_spool *w = new_spool();
    struct spool spool = open_spool(1);
    struct spool_pass pass;
    struct rows *rows = no_rows();
    (void)state;
    writer_row(w, 0, LG_SLOT_COMPLETE);
    writer_row(w, 1, LG_SLOT_HOST_DONE);
    writer_row(w, 2, LG_SLOT_COMPLETE);
    spool_ready_rows(&spool, 0, 0, take, rows, &pass);
    assert_int_equal(rows->n, 1); /* in order: not step 2 without step 1 */
    spool_ready_rows(&spool, 0, 1, take, no_rows(), &pass);
    assert_int_equal(pass.rows, 3);
    for (int step = 3; step < 1 + SPOOL_PATIENCE; step++)
        writer_row(w, step, LG_SLOT_COMPLETE);
    spool_ready_rows(&spool, 0, 0, take, no_rows(), &pass);
    assert_int_equal(pass.rows, 1);
    writer_row(w, 1 + SPOOL_PATIENCE, LG_SLOT_COMPLETE);
    spool_ready_rows(&spool, 0, 0, take, no_rows(), &pass);
    assert_int_equal(pass.rows, 2 + SPOOL_PATIENCE);
    spool_close(&spool);
    writer_close(w);
}

static int look_at_device(void *context, int64_t step, int64_t value[LG_COLUMNS])
{
    (void)step;
    *(int64_t *)context = value[LG_COL_gpu_forward_ns];
    return 0;
}

static void test_half_device_row(void **state)
{
    struct lg_spool *w = new_spool();
    struct spool spool = open_spool(1);
    struct spool_pass pass;
    int64_t seen = 0;
    (void)state;
    writer_row(w, 0, LG_SLOT_HOST_DONE);
    lg_spool_ring(w)[0].value[LG_COL_gpu_forward_ns] = 77;
    spool_ready_rows(&spool, 0, 1, look_at_device, &seen, &pass);
    assert_true(seen == LG_NULL);
    lg_spool_ring(w)[0].state = LG_SLOT_COMPLETE;
    spool_ready_rows(&spool, 0, 1, look_at_device, &seen, &pass);
    assert_int_equal(seen, 77);
    spool_close(&spool);
    writer_close(w);
}

static void test_last_rows(void **state)
{
    struct lg_spool *w = new_spool();
    struct spool spool = open_spool(1);
    struct spool_pass pass;
    struct rows *rows = no_rows();
    int64_t step, value[LG_COLUMNS];
    (void)state;
    assert_int_equal(spool_provisional_row(&spool, &step, value), 0);
    writer_held(w, 5, 3);
    spool_held_rows(&spool, take, rows, &pass);
    assert_int_equal(rows->n, 3);
    assert_int_equal(rows->step[2], 7);
    writer_provisional(w, 8);
    writer_provisional(w, 9);
    assert_int_equal(spool_provisional_row(&spool, &step, value), 1);
    assert_int_equal(step, 9);
    assert_int_equal(value[LG_COL_flags], LG_FLAG_provisional);
    /* killed while the newer copy was written: the older one stands */
    struct lg_slot *copy = lg_spool_provisional(w);
    copy[copy[0].serial > copy[1].serial ? 0 : 1].state = LG_SLOT_OPEN;
    assert_int_equal(spool_provisional_row(&spool, &step, value), 1);
    assert_int_equal(step, 8);
    spool_close(&spool);
    writer_close(w);
}

static void test_header(void **state)
{
    struct lg_spool *w = new_spool();
    struct rank_info info;
    struct rank_worker worker;
    struct rank_group group;
    (void)state;
    memset(w->nccl_version, 'x', sizeof(w->nccl_version)); /* no end */
    strcpy(w->torch_path, "/opt/\033[31mtorch");
    lg_spool_workers(w)[3].pid = 44;
    lg_spool_workers(w)[3].reads = 9;
    lg_spool_groups(w)[0].id = 0xfffffffffffffff1;
    lg_spool_groups(w)[0].size = 4;
    lg_spool_groups(w)[0].kind = LG_GROUP_GLOO;
    struct spool spool = open_spool(0);
    spool_rank_info(&spool, &info);
    assert_true(info.rank == 2 && info.world_size == 4 && info.local_rank == LG_NULL);
    assert_string_equal(info.rank_source, "communicator");
    assert_int_equal(strlen(info.nccl_version), sizeof(w->nccl_version) - 1);
    assert_string_equal(info.torch_path, "/opt/?[31mtorch"); /* it goes to terminals */
    assert_true(info.exit_status == LG_NULL);
    w->ended = LG_ENDED_EXIT;
    w->exit_status = 3;
    spool_rank_info(&spool, &info);
    assert_true(info.ended == 1 && info.exit_status == 3);
    assert_int_equal(spool_worker(&spool, 2, &worker), 0);
    assert_int_equal(spool_worker(&spool, 3, &worker), 1);
    assert_true(worker.pid == 44 && worker.reads == 9 && worker.ended == 0);
    assert_int_equal(spool_group(&spool, 0, &group), 1);
    assert_true(group.id > 0 && group.size == 4);
    assert_string_equal(group.kind, "gloo");
    assert_int_equal(spool_group(&spool, 1, &group), 0);
    spool_close(&spool);
    writer_close(w);
}

static void test_lock(void **state)
{
    struct lg_spool *w = new_spool();
    struct spool first = open_spool(1), second;
    (void)state;
    assert_int_equal(spool_open(&second, path, 1, NULL), SPOOL_TAKEN);
    second = open_spool(0); /* reading along is free */
    spool_close(&second);
    spool_close(&first);
    first = open_spool(1);
    spool_close(&first);
    writer_close(w);
}

/* The caller could not store a row: it is not taken. */
static void test_failing_reader(void **state)
{
    struct lg_spool *w = new_spool();
    struct spool spool = open_spool(1);
    struct spool_pass pass;
    struct rows *rows = no_rows();
    (void)state;
    for (int step = 0; step < 10; step++)
        writer_row(w, step, LG_SLOT_COMPLETE);
    rows->stop_at = 5;
    spool_ready_rows(&spool, 0, 0, take, rows, &pass);
    assert_int_equal(pass.failed, 1);
    assert_int_equal(pass.tail, 4);
    spool_close(&spool);
    writer_close(w);
}

/* ---- what must not be believed ---- */

static void refused(const char *why)
{
    struct error error = {""};
    struct spool spool;
    assert_int_equal(spool_open(&spool, path, 1, &error), SPOOL_BAD);
    if (!strstr(error.text, why) || !strstr(error.text, path))
        fail_msg("'%s' does not say '%s' and the path", error.text, why);
}

static void test_wrong_headers(void **state)
{
    struct lg_spool *w = new_spool();
    struct spool spool;
    (void)state;
    w->columns = LG_COLUMNS + 1;
    refused("another version");
    w->columns = LG_COLUMNS;
    w->version++;
    refused("another version");
    w->version--;
    w->slots = 17;
    refused("damaged");
    w->slots = LG_SLOTS;
    w->slot_bytes = 0;
    refused("damaged");
    w->slot_bytes = sizeof(struct lg_slot);
    w->file_bytes = UINT64_MAX;
    refused("damaged");
    w->file_bytes = LG_SPOOL_BYTES;
    w->magic[3] ^= 1;
    refused("not a spool");
    memset(w->magic, 0, sizeof(w->magic));
    assert_int_equal(spool_open(&spool, path, 1, NULL), SPOOL_NOT_READY);
    writer_close(w);
}

static void test_truncated(void **state)
{
    static const int64_t around[] = {1,
                                     8,
                                     sizeof(struct lg_spool),
                                     LG_PAGE,
                                     2 * LG_PAGE,
                                     3 * LG_PAGE,
                                     4 * LG_PAGE,
                                     5 * LG_PAGE,
                                     6 * LG_PAGE,
                                     LG_RING_OFFSET,
                                     LG_RING_OFFSET + sizeof(struct lg_slot),
                                     LG_SPOOL_BYTES / 2,
                                     LG_SPOOL_BYTES};
    struct spool spool;
    (void)state;
    writer_close(new_spool());
    for (size_t i = 0; i < sizeof(around) / sizeof(around[0]); i++)
        for (int64_t size = around[i] - 1; size <= around[i] + 1; size++) {
            assert_int_equal(truncate(path, size), 0);
            if (size == 0)
                assert_int_equal(spool_open(&spool, path, 1, NULL), SPOOL_NOT_READY);
            else if (size == LG_SPOOL_BYTES) /* the header was cut away on the way */
                assert_int_equal(spool_open(&spool, path, 1, NULL), SPOOL_NOT_READY);
            else
                refused("damaged");
        }
}

static void test_truncated_later(void **state)
{
    struct error error;
    (void)state;
    writer_close(new_spool());
    struct spool spool = open_spool(1);
    assert_int_equal(spool_check(&spool, &error), 0);
    assert_int_equal(truncate(path, LG_PAGE), 0);
    assert_int_equal(spool_check(&spool, &error), -1);
    spool_close(&spool);
}

static void test_not_files(void **state)
{
    char other[300];
    struct spool spool;
    (void)state;
    snprintf(other, sizeof(other), "%s/other", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(spool_open(&spool, path, 1, NULL), SPOOL_BAD); /* and doesn't hang */
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(spool_open(&spool, path, 1, NULL), SPOOL_BAD);
    rmdir(path);
    writer_close(new_spool());
    assert_int_equal(rename(path, other), 0);
    assert_int_equal(symlink(other, path), 0);
    assert_int_equal(spool_open(&spool, path, 1, NULL), SPOOL_BAD);
    unlink(path);
    assert_int_equal(spool_open(&spool, path, 1, NULL), SPOOL_BAD); /* nothing there */
}

static void test_positions(void **state)
{
    static const struct {
        uint64_t head, tail;
        int garbage;
        uint64_t rows, damaged;
    } cases[] = {{0, 0, 0, 0, 0},
                 {5, 5, 0, 0, 0},
                 {3, 5, 1, 0, 0},
                 {LG_SLOTS + 1, 0, 1, 0, 0},
                 {UINT64_MAX, 0, 1, 0, 0},
                 {2, UINT64_MAX - 1, 0, 4, 0},
                 {LG_SLOTS + 4, 8, 0, 8192 - 4, 0}};
    struct lg_spool *w = new_spool();
    struct spool spool = open_spool(1);
    struct spool_pass pass;
    (void)state;
    for (unsigned i = 0; i < LG_SLOTS; i++)
        writer_fill(&lg_spool_ring(w)[i], i, LG_SLOT_COMPLETE);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        w->head = cases[i].head;
        w->tail = cases[i].tail;
        spool_ready_rows(&spool, spool_tail(&spool), 1, take, no_rows(), &pass);
        assert_int_equal(pass.garbage, cases[i].garbage);
        assert_int_equal(pass.rows, cases[i].rows);
        assert_int_equal(pass.damaged, cases[i].damaged);
    }
    w->held_count = LG_HELD + 1;
    spool_held_rows(&spool, take, no_rows(), &pass);
    assert_true(pass.garbage && pass.rows == 0);
    spool_close(&spool);
    writer_close(w);
}

static void test_slot_states(void **state)
{
    struct lg_spool *w = new_spool();
    struct spool spool = open_spool(1);
    struct spool_pass pass;
    (void)state;
    for (int step = 0; step < 200; step++)
        writer_row(w, step, LG_SLOT_COMPLETE);
    lg_spool_ring(w)[1].state = LG_SLOT_OPEN;
    lg_spool_ring(w)[2].state = 77;
    lg_spool_ring(w)[3].step = UINT64_MAX;
    lg_spool_ring(w)[4].value[LG_COL_dur_ns] = -5;
    spool_ready_rows(&spool, 0, 0, take, no_rows(), &pass);
    assert_int_equal(pass.rows, 196);
    assert_int_equal(pass.damaged, 4);
    spool_close(&spool);
    writer_close(w);
}

/* Random bytes everywhere but in the sizes: read to the end without harm. */
static void test_random_bytes(void **state)
{
    struct lg_spool *w = new_spool();
    unsigned char *bytes = (unsigned char *)w;
    struct spool_pass pass;
    struct rank_info info;
    struct rank_worker worker;
    struct rank_group group;
    struct spool_stop stop;
    int64_t step, value[LG_COLUMNS];
    (void)state;
    srandom(5);
    for (int round = 0; round < 30; round++) {
        struct lg_spool head = *w;
        for (size_t i = 0; i < LG_SPOOL_BYTES; i += 1 + (size_t)(random() % 97))
            bytes[i] = (unsigned char)random();
        memcpy(w, &head, offsetof(struct lg_spool, pid));
        if (round % 2) { /* positions that let it read on */
            w->tail = (uint64_t)random();
            w->head = w->tail + (uint64_t)random() % (LG_SLOTS + 1);
            w->held_count = (uint32_t)random() % (LG_HELD + 1);
        }
        struct spool spool = open_spool(1);
        spool_ready_rows(&spool, spool_tail(&spool), round % 3 == 0, take, no_rows(), &pass);
        spool_held_rows(&spool, take, no_rows(), &pass);
        spool_provisional_row(&spool, &step, value);
        spool_rank_info(&spool, &info);
        spool_stop(&spool, &stop);
        for (uint32_t i = 0; i < LG_WORKERS; i++)
            spool_worker(&spool, i, &worker);
        for (uint32_t i = 0; i < LG_GROUPS; i++)
            spool_group(&spool, i, &group);
        assert_true(info.rank == LG_NULL || info.rank >= 0);
        spool_close(&spool);
    }
    writer_close(w);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_dir, remove_dir)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(test_rows),
        TEST(test_ring),
        TEST(test_patience),
        TEST(test_half_device_row),
        TEST(test_last_rows),
        TEST(test_header),
        TEST(test_lock),
        TEST(test_failing_reader),
        TEST(test_wrong_headers),
        TEST(test_truncated),
        TEST(test_truncated_later),
        TEST(test_not_files),
        TEST(test_positions),
        TEST(test_slot_states),
        TEST(test_random_bytes),
    };
    if (argc > 1) /* a pattern, for one test alone */
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
