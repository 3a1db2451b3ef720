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
#include "aggregator/doctor.h"
#include "aggregator/doctor_program.h"
#include "aggregator/rows.h"
#include "aggregator/rundir.h"
#include "aggregator/spool_place.h"
#include "aggregator/trace_env.h"
#include "schema/spool.h"

static const char help_text[] =
    "usage: laggard doctor [-- CMD...]\n"
    "\n"
    "Says line by line what would be observed here: OK; LIMIT, where something is\n"
    "not; NOT OK, and why; NOT SET; behind -> what would help. With CMD it also looks\n"
    "at that program and its PyTorch. Nothing is run but Python for a moment, which\n"
    "imports nothing.\n"
    "\n"
    "  -h, --help  this text\n"
    "\n"
    "Exit status: 0 when no line is NOT OK, else 1; 2 bad usage.\n";

static char library_path[PATH_MAX]; /* ours, "" when it is not there */

static int bad; /* lines that are NOT OK */

void doctor_say(enum doctor_answer answer, const char *subject, const char *format, ...)
{
    static const char *const words[] = {"OK", "LIMIT", "NOT OK", "NOT SET"};
    va_list arguments;
    char *text = NULL;
    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0)
        text = NULL;
    va_end(arguments);
    if (text)
        error_clean(text);
    printf("%-8s %-14s %s\n", words[answer], subject, text ? text : "out of memory");
    free(text);
    fflush(stdout); /* what comes next may take a moment */
    bad += answer == DOCTOR_NOT_OK;
}

int doctor_output(const char *command, char *text, size_t size)
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

/* Loads it into a harmless program and looks whether it is there: ld.so only warns. `program` is
 * cat, or a Python that reads its own maps. */
static void check_loading(const char *library, const char *program)
{
    static char maps[1 << 17];
    bool cat = strcmp(program, "cat") == 0;
    const char *subject = cat ? "loading" : "in Python";
    char *command;
    if (strchr(library, '\'') || strchr(program, '\'')) {
        doctor_say(DOCTOR_NOT_SET, subject, "not tried: %s", library);
        return;
    }
    command = lg_format("LD_PRELOAD='%s' exec timeout 30 '%s' %s 2>&1", library, program,
                        cat ? "/proc/self/maps" : "-c 'print(open(\"/proc/self/maps\").read())'");
    int status = doctor_output(command, maps, sizeof(maps));
    free(command);
    if (status == 0 && strstr(maps, "/liblaggard.so\n"))
        doctor_say(DOCTOR_OK, subject, "the library loads into %s", program);
    else
        doctor_say(DOCTOR_NOT_OK, subject,
                   "the library does not load into %s: %.*s -> a library of this machine and libc "
                   "(make, make install)",
                   program, (int)strcspn(maps, "\n"), maps);
}

static void check_library(void)
{
    struct error error;
    if (trace_library(library_path, &error)) {
        *library_path = '\0';
        doctor_say(DOCTOR_NOT_OK, "library", "%s -> make install, or keep it beside laggard",
                   error.text);
    } else {
        doctor_say(DOCTOR_OK, "library", "%s", library_path);
        check_loading(library_path, "cat");
    }
}

static void check_switch(void)
{
    const char *disable = getenv("LAGGARD_DISABLE");
    if (disable) /* whatever its value is */
        doctor_say(DOCTOR_NOT_OK, "switch",
                   "LAGGARD_DISABLE=%s: the library does nothing -> unset LAGGARD_DISABLE",
                   disable);
    else
        doctor_say(DOCTOR_OK, "switch", "LAGGARD_DISABLE is not set");
}

static void check_preload(void)
{
    const char *preload = getenv("LD_PRELOAD");
    if (!preload || !*preload)
        doctor_say(DOCTOR_NOT_SET, "LD_PRELOAD", "nothing else is preloaded");
    else
        doctor_say(DOCTOR_OK, "LD_PRELOAD", "kept beside ours: %s", preload);
}

/* --- places -------------------------------------------------------------------------------- */

static void check_spool(void)
{
    char dir[PATH_MAX];
    struct error error;
    struct statvfs fs;
    double need = (double)LG_SPOOL_BYTES / (1 << 20);
    if (spool_place_make(".", dir, &error)) {
        doctor_say(DOCTOR_NOT_OK, "spool", "%s -> LAGGARD_SPOOL=DIR, local and with room",
                   error.text);
        return;
    }
    int rc = statvfs(dir, &fs);
    double room = rc ? 0 : (double)fs.f_bavail * (double)fs.f_frsize / (1 << 20);
    char *slash = strrchr(dir, '/');
    int length = slash ? (int)(slash - dir) : (int)strlen(dir);
    if (rc || room < need)
        doctor_say(
            DOCTOR_NOT_OK, "spool",
            "%.*s: %.0f MiB free, one rank needs %.0f -> LAGGARD_SPOOL=DIR, local and with room",
            length, dir, room, need);
    else
        doctor_say(DOCTOR_OK, "spool", "%.*s: %.0f MiB free, enough for %.0f ranks (%.0f MiB each)",
                   length, dir, room, room / need, need);
    spool_place_remove(dir);
}

static void check_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        limit.rlim_cur < LG_SPOOL_BYTES)
        doctor_say(DOCTOR_NOT_OK, "file size",
                   "ulimit -f allows %llu bytes, a spool has %llu -> ulimit -f unlimited",
                   (unsigned long long)limit.rlim_cur, (unsigned long long)LG_SPOOL_BYTES);
    else
        doctor_say(DOCTOR_OK, "file size", "ulimit -f leaves room for a spool");
}

static void check_run_dir(void)
{
    char dir[PATH_MAX];
    if (!getcwd(dir, sizeof(dir)))
        doctor_say(DOCTOR_NOT_OK, "run directory",
                   "the current directory is gone -> cd, or laggard run -o DIR");
    else if (access(dir, W_OK | X_OK))
        doctor_say(DOCTOR_NOT_OK, "run directory",
                   "%s: %s; the run would go to $TMPDIR -> laggard run -o DIR", dir,
                   strerror(errno));
    else
        doctor_say(DOCTOR_OK, "run directory", "%s%s", dir,
                   rundir_is_network(dir) ? " (network: databases are copied there)" : "");
}

/* --- the device ---------------------------------------------------------------------------- */

static bool is_env(const char *name, const char *value)
{
    const char *there = getenv(name);
    return there && strcmp(there, value) == 0;
}

static void check_device(void)
{
    if (access("/proc/driver/nvidia/version", R_OK) != 0 && access("/dev/nvidiactl", F_OK) != 0)
        doctor_say(DOCTOR_NOT_SET, "device clock", "no NVIDIA driver here: the host's clock");
    else if (is_env("LAGGARD_DEVICE_CLOCK", "0"))
        doctor_say(DOCTOR_LIMIT, "device clock",
                   "off: no device times -> unset LAGGARD_DEVICE_CLOCK");
    else if (is_env("CUDA_DEVICE_MAX_CONNECTIONS", "1"))
        doctor_say(DOCTOR_LIMIT, "device clock",
                   "off where CUDA_DEVICE_MAX_CONNECTIONS=1, since timed events would change the "
                   "order of launches -> unset it, unless the training needs it");
    else
        doctor_say(DOCTOR_OK, "device clock", "an NVIDIA driver is there: timed events are used");
}

/* --- the command --------------------------------------------------------------------------- */

/* Commands that start the training in a way that has to do with us. */
static const struct {
    const char *names; /* words between blanks */
    enum doctor_answer answer;
    const char *text;
} wrappers[] = {
    {" torchrun torchrun-script accelerate deepspeed ", DOCTOR_OK,
     "its ranks are its children: traced where they run on this host"},
    {" srun mpirun mpiexec mpiexec.hydra prun jsrun orterun ", DOCTOR_LIMIT,
     "ranks on other hosts have no recorder there: their rows wait in the run directory, which all "
     "hosts must share -> put the prefix behind it: srun laggard run -o DIR python ..."},
    {" ssh pdsh clush rsh ", DOCTOR_NOT_OK,
     "it passes no environment to the other host -> ssh HOST laggard run -o DIR ..."},
    {" docker podman nerdctl singularity apptainer enroot ", DOCTOR_NOT_OK,
     "a container has its own files and environment -> laggard run inside the container, with DIR "
     "mounted"},
    {" sudo su doas runuser ", DOCTOR_NOT_OK, "it drops LD_PRELOAD -> sudo laggard run ..."},
    {" ray ", DOCTOR_LIMIT,
     "workers are children of ray's daemon, not of this command -> eval \"$(laggard env -o DIR)\" "
     "before ray start"},
    {" env nohup time timeout nice taskset numactl stdbuf setsid bash sh dash zsh make ",
     DOCTOR_LIMIT,
     "what it starts is not looked at, and traced unless it clears its environment -> laggard "
     "doctor -- the command that it starts"},
};

static void check_wrapper(const char *command)
{
    const char *base = strrchr(command, '/');
    char word[NAME_MAX + 3];
    snprintf(word, sizeof(word), " %s ", base ? base + 1 : command);
    for (size_t i = 0; i < sizeof(wrappers) / sizeof(wrappers[0]); i++)
        if (strstr(wrappers[i].names, word))
            doctor_say(wrappers[i].answer, "wrapper", "%s: %s", base ? base + 1 : command,
                       wrappers[i].text);
}

static void check_program(const struct program *program)
{
    const char *path = program->path;
    if (*program->script)
        doctor_say(DOCTOR_OK, "script", "%s, run by %s", program->script, path);
    if (program->foreign)
        doctor_say(DOCTOR_NOT_OK, "program",
                   "%s: built for another machine than the library -> a library built for it",
                   path);
    else if (program->is_static)
        doctor_say(DOCTOR_NOT_OK, "program",
                   "%s: static: LD_PRELOAD has no effect on it -> link it dynamically", path);
    else if (program->privileged)
        doctor_say(DOCTOR_NOT_OK, "program",
                   "%s: setuid, setgid or with capabilities: LD_PRELOAD is dropped -> a copy "
                   "without them",
                   path);
    else if (program->musl)
        doctor_say(DOCTOR_NOT_OK, "program",
                   "%s: linked with musl: the library does nothing there -> a program for glibc",
                   path);
    else
        doctor_say(DOCTOR_OK, "program", "%s: dynamic, of this machine", path);
}

static void check_sanitizer(const struct program *program)
{
    const char *preload = getenv("LD_PRELOAD");
    if (!program->sanitizer)
        return;
    if (preload &&
        (strstr(preload, "libasan") || strstr(preload, "libtsan") || strstr(preload, "clang_rt")))
        doctor_say(DOCTOR_OK, "sanitizer", "its runtime is in LD_PRELOAD and stays first");
    else
        doctor_say(DOCTOR_NOT_OK, "sanitizer",
                   "its runtime wants to come first -> put it into LD_PRELOAD");
}

static bool is_python(const char *path)
{
    const char *base = strrchr(path, '/');
    return strncmp(base ? base + 1 : path, "python", 6) == 0;
}

static const char *our_library(void)
{
    return *library_path ? library_path : NULL;
}

static void check_python(const char *python)
{
    if (*library_path)
        check_loading(library_path, python);
    doctor_torch(python, our_library());
}

static void check_command(char **command)
{
    struct program program;
    struct error error;
    if (!*command) {
        doctor_say(DOCTOR_NOT_SET, "command", "none given: laggard doctor -- CMD...");
        return;
    }
    if (program_find(*command, &program, &error)) {
        doctor_say(DOCTOR_NOT_OK, "command", "%s", error.text);
        return;
    }
    check_wrapper(*command);
    check_program(&program);
    check_sanitizer(&program);
    /* a script called python stands for the Python that it chooses */
    if (is_python(program.script))
        check_python(program.script);
    else if (is_python(program.path))
        check_python(program.path);
    else
        doctor_calls(program.path, our_library());
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
        return error_say("doctor", "unknown option %s (see laggard doctor --help)", argv[1]);
    }
    check_library();
    check_switch();
    check_preload();
    check_spool();
    check_file_limit();
    check_run_dir();
    check_device();
    check_command(command);
    return bad ? 1 : 0;
}
