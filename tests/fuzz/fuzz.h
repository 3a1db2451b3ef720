/*
 * fuzz.h - what the fuzz targets share: a folder in memory for what is made, and the whole way from
 * files to a report. Included by tests/fuzz/fuzz_*.c, each of which is one libFuzzer program; runs
 * in it alone.
 */
#ifndef LAGGARD_TESTS_FUZZ_H
#define LAGGARD_TESTS_FUZZ_H

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/load.h"
#include "aggregator/report.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A folder for this process, made at the first call and removed at exit. */
static char fuzz_dir[64];

static inline int fuzz_remove_one(const char *path, const struct stat *st, int type,
                                  struct FTW *where)
{
    (void)st, (void)type;
    return where->level > 0 ? remove(path) : 0;
}

/* All that is in it. */
static inline void fuzz_clean(void)
{
    nftw(fuzz_dir, fuzz_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void fuzz_leave(void)
{
    fuzz_clean();
    rmdir(fuzz_dir);
}

static inline void fuzz_start(void)
{
    if (*fuzz_dir)
        return;
    strcpy(fuzz_dir, access("/dev/shm", W_OK) == 0 ? "/dev/shm/laggard-fuzz-XXXXXX"
                                                   : "/tmp/laggard-fuzz-XXXXXX");
    if (!mkdtemp(fuzz_dir))
        abort();
    atexit(fuzz_leave);
}

static inline void fuzz_write(const char *path, const uint8_t *data, size_t size)
{
    FILE *file = fopen(path, "w");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0)
        abort();
}

/* What `laggard report RUN` does in both formats. */
static inline void fuzz_report(const char *run_path)
{
    static FILE *out;
    struct error error;
    struct lg_run *run = load_run(run_path, &error);
    if (!out)
        out = fopen("/dev/null", "w");
    if (!run)
        return;
    struct lg_diagnosis *diagnosis = lg_diagnose(run, NULL);
    report_text(diagnosis, out);
    json_decref(report_json(diagnosis));
    lg_diagnosis_free(diagnosis);
    lg_run_free(run);
}

#endif
