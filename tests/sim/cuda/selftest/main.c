/*
 * main.c - runs the stand-ins' own tests, each in a process of its own. Context: test program;
 * prints "N passed, N failed".
 */
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "selftest.h"

#define LIMIT_S 30

static char *complaint; /* of the running test, shared with its process */
static int passed, failed;

static void apply(const char *settings)
{
    char *copy = strdup(settings), *save = NULL;
    for (char *at = strtok_r(copy, " ", &save); at; at = strtok_r(NULL, " ", &save)) {
        char *value = strchr(at, '=');
        *value++ = 0;
        setenv(at, value, 1);
    }
    free(copy);
}

static void in_child(const struct test *test)
{
    alarm(LIMIT_S);
    if (test->settings)
        apply(test->settings);
    const char *wrong = test->run();
    snprintf(complaint, 4096, "%s", wrong ? wrong : "");
    _exit(wrong != NULL);
}

static void run(const struct test *test)
{
    int status = 0;
    strcpy(complaint, "it ended early");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        in_child(test);
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        strcpy(complaint, "it hangs");
    if (status)
        printf("FAIL %s: %s\n", test->name, complaint);
    status ? failed++ : passed++;
}

int main(int argc, char **argv)
{
    static const struct test *const all[] = {clock_tests, event_tests, copy_tests,  capture_tests,
                                             graph_tests, nccl_tests,  caller_tests};
    complaint = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (const struct test *t = all[i]; t->name; t++)
            if (argc < 2 || strstr(t->name, argv[1]))
                run(t);
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}
