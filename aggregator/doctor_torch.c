/*
 * doctor_torch.c - the part of `laggard doctor` about PyTorch, CUDA and NCCL: which functions the
 * library stands for, and whether PyTorch exports them, or calls them in a way that can be seen.
 * Files are read, nothing is imported or run but a look-up of PyTorch's version.
 *
 * The list of functions is what the library itself exports: there is no second one here.
 */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/doctor.h"
#include "aggregator/doctor_symbols.h"
#include "aggregator/rows.h"

/* What a function that the library stands for belongs to, told by its name. */
enum area { AREA_TORCH, AREA_NCCL, AREA_CUDA, AREA_OTHER };

struct hook {
    char *name;
    enum area area;
    bool exported, wanted; /* by the files that were looked at */
};

struct hooks {
    size_t n;
    struct hook *hook;
};

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static enum area area_of(const char *name)
{
    if (begins(name, "_Z"))
        return AREA_TORCH;
    if (begins(name, "nccl") || begins(name, "pnccl"))
        return AREA_NCCL;
    return begins(name, "cuda") || begins(name, "__cuda") ? AREA_CUDA : AREA_OTHER;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct hook *)a)->name, ((const struct hook *)b)->name);
}

static void take_hook(void *context, const char *name, bool defined)
{
    struct hooks *hooks = context;
    enum area area = area_of(name);

    if (!defined || area == AREA_OTHER)
        return;
    hooks->hook = lg_realloc(hooks->hook, hooks->n + 1, sizeof(*hooks->hook));
    hooks->hook[hooks->n++] = (struct hook){.name = lg_strdup(name), .area = area};
}

/* Of CUDA's functions there is one for each version of the runtime: they count once. */
static void sort_hooks(struct hooks *hooks)
{
    size_t kept = 0;

    if (hooks->n)
        qsort(hooks->hook, hooks->n, sizeof(*hooks->hook), by_name);
    for (size_t i = 0; i < hooks->n; i++) {
        if (kept > 0 && strcmp(hooks->hook[kept - 1].name, hooks->hook[i].name) == 0)
            free(hooks->hook[i].name);
        else
            hooks->hook[kept++] = hooks->hook[i];
    }
    hooks->n = kept;
}

static void read_hooks(const char *library, struct hooks *hooks)
{
    *hooks = (struct hooks){0, NULL};
    if (library)
        symbols_each(library, take_hook, hooks);
    sort_hooks(hooks);
}

static void free_hooks(struct hooks *hooks)
{
    for (size_t i = 0; i < hooks->n; i++)
        free(hooks->hook[i].name);
    free(hooks->hook);
}

static void find_symbol(void *context, const char *name, bool defined)
{
    struct hooks *hooks = context;
    struct hook key = {.name = (char *)name};
    struct hook *hook =
        hooks->n ? bsearch(&key, hooks->hook, hooks->n, sizeof(key), by_name) : NULL;

    if (hook) {
        hook->exported |= defined;
        hook->wanted |= !defined;
    }
}

static size_t count(const struct hooks *hooks, enum area area, bool exported, bool wanted)
{
    size_t n = 0;

    for (size_t i = 0; i < hooks->n; i++)
        n += hooks->hook[i].area == area && (!exported || hooks->hook[i].exported) &&
             (!wanted || hooks->hook[i].wanted);
    return n;
}

/* "torch::autograd::Engine::execute" of a mangled nested name. */
static void plain_name(const char *mangled, char *plain, size_t size)
{
    const char *c = mangled + strspn(mangled, "_ZNKSt");
    size_t used = 0;

    *plain = '\0';
    while (isdigit((unsigned char)*c)) {
        char *name;
        unsigned long length = strtoul(c, &name, 10);
        if (length > strlen(name) || used + length + 3 > size)
            break;
        used += (size_t)snprintf(plain + used, size - used, "%s%.*s", used ? "::" : "", (int)length,
                                 name);
        c = name + length;
    }
    if (used == 0)
        snprintf(plain, size, "%s", mangled);
}

/* ---- PyTorch's files ---- */

/* Its libraries lie in its package, a distribution's in the system's directories. */
static int look_into(const char *package, const char *name, struct hooks *hooks)
{
    static const char *const places[] = {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
                                         "/usr/lib64"};
    char path[PATH_MAX];

    if (snprintf(path, sizeof(path), "%s/lib/%s", package, name) < (int)sizeof(path) &&
        symbols_each(path, find_symbol, hooks) == 0)
        return 0;
    for (size_t i = 0; begins(package, "/usr/lib/") && i < sizeof(places) / sizeof(places[0]);
         i++) {
        snprintf(path, sizeof(path), "%s/%s", places[i], name);
        if (symbols_each(path, find_symbol, hooks) == 0)
            return 0;
    }
    return -1;
}

/* The probes without which there are no steps; the others exist in some versions only. */
static bool is_needed(const struct hook *hook)
{
    return strstr(hook->name, "autograd6Engine7execute") ||
           strstr(hook->name, "set_default_engine_stub");
}

static void say_probes(const struct hooks *hooks)
{
    size_t all = count(hooks, AREA_TORCH, false, false);
    size_t found = count(hooks, AREA_TORCH, true, false);
    char *missing = lg_strdup(""), name[256];
    bool needed = false;

    for (size_t i = 0; i < hooks->n; i++) {
        const struct hook *hook = &hooks->hook[i];
        if (hook->area != AREA_TORCH || hook->exported)
            continue;
        needed |= is_needed(hook);
        plain_name(hook->name, name, sizeof(name));
        char *longer = lg_format("%s%s%s", missing, *missing ? ", " : "", name);
        free(missing);
        missing = longer;
    }
    if (needed)
        doctor_say(DOCTOR_NOT_OK, "probes",
                   "%zu of %zu exported; not there: %s: no step is seen -> a PyTorch build that "
                   "exports its C++ symbols, as the wheels do",
                   found, all, missing);
    else if (found < all)
        doctor_say(DOCTOR_LIMIT, "probes",
                   "%zu of %zu exported; not by this build: %s -> nothing to do: steps are seen "
                   "without them",
                   found, all, missing);
    else
        doctor_say(DOCTOR_OK, "probes", "%zu of %zu C++ functions of PyTorch are exported", found,
                   all);
    free(missing);
}

/* Calls that go through the dynamic linker are seen. */
static void say_calls(const struct hooks *hooks, enum area area, const char *subject,
                      const char *what, const char *lost)
{
    size_t wanted = count(hooks, area, false, true);

    if (wanted > 0)
        doctor_say(DOCTOR_OK, subject, "%zu of the %s functions that it calls are stood for",
                   wanted, what);
    else
        doctor_say(DOCTOR_LIMIT, subject,
                   "calls of %s do not pass the dynamic linker: %s not observed -> a build that "
                   "links %s dynamically",
                   what, lost, what);
}

static void say_torch_files(const char *package, const char *library)
{
    struct hooks hooks;

    read_hooks(library, &hooks);
    bool there = look_into(package, "libtorch_cpu.so", &hooks) == 0;
    there |= look_into(package, "libtorch_python.so", &hooks) == 0;
    if (hooks.n == 0)
        doctor_say(DOCTOR_NOT_SET, "probes", "not looked at: the library is not there");
    else if (!there)
        doctor_say(DOCTOR_NOT_SET, "probes", "not looked at: libtorch_cpu.so was not found by %s",
                   package);
    else
        say_probes(&hooks);
    if (there && look_into(package, "libtorch_cuda.so", &hooks) == 0) {
        look_into(package, "libc10_cuda.so", &hooks);
        say_calls(&hooks, AREA_CUDA, "CUDA", "CUDA", "copies, launches and device times are");
        say_calls(&hooks, AREA_NCCL, "NCCL", "NCCL", "collectives on the device are");
    } else if (there) {
        doctor_say(DOCTOR_NOT_SET, "CUDA", "this PyTorch is built without it: host clock only");
    }
    free_hooks(&hooks);
}

/* ---- the two entries ---- */

void doctor_torch(const char *python, const char *library)
{
    char text[PATH_MAX + 64], *command = NULL;
    int major = 0, minor = 0;
    if (strchr(python, '\''))
        return;
    command = lg_format("exec timeout 30 '%s' -c 'import importlib.metadata as m, "
                        "importlib.util as u; print(m.version(\"torch\")); "
                        "s = u.find_spec(\"torch\"); "
                        "print(s.submodule_search_locations[0] if s else \"\")' 2>/dev/null",
                        python);
    int status = doctor_output(command, text, sizeof(text));
    free(command);
    char *package = text + strcspn(text, "\n");
    if (*package)
        *package++ = '\0';
    package[strcspn(package, "\n")] = '\0';
    if (status || sscanf(text, "%d.%d", &major, &minor) != 2) {
        doctor_say(DOCTOR_NOT_SET, "PyTorch", "%s has none", python);
        return;
    }
    if (major == 1 ? minor >= 13 : major == 2 && minor <= 15)
        doctor_say(DOCTOR_OK, "PyTorch", "%s: a known version%s%s", text, *package ? ", in " : "",
                   package);
    else
        doctor_say(DOCTOR_NOT_OK, "PyTorch",
                   "%s: not a known version (1.13 to 2.15); its labels are not used, so loader, "
                   "optimizer and DDP are told from calls alone -> a known version",
                   text);
    if (*package)
        say_torch_files(package, library);
}

void doctor_calls(const char *program, const char *library)
{
    struct hooks hooks;

    read_hooks(library, &hooks);
    if (hooks.n > 0 && symbols_each(program, find_symbol, &hooks) == 0) {
        size_t cuda = count(&hooks, AREA_CUDA, false, true);
        size_t nccl = count(&hooks, AREA_NCCL, false, true);
        if (cuda + nccl > 0)
            doctor_say(DOCTOR_OK, "calls", "of CUDA %zu and of NCCL %zu functions are stood for",
                       cuda, nccl);
        else
            doctor_say(DOCTOR_NOT_SET, "calls",
                       "it calls neither CUDA nor NCCL itself; its libraries and children may");
    }
    free_hooks(&hooks);
}
