/*
 * torch_victim.c - a training loop on the fake PyTorch (fake_torch.h) that does what real ones do
 * to a tracer inside them: nested backward passes, exceptions, cancellation, jumps out of reads.
 *
 *     torch-victim LIBTORCH_PYTHON SCENARIO STEPS
 *
 * The libraries are loaded RTLD_LOCAL, as Python does. What it prints does not depend on time and
 * is the same with and without the library. Every stage sleeps at least the time of its constant
 * in victim.h, so a row in which a stage is shorter has charged that time elsewhere.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "victim.h"

/* ---- bodies of the stages */

static void throw_body(void *what)
{
    torch.raise(what);
}

static _Atomic bool hanging;

static void hang_body(void *unused)
{
    (void)unused;
    hanging = true;
    for (;;)
        pause(); /* a cancellation point */
}

static void leave_thread_body(void *unused)
{
    (void)unused;
    pthread_exit(NULL);
}

/* ---- scenarios */

/* A checkpointed block: a backward inside the backward, on the same thread; a gradient penalty:
 * autograd.grad in forward, which accumulates nothing. */
static void nested_node(void *unused)
{
    (void)unused;
    victim_backward(victim_sleep_body, &(int){VICTIM_BACKWARD / 2});
    victim_backward_node(NULL);
}

static void nested(int steps)
{
    for (int i = 0; i < steps; i++) {
        victim_input();
        victim_forward();
        torch.execute(1, 0, victim_sleep_body, &(int){VICTIM_FORWARD});
        victim_backward(nested_node, NULL);
        victim_optimizer();
    }
}

/* Every third step fails in backward; the program catches it and takes the next batch. */
static void throwing_steps(int steps, fake_body body, void *argument)
{
    for (int i = 0; i < steps; i++) {
        victim_input();
        victim_forward();
        if (i % 3 == 2) {
            victim_backward(body, argument);
            continue;
        }
        victim_backward(victim_backward_node, NULL);
        victim_optimizer();
    }
}

static void throws(int steps)
{
    throwing_steps(steps, throw_body, "out of memory");
}

static void throwing_sync(void *what)
{
    victim_sleep(VICTIM_BACKWARD);
    torch.finalize(throw_body, what);
}

static void throws_in_sync(int steps)
{
    throwing_steps(steps, throwing_sync, "connection closed by peer");
}

/* The training thread is cancelled, or leaves, inside a wait; main goes on training. */
struct ending {
    int steps;
    fake_body body;
    pid_t tid;
};

static void wait_in_node(void *body)
{
    torch.wait(0, *(const fake_body *)body, NULL);
}

static void *ending_thread(void *argument)
{
    struct ending *e = argument;
    e->tid = (pid_t)syscall(SYS_gettid);
    victim_train(e->steps);
    victim_input();
    victim_forward();
    victim_backward(wait_in_node, &e->body);
    printf("not reached\n");
    return argument;
}

static void end_a_thread(int steps, fake_body body, bool cancel)
{
    struct ending e = {steps, body, 0};
    pthread_t thread;
    void *result;
    if (pthread_create(&thread, NULL, ending_thread, &e) != 0)
        exit(2);
    if (cancel) {
        while (!hanging)
            victim_sleep(1000);
        pthread_cancel(thread);
    }
    pthread_join(thread, &result);
    while (syscall(SYS_tgkill, getpid(), e.tid, 0) == 0)
        victim_sleep(1000); /* the kernel (or qemu) is not done with it yet */
    printf("thread ended: %s\n", result == PTHREAD_CANCELED ? "cancelled"
                                 : result == NULL           ? "left"
                                                            : "returned");
    victim_train(steps);
}

static void cancelled(int steps)
{
    end_a_thread(steps, hang_body, true);
}

static void thread_left(int steps)
{
    end_a_thread(steps, leave_thread_body, false);
}

/* A signal handler leaves a blocking read by a jump: timeouts of old C libraries work so. The third
 * tick jumps, so that the read has been entered for long. */
static sigjmp_buf out;
static volatile sig_atomic_t ticks;

static void tick(int number)
{
    if (++ticks == 3)
        siglongjmp(out, number);
}

static void start_ticking(void)
{
    struct itimerval t = {{0, VICTIM_INPUT}, {0, VICTIM_INPUT}};
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    ticks = 0;
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &t, NULL);
}

static void stop_ticking(void)
{
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, NULL);
}

static void read_until_alarm(int descriptor)
{
    char byte;
    if (sigsetjmp(out, 1) == 0) {
        start_ticking();
        if (read(descriptor, &byte, 1) >= 0)
            printf("not reached\n");
    }
    stop_ticking();
}

static void jumps_out_of_read(int steps)
{
    int ends[2];
    if (pipe(ends) != 0)
        exit(2);
    for (int i = 0; i < steps; i++) {
        read_until_alarm(ends[0]);
        victim_forward();
        victim_backward(victim_backward_node, NULL);
        victim_optimizer();
    }
}

/* And one leaves a backward so: no cleanup runs, the nesting has to be repaired. Its frames lie
 * deeper than those of the labels that come next. */
static void tick_body(void *unused)
{
    start_ticking();
    hang_body(unused);
}

static __attribute__((noinline)) void deep_hang(volatile char *above)
{
    volatile char room[8192];
    room[0] = *above;
    torch.execute(1, 1, tick_body, NULL);
    printf("not reached %d\n", room[0]);
}

static void jump_out_of_backward(void)
{
    volatile char here = 0;
    if (sigsetjmp(out, 1) == 0)
        deep_hang(&here);
    stop_ticking();
}

static void jumps_out_of_backward(int steps)
{
    for (int i = 0; i < steps; i++) {
        victim_input();
        victim_forward();
        if (i == 2) {
            jump_out_of_backward();
            continue;
        }
        victim_backward(victim_backward_node, NULL);
        victim_optimizer();
    }
}

/* Collectives by hand between backward and optimizer; all three kinds of Work::wait. */
static void collectives(int steps)
{
    torch.init_group(1, 4);
    for (int i = 0; i < steps; i++) {
        victim_input();
        victim_forward();
        victim_backward(victim_sleep_body, &(int){VICTIM_BACKWARD});
        torch.allreduce(1000, victim_sleep_body, &(int){VICTIM_SYNC});
        for (int kind = 0; kind < 3; kind++)
            printf("waited %d\n", torch.wait(kind, victim_sleep_body, &(int){VICTIM_SYNC}));
        victim_optimizer();
    }
}

static void old_group(int steps)
{
    torch.init_old_group(2, 3);
    victim_train(steps);
}

/* Evaluation: forward without gradients, batches of a second loader. */
static void evaluates(int steps)
{
    for (int i = 0; i < steps; i++) {
        victim_train(1);
        if (i % 2 == 1)
            continue;
        torch.set_gradients(0);
        victim_input();
        victim_forward();
        torch.set_gradients(1);
    }
}

/* Without labels and without Python's registration of the engine: a C++ program. */
static void engine_only(int steps)
{
    for (int i = 0; i < steps; i++) {
        victim_sleep(VICTIM_INPUT);
        victim_backward(victim_backward_node, NULL);
    }
}

/* Without sleeps; after some steps files may not grow any more, or the run directory is removed. */
static void fast_limited(int steps)
{
    struct rlimit small = {1 << 20, 1 << 20};
    victim_train_fast(steps / 2);
    setrlimit(RLIMIT_FSIZE, &small);
    victim_train_fast(steps - steps / 2);
}

static void fast_removed(int steps)
{
    victim_train_fast(steps / 2);
    printf("rm: %d\n", system("test -z \"$LAGGARD_DIR\" || rm -r \"$LAGGARD_DIR\""));
    victim_train_fast(steps - steps / 2);
}

/* The same, and no exit is reached. */
static void fast_killed(int steps)
{
    victim_train_fast(steps);
    fflush(stdout);
    raise(SIGKILL);
}

static const struct {
    const char *name;
    void (*run)(int steps);
    bool no_import;
} scenarios[] = {
    {"train", victim_train, false},
    {"fast", victim_train_fast, false},
    {"fast-limited", fast_limited, false},
    {"fast-removed", fast_removed, false},
    {"fast-killed", fast_killed, false},
    {"nested", nested, false},
    {"throws", throws, false},
    {"throws-in-sync", throws_in_sync, false},
    {"cancelled", cancelled, false},
    {"thread-left", thread_left, false},
    {"jumps-out-of-read", jumps_out_of_read, false},
    {"jumps-out-of-backward", jumps_out_of_backward, false},
    {"collectives", collectives, false},
    {"old-group", old_group, false},
    {"evaluates", evaluates, false},
    {"engine-only", engine_only, true},
};

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    victim_load(argv[1]);
    for (unsigned i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++) {
        if (strcmp(scenarios[i].name, argv[2]) != 0)
            continue;
        if (!scenarios[i].no_import)
            torch.import();
        printf("member pointer: %s\n", torch.member_pointer() % 2 == 0 ? "even" : "odd");
        scenarios[i].run(atoi(argv[3]));
        printf("finalized %ld times\n", torch.finalized());
        return 7;
    }
    fprintf(stderr, "torch-victim: no scenario %s\n", argv[2]);
    return 2;
}
