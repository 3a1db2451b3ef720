/*
 * streams.c - see streams.h. Context: hooks on any thread.
 *
 * Both tables are open to races of the harmless kind: two threads that use the same event or stream
 * at the same time without order between them have no right to a certain answer from CUDA either.
 */
#include "preload/streams.h"

#include <stdatomic.h>
#include <string.h>

enum {
    STREAMS = 256, /* more than that are not told apart: their work counts nowhere */
    WAYS = 8,      /* of the table of events */
    SETS = 256
};

struct stream {
    const void *_Atomic handle;
    _Atomic bool used, tainted;
    _Atomic uint8_t cudart;
    _Atomic uint64_t work;  /* since the step began */
    _Atomic uint64_t score; /* of the steps before it: halves with each */
};

static struct stream streams[STREAMS];

/* Only events that were recorded on a tainted stream have a place; the oldest one gives way. */
struct event {
    const void *_Atomic handle; /* NULL: free */
    _Atomic uint32_t age;
};

static struct event events[SETS][WAYS];
static _Atomic uint32_t clock_hand;

static unsigned hash(const void *handle)
{
    return (unsigned)((uint64_t)(uintptr_t)handle * 0x9e3779b97f4a7c15u >> 56);
}
static_assert(STREAMS == 256 && SETS == 256, "a hash has eight bits");

static struct stream *stream_of(const void *handle)
{
    for (unsigned n = 0, i = hash(handle); n < STREAMS; n++, i = (i + 1) % STREAMS) {
        struct stream *s = &streams[i];
        bool unused = false;
        if (s->used && s->handle == handle)
            return s;
        if (!s->used && atomic_compare_exchange_strong(&s->used, &unused, true)) {
            s->handle = handle;
            return s;
        }
    }
    return NULL;
}

void lg_stream_work(const void *handle, unsigned weight, enum lg_cudart cudart)
{
    struct stream *s = stream_of(handle);
    if (s == NULL)
        return;
    atomic_fetch_add_explicit(&s->work, weight, memory_order_relaxed);
    if (cudart != LG_CUDART_COUNT)
        atomic_store_explicit(&s->cudart, (uint8_t)cudart, memory_order_relaxed);
}

bool lg_stream_tainted(const void *handle)
{
    struct stream *s = stream_of(handle);
    return s != NULL && s->tainted;
}

void lg_stream_taint(const void *handle, bool tainted)
{
    struct stream *s = stream_of(handle);
    if (s != NULL)
        s->tainted = tainted;
}

void lg_stream_forget(const void *handle)
{
    struct stream *s = stream_of(handle);
    if (s == NULL)
        return;
    s->tainted = false;
    s->work = s->score = 0;
}

/* ---- events */

static struct event *event_of(const void *handle)
{
    struct event *set = events[hash(handle)];
    for (unsigned i = 0; i < WAYS; i++)
        if (set[i].handle == handle)
            return &set[i];
    return NULL;
}

static struct event *oldest(struct event *set)
{
    struct event *found = set;
    uint32_t now = clock_hand;
    for (unsigned i = 0; i < WAYS; i++) {
        if (set[i].handle == NULL)
            return &set[i];
        if (now - set[i].age > now - found->age)
            found = &set[i];
    }
    return found;
}

void lg_event_recorded(const void *event, bool tainted)
{
    struct event *e = event_of(event);
    if (!tainted) {
        if (e != NULL)
            e->handle = NULL;
        return;
    }
    if (e == NULL)
        e = oldest(events[hash(event)]);
    e->age = atomic_fetch_add_explicit(&clock_hand, 1, memory_order_relaxed);
    e->handle = event;
}

bool lg_event_tainted(const void *event)
{
    return event != NULL && event_of(event) != NULL;
}

/* ---- the busiest one */

/* A quarter more: streams that share the work about evenly do not take turns in being the busiest.
 */
static bool clearly_more(uint64_t a, uint64_t b)
{
    return a > b + b / 4;
}

static uint64_t new_score(struct stream *s)
{
    uint64_t score = s->score / 2 + atomic_exchange(&s->work, 0);
    s->score = score;
    return score;
}

bool lg_stream_busiest(const void *const *current, const void **busiest, enum lg_cudart *cudart)
{
    struct stream *most = NULL;
    uint64_t best = 0, kept = 0;
    for (struct stream *s = streams; s < streams + STREAMS; s++) {
        uint64_t score = s->used ? new_score(s) : 0;
        if (current != NULL && s->used && s->handle == *current)
            kept = score;
        if (score > best) {
            best = score;
            most = s;
        }
    }
    if (most == NULL)
        return false;
    if (current != NULL && !clearly_more(best, kept))
        most = stream_of(*current);
    *busiest = most->handle;
    *cudart = (enum lg_cudart)most->cudart;
    return true;
}

bool lg_stream_deserted(const void *handle)
{
    uint64_t own = stream_of(handle) != NULL ? stream_of(handle)->work : 0, most = 0;
    for (struct stream *s = streams; s < streams + STREAMS; s++)
        if (s->work > most)
            most = s->work;
    return clearly_more(most, own);
}

void lg_streams_reset(void)
{
    memset(streams, 0, sizeof streams);
    memset(events, 0, sizeof events);
}
