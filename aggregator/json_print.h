/*
 * json_print.h - JSON as the reading commands write it.
 */
#ifndef LAGGARD_AGGREGATOR_JSON_PRINT_H
#define LAGGARD_AGGREGATOR_JSON_PRINT_H

#include <stdio.h>

#include <jansson.h>

/* Writes `value` with flags of json_dumps. Control characters above those that JSON must escape
 * (DEL, U+0080 to U+009F) are escaped as well, since the output may be a terminal. 0, or -1 when
 * memory is out or value is NULL. */
int json_print(const json_t *value, size_t flags, FILE *out);

#endif
