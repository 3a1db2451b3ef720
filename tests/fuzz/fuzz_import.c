/*
 * fuzz_import.c - any text as rows: imported, and what could be imported reported on. Context:
 * libFuzzer program (with -close_fd_mask=2: a refusal is a line on stderr).
 */
#include "tests/fuzz/fuzz.h"

#include <getopt.h>

#include "aggregator/cmd.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[128], run[128];
    fuzz_start();
    snprintf(text, sizeof text, "%s/rows.jsonl", fuzz_dir);
    snprintf(run, sizeof run, "%s/run", fuzz_dir);
    fuzz_write(text, data, size);
    char name[] = "import", option[] = "-o";
    char *argv[] = {name, text, option, run, NULL};
    optind = 0; /* getopt begins anew */
    if (cmd_import(4, argv) == 0)
        fuzz_report(run);
    fuzz_clean();
    return 0;
}
