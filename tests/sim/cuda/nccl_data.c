/*
 * nccl_data.c - the bytes of collectives: into this rank's chunk, and out of the chunks of all.
 * Context: inside the stand-in libnccl, on a stream's thread.
 */
#include <math.h>
#include <string.h>

#include "nccl_internal.h"

/* 16-bit floats: IEEE half, and the upper half of a float. */
typedef struct {
    uint16_t bits;
} half, brain;

static float from_half(half h)
{
    int exponent = h.bits >> 10 & 31, fraction = h.bits & 0x3ff;
    float sign = h.bits >> 15 ? -1.0f : 1.0f;
    if (exponent == 31)
        return fraction ? NAN : sign * INFINITY;
    return sign * (exponent ? ldexpf((float)(fraction | 0x400), exponent - 25)
                            : ldexpf((float)fraction, -24));
}

static half to_half(float value)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    float size = fabsf(value);
    if (isnan(value))
        return (half){0x7e00};
    if (size >= 65520)
        return (half){(uint16_t)(sign | 0x7c00)};
    int exponent = size < 0x1p-14f ? -14 : ilogbf(size);
    unsigned int fraction = (unsigned int)rintf(ldexpf(size, 10 - exponent)); /* 0x400 is one */
    return (half){(uint16_t)(sign | (((unsigned int)(exponent + 14) << 10) + fraction))};
}

static float from_brain(brain b)
{
    uint32_t bits = (uint32_t)b.bits << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static brain to_brain(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (brain){(uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

#define AS_IS(value) (value)

/* X(ncclDataType_t, type in memory, type to count with, memory to that, that to memory) */
#define TYPES(X)                                                                                   \
    X(ncclInt8, int8_t, int32_t, AS_IS, AS_IS)                                                     \
    X(ncclUint8, uint8_t, uint32_t, AS_IS, AS_IS)                                                  \
    X(ncclInt32, int32_t, int32_t, AS_IS, AS_IS)                                                   \
    X(ncclUint32, uint32_t, uint32_t, AS_IS, AS_IS)                                                \
    X(ncclInt64, int64_t, int64_t, AS_IS, AS_IS)                                                   \
    X(ncclUint64, uint64_t, uint64_t, AS_IS, AS_IS)                                                \
    X(ncclFloat16, half, float, from_half, to_half)                                                \
    X(ncclFloat32, float, float, AS_IS, AS_IS)                                                     \
    X(ncclFloat64, double, double, AS_IS, AS_IS)                                                   \
    X(ncclBfloat16, brain, float, from_brain, to_brain)

size_t sim_nccl_type_bytes(ncclDataType_t type)
{
    static const unsigned char bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return (size_t)type < sizeof bytes ? bytes[type] : 0;
}

int sim_nccl_pieces(const struct call *c)
{
    return c->kind == REDUCE_SCATTER || c->kind == ALL_TO_ALL || c->kind == SCATTER ? c->comm->size
                                                                                    : 1;
}

/* ---- reduction */

#define DEFINE_REDUCE(id, memory, number, load, store)                                             \
    static void reduce_##id(void *into, const void *with, size_t count, ncclRedOp_t op)            \
    {                                                                                              \
        memory *to = into;                                                                         \
        const memory *from = with;                                                                 \
        for (size_t i = 0; i < count; i++) {                                                       \
            number a = load(to[i]), b = load(from[i]);                                             \
            number r = op == ncclProd  ? a * b                                                     \
                       : op == ncclMax ? (a > b ? a : b)                                           \
                       : op == ncclMin ? (a < b ? a : b)                                           \
                                       : a + b;                                                    \
            to[i] = store((memory##_of)(r));                                                       \
        }                                                                                          \
    }                                                                                              \
    static void divide_##id(void *values, size_t count, int by)                                    \
    {                                                                                              \
        memory *to = values;                                                                       \
        for (size_t i = 0; i < count; i++)                                                         \
            to[i] = store((memory##_of)(load(to[i]) / (number)by));                                \
    }

/* what store() takes */
typedef int8_t int8_t_of;
typedef uint8_t uint8_t_of;
typedef int32_t int32_t_of;
typedef uint32_t uint32_t_of;
typedef int64_t int64_t_of;
typedef uint64_t uint64_t_of;
typedef float half_of;
typedef float float_of;
typedef double double_of;
typedef float brain_of;

TYPES(DEFINE_REDUCE)

#define TYPE_ROW(id, memory, number, load, store) [id] = {reduce_##id, divide_##id},
static const struct {
    void (*reduce)(void *into, const void *with, size_t count, ncclRedOp_t op);
    void (*divide)(void *values, size_t count, int by);
} types[ncclBfloat16 + 1] = {TYPES(TYPE_ROW)};

/* ---- chunks */

static char *chunk(const struct call *c, const struct part *p, int rank, int piece)
{
    size_t n = (size_t)p->slot * (size_t)c->comm->size + (size_t)rank;
    return c->comm->chunks + n * CHUNK_BYTES + (size_t)piece * p->count * p->element;
}

static char *place(const struct call *c, const struct part *p, int piece)
{
    return (char *)simHost(c->to) + ((size_t)piece * c->count + p->first) * p->element;
}

void sim_nccl_put(const struct call *c, const struct part *p)
{
    if ((c->kind == BROADCAST || c->kind == SCATTER) && c->comm->rank != c->root)
        return;
    const char *from = simHost(c->from);
    for (int i = 0; i < sim_nccl_pieces(c); i++)
        memcpy(chunk(c, p, c->comm->rank, i), from + ((size_t)i * c->count + p->first) * p->element,
               p->count * p->element);
}

/* In the order of the ranks, so that every rank gets the same bits. */
static void get_reduced(const struct call *c, const struct part *p, int piece)
{
    char *to = place(c, p, 0);
    memcpy(to, chunk(c, p, 0, piece), p->count * p->element);
    if ((size_t)c->type >= sizeof types / sizeof *types)
        return; /* 8-bit floats: the first rank's */
    for (int r = 1; r < c->comm->size; r++)
        types[c->type].reduce(to, chunk(c, p, r, piece), p->count, c->op);
    if (c->op == ncclAvg)
        types[c->type].divide(to, p->count, c->comm->size);
}

static void get_all(const struct call *c, const struct part *p, int piece)
{
    for (int r = 0; r < c->comm->size; r++)
        memcpy(place(c, p, r), chunk(c, p, r, piece), p->count * p->element);
}

void sim_nccl_get(const struct call *c, const struct part *p)
{
    int rank = c->comm->rank;
    if ((c->kind == REDUCE || c->kind == GATHER) && rank != c->root)
        return;
    switch (c->kind) {
    case ALL_REDUCE:
    case REDUCE:
        get_reduced(c, p, 0);
        break;
    case REDUCE_SCATTER:
        get_reduced(c, p, rank);
        break;
    case BROADCAST:
        memcpy(place(c, p, 0), chunk(c, p, c->root, 0), p->count * p->element);
        break;
    case SCATTER:
        memcpy(place(c, p, 0), chunk(c, p, c->root, rank), p->count * p->element);
        break;
    case ALL_GATHER:
    case GATHER:
    case EXCHANGE:
        get_all(c, p, 0);
        break;
    case ALL_TO_ALL:
        get_all(c, p, rank);
        break;
    }
}
