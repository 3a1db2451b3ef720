/*
 * torch.c - PyTorch: labels, backward, and the moment at which the probes are installed. Context:
 * hooks and callbacks on any thread; the GIL is not held and never asked for.
 *
 * `import torch` calls set_default_engine_stub once, when libtorch is fully initialised: there the
 * callback for record_function labels (USER_SCOPE only: no cost per operator) is registered.
 * PyTorch's DataLoader, optimizers, DDP and FSDP put such labels around their work whether or not a
 * profiler runs.
 */
#include "preload/torch.h"

#include <link.h>
#include <string.h>

#include "preload/boot.h"
#include "preload/events.h"
#include "preload/hooks.h"
#include "preload/identity.h"
#include "preload/text.h"

/* ---- labels */

struct label {
    const char *prefix;
    uint8_t length, begin, end;
    uint32_t seen;
};

static const struct label labels[] = {
#define LABEL(prefix, begin, end, seen) {prefix, sizeof(prefix) - 1, begin, end, seen},
#include "preload/labels.def"
#undef LABEL
};

static const struct label *find_label(const char *name)
{
    for (unsigned i = 0; name != NULL && i < sizeof labels / sizeof labels[0]; i++)
        if (strncmp(name, labels[i].prefix, labels[i].length) == 0)
            return &labels[i];
    return NULL;
}

static bool is_compilation(const char *name)
{
    static const char suffix[] = "(dynamo_timed)";
    size_t n = name != NULL ? strlen(name) : 0;
    return n >= sizeof suffix - 1 && strcmp(name + n - (sizeof suffix - 1), suffix) == 0;
}

static bool gradients_enabled(void)
{
    return (real.grad_mode_is_enabled == NULL || real.grad_mode_is_enabled()) &&
           (real.inference_mode_is_enabled == NULL || !real.inference_mode_is_enabled());
}

/* A label begins; called through label_start below. */
__attribute__((used)) static void label_begin(const void *record_function)
{
    if (!lg_awake() || !lg_on_training_thread())
        return;
    const char *name = real.record_function_name(record_function);
    const struct label *l = find_label(name);
    if (l != NULL) {
        bool forward = l->begin == LG_EV_FORWARD_BEGIN;
        lg_identity_saw(l->seen);
        lg_feed((enum lg_event)l->begin, forward && gradients_enabled(),
                __builtin_frame_address(0));
    } else if (is_compilation(name)) {
        lg_feed(LG_EV_COMPILE, 0, NULL);
    }
}

static void label_end(const void *record_function, void *context)
{
    (void)context;
    if (!lg_awake() || !lg_on_training_thread())
        return;
    const struct label *l = find_label(real.record_function_name(record_function));
    if (l != NULL)
        lg_feed((enum lg_event)l->end, 0, NULL);
}

/* The callback's C++ type returns a std::unique_ptr<ObserverContext>, that is, through a hidden
 * pointer to which we store "none". On x86-64 that pointer is the first argument and the result; on
 * aarch64 it is register x8, which C can't name. */
#if defined(__aarch64__)
void label_start(void);
__asm__(".text\n"
        ".balign 16\n"
        ".hidden label_start\n"
        ".globl label_start\n"
        ".type label_start, %function\n"
        "label_start:\n"
        "    str xzr, [x8]\n"
        "    b label_begin\n"
        ".size label_start, . - label_start\n");
#else
static void *label_start(void **result, const void *record_function)
{
    *result = NULL;
    label_begin(record_function);
    return result;
}
#endif

/* ---- installation */

static void install_probes(void)
{
    int missing = lg_resolve_area(LG_AREA_TORCH);
    bool labels_work = real.add_global_callback != NULL && real.record_function_name != NULL;
    lg_identity_saw(LG_SEEN_TORCH | (missing > 0 || !labels_work ? LG_SEEN_TORCH_PARTLY : 0));
    lg_process.torch = true;
    lg_events_candidate();
    if (!labels_work)
        return;
    struct lg_record_function_callback callback = {
        .start = (void *)(uintptr_t)&label_start, .end = label_end, .sampling_probability = 1.0};
    callback.scopes[LG_SCOPE_USER] = true;
    real.add_global_callback(callback);
}

static void install(void)
{
    static _Atomic bool installed;
    if (atomic_exchange(&installed, true))
        return;
    LG_KEEP_ERRNO;
    lg_tls.guard++;
    install_probes();
    lg_tls.guard--;
}

void hook_set_default_engine_stub(void *stub)
{
    real_set_default_engine_stub_fn next = REAL(set_default_engine_stub);
    if (next != NULL)
        next(stub);
    if (lg_awake())
        install();
}

static int visit_path(struct dl_phdr_info *info, size_t size, void *data)
{
    const char *name = info->dlpi_name, *base = name;
    struct lg_text *out = data;
    (void)size;
    for (const char *c = name; c != NULL && *c != 0; c++)
        if (*c == '/')
            base = c + 1;
    if (base == NULL || strncmp(base, "libtorch_cpu.so", 15) != 0)
        return 0;
    lg_text_add(out, name);
    return 1;
}

void lg_torch_path(char *out, size_t size)
{
    struct lg_text t = lg_text_start(out, size);
    dl_iterate_phdr(visit_path, &t);
}

/* ---- backward */

static void backward_leave(const bool *entered)
{
    if (*entered)
        lg_feed(LG_EV_BACKWARD_END, 0, NULL);
}

struct lg_vector hook_engine_execute(void *self, const void *roots, const void *inputs,
                                     bool keep_graph, bool create_graph, bool accumulate_grad,
                                     const void *outputs)
{
    bool entered __attribute__((cleanup(backward_leave))) = false;
    if (lg_awake()) {
        if (LG_UNLIKELY(!lg_process.torch))
            install(); /* a C++ program: no engine of Python's was registered */
        if (accumulate_grad) {
            lg_identity_saw(LG_SEEN_BACKWARD);
            lg_events_backward();
        }
        lg_feed(LG_EV_BACKWARD_BEGIN, accumulate_grad, __builtin_frame_address(0));
        entered = true;
    }
    return REAL(engine_execute)(self, roots, inputs, keep_graph, create_graph, accumulate_grad,
                                outputs);
}
