/*
 * sql_output.c - prints the rows of a statement for `laggard sql`: an aligned table for people, CSV
 * (RFC 4180 but for its line ends) and JSON (an array of objects) for programs. Runs in a reader.
 */
#include "aggregator/sql_output.h"

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/json_print.h"

/* Widths of a table come from its first rows; later ones may be wider and then push out the line.
 */
#define WIDTH_ROWS 1000

int sql_format_parse(const char *name)
{
    static const char *const names[] = {"table", "csv", "json"};
    for (int i = 0; i < 3; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return -1;
}

/* --- cells as text ------------------------------------------------------------------------- */

static char *blob_text(sqlite3_stmt *stmt, int column)
{
    const unsigned char *bytes = sqlite3_column_blob(stmt, column);
    int n = sqlite3_column_bytes(stmt, column);
    char *text = malloc((size_t)n * 2 + 1);
    if (!text)
        return NULL;
    for (int i = 0; i < n; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    text[2 * n] = '\0';
    return text;
}

/* One value as a new string; NULL for SQL's NULL (and when there is no memory). */
static char *cell_text(sqlite3_stmt *stmt, int column)
{
    switch (sqlite3_column_type(stmt, column)) {
    case SQLITE_NULL:
        return NULL;
    case SQLITE_BLOB:
        return blob_text(stmt, column);
    default: {
        const unsigned char *text = sqlite3_column_text(stmt, column);
        return text ? strdup((const char *)text) : NULL;
    }
    }
}

/* --- table --------------------------------------------------------------------------------- */

struct cell {
    char *text; /* escaped; owned */
    size_t width;
    bool number;
};

static size_t utf8_width(const char *text)
{
    size_t width = 0;
    for (; *text; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

/* The text with control characters as \n, \t or \xNN; a new string. */
static char *escaped(const char *text)
{
    char *copy = malloc(strlen(text) * 4 + 1), *to = copy;
    if (!copy)
        return NULL;
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '\n' || c == '\t') {
            *to++ = '\\';
            *to++ = c == '\n' ? 'n' : 't';
        } else if (c < 0x20 || c == 0x7f) {
            to += snprintf(to, 5, "\\x%02x", c);
        } else if (c == 0xc2 && (text[1] & 0xe0) == 0x80) { /* U+0080 to U+009F */
            to += snprintf(to, 5, "\\x%02x", (unsigned char)*++text);
        } else {
            *to++ = (char)c;
        }
    }
    *to = '\0';
    return copy;
}

static int table_cell(sqlite3_stmt *stmt, int column, struct cell *cell)
{
    int type = sqlite3_column_type(stmt, column);
    char *text = type == SQLITE_NULL ? strdup("NULL") : cell_text(stmt, column);
    if (!text)
        return -1;
    cell->text = escaped(text);
    free(text);
    if (!cell->text)
        return -1;
    cell->width = utf8_width(cell->text);
    cell->number = type != SQLITE_TEXT && type != SQLITE_BLOB;
    return 0;
}

static void print_cell(const struct cell *cell, size_t width, bool last, FILE *out)
{
    size_t pad = width > cell->width ? width - cell->width : 0;
    if (cell->number)
        fprintf(out, "%*s%s%s", (int)pad, "", cell->text, last ? "\n" : "  ");
    else if (last)
        fprintf(out, "%s\n", cell->text);
    else
        fprintf(out, "%s%*s  ", cell->text, (int)pad, "");
}

struct table {
    FILE *out;
    int columns;
    size_t *widths;
    bool *numbers; /* the column holds numbers only: its heading stands to the right as well */
    struct cell *cells;
    size_t rows;
};

static void table_flush(struct table *t, sqlite3_stmt *stmt, bool head)
{
    for (int c = 0; head && c < t->columns; c++) {
        struct cell cell = {escaped(sqlite3_column_name(stmt, c)), 0, t->numbers[c]};
        if (!cell.text)
            continue;
        cell.width = utf8_width(cell.text);
        print_cell(&cell, t->widths[c], c == t->columns - 1, t->out);
        free(cell.text);
    }
    for (size_t i = 0; i < t->rows * (size_t)t->columns; i++) {
        int c = (int)(i % (size_t)t->columns);
        print_cell(&t->cells[i], t->widths[c], c == t->columns - 1, t->out);
        free(t->cells[i].text);
    }
    t->rows = 0;
}

static int table_add(struct table *t, sqlite3_stmt *stmt)
{
    struct cell *row = t->cells + t->rows * (size_t)t->columns;
    for (int c = 0; c < t->columns; c++) {
        if (table_cell(stmt, c, &row[c])) {
            while (c--)
                free(row[c].text);
            return -1;
        }
    }
    t->rows++;
    return 0;
}

static void table_measure(struct table *t)
{
    for (size_t i = 0; i < t->rows * (size_t)t->columns; i++) {
        int c = (int)(i % (size_t)t->columns);
        t->widths[c] = t->cells[i].width > t->widths[c] ? t->cells[i].width : t->widths[c];
        t->numbers[c] &= t->cells[i].number;
    }
}

static int table_rows(struct table *t, sqlite3_stmt *stmt)
{
    bool head = true;
    int rc;
    while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        if (table_add(t, stmt)) {
            rc = SQLITE_NOMEM;
            break;
        }
        if (t->rows == WIDTH_ROWS) {
            if (head)
                table_measure(t);
            table_flush(t, stmt, head);
            head = false;
        }
    }
    if (head)
        table_measure(t);
    if (t->rows || (head && rc == SQLITE_DONE))
        table_flush(t, stmt, head);
    return rc;
}

static int output_table(sqlite3_stmt *stmt, FILE *out)
{
    struct table t = {.out = out, .columns = sqlite3_column_count(stmt)};
    size_t columns = (size_t)t.columns;
    t.widths = calloc(columns, sizeof(*t.widths));
    t.numbers = calloc(columns, sizeof(*t.numbers));
    t.cells = calloc(columns * WIDTH_ROWS, sizeof(*t.cells));
    int rc = SQLITE_NOMEM;
    if (t.widths && t.numbers && t.cells) {
        for (int c = 0; c < t.columns; c++) {
            char *name = escaped(sqlite3_column_name(stmt, c));
            t.widths[c] = name ? utf8_width(name) : 0;
            t.numbers[c] = true;
            free(name);
        }
        rc = table_rows(&t, stmt);
    }
    free(t.widths);
    free(t.numbers);
    free(t.cells);
    return rc;
}

/* --- CSV ----------------------------------------------------------------------------------- */

static void csv_text(const char *text, FILE *out)
{
    if (*text && !strpbrk(text, ",\"\r\n")) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"')
            fputc('"', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

/* Programs get a text as it is, a terminal without its control characters. */
static void csv_field(const char *text, FILE *out)
{
    char *shown = text && isatty(fileno(out)) ? escaped(text) : NULL;

    if (text)
        csv_text(shown ? shown : text, out);
    free(shown);
}

static int output_csv(sqlite3_stmt *stmt, FILE *out)
{
    int columns = sqlite3_column_count(stmt), rc;
    for (int c = 0; c < columns; c++) {
        csv_field(sqlite3_column_name(stmt, c), out);
        fputs(c == columns - 1 ? "\n" : ",", out);
    }
    while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        for (int c = 0; c < columns; c++) {
            char *text = cell_text(stmt, c);
            csv_field(text, out);
            free(text);
            fputs(c == columns - 1 ? "\n" : ",", out);
        }
    }
    return rc;
}

/* --- JSON ---------------------------------------------------------------------------------- */

static json_t *json_cell(sqlite3_stmt *stmt, int column)
{
    switch (sqlite3_column_type(stmt, column)) {
    case SQLITE_NULL:
        return json_null();
    case SQLITE_INTEGER:
        return json_integer(sqlite3_column_int64(stmt, column));
    case SQLITE_FLOAT: {
        double value = sqlite3_column_double(stmt, column);
        return isfinite(value) ? json_real(value) : json_null();
    }
    default: {
        char *text = cell_text(stmt, column);
        /* not UTF-8 (a path may be anything): as SQLite would show a blob */
        json_t *value = text ? json_string(text) : NULL;
        free(text);
        if (!value && (text = blob_text(stmt, column))) {
            value = json_string(text);
            free(text);
        }
        return value;
    }
    }
}

/* The key of a column: its name, made unique ("step:2") where the query gave it twice. */
static void json_key(sqlite3_stmt *stmt, int column, char *key, size_t size)
{
    const char *name = sqlite3_column_name(stmt, column);
    int nth = 1;
    for (int c = 0; c < column; c++)
        nth += strcmp(sqlite3_column_name(stmt, c), name) == 0;
    if (nth > 1)
        snprintf(key, size, "%s:%d", name, nth);
    else
        snprintf(key, size, "%s", name);
}

static int json_row(sqlite3_stmt *stmt, FILE *out)
{
    json_t *row = json_object();
    int columns = sqlite3_column_count(stmt);
    for (int c = 0; c < columns; c++) {
        char key[256];
        json_key(stmt, c, key, sizeof(key));
        if (json_object_set_new(row, key, json_cell(stmt, c))) {
            json_decref(row);
            return -1;
        }
    }
    int rc = json_print(row, JSON_COMPACT | JSON_REAL_PRECISION(15), out);
    json_decref(row);
    return rc;
}

static int output_json(sqlite3_stmt *stmt, FILE *out)
{
    const char *before = "[";
    int rc;
    while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        fputs(before, out);
        before = ",\n ";
        if (json_row(stmt, out))
            return SQLITE_NOMEM;
    }
    fputs(*before == '[' ? "[]\n" : "]\n", out);
    return rc;
}

int sql_output(sqlite3_stmt *stmt, enum sql_format format, FILE *out)
{
    switch (format) {
    case SQL_CSV:
        return output_csv(stmt, out);
    case SQL_JSON:
        return output_json(stmt, out);
    default:
        return output_table(stmt, out);
    }
}
