/*
 * odd_allocator.c - a library to preload: an allocator whose first call opens and reads a file
 * under a lock that its own thread can't take twice, and a constructor and a destructor that read,
 * poll and allocate. Runs before, beside and after the library under test.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGN = 16 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *room;
static size_t left;

static void use_hooked_calls(void)
{
    char text[64];
    struct pollfd none = {-1, POLLIN, 0};
    int fd = open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
    if (read(fd, text, sizeof text) <= 0 || poll(&none, 1, 0) != 0)
        _exit(99);
    close(fd);
}

static void *take(size_t size)
{
    size_t whole = (size + 2 * ALIGN - 1) / ALIGN * ALIGN;
    pthread_mutex_lock(&lock);
    if (room == NULL)
        use_hooked_calls();
    if (left < whole) {
        left = whole > 1 << 26 ? whole : 1 << 26;
        room = mmap(NULL, left, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    char *p = room + ALIGN;
    memcpy(p - sizeof size, &size, sizeof size);
    room += whole;
    left -= whole;
    pthread_mutex_unlock(&lock);
    return p;
}

void *malloc(size_t size);
void *calloc(size_t n, size_t size);
void *realloc(void *old, size_t size);
void free(void *p);

void *malloc(size_t size)
{
    return take(size);
}

void *calloc(size_t n, size_t size)
{
    return take(n * size); /* fresh pages are zero, and none is used twice */
}

void *realloc(void *old, size_t size)
{
    size_t before = 0;
    char *p = take(size);
    if (old != NULL)
        memcpy(&before, (char *)old - sizeof before, sizeof before);
    if (old != NULL)
        memcpy(p, old, before < size ? before : size);
    return p;
}

void free(void *p)
{
    (void)p;
}

__attribute__((constructor(101))) static void begin(void)
{
    use_hooked_calls();
    (void)!malloc(10);
}

__attribute__((destructor(101))) static void end(void)
{
    use_hooked_calls();
    if (write(STDOUT_FILENO, "last words\n", 11) != 11)
        _exit(98);
}
