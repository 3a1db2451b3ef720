/*
 * static_nccl.h - is NCCL linked into a file? Its calls then pass every hook. Runs in the recorder.
 */
#ifndef LAGGARD_AGGREGATOR_STATIC_NCCL_H
#define LAGGARD_AGGREGATOR_STATIC_NCCL_H

#include <stddef.h>

#include "aggregator/rankdb.h"

/* The file that would have NCCL inside, if this rank uses it though no copy is loaded: PyTorch's
 * libtorch_cuda.so, else the program. "" where there is no reason to look. */
void nccl_may_be_inside(const struct rank_info *info, const char *program, char *path, size_t size);

/* Reads the file until it finds NCCL's own text with its version ("2.28.3"); 1 = found. A file that
 * can't be read has none. */
int nccl_inside(const char *path, char *version, size_t size);

#endif
