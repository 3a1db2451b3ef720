/*
 * cmd_import.c - `laggard import FILE.jsonl -o RUN`: rows from another source, or a test, become a
 * run like any other (import.h has the form of the lines).
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/cmd.h"
#include "aggregator/import.h"

static const char help_text[] =
    "usage: laggard import FILE.jsonl -o RUN\n"
    "\n"
    "Makes the run directory RUN from rows in FILE (-: standard input), one JSON\n"
    "object a line. Keys are rank, step and the columns of table step, times in ns;\n"
    "what is missing or null was not measured. Of a (rank, step) given twice the\n"
    "last line counts. other_ns is what the other stages leave of dur_ns.\n"
    "\n"
    "A line with a key \"table\" goes to that table:\n"
    "  {\"table\": \"meta\", \"expected_ranks\": [0, 1], \"strategy\": \"ddp\"}\n"
    "      also world_size and command\n"
    "  {\"table\": \"rank\", \"rank\": 0, \"host\": \"node1\"}\n"
    "      likewise collective, event, worker, comm_group, loss\n"
    "\n"
    "  -o RUN, --output RUN  the run directory, made if it is not there\n"
    "  -h, --help            this text\n"
    "\n"
    "Exit status: 0, or 2 after one line that names the line at fault; nothing is\n"
    "made then.\n";

struct import {
    const char *name; /* for messages */
    FILE *in;
    struct import_writer *writer;
    struct import_meta meta;
    long long line, odd, first_odd;
};

static bool is_blank(const char *text, size_t length)
{
    return strspn(text, " \t\r\n") == length;
}

static int take_line(struct import *import, const char *text, size_t length, struct error *error)
{
    struct import_line line;
    struct error what;
    int rc = import_parse(text, length, &line, &what);
    if (rc == 0 && line.kind == IMPORT_META) {
        rc = import_take_meta(&import->meta, line.object, &what);
        json_decref(line.object);
    } else if (rc == 0) {
        rc = import_writer_add(import->writer, &line, &what);
    }
    if (rc == 0 && line.odd_other && import->odd++ == 0)
        import->first_odd = import->line;
    return rc ? error_set(error, "%s:%lld: %s", import->name, import->line, what.text) : 0;
}

static int take_lines(struct import *import, struct error *error)
{
    char *text = NULL;
    size_t room = 0;
    ssize_t length;
    int rc = 0;
    while (rc == 0 && (length = getline(&text, &room, import->in)) >= 0) {
        import->line++;
        if (!is_blank(text, (size_t)length))
            rc = take_line(import, text, (size_t)length, error);
    }
    free(text);
    if (rc == 0 && ferror(import->in))
        rc = error_set(error, "%s: %s", import->name, strerror(errno));
    if (rc == 0 && import_writer_ranks(import->writer) == 0)
        rc = error_set(error, "%s: no rows in it", import->name);
    return rc;
}

static int import_file(struct import *import, const char *dir, struct error *error)
{
    import->writer = import_writer_open(dir, error);
    if (!import->writer)
        return -1;
    int rc = take_lines(import, error);
    if (rc == 0)
        rc = import_writer_finish(import->writer, &import->meta, error);
    import_writer_close(import->writer);
    import_meta_free(&import->meta);
    if (rc == 0 && import->odd)
        error_say("",
                  "%s: other_ns does not fit dur_ns in %lld lines, first in line %lld; "
                  "what the stages leave of dur_ns is used",
                  import->name, import->odd, import->first_odd);
    return rc;
}

static int usage(const char *what)
{
    return error_say("import", "%s (see laggard import --help)", what);
}

int cmd_import(int argc, char **argv)
{
    static const struct option options[] = {
        {"output", required_argument, NULL, 'o'}, {"help", no_argument, NULL, 'h'}, {0}};
    const char *dir = NULL;
    int option;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "o:h", options, NULL)) != -1) {
        if (option == 'h') {
            fputs(help_text, stdout);
            return 0;
        }
        if (option != 'o')
            return usage("unknown option, or -o without a directory");
        dir = optarg;
    }
    if (optind != argc - 1)
        return usage(optind == argc ? "no file given" : "one file at a time");
    if (!dir || !*dir)
        return usage("no -o RUN given");
    bool standard = strcmp(argv[optind], "-") == 0;
    struct import import = {.name = standard ? "stdin" : argv[optind],
                            .in = standard ? stdin : fopen(argv[optind], "re"),
                            .meta = {.world_size = LG_NULL}};
    struct error error;
    if (!import.in) {
        error_set(&error, "%s: %s", argv[optind], strerror(errno));
        return error_exit(&error);
    }
    int rc = import_file(&import, dir, &error);
    if (!standard)
        fclose(import.in);
    return rc ? error_exit(&error) : 0;
}
