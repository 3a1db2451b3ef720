/*
 * sanitized.c - a C program built with ASan or UBSan: reads, allocates, forks, and with an argument
 * (overflow, beyond) does what the sanitizer is there to find.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    volatile int number = INT_MAX;
    volatile char *p = malloc(16);
    int fd = open("/dev/zero", O_RDONLY), status = 0;
    printf("read %zd\n", read(fd, (char *)p, 16));
    fflush(stdout);
    if (fork() == 0)
        _exit(3);
    wait(&status);
    printf("child %d\n", WEXITSTATUS(status));
    fflush(stdout);
    if (argc > 1 && strcmp(argv[1], "overflow") == 0)
        printf("%d\n", number + argc);
    if (argc > 1 && strcmp(argv[1], "beyond") == 0)
        p[16] = 1;
    free((char *)p);
    return 7;
}
