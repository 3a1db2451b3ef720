/*
 * loading.c - plug-ins and forwarding libraries as frameworks have them: what finds its own files
 * by its RPATH, and what looks a function of its own name up in another library. Both break under
 * tools that stand in for dlopen or dlsym. Context: test program; compiled as
 *
 *     DEP      dep/libdep.so: found only through its user's RPATH; also the functions forwarded to
 *     PLUGIN   librpath.so, librunpath.so: open "libdep.so" by its bare name
 *     FORWARD  libforward.so: functions that forward to those of the same name in dep/libdep.so;
 * one has a name that our library has a hook on, and is used by the program none     the program:
 * loading-victim DIRECTORY
 *
 * Prints what each call gave.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int itself(int depth);
int ncclGroupStart(void);
int answer(void);
int plugin_answer(void);

typedef int (*number_fn)(int);

#if !defined DEP
static inline number_fn look_up(void *handle, const char *name)
{
    union {
        void *object;
        number_fn function;
    } u = {handle != NULL ? dlsym(handle, name) : NULL};
    return u.function;
}
#endif

#if defined DEP
static int started;

int answer(void)
{
    return 42;
}

int itself(int depth)
{
    return depth + 1000;
}

int ncclGroupStart(void)
{
    return ++started;
}
#elif defined PLUGIN
int plugin_answer(void)
{
    number_fn f = look_up(dlopen("libdep.so", RTLD_NOW | RTLD_LOCAL), "answer");
    return f != NULL ? f(0) : -1;
}
#elif defined FORWARD
static int depth;

/* The implementation's function of that name; a wrong answer calls us again. */
static int forward(const char *name, int argument)
{
    static void *handle;
    if (handle == NULL)
        handle = dlopen("libdep.so", RTLD_NOW | RTLD_LOCAL);
    number_fn f = look_up(handle, name);
    if (f == NULL || ++depth > 8) {
        fprintf(stderr, "%s: %s\n", name, f == NULL ? dlerror() : "found itself");
        exit(3);
    }
    int r = f(argument);
    depth--;
    return r;
}

int itself(int argument)
{
    return forward("itself", argument);
}

int ncclGroupStart(void)
{
    return forward("ncclGroupStart", 0);
}
#else
static int call(const char *directory, const char *library, const char *name, int flags)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, library);
    void *handle = dlopen(path, flags);
    number_fn f = look_up(handle, name);
    if (f == NULL) {
        fprintf(stderr, "%s: %s\n", name, dlerror());
        exit(1);
    }
    return f(7);
}

int main(int argc, char **argv)
{
    static const int flags[] = {RTLD_NOW | RTLD_LOCAL, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND,
                                RTLD_LAZY | RTLD_GLOBAL};
    if (argc != 2)
        return 2;
    for (int i = 0; i < 3; i++) {
        printf("rpath %d\n", call(argv[1], "librpath.so", "plugin_answer", flags[i]));
        printf("runpath %d\n", call(argv[1], "librunpath.so", "plugin_answer", flags[i]));
        printf("itself %d\n", call(argv[1], "libforward.so", "itself", flags[i]));
        printf("ncclGroupStart %d\n", call(argv[1], "libforward.so", "ncclGroupStart", flags[i]));
    }
    printf("linked: itself %d, ncclGroupStart %d\n", itself(8), ncclGroupStart());
    return 0;
}
#endif
