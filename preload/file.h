/*
 * file.h - making the spool file safely inside somebody else's process. Context: cold paths.
 */
#ifndef LAGGARD_PRELOAD_FILE_H
#define LAGGARD_PRELOAD_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "schema/spool.h"

/* Makes a file of `bytes` at `path`, which must not exist, with all its blocks, and maps it shared.
 * No descriptor stays open. NULL on failure, with the reason in *why; nothing is left behind then.
 * *exists: the name is taken. Raw system calls only; errno is not kept. */
void *lg_file_map_new(const char *path, uint64_t bytes, enum lg_loss *why, bool *exists);

/* Makes a directory, mode 0700, that may exist already. */
void lg_file_mkdir(const char *path);

/* Makes a symbolic link; true if it is there now. */
bool lg_file_link(const char *text, const char *path);

/* Reads a small file; returns the number of bytes, NUL-terminated, 0 on failure. */
uint64_t lg_file_read(const char *path, char *buffer, uint64_t size);

#endif
