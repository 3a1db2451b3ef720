/*
 * fake_torch_api.h - what C programs and Python's ctypes call in the fake libtorch_python.so.
 * Functions that take a body call it inside; a C++ exception thrown by it passes through them.
 */
#ifndef LAGGARD_TESTS_VICTIMS_FAKE_TORCH_API_H
#define LAGGARD_TESTS_VICTIMS_FAKE_TORCH_API_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void (*fake_body)(void *argument);

/* `import torch`: registers the engine that overrides execute() and calls the base's. */
void fake_import(void);

/* record_function(name) around a body. */
void fake_label(const char *name, fake_body body, void *argument);

/* Engine::execute with one node. Returns how many tensors came back (inputs + 1), plus 100 times
 * the flags that the last one holds; -1 when a C++ exception came out and was caught here. */
long fake_execute(long inputs, int accumulate, fake_body body, void *argument);

void fake_throw(const char *what);
void fake_set_gradients(int enabled);

/* init_process_group(gloo) */
void fake_init_group(int rank, int size);
/* as PyTorch 1.13 does it */
void fake_init_old_group(int rank, int size);

/* Reducer::finalize_backward through a pointer to the member, and how often it came to its end. */
void fake_finalize(fake_body body, void *argument);
long fake_finalized(void);
/* that pointer as its first word: odd would mean "virtual" */
uintptr_t fake_member_pointer(void);

/* Work::wait, called virtually. kind: 0 Work, 1 SendWork, 2 RecvWork */
int fake_wait(int kind, fake_body body, void *argument);

/* a collective: enqueued, run on another thread, waited for */
void fake_allreduce(long elements, fake_body body, void *argument);

#ifdef __cplusplus
}
#endif
#endif
