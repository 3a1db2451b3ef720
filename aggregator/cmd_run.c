/*
 * cmd_run.c - `laggard run`: starts a command with the library in its environment, records what its
 * processes write while it runs, and says one line at the end.
 *
 * Whatever is wrong on our side, the command runs: untraced, if it must be, and the line at the end
 * says why.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "aggregator/cmd.h"
#include "aggregator/collect.h"
#include "aggregator/launch.h"
#include "aggregator/recorder.h"
#include "aggregator/rows.h"
#include "aggregator/rundir.h"
#include "aggregator/spool_place.h"
#include "aggregator/trace_env.h"

#define PASS_NS    INT64_C(1000000000) /* between passes */
#define SOONEST_NS INT64_C(200000000)  /* ... at least: 5 wake-ups a second */
#define LIMIT_NS   INT64_C(200000000)  /* of a pass: signals wait meanwhile */
#define LAST_TRIES 10                  /* passes after the command's end, 50 ms apart */

struct run {
    char *const *argv;
    const char *wanted_dir;
    int quiet;
    int joined; /* to a run of another host: its line is said there */
    char dir[PATH_MAX];
    int dir_fd;          /* the same, wherever it is moved; -1: none */
    char file[PATH_MAX]; /* run.sqlite */
    char note[PATH_MAX + 256];
    char earlier[sizeof(((struct rundir_info *)0)->command)]; /* the run that DIR holds, "": none */
    char preload[8192], library[PATH_MAX], recorder_value[PATH_MAX + 128];
    struct rundir_info info;
    struct recorder *recorder;
    struct launch launch;
    struct recorder_result result;
};

static void usage(void)
{
    puts("usage: laggard run [-o DIR] [--quiet] [--] CMD...\n\n"
         "Runs CMD traced. Its exit status is CMD's, and so are its terminal and its\n"
         "output. A signal from the keyboard reaches CMD once, from the terminal; one that\n"
         "a process sends to laggard is passed on, once. Nothing is written before CMD\n"
         "ends, except one line when DIR holds a run already.\n\n"
         "  -o DIR, --output DIR  the run directory (laggard-YYYYmmdd-HHMMSS-PID)\n"
         "  -q, --quiet           no line of laggard's own\n"
         "  -h, --help            this text\n\n"
         "Exit status: CMD's; the signal that killed CMD ends laggard as well (a shell\n"
         "shows 128 + signal). 2 bad usage, 125 laggard's own failure, 126 CMD can't be\n"
         "executed, 127 CMD was not found.");
}

static int64_t now_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- before the command starts ---- */

static void untraced(struct run *run, const char *why)
{
    if (!*run->info.untraced)
        snprintf(run->info.untraced, sizeof(run->info.untraced), "%s", why);
}

static int is_control(char c)
{
    return (unsigned char)c < 0x20 || c == 0x7f;
}

/* How a word is quoted: 0 not at all, ' or, where a control character would break the line, $ for
 * the form of POSIX 2024 and bash, $'\n'. */
static char quotes_of(const char *word)
{
    for (const char *c = word; *c; c++)
        if (is_control(*c))
            return '$';
    return *word && !strpbrk(word, " '\"\\$`*?[]{}()<>|&;#~!") ? 0 : '\'';
}

/* A character inside quotes of that kind; at most 4 of them are written. */
static void quote_character(char quotes, char c, char text[5])
{
    if (quotes == '$' && is_control(c))
        snprintf(text, 5, "\\%03o", (unsigned)(unsigned char)c);
    else if (quotes == '$' && (c == '\'' || c == '\\'))
        snprintf(text, 5, "\\%c", c);
    else
        snprintf(text, 5, c == '\'' ? "'\\''" : "%c", c);
}

/* The command line, quoted so that a shell would read it back. */
static void quote_command(char *const argv[], char *out, size_t size)
{
    static const char *const opening[] = {"", "'", "$'"};
    size_t used = 0;
    char text[5];

    *out = '\0';
    for (; *argv && used + 5 < size; argv++) {
        char quotes = quotes_of(*argv);
        used += (size_t)snprintf(out + used, size - used, "%s%s", used ? " " : "",
                                 opening[quotes == '$' ? 2 : quotes != 0]);
        for (const char *c = *argv; *c && used + 6 < size; c++) {
            quote_character(quotes, *c, text);
            used += (size_t)snprintf(out + used, size - used, "%s", text);
        }
        if (quotes)
            used += (size_t)snprintf(out + used, size - used, "'");
    }
}

/* A run that this one belongs to: the prefix stands inside another prefix. */
enum outer { OUTER_NONE, OUTER_HERE, OUTER_ELSEWHERE };

static enum outer find_outer(void)
{
    struct process_id recorder;
    const char *dir = getenv("LAGGARD_DIR");

    if (!dir || *dir != '/' || trace_recorder_parse(getenv("LAGGARD_RECORDER"), &recorder) != 0)
        return OUTER_NONE;
    switch (process_state(&recorder)) {
    case PROCESS_ALIVE:
        return OUTER_HERE;
    case PROCESS_ELSEWHERE:
        return OUTER_ELSEWHERE;
    default:
        return OUTER_NONE;
    }
}

/* Other recorders of the same directory at the same time are of the same run. */
static void find_same_run(void *context, const struct rundir_info *there)
{
    struct run *run = context;

    if (!*run->info.run_id && rundir_in_progress(there))
        snprintf(run->info.run_id, sizeof(run->info.run_id), "%s", there->run_id);
}

static void choose_run_id(struct run *run)
{
    struct rundir_info newest;
    const char *outer = getenv("LAGGARD_RUN");

    if (run->joined && outer && strlen(outer) == 32)
        snprintf(run->info.run_id, sizeof(run->info.run_id), "%s", outer);
    else
        rundir_each(run->dir, find_same_run, run);
    if (*run->info.run_id)
        return;
    trace_new_run_id(run->info.run_id);
    if (rundir_newest(run->dir, &newest, NULL) == 0)
        snprintf(run->earlier, sizeof(run->earlier), "%s", newest.command);
}

static void describe_run(struct run *run)
{
    struct rundir_info *info = &run->info;

    quote_command(run->argv, info->command, sizeof(info->command));
    if (!getcwd(info->cwd, sizeof(info->cwd)))
        *info->cwd = '\0';
    snprintf(info->host, sizeof(info->host), "%s", process_host());
    info->start_ns = now_ns(CLOCK_REALTIME);
    info->exit_status = -1;
    process_self(&info->recorder);
}

static void prepare_directories(struct run *run)
{
    struct error error = {""};

    if (rundir_make(run->wanted_dir, run->dir, run->note, sizeof(run->note), &error) != 0) {
        *run->dir = '\0';
        untraced(run, error.text);
        return;
    }
    collect_run(run->dir, NULL); /* what an earlier run in this directory left */
    choose_run_id(run);
    if (*run->info.untraced)
        return;
    if (spool_place_make(run->dir, run->info.spool_dir, &error) != 0)
        untraced(run, error.text);
}

static void prepare_library(struct run *run)
{
    struct error error = {""};
    const char *disable = getenv("LAGGARD_DISABLE");

    if (disable) /* whatever its value: the library would do nothing */
        untraced(run, "LAGGARD_DISABLE is set");
    else if (trace_library(run->library, &error) != 0)
        untraced(run, error.text);
    else if (trace_preload(getenv("LD_PRELOAD"), run->library, run->preload,
                           sizeof(run->preload)) != 0)
        untraced(run, "LD_PRELOAD is too long");
}

static void prepare(struct run *run)
{
    struct error error = {""};

    describe_run(run);
    prepare_library(run);
    prepare_directories(run);
    if (*run->dir && rundir_write(run->dir, run->file, &run->info, run->argv, &error) != 0)
        untraced(run, error.text);
    if (trace_recorder_format(&run->info.recorder, run->info.spool_dir, run->recorder_value,
                              sizeof(run->recorder_value)) != 0)
        untraced(run, "the path of the spool directory is too long");
}

/* ---- while it runs ---- */

static int start(struct run *run, struct error *error)
{
    const struct launch_variable traced[] = {{"LD_PRELOAD", run->preload},
                                             {"LAGGARD_DIR", run->dir},
                                             {"LAGGARD_RUN", run->info.run_id},
                                             {"LAGGARD_RECORDER", run->recorder_value},
                                             {NULL, NULL}};
    return launch_start(&run->launch, run->argv, *run->info.untraced ? NULL : traced, error);
}

/* Out of the command's way: its terminal, its directories, its processors. */
static void step_aside(void)
{
    struct sched_param none = {0};
    struct rlimit files;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (null >= 0) {
        /* a pipe must end when the command closes it */
        dup2(null, STDIN_FILENO);
        dup2(null, STDOUT_FILENO);
        if (null > STDERR_FILENO)
            close(null);
    }
    if (chdir("/") != 0)
        return;
    sched_setscheduler(0, SCHED_BATCH, &none);
    if (getpriority(PRIO_PROCESS, 0) < 10)
        setpriority(PRIO_PROCESS, 0, 10);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

static void open_recorder(struct run *run)
{
    struct recorder_options options = {.run_dir = run->dir};
    char database_dir[PATH_MAX], local[PATH_MAX + 64 + 8];
    struct error error = {""};

    if (*run->info.untraced)
        return;
    recorder_database_dir(run->dir, run->info.spool_dir, database_dir);
    options.database_dir = database_dir;
    run->recorder = recorder_new(&options, &error);
    if (!run->recorder)
        return;
    recorder_limit(run->recorder, LIMIT_NS);
    recorder_add_dir(run->recorder, run->info.spool_dir);
    /* where a rank goes when the spool directory is full */
    snprintf(local, sizeof(local), "%s/spool/%s", run->dir, process_host());
    recorder_add_dir(run->recorder, local);
}

static void record_while_running(struct run *run)
{
    struct launch *launch = &run->launch;
    int64_t last = now_ns(CLOCK_MONOTONIC), next = last + SOONEST_NS;
    int woken = 0;

    for (launch_handle(launch); !launch->ended; launch_handle(launch)) {
        int64_t now = now_ns(CLOCK_MONOTONIC);
        if (run->recorder && now >= next) {
            recorder_pass(run->recorder);
            last = now_ns(CLOCK_MONOTONIC);
            next = last + (recorder_is_pressed(run->recorder) ? SOONEST_NS : PASS_NS);
            woken = 0;
            continue;
        }
        struct pollfd waiting[] = {
            {.fd = launch->signals, .events = POLLIN},
            {.fd = run->recorder && !woken ? recorder_descriptor(run->recorder) : -1,
             .events = POLLIN}};
        int timeout = run->recorder ? (int)((next - now) / 1000000) + 1 : -1;
        poll(waiting, 2, timeout);
        if (waiting[1].revents) {
            woken = 1;
            next = last + SOONEST_NS < next ? last + SOONEST_NS : next;
        }
    }
}

/* Ranks that die with the command get a moment; those that outlive it are left to `report`. */
static void record_the_end(struct run *run)
{
    const struct timespec pause = {0, 50000000};

    if (!run->recorder)
        return;
    recorder_limit(run->recorder, 0);
    for (int i = 0; i < LAST_TRIES; i++) {
        recorder_pass(run->recorder);
        recorder_result(run->recorder, &run->result);
        if (run->result.running == 0 && run->result.failed == 0)
            break;
        nanosleep(&pause, NULL);
    }
    recorder_free(run->recorder);
    run->recorder = NULL;
}

/* ---- afterwards ---- */

/* Where ranks went that found the spool directory full: empty by now, if it is there at all. */
static void tidy_run_dir(const struct run *run)
{
    char path[PATH_MAX + 64 + 8];
    snprintf(path, sizeof(path), "%s/spool/%s", run->dir, process_host());
    rmdir(path);
    snprintf(path, sizeof(path), "%s/spool", run->dir);
    rmdir(path);
}

/* Where the run directory is now: somebody may have moved it while the command ran. */
static void follow_directory(struct run *run)
{
    char link[64], now[PATH_MAX];
    struct stat held, there;

    if (run->dir_fd < 0)
        return;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", run->dir_fd);
    ssize_t n = readlink(link, now, sizeof(now) - 1);
    now[n > 0 ? n : 0] = '\0';
    if (strcmp(now, run->dir) != 0 && fstat(run->dir_fd, &held) == 0 && stat(now, &there) == 0 &&
        held.st_dev == there.st_dev && held.st_ino == there.st_ino &&
        strncmp(run->file, run->dir, strlen(run->dir)) == 0) {
        char name[NAME_MAX + 1];
        snprintf(name, sizeof(name), "%s", strrchr(run->file, '/') + 1);
        snprintf(run->dir, sizeof(run->dir), "%s", now);
        snprintf(run->file, sizeof(run->file), "%.*s/%s",
                 (int)(sizeof(run->file) - sizeof(name) - 1), now, name);
    }
    close(run->dir_fd);
    run->dir_fd = -1;
}

static void finish_run(struct run *run)
{
    struct collect_result other;
    struct error error;
    int written;

    if (!*run->dir)
        return;
    follow_directory(run);
    run->info.end_ns = now_ns(CLOCK_REALTIME);
    run->info.exit_status = launch_exit_status(&run->launch);
    run->info.signal = launch_signal(&run->launch);
    run->info.interrupted = run->launch.interrupted;
    written = rundir_write(run->dir, run->file, &run->info, run->argv, &error) == 0;
    if (!written && run->result.failed == 0) {
        run->result.failed = 1;
        snprintf(run->result.note, sizeof(run->result.note), "%s", error.text);
    }
    /* what came from other hosts, and once more what could not be stored so far */
    collect_run(run->dir, &other);
    run->result.ranks += other.collected + other.running;
    if (written || other.failed > 0) {
        run->result.failed = other.failed;
        snprintf(run->result.note, sizeof(run->result.note), "%s", other.note);
    }
    if (*run->info.spool_dir)
        spool_place_remove(run->info.spool_dir);
    tidy_run_dir(run);
}

/* The run directory as it is shortest to type, for a shell. */
static void show_dir(const struct run *run, char *shown, size_t size)
{
    size_t n = strlen(run->info.cwd);
    char path[PATH_MAX + 2];
    char *const word[] = {path, NULL};
    int inside = n > 1 && strncmp(run->dir, run->info.cwd, n) == 0 && run->dir[n] == '/';

    /* a name that begins like an option would be one */
    snprintf(path, sizeof(path), "%s%s", inside && run->dir[n + 1] == '-' ? "./" : "",
             inside ? run->dir + n + 1 : run->dir);
    quote_command(word, shown, size);
}

#define say(...) error_say("", __VA_ARGS__)

static void say_no_rank(const struct run *run)
{
    say("no rank was seen, so nothing was recorded: no process that loaded the library showed a "
        "sign of training (a PyTorch backward, a NCCL or Gloo communicator). Static and setuid "
        "programs and cleared environments stay unseen");
    if (cmd_doctor)
        say("next: laggard doctor -- %s", run->info.command);
}

/* The verdict is ours, the status is the command's. */
static const struct launch *ended;

static void leave_without_verdict(void)
{
    launch_exit_alike(ended);
}

static void say_verdict(const struct run *run, const char *shown)
{
    if (run->result.ranks > 0) {
        ended = &run->launch;
        lg_out_of_memory = leave_without_verdict;
        if (!report_verdict_line || report_verdict_line(run->dir) != 0)
            say("recorded in %s", shown);
        say("next: laggard report %s", shown);
    } else if (run->result.failed == 0) {
        say_no_rank(run);
    }
}

/* Rows that could not be moved stay in their spools, which nobody else will remove. */
static void say_failure(const struct run *run, const char *shown)
{
    if (run->result.failed == 0)
        return;
    say("%s could be stored: %s", run->result.ranks ? "not all rows" : "no row", run->result.note);
    if (*run->info.spool_dir && access(run->info.spool_dir, F_OK) == 0)
        say("they wait in %s; when that is mended, laggard report %s stores them",
            run->info.spool_dir, shown);
}

static void say_result(const struct run *run)
{
    char shown[PATH_MAX + 64];

    if (run->quiet || run->joined)
        return;
    if (*run->info.untraced) {
        say("the command ran untraced: %s", run->info.untraced);
        return;
    }
    if (*run->note)
        say("%s", run->note);
    if (access(run->dir, F_OK) != 0) {
        say("the run directory %s was removed while the command ran, and what was recorded with it",
            run->dir);
        return;
    }
    show_dir(run, shown, sizeof(shown));
    say_verdict(run, shown);
    if (run->result.running > 0)
        say("processes that still run: %d; laggard report %s collects their rows",
            run->result.running, shown);
    say_failure(run, shown);
}

/* ---- the command ---- */

/* Joins the run of the recorder above us: nothing of ours is left in the way. */
static int join(struct run *run)
{
    struct error error = {""};
    struct launch_variable traced[] = {{"LD_PRELOAD", run->preload}, {NULL, NULL}};

    prepare_library(run);
    int status = launch_exec(run->argv, *run->info.untraced ? NULL : traced, &error);
    error_exit(&error);
    return status;
}

static void remove_run(const struct run *run)
{
    if (*run->info.spool_dir)
        spool_place_remove(run->info.spool_dir);
    if (*run->file)
        unlink(run->file);
    if (*run->dir)
        rmdir(run->dir); /* only if it is empty */
}

/* No descriptor or no process is left for us: the command takes our place. */
static int run_alone(struct run *run, struct error *error)
{
    remove_run(run);
    if (!run->quiet && !run->joined)
        say("the command runs untraced: %s", error->text);
    int status = launch_exec(run->argv, NULL, error);
    error_exit(error);
    return status;
}

static int run_command(struct run *run)
{
    struct error error = {""};

    prepare(run);
    if (*run->earlier && !run->quiet && !run->joined)
        say("%s holds a run already (%s): it stays, the ranks of this one become further attempts",
            run->dir, run->earlier);
    int status = start(run, &error);
    if (status == 125)
        return run_alone(run, &error);
    if (status != 0) {
        remove_run(run);
        error_exit(&error);
        return status;
    }
    step_aside();
    run->dir_fd = *run->dir ? open(run->dir, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    open_recorder(run);
    record_while_running(run);
    record_the_end(run);
    finish_run(run);
    say_result(run);
    collect_leftovers();
    launch_exit_alike(&run->launch);
}

static int bad_usage(const char *what)
{
    return error_say("run", "%s (see laggard run --help)", what);
}

int cmd_run(int argc, char **argv)
{
    static const struct option options[] = {{"output", required_argument, NULL, 'o'},
                                            {"quiet", no_argument, NULL, 'q'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    static struct run run;
    char what[128];
    int option;

    launch_ignore_file_limit();
    opterr = 0;
    while ((option = getopt_long(argc, argv, "+:o:qh", options, NULL)) != -1)
        switch (option) {
        case 'o':
            run.wanted_dir = optarg;
            break;
        case 'q':
            run.quiet = 1;
            break;
        case 'h':
            usage();
            return 0;
        case ':':
            return bad_usage("-o needs a directory");
        default:
            snprintf(what, sizeof(what), "unknown option '%.80s'", argv[optind - 1]);
            return bad_usage(what);
        }
    if (run.wanted_dir && !*run.wanted_dir)
        return bad_usage("-o needs a directory");
    if (optind >= argc)
        return bad_usage("no command given");
    run.argv = argv + optind;
    enum outer outer = find_outer();
    if (outer == OUTER_HERE)
        return join(&run);
    run.joined = outer == OUTER_ELSEWHERE;
    /* inside `laggard env`, or a run of another host: that run's directory */
    if (run.joined || (!run.wanted_dir && getenv("LAGGARD_DIR") && !getenv("LAGGARD_RECORDER")))
        run.wanted_dir = getenv("LAGGARD_DIR");
    return run_command(&run);
}
