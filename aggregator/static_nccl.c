/*
 * static_nccl.c - see static_nccl.h. Runs in the recorder.
 *
 * RATIONALE: symbols are no help, since programs are stripped and a framework hides what it links
 * in. But each NCCL carries the text that NCCL_DEBUG=VERSION prints, "NCCL
 * version 2.28.3+cuda13.0".
 */
#include "aggregator/static_nccl.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MARK      "NCCL version "
#define MARK_SIZE (sizeof(MARK) - 1)
#define OVERLAP   64         /* no such text is longer */
#define PIECE     (1u << 20) /* read at a time */
#define PIECES    2048u      /* of a larger file no more is read */

void nccl_may_be_inside(const struct rank_info *info, const char *program, char *path, size_t size)
{
    const char *slash = strrchr(info->torch_path, '/');

    *path = '\0';
    if (!(info->seen & LG_SEEN_TORCH))
        snprintf(path, size, "%s", program);
    else if (slash && (info->seen & LG_SEEN_CUDA))
        snprintf(path, size, "%.*s/libtorch_cuda.so", (int)(slash - info->torch_path),
                 info->torch_path);
}

/* "2.28.3+cuda13.0", not any other sentence of a program about versions. */
static int take_version(const char *text, char *version, size_t size)
{
    int dots = 0;
    size_t n = 0;

    while (isdigit((unsigned char)text[n]) || (n > 0 && text[n] == '.'))
        dots += text[n++] == '.';
    size_t suffix = n + strcspn(text + n, "+ \n");
    if (dots < 1 || strncmp(text + suffix, "+cuda", 5) != 0)
        return 0;
    snprintf(version, size, "%.*s", (int)n, text);
    return 1;
}

/* The buffer ends with a zero. */
static int search(const char *buffer, size_t size, char *version, size_t room)
{
    const char *end = buffer + size, *at = buffer;

    while ((at = memmem(at, (size_t)(end - at), MARK, MARK_SIZE)) != NULL) {
        at += MARK_SIZE;
        if (take_version(at, version, room))
            return 1;
    }
    return 0;
}

int nccl_inside(const char *path, char *version, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), found = 0;
    char *buffer = fd < 0 ? NULL : malloc(OVERLAP + PIECE + 1);
    size_t kept = 0;
    ssize_t n;

    for (unsigned i = 0; buffer && !found && i < PIECES; i++) {
        n = read(fd, buffer + kept, PIECE);
        if (n <= 0)
            break;
        size_t all = kept + (size_t)n;
        buffer[all] = '\0';
        found = search(buffer, all, version, size);
        kept = all < OVERLAP ? all : OVERLAP;
        memmove(buffer, buffer + all - kept, kept);
    }
    free(buffer);
    if (fd >= 0)
        close(fd);
    return found;
}
