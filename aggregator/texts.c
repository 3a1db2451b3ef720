/*
 * texts.c - small pieces of text that the diagnosis is written from: lists of texts, of ranks, and
 * times. Runs in the reading commands.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rules.h"

#define LISTED 8 /* ranges of ranks in a sentence; more are counted */

void lg_texts_add(struct lg_texts *texts, char *text)
{
    texts->text = lg_realloc(texts->text, texts->n + 1, sizeof(*texts->text));
    texts->text[texts->n++] = text;
}

void lg_texts_free(struct lg_texts *texts)
{
    for (size_t i = 0; i < texts->n; i++)
        free(texts->text[i]);
    free(texts->text);
    *texts = (struct lg_texts){0};
}

char *lg_texts_join(const struct lg_texts *texts, const char *separator)
{
    size_t length = 1;
    char *joined, *end;

    for (size_t i = 0; i < texts->n; i++)
        length += strlen(texts->text[i]) + strlen(separator);
    joined = end = lg_alloc(length, 1);
    for (size_t i = 0; i < texts->n; i++) {
        if (i > 0)
            end = stpcpy(end, separator);
        end = stpcpy(end, texts->text[i]);
    }
    return joined;
}

char *lg_rank_list(const int32_t *rank, size_t n)
{
    struct lg_texts ranges = {0};
    size_t i = 0, end;
    char *joined, *list;

    for (; i < n && ranges.n < LISTED; i = end) {
        for (end = i + 1; end < n && rank[end] == rank[end - 1] + 1;)
            end++;
        if (end - i < 3) /* two neighbours read better apart */
            end = i + 1;
        lg_texts_add(&ranges, end > i + 1 ? lg_format("%d-%d", rank[i], rank[end - 1])
                                          : lg_format("%d", rank[i]));
    }
    joined = lg_texts_join(&ranges, ", ");
    list = i < n ? lg_format("ranks %s and %zu more", joined, n - i)
                 : lg_format("%s %s", n == 1 ? "rank" : "ranks", joined);
    free(joined);
    lg_texts_free(&ranges);
    return list;
}

struct lg_ms lg_ms(double ms)
{
    struct lg_ms result;
    int digits = fabs(ms) < 9.995 ? 2 : fabs(ms) < 99.95 ? 1 : 0;

    snprintf(result.text, sizeof(result.text), "%.*f ms", digits, ms);
    return result;
}
