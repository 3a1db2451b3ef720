/*
 * torch.h - PyTorch's probes: what other files ask about them.
 */
#ifndef LAGGARD_PRELOAD_TORCH_H
#define LAGGARD_PRELOAD_TORCH_H

#include <stddef.h>

/* Path of the loaded libtorch_cpu, "" if there is none. */
void lg_torch_path(char *out, size_t size);

#endif
