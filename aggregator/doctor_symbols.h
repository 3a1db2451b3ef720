/*
 * doctor_symbols.h - the dynamic symbols of a library or program, read from its file. Runs in
 * `laggard doctor`.
 */
#ifndef LAGGARD_AGGREGATOR_DOCTOR_SYMBOLS_H
#define LAGGARD_AGGREGATOR_DOCTOR_SYMBOLS_H

#include <stdbool.h>

/* Calls fn for each named function or object: `defined` there, or else wanted from another. -1: no
 * such file, or none of a 64-bit ELF's form. */
int symbols_each(const char *path, void (*fn)(void *context, const char *name, bool defined),
                 void *context);

#endif
