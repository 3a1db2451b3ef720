/*
 * victim.c - see victim.h.
 */
#include "victim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct fake_torch torch;

void victim_load(const char *path)
{
    static const struct {
        const char *name;
        void *to;
    } table[] = {
        {"fake_import", &torch.import},
        {"fake_label", &torch.label},
        {"fake_execute", &torch.execute},
        {"fake_throw", &torch.raise},
        {"fake_set_gradients", &torch.set_gradients},
        {"fake_init_group", &torch.init_group},
        {"fake_init_old_group", &torch.init_old_group},
        {"fake_finalize", &torch.finalize},
        {"fake_finalized", &torch.finalized},
        {"fake_member_pointer", &torch.member_pointer},
        {"fake_wait", &torch.wait},
        {"fake_allreduce", &torch.allreduce},
    };
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        fprintf(stderr, "victim: %s\n", dlerror());
        exit(2);
    }
    for (unsigned i = 0; i < sizeof table / sizeof table[0]; i++) {
        void *f = dlsym(handle, table[i].name);
        if (f == NULL) {
            fprintf(stderr, "victim: no %s\n", table[i].name);
            exit(2);
        }
        memcpy(table[i].to, &f, sizeof f);
    }
}

void victim_sleep(long microseconds)
{
    struct timespec t = {microseconds / 1000000, microseconds % 1000000 * 1000};
    while (nanosleep(&t, &t) != 0)
        ;
}

void victim_sleep_body(void *microseconds)
{
    victim_sleep(*(const int *)microseconds);
}

static void labelled(const char *name, int microseconds)
{
    torch.label(name, victim_sleep_body, &microseconds);
}

void victim_input(void)
{
    labelled("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", VICTIM_INPUT);
}

void victim_forward(void)
{
    labelled("DistributedDataParallel.forward", VICTIM_FORWARD);
}

void victim_optimizer(void)
{
    labelled("Optimizer.step#SGD.step", VICTIM_OPTIMIZER);
}

void victim_backward(fake_body node, void *argument)
{
    long got = torch.execute(3, 1, node, argument);
    if (got == -1)
        printf("caught an exception\n");
    else
        printf("%ld tensors, flags %ld\n", got % 100, got / 100);
}

void victim_backward_node(void *unused)
{
    int sync = VICTIM_SYNC;
    (void)unused;
    victim_sleep(VICTIM_BACKWARD);
    torch.finalize(victim_sleep_body, &sync);
}

void victim_train(int steps)
{
    for (int i = 0; i < steps; i++) {
        victim_input();
        victim_forward();
        victim_backward(victim_backward_node, NULL);
        victim_optimizer();
    }
}

void victim_train_fast(int steps)
{
    for (int i = 0; i < steps; i++) {
        torch.label("enumerate(DataLoader)#Fast.__next__", NULL, NULL);
        torch.label("DistributedDataParallel.forward", NULL, NULL);
        torch.execute(1, 1, NULL, NULL);
        torch.label("Optimizer.step#SGD.step", NULL, NULL);
    }
}
