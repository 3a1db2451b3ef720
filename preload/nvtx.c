/*
 * nvtx.c - NVTX ranges of a program that is linked with libnvToolsExt.so.1 (CUDA 12 and earlier).
 * Context: hooks on any thread.
 *
 * RATIONALE: programs compiled with the headers of NVTX 3 call no library's function: they look for
 * NVTX_INJECTION64_PATH at their first range and else do nothing. That variable is the user's and
 * other tools', so their ranges are not observed.
 */
#include "preload/hooks.h"

#include "preload/ranges.h"

enum { NO_TRACKING = -2 }; /* NVTX_NO_PUSH_POP_TRACKING */
enum { MESSAGE_ASCII = 1 };

/* nvtxEventAttributes_t, as far as it is read; `size` says how much of it the program has. */
struct lg_nvtx_attributes {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const char *message;
};

static const char *message_of(const struct lg_nvtx_attributes *a)
{
    if (a == NULL || a->size < sizeof *a || a->message_type != MESSAGE_ASCII)
        return NULL;
    return a->message;
}

int hook_nvtx_push(const char *message)
{
    real_nvtx_push_fn next = REAL(nvtx_push);
    if (next == NULL)
        return NO_TRACKING;
    lg_range_push(NULL, message);
    return next(message);
}

int hook_nvtx_push_wide(const void *message)
{
    real_nvtx_push_wide_fn next = REAL(nvtx_push_wide);
    if (next == NULL)
        return NO_TRACKING;
    lg_range_push(NULL, NULL);
    return next(message);
}

int hook_nvtx_push_ex(const void *attributes)
{
    real_nvtx_push_ex_fn next = REAL(nvtx_push_ex);
    if (next == NULL)
        return NO_TRACKING;
    lg_range_push(NULL, message_of(attributes));
    return next(attributes);
}

int hook_nvtx_pop(void)
{
    real_nvtx_pop_fn next = REAL(nvtx_pop);
    int depth = next != NULL ? next() : NO_TRACKING;
    lg_range_pop(NULL);
    return depth;
}

int hook_nvtx_domain_push_ex(void *domain, const void *attributes)
{
    real_nvtx_domain_push_ex_fn next = REAL(nvtx_domain_push_ex);
    if (next == NULL)
        return NO_TRACKING;
    lg_range_push(domain, message_of(attributes));
    return next(domain, attributes);
}

int hook_nvtx_domain_pop(void *domain)
{
    real_nvtx_domain_pop_fn next = REAL(nvtx_domain_pop);
    int depth = next != NULL ? next(domain) : NO_TRACKING;
    lg_range_pop(domain);
    return depth;
}
