/*
 * text.h - building short strings in caller's memory: no stdio, no allocation. Context: any.
 */
#ifndef LAGGARD_PRELOAD_TEXT_H
#define LAGGARD_PRELOAD_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A string under construction; always NUL-terminated. `full` is set when something did not fit. */
struct lg_text {
    char *begin;
    size_t used, size;
    bool full;
};

static inline struct lg_text lg_text_start(char *buffer, size_t size)
{
    buffer[0] = 0;
    return (struct lg_text){buffer, 0, size, false};
}

static inline void lg_text_add(struct lg_text *t, const char *s)
{
    for (; *s != 0; s++) {
        if (t->used + 1 >= t->size) {
            t->full = true;
            return;
        }
        t->begin[t->used++] = *s;
        t->begin[t->used] = 0;
    }
}

static inline void lg_text_add_number(struct lg_text *t, uint64_t v)
{
    char digits[21];
    size_t i = sizeof digits - 1;
    digits[i] = 0;
    do {
        digits[--i] = (char)('0' + v % 10);
        v /= 10;
    } while (v != 0);
    lg_text_add(t, digits + i);
}

/* Decimal digits from `s`; *end points behind the last one. */
static inline uint64_t lg_parse_number(const char *s, const char **end)
{
    uint64_t v = 0;
    while (*s >= '0' && *s <= '9')
        v = v * 10 + (uint64_t)(*s++ - '0');
    *end = s;
    return v;
}

static inline void lg_copy(char *to, size_t size, const char *from)
{
    struct lg_text t = lg_text_start(to, size);
    lg_text_add(&t, from);
}

#endif
