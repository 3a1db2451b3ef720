/*
 * hook_table.c - does the library's own look-up (preload/resolve.c) find what the loader would
 * find? Linked with that file alone; compares it for each row of preload/hooks.def with dlsym, for
 * the functions of libc and, after the fake PyTorch was loaded RTLD_LOCAL, for PyTorch's.
 *
 *     hook-table LIBTORCH_PYTHON
 *
 * A line for each row that is amiss, then "N rows, N found, N amiss". Exit status 1 if any is.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "preload/boot.h"
#include "preload/hooks.h"

static const struct row {
    const char *symbol;
    void *const *found;
    enum lg_area area;
    bool required;
} rows[] = {
#define REQUIRED true
#define OPTIONAL false
#define CALL(area, need, id, symbol, ret, params)                                                  \
    {symbol, (void *const *)(const void *)&real.id, LG_AREA_##area, need},
#define HOOK(area, need, id, symbol, ret, params) CALL(area, need, id, symbol, ret, params)
#include "preload/hooks.def"
#undef CALL
#undef HOOK
};

int main(int argc, char **argv)
{
    unsigned looked = 0, found = 0, amiss = 0;
    void *torch = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (torch == NULL) {
        fprintf(stderr, "hook-table: %s\n", argc == 2 ? dlerror() : "one argument");
        return 2;
    }
    lg_resolve_area(LG_AREA_LIBC);
    lg_resolve_area(LG_AREA_TORCH);
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *r = &rows[i];
        if (r->area != LG_AREA_LIBC && r->area != LG_AREA_TORCH)
            continue;
        void *expected = dlsym(RTLD_DEFAULT, r->symbol);
        if (expected == NULL)
            expected = dlsym(torch, r->symbol); /* its dependencies are searched, too */
        looked++;
        found += *r->found != NULL;
        if (*r->found == expected && (expected != NULL || !r->required))
            continue;
        amiss++;
        printf("%s: found %p, dlsym says %p\n", r->symbol, *r->found, expected);
    }
    printf("%u rows, %u found, %u amiss\n", looked, found, amiss);
    return amiss != 0;
}
