/*
 * abi_torch.h - the few C++ types of PyTorch that cross a hook, as C structs of the same layout.
 * Checked with the headers of 1.13.1, 2.0 to 2.9 and 2.14 and by running on 1.13 and 2.15.
 */
#ifndef LAGGARD_PRELOAD_ABI_TORCH_H
#define LAGGARD_PRELOAD_ABI_TORCH_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* std::vector<...>: returned through a hidden pointer, as a C struct of 24 bytes is */
struct lg_vector {
    void *begin, *end, *capacity;
};

/* at::RecordScope */
enum { LG_SCOPE_USER = 7, LG_SCOPES = 10 };

/* at::RecordFunctionCallback. `start` returns a std::unique_ptr<ObserverContext>: through a hidden
 * pointer, which C can only name by hand (torch.c). */
struct lg_record_function_callback {
    void *start;
    void (*end)(const void *record_function, void *context);
    double sampling_probability;
    bool scopes[LG_SCOPES];
    bool needs_inputs, needs_outputs, needs_ids;
};
static_assert(sizeof(struct lg_record_function_callback) == 40, "at::RecordFunctionCallback");
static_assert(offsetof(struct lg_record_function_callback, scopes) == 24, "scopes_");

/* gloo::AllreduceOptionsImpl and BroadcastOptionsImpl: where the size of the message is */
enum {
    LG_GLOO_ALLREDUCE_ELEMENTS = 80,
    LG_GLOO_ALLREDUCE_SIZE = 88,
    LG_GLOO_BROADCAST_ELEMENTS = 32,
    LG_GLOO_BROADCAST_SIZE = 40
};

#endif
