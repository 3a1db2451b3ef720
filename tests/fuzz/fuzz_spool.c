/*
 * fuzz_spool.c - spools that a process has written anything into: read by the reader, and, each
 * eighth one, collected into a run and reported on. Context: libFuzzer program.
 *
 * A spool is some megabytes of mostly nothing, so the input is a list of edits to a good one: four
 * bytes where, one byte how many, the bytes. The first 64 KiB, where everything but most rows is,
 * is hit as often as the rest.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/unit/spool_writer.h"

#include "aggregator/spool_reader.h"

enum { ROWS = 40, BUSY = 65536 };

static void edit(char *spool, const uint8_t *data, size_t size)
{
    while (size > 5) {
        uint32_t at;
        memcpy(&at, data, sizeof at);
        size_t n = data[4];
        at = at & 1 ? at / 2 % BUSY : at / 2 % LG_SPOOL_BYTES;
        data += 5, size -= 5;
        n = n < size ? n : size;
        if (at + n <= LG_SPOOL_BYTES)
            memcpy(spool + at, data, n);
        data += n, size -= n;
    }
}

static int take(void *context, int64_t step, int64_t value[LG_COLUMNS])
{
    int64_t *sum = context;
    *sum ^= step;
    for (int c = 0; c < LG_COLUMNS; c++)
        *sum ^= value[c];
    return 0;
}

static void read_all(const char *path)
{
    struct spool spool;
    struct error error;
    struct rank_info info;
    struct rank_worker worker;
    struct rank_group group;
    struct rank_library library;
    struct spool_stop stop;
    struct spool_pass pass;
    int64_t sum = 0, step, value[LG_COLUMNS];
    if (spool_open(&spool, path, 1, &error) != SPOOL_OPENED)
        return;
    spool_rank_info(&spool, &info);
    spool_stop(&spool, &stop);
    for (uint32_t i = 0; i < LG_WORKERS; i++)
        spool_worker(&spool, i, &worker);
    for (uint32_t i = 0; i < LG_GROUPS; i++)
        spool_group(&spool, i, &group);
    for (uint32_t i = 0; i < LG_LIBRARIES; i++)
        spool_library(&spool, i, &library);
    for (int gone = 0; gone < 2; gone++)
        spool_ready_rows(&spool, spool_tail(&spool), gone, take, &sum, &pass);
    spool_held_rows(&spool, take, &sum, &pass);
    if (spool_provisional_row(&spool, &step, value))
        take(&sum, step, value);
    spool_close(&spool);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned count;
    char path[512], dir[128];
    struct process_id writer = writer_nobody();
    fuzz_start();
    snprintf(dir, sizeof dir, "%s/run", fuzz_dir);
    mkdir(dir, 0700);
    struct lg_spool *spool = writer_open(dir, &writer, 0, 2, 4);
    for (int64_t step = 0; step < ROWS; step++)
        writer_row(spool, step, LG_SLOT_COMPLETE);
    writer_held(spool, ROWS, 2);
    writer_provisional(spool, ROWS + 2);
    edit((char *)spool, data, size);
    writer_close(spool);
    writer_name(path, sizeof path, dir, &writer, 0);
    read_all(path);
    if (count++ % 8 == 0)
        fuzz_report(dir);
    fuzz_clean();
    return 0;
}
