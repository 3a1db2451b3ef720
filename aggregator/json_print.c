/*
 * json_print.c - see json_print.h. Runs in the reading commands.
 */
#include "aggregator/json_print.h"

#include <stdlib.h>

int json_print(const json_t *value, size_t flags, FILE *out)
{
    char *text = value ? json_dumps(value, flags) : NULL;

    if (!text)
        return -1;
    /* such characters stand in strings only */
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        if (*c == 0x7f)
            fputs("\\u007f", out);
        else if (c[0] == 0xc2 && (c[1] & 0xe0) == 0x80)
            fprintf(out, "\\u%04x", *++c);
        else
            fputc(*c, out);
    free(text);
    return 0;
}
