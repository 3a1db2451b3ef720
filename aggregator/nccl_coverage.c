/*
 * nccl_coverage.c - which copies of NCCL the ranks have, and which of them are called past every
 * hook: linked statically, through dlsym, from a plug-in that was opened with RTLD_DEEPBIND. Runs
 * in the reading commands.
 */
#include <stdlib.h>
#include <string.h>

#include "aggregator/rules.h"

/* How a copy shows itself. */
enum look { USED, UNSEEN, INSIDE, LOOKS };

struct copies {
    struct lg_texts list[LOOKS]; /* "PATH [VERSION]", each once */
    bool several;                /* some rank has more than one */
    bool none_used;              /* some rank has copies, and no collectives but theirs */
};

static void add_once(struct lg_texts *list, const struct lg_nccl_copy *copy)
{
    char *text = lg_format("%s [%s]", *copy->path ? copy->path : "path not known",
                           *copy->version ? copy->version : "version not known");

    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->text[i], text) == 0) {
            free(text);
            return;
        }
    lg_texts_add(list, text);
}

static enum look look_of(const struct lg_nccl_copy *copy)
{
    return copy->communicators == LG_NULL ? INSIDE : copy->communicators > 0 ? USED : UNSEEN;
}

static void find_copies(const struct lg_run *run, struct copies *c)
{
    for (size_t r = 0; r < run->n_ranks; r++) {
        const struct lg_rank *rank = &run->ranks[r];
        bool used = rank->seen & (LG_SEEN_GLOO | LG_SEEN_NCCL);

        if (rank->n == 0)
            continue;
        c->several |= rank->n_nccl > 1;
        c->none_used |= rank->n_nccl > 0 && !used;
        for (size_t i = 0; i < rank->n_nccl; i++)
            add_once(&c->list[look_of(&rank->nccl[i])], &rank->nccl[i]);
    }
}

static char *all_of(const struct copies *c)
{
    struct lg_texts all = {0};
    char *text;

    for (int look = 0; look < LOOKS; look++)
        for (size_t i = 0; i < c->list[look].n; i++)
            lg_texts_add(&all, lg_strdup(c->list[look].text[i]));
    text = lg_texts_join(&all, ", ");
    lg_texts_free(&all);
    return text;
}

/* "of NCCL in PATH [VERSION] no call was seen: ..." */
static char *unseen_text(const struct copies *c)
{
    char *list = lg_texts_join(&c->list[UNSEEN], ", ");
    char *text = lg_format("of NCCL in %s no call was seen: it is called through dlsym or from a "
                           "plug-in that was opened with RTLD_DEEPBIND, which is not observed, or "
                           "not at all",
                           list);

    free(list);
    return text;
}

static char *inside_text(const struct copies *c)
{
    char *list = lg_texts_join(&c->list[INSIDE], ", ");
    char *text = lg_format("NCCL is linked statically into %s: its calls are not observed", list);

    free(list);
    return text;
}

static char *several_text(const struct copies *c)
{
    char *list = all_of(c), *unseen = c->list[UNSEEN].n ? unseen_text(c) : NULL;
    char *text = lg_format("several copies of NCCL are loaded: %s; %s", list,
                           unseen ? unseen : "the calls of each are counted");

    free(list);
    free(unseen);
    return text;
}

char *lg_nccl_coverage(const struct lg_run *run, bool seen, enum lg_coverage_state *state)
{
    struct copies c = {0};
    char *why = NULL;

    find_copies(run, &c);
    bool unseen = c.list[UNSEEN].n > 0;
    if (c.list[INSIDE].n > 0)
        why = inside_text(&c);
    else if (c.several)
        why = several_text(&c);
    else if (unseen && c.none_used && run->n_ranks > 1)
        why = unseen_text(&c);
    if (why)
        *state = !seen                            ? LG_NOT_OBSERVED
                 : unseen || c.list[INSIDE].n > 0 ? LG_PARTIAL
                                                  : LG_OBSERVED;
    for (int look = 0; look < LOOKS; look++)
        lg_texts_free(&c.list[look]);
    return why;
}
