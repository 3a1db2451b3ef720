/*
 * cmd_doctor.c - `laggard doctor [-- CMD...]`: what would be observed here and what not, line by
 * line, and why. Starts no training and changes nothing; it tries what can be tried (loading the
 * library, making a spool place) and refuses to guess the rest.
 */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "aggregator/cmd.h"
#include "aggregator/doctor_program.h"
#include "aggregator/rundir.h"
#include "aggregator/spool_place.h"
#include "aggregator/trace_env.h"
#include "schema/spool.h"

static const char help_text[] =
    "usage: laggard doctor [-- CMD...]\n"
    "\n"
    "Says line by line what would be observed here: OK, NOT OK (and why), NOT SET.\n"
    "With CMD it also looks at that program and its PyTorch. Nothing is run but a\n"
    "look-up of PyTorch's version.\n"
    "\n"
    "  -h, --help  this text\n"
    "\n"
    "Exit status: 0 when no line is NOT OK, else 1; 2 bad usage.\n";

enum answer { OK, NOT_OK, NOT_SET };

static int bad; /* lines that are NOT OK */

static void say(enum answer answer, const char *subject, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void say(enum answer answer, const char *subject, const char *format, ...)
{
    static const char *const words[] = {"OK", "NOT OK", "NOT SET"};
    va_list arguments;
    printf("%-8s %-14s ", words[answer], subject);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    bad += answer == NOT_OK;
}

/* Output of a shell command, cut at `size`; its exit status. */
static int output_of(const char *command, char *text, size_t size)
{
    char rest[4096];
    FILE *pipe = popen(command, "re");
    *text = '\0';
    if (!pipe)
        return -1;
    size_t n = fread(text, 1, size - 1, pipe);
    text[n] = '\0';
    while (fread(rest, 1, sizeof(rest), pipe) > 0)
        ;
    return pclose(pipe);
}

/* --- our own parts ------------------------------------------------------------------------- */

/* Loads it into a harmless program and looks whether it is there: ld.so only warns. */
static void check_loading(const char *library)
{
    static char maps[1 << 16];
    char *command = NULL;
    if (strchr(library, '\'') ||
        asprintf(&command, "LD_PRELOAD='%s' exec cat /proc/self/maps 2>&1", library) < 0) {
        say(NOT_SET, "loading", "not tried: %s", library);
        return;
    }
    int status = output_of(command, maps, sizeof(maps));
    free(command);
    if (status == 0 && strstr(maps, "/liblaggard.so\n"))
        say(OK, "loading", "the library loads into cat");
    else
        say(NOT_OK, "loading", "the library does not load: %.*s", (int)strcspn(maps, "\n"), maps);
}

static void check_library(void)
{
    char path[PATH_MAX];
    struct error error;
    const char *disable = getenv("LAGGARD_DISABLE");
    if (trace_library(path, &error)) {
        say(NOT_OK, "library", "%s", error.text);
    } else {
        say(OK, "library", "%s", path);
        check_loading(path);
    }
    if (disable) /* whatever its value is */
        say(NOT_OK, "switch", "LAGGARD_DISABLE=%s: the library does nothing", disable);
}

static void check_preload(void)
{
    const char *preload = getenv("LD_PRELOAD");
    if (!preload || !*preload)
        say(NOT_SET, "LD_PRELOAD", "nothing else is preloaded");
    else
        say(OK, "LD_PRELOAD", "kept beside ours: %s", preload);
}

/* --- places -------------------------------------------------------------------------------- */

static void check_spool(void)
{
    char dir[PATH_MAX];
    struct error error;
    struct statvfs fs;
    double need = (double)LG_SPOOL_BYTES / (1 << 20);
    if (spool_place_make(".", dir, &error)) {
        say(NOT_OK, "spool", "%s", error.text);
        return;
    }
    int rc = statvfs(dir, &fs);
    double room = rc ? 0 : (double)fs.f_bavail * (double)fs.f_frsize / (1 << 20);
    char *slash = strrchr(dir, '/');
    int length = slash ? (int)(slash - dir) : (int)strlen(dir);
    if (rc || room < need)
        say(NOT_OK, "spool", "%.*s: %.0f MiB free, one rank needs %.0f", length, dir, room, need);
    else
        say(OK, "spool", "%.*s: %.0f MiB free, enough for %.0f ranks (%.0f MiB each)", length, dir,
            room, room / need, need);
    spool_place_remove(dir);
}

static void check_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        limit.rlim_cur < LG_SPOOL_BYTES)
        say(NOT_OK, "file size", "ulimit -f allows %llu bytes, a spool has %llu",
            (unsigned long long)limit.rlim_cur, (unsigned long long)LG_SPOOL_BYTES);
    else
        say(OK, "file size", "ulimit -f leaves room for a spool");
}

static void check_run_dir(void)
{
    char dir[PATH_MAX];
    if (!getcwd(dir, sizeof(dir)))
        say(NOT_OK, "run directory", "the current directory is gone");
    else if (access(dir, W_OK | X_OK))
        say(NOT_OK, "run directory", "%s: %s; give -o, else it goes to $TMPDIR", dir,
            strerror(errno));
    else
        say(OK, "run directory", "%s%s", dir,
            rundir_is_network(dir) ? " (network: databases are copied there)" : "");
}

/* --- the command --------------------------------------------------------------------------- */

static void check_program(const struct program *program)
{
    const char *path = program->path;
    if (*program->script)
        say(OK, "script", "%s, run by %s", program->script, path);
    if (program->foreign)
        say(NOT_OK, "program", "%s: built for another machine than the library", path);
    else if (program->is_static)
        say(NOT_OK, "program", "%s: static: LD_PRELOAD has no effect on it", path);
    else if (program->privileged)
        say(NOT_OK, "program", "%s: setuid, setgid or with capabilities: LD_PRELOAD is dropped",
            path);
    else if (program->musl)
        say(NOT_OK, "program", "%s: linked with musl: the library does nothing there", path);
    else
        say(OK, "program", "%s: dynamic, of this machine", path);
}

static void check_sanitizer(const struct program *program)
{
    const char *preload = getenv("LD_PRELOAD");
    if (!program->sanitizer)
        return;
    if (preload &&
        (strstr(preload, "libasan") || strstr(preload, "libtsan") || strstr(preload, "clang_rt")))
        say(OK, "sanitizer", "its runtime is in LD_PRELOAD and stays first");
    else
        say(NOT_OK, "sanitizer", "its runtime wants to come first: put it into LD_PRELOAD");
}

static bool is_python(const char *path)
{
    const char *base = strrchr(path, '/');
    return strncmp(base ? base + 1 : path, "python", 6) == 0;
}

/* The version that this Python would import, from the package's metadata: nothing is imported. */
static void check_torch(const char *python)
{
    char text[256], *command = NULL;
    int major = 0, minor = 0;
    if (strchr(python, '\'') || asprintf(&command,
                                         "exec timeout 30 '%s' -c 'import importlib.metadata as m; "
                                         "print(m.version(\"torch\"))' 2>/dev/null",
                                         python) < 0)
        return;
    int status = output_of(command, text, sizeof(text));
    free(command);
    text[strcspn(text, "\n")] = '\0';
    if (status || sscanf(text, "%d.%d", &major, &minor) != 2)
        say(NOT_SET, "PyTorch", "%s has none", python);
    else if (major == 1 ? minor >= 13 : major == 2 && minor <= 15)
        say(OK, "PyTorch", "%s: a known version", text);
    else
        say(NOT_OK, "PyTorch", "%s: not a known version (1.13 to 2.15); its labels are not used",
            text);
}

static void check_command(char **command)
{
    struct program program;
    struct error error;
    if (!*command) {
        say(NOT_SET, "command", "none given: laggard doctor -- CMD...");
        return;
    }
    if (program_find(*command, &program, &error)) {
        say(NOT_OK, "command", "%s", error.text);
        return;
    }
    check_program(&program);
    check_sanitizer(&program);
    /* a script called python stands for the Python that it chooses */
    if (is_python(program.script))
        check_torch(program.script);
    else if (is_python(program.path))
        check_torch(program.path);
}

int cmd_doctor(int argc, char **argv)
{
    char **command = argv + 1;
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(help_text, stdout);
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "--") == 0) {
        command++;
    } else if (argc > 1 && *argv[1] == '-') {
        fprintf(stderr, "laggard doctor: unknown option %s (see laggard doctor --help)\n", argv[1]);
        return 2;
    }
    check_library();
    check_preload();
    check_spool();
    check_file_limit();
    check_run_dir();
    check_command(command);
    return bad ? 1 : 0;
}
