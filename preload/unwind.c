/*
 * unwind.c - lets C++ exceptions and thread cancellation pass through hooks and run their cleanups,
 * without linking libgcc_s. Context: the unwinder, while an exception is in flight.
 *
 * RATIONALE: code built with -fexceptions refers to __gcc_personality_v0 and _Unwind_Resume. Linked
 * dynamically they would make libgcc_s a dependency of every program; linked statically they would
 * bring symbols newer than glibc 2.28 and a second unwinder. When an exception is in flight
 * libgcc_s is loaded already: these hidden twins find it and hand over.
 */
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/hooks.h"

enum { URC_CONTINUE_UNWIND = 8 };

int __gcc_personality_v0(int version, int actions, uint64_t exception_class, void *exception,
                         void *context) __attribute__((visibility("hidden")));
void _Unwind_Resume(void *exception) __attribute__((visibility("hidden")));

/* Without a real personality the frame has no cleanups: the machine repairs its nesting later. */
int __gcc_personality_v0(int version, int actions, uint64_t exception_class, void *exception,
                         void *context)
{
    real_gcc_personality_fn next = REAL(gcc_personality);
    if (next == NULL || REAL(unwind_resume) == NULL)
        return URC_CONTINUE_UNWIND;
    return next(version, actions, exception_class, exception, context);
}

void _Unwind_Resume(void *exception)
{
    REAL(unwind_resume)(exception);
    for (;;) /* it does not return, and without it no cleanup of ours was entered */
        syscall(SYS_exit_group, 134);
}
