/*
 * import.h - the parts of `laggard import`: lines of JSON are checked (import_line.c), sorted by
 * rank and written as rank databases (import_write.c). Runs in the importing command.
 *
 * A line is an object. With a key "table" it is a row of that table:
 *     {"table": "meta", "expected_ranks": [0, 1], "strategy": "ddp", "world_size": 2, "command":
 * ""}
 *     {"table": "rank" | "collective" | "event" | "worker" | "comm_group" | "loss", "rank": 0, ...}
 * with the columns of schema/rank.sql as keys; without it, of table step: rank, step and the
 * columns of schema/columns.def. A key that is not there is null: not measured.
 */
#ifndef LAGGARD_AGGREGATOR_IMPORT_H
#define LAGGARD_AGGREGATOR_IMPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "aggregator/rankdb.h"

#define IMPORT_MAX_RANK INT32_MAX

enum import_kind { IMPORT_STEP, IMPORT_META, IMPORT_ROW };

struct import_line {
    enum import_kind kind;
    int64_t rank, step;        /* step: IMPORT_STEP only */
    int64_t value[LG_COLUMNS]; /* IMPORT_STEP */
    json_t *object;            /* the line; owned, except for IMPORT_STEP (NULL) */
    bool odd_other;            /* other_ns was given and is not what is left of dur_ns */
};

/* What the whole run is: set by lines of table meta. */
struct import_meta {
    json_t *expected_ranks; /* array of integers, NULL: not declared */
    char *strategy, *command;
    int64_t world_size; /* LG_NULL: not declared */
};

/* Parses and checks one line. Fails with what is wrong, without the line's number. */
int import_parse(const char *text, size_t length, struct import_line *line, struct error *error);
int import_take_meta(struct import_meta *meta, const json_t *object, struct error *error);
void import_meta_free(struct import_meta *meta);

struct import_writer;

/* Databases are made in a directory of their own inside `dir` (made if need be) and moved to their
 * place by import_writer_finish(), so that a failed import leaves nothing. Fails when `dir` holds a
 * run already. */
struct import_writer *import_writer_open(const char *dir, struct error *error);

/* Takes the line over (line->object, too). Rows of IMPORT_ROW are checked against the columns of
 * their table here. */
int import_writer_add(struct import_writer *writer, struct import_line *line, struct error *error);

/* Writes what is left and moves everything into place. */
int import_writer_finish(struct import_writer *writer, const struct import_meta *meta,
                         struct error *error);

/* Ranks seen so far. */
size_t import_writer_ranks(const struct import_writer *writer);

/* Frees; without a successful import_writer_finish() before, removes all that was made. */
void import_writer_close(struct import_writer *writer);

#endif
