/*
 * unit.h - the end of every cmocka program here: runs the group and prints the line that tests/run
 * counts, "N passed, N failed" (", N skipped" if there were any). Include it once, in the file with
 * main(), and end main() with `return unit_run(tests);`.
 */
#ifndef LAGGARD_TESTS_UNIT_UNIT_H
#define LAGGARD_TESTS_UNIT_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

static unsigned unit_skipped;

/* Skips the running test loudly, with the reason. Does not return. */
#define unit_skip(reason)                                                                          \
    do {                                                                                           \
        printf("SKIPPED %s: %s\n", __func__, reason);                                              \
        unit_skipped++;                                                                            \
        skip();                                                                                    \
    } while (0)

/* `count` tests, of which cmocka says that `failed` failed (negative: it could not run them);
 * returns the program's exit status. */
static inline int unit_end(size_t count, int failed)
{
    unsigned bad = failed < 0 ? (unsigned)count : (unsigned)failed;

    fflush(stderr);
    printf("%zu passed, %u failed", count - bad - unit_skipped, bad);
    if (unit_skipped)
        printf(", %u skipped", unit_skipped);
    printf("\n");
    return bad ? 1 : 0;
}

#define unit_run(tests)                                                                            \
    unit_end(sizeof(tests) / sizeof((tests)[0]), cmocka_run_group_tests(tests, NULL, NULL))

#endif
