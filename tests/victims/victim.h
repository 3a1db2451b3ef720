/*
 * victim.h - what the C programs of the tests share: the fake PyTorch, loaded as Python loads the
 * real one, and the steps of a usual training loop on it.
 */
#ifndef LAGGARD_TESTS_VICTIMS_VICTIM_H
#define LAGGARD_TESTS_VICTIMS_VICTIM_H

#include <stdint.h>

#include "fake_torch_api.h"

/* Microseconds that each stage sleeps at least; tests/victims/guest.py knows them, too. */
enum {
    VICTIM_INPUT = 2000,
    VICTIM_FORWARD = 3000,
    VICTIM_BACKWARD = 4000,
    VICTIM_SYNC = 1500,
    VICTIM_OPTIMIZER = 1000
};

/* The functions of fake_torch_api.h, after victim_load(). */
struct fake_torch {
    void (*import)(void);
    void (*label)(const char *, fake_body, void *);
    long (*execute)(long, int, fake_body, void *);
    void (*raise)(const char *);
    void (*set_gradients)(int);
    void (*init_group)(int, int);
    void (*init_old_group)(int, int);
    void (*finalize)(fake_body, void *);
    long (*finalized)(void);
    uintptr_t (*member_pointer)(void);
    int (*wait)(int, fake_body, void *);
    void (*allreduce)(long, fake_body, void *);
};
extern struct fake_torch torch;

/* Loads libtorch_python.so, RTLD_LOCAL. Ends the program with status 2 where it can't. */
void victim_load(const char *path);

void victim_sleep(long microseconds);
/* the same as a body of fake_torch_api.h; argument: int * */
void victim_sleep_body(void *microseconds);

/* One label around a sleep. */
void victim_input(void);
void victim_forward(void);
void victim_optimizer(void);
/* Engine::execute with that node; says on standard output what came back. */
void victim_backward(fake_body node, void *argument);
/* The usual node: a sleep, then the gradient sync. */
void victim_backward_node(void *unused);

/* Whole steps of those. */
void victim_train(int steps);
/* The same without any sleep and without a word. */
void victim_train_fast(int steps);

#endif
