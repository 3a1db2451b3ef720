/*
 * graph.c - graphs of captured operations, and their replay as one operation of a stream in which
 * every node begins when all it depends on have ended. Context: inside the stand-in libcudart, any
 * thread.
 */
#include <string.h>

#include "internal.h"

/* ---- sets of nodes */

int sim_nodes_add(struct sim_nodes *set, cudaGraphNode_t node)
{
    for (size_t i = 0; i < set->count; i++)
        if (set->node[i] == node)
            return 1;
    if ((set->count & (set->count - 1)) == 0) { /* full at every power of two */
        size_t room = set->count ? 2 * set->count : 1;
        cudaGraphNode_t *more = realloc(set->node, room * sizeof(cudaGraphNode_t));
        if (!more)
            return 0;
        set->node = more;
    }
    set->node[set->count++] = node;
    return 1;
}

int sim_nodes_copy(struct sim_nodes *to, const struct sim_nodes *from)
{
    sim_nodes_clear(to);
    for (size_t i = 0; i < from->count; i++)
        if (!sim_nodes_add(to, from->node[i]))
            return 0;
    return 1;
}

void sim_nodes_clear(struct sim_nodes *set)
{
    free(set->node);
    *set = (struct sim_nodes){0};
}

/* ---- user objects: freed with the last graph that holds them */

struct CUuserObject_st {
    _Atomic uint32_t references;
    void *pointer;
    cudaHostFn_t destroy;
};

struct sim_held {
    cudaUserObject_t object;
    unsigned int count;
    struct sim_held *next;
};

static void release(cudaUserObject_t object, unsigned int count)
{
    if (atomic_fetch_sub(&object->references, count) != count)
        return;
    object->destroy(object->pointer);
    free(object);
}

API cudaError_t cudaUserObjectCreate(cudaUserObject_t *object, void *pointer, cudaHostFn_t destroy,
                                     unsigned int references, unsigned int flags)
{
    SIM_ENTER();
    (void)flags;
    cudaUserObject_t new = calloc(1, sizeof *new);
    if (!new)
        return DONE(cudaErrorMemoryAllocation);
    atomic_store(&new->references, references);
    new->pointer = pointer;
    new->destroy = destroy;
    *object = new;
    return cudaSuccess;
}

API cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned int count)
{
    SIM_ENTER();
    release(object, count);
    return cudaSuccess;
}

API cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object,
                                          unsigned int count, unsigned int flags)
{
    SIM_ENTER();
    struct sim_held *held = malloc(sizeof *held);
    if (!held)
        return DONE(cudaErrorMemoryAllocation);
    if (!(flags & cudaGraphUserObjectMove))
        atomic_fetch_add(&object->references, count);
    *held = (struct sim_held){.object = object, .count = count, .next = graph->held};
    graph->held = held;
    return cudaSuccess;
}

/* ---- graphs */

cudaGraph_t sim_graph_new(void)
{
    cudaGraph_t graph = calloc(1, sizeof *graph);
    if (graph)
        graph->references = 1;
    return graph;
}

static void free_graph(cudaGraph_t graph)
{
    for (size_t i = 0; i < graph->nodes.count; i++) {
        cudaGraphNode_t node = graph->nodes.node[i];
        if (node->op)
            node->op->type->drop(node->op);
        sim_nodes_clear(&node->dependencies);
        free(node);
    }
    while (graph->held) {
        struct sim_held *held = graph->held;
        graph->held = held->next;
        release(held->object, held->count);
        free(held);
    }
    sim_nodes_clear(&graph->nodes);
    free(graph);
}

static void keep(cudaGraph_t graph)
{
    __atomic_fetch_add(&graph->references, 1, __ATOMIC_SEQ_CST);
}

void sim_graph_drop(cudaGraph_t graph)
{
    if (graph && __atomic_fetch_sub(&graph->references, 1, __ATOMIC_SEQ_CST) == 1)
        free_graph(graph);
}

cudaGraphNode_t sim_graph_add(cudaGraph_t graph, struct sim_op *op,
                              const struct sim_nodes *dependencies)
{
    cudaGraphNode_t node = calloc(1, sizeof *node);
    if (!node)
        return NULL;
    *node = (struct CUgraphNode_st){.graph = graph, .op = op, .index = graph->nodes.count};
    if (!sim_nodes_copy(&node->dependencies, dependencies) || !sim_nodes_add(&graph->nodes, node))
        return NULL;
    return node;
}

API cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    SIM_ENTER();
    sim_graph_drop(graph);
    return DONE(graph ? cudaSuccess : cudaErrorInvalidValue);
}

static void list(const struct sim_nodes *set, cudaGraphNode_t *to, size_t *count)
{
    size_t room = to ? *count : 0;
    for (size_t i = 0; i < room; i++)
        to[i] = i < set->count ? set->node[i] : NULL;
    *count = to && room < set->count ? room : set->count;
}

API cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    SIM_ENTER();
    list(&graph->nodes, nodes, count);
    return cudaSuccess;
}

#if CUDART_VERSION >= 13000
API cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *dependencies,
                                             cudaGraphEdgeData *edges, size_t *count)
{
    SIM_ENTER();
    (void)edges;
    list(&node->dependencies, dependencies, count);
    return cudaSuccess;
}
#else
API cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *dependencies,
                                             size_t *count)
{
    SIM_ENTER();
    list(&node->dependencies, dependencies, count);
    return cudaSuccess;
}
#endif

API cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *type)
{
    SIM_ENTER();
    *type = node->op ? node->op->type->node : cudaGraphNodeTypeEmpty;
    return cudaSuccess;
}

API cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                      const cudaGraphNode_t *dependencies, size_t count)
{
    SIM_ENTER();
    struct sim_nodes set = {0};
    for (size_t i = 0; i < count; i++)
        sim_nodes_add(&set, dependencies[i]);
    *node = sim_graph_add(graph, NULL, &set);
    sim_nodes_clear(&set);
    return DONE(*node ? cudaSuccess : cudaErrorMemoryAllocation);
}

/* ---- replay */

struct CUgraphExec_st {
    cudaGraph_t graph;
};

struct replay_op {
    struct sim_op op;
    cudaGraph_t graph;
    size_t count;
    struct {
        struct sim_op *op; /* NULL: an empty node */
        uint64_t end_ns;
    } node[];
};

static void issue_replay(struct sim_op *op)
{
    struct replay_op *r = (struct replay_op *)op;
    for (size_t i = 0; i < r->count; i++)
        if (r->node[i].op && r->node[i].op->type->issue)
            r->node[i].op->type->issue(r->node[i].op);
}

static int replay_is_instant(const struct sim_op *op)
{
    const struct replay_op *r = (const struct replay_op *)op;
    for (size_t i = 0; i < r->count; i++) {
        const struct sim_op *o = r->node[i].op;
        if (o && !(o->type->instant && o->type->instant(o)))
            return 0;
    }
    return 1;
}

static uint64_t run_node(struct replay_op *r, size_t i, uint64_t begin_ns)
{
    const struct sim_nodes *before = &r->graph->nodes.node[i]->dependencies;
    for (size_t k = 0; k < before->count; k++)
        if (r->node[before->node[k]->index].end_ns > begin_ns)
            begin_ns = r->node[before->node[k]->index].end_ns;
    struct sim_op *op = r->node[i].op;
    uint64_t end = op ? op->type->run(op, begin_ns) : begin_ns;
    if (op && op->type->done)
        op->type->done(op);
    return end;
}

static uint64_t run_replay(struct sim_op *op, uint64_t begin_ns)
{
    struct replay_op *r = (struct replay_op *)op;
    uint64_t end = begin_ns;
    for (size_t i = 0; i < r->count; i++) {
        r->node[i].end_ns = run_node(r, i, begin_ns);
        end = r->node[i].end_ns > end ? r->node[i].end_ns : end;
    }
    return end;
}

static struct sim_op *copy_replay(const struct sim_op *op);

static void drop_replay(struct sim_op *op)
{
    struct replay_op *r = (struct replay_op *)op;
    for (size_t i = 0; i < r->count; i++)
        if (r->node[i].op)
            r->node[i].op->type->drop(r->node[i].op);
    sim_graph_drop(r->graph);
    free(r);
}

static const struct sim_op_type replay_type = {
    .node = cudaGraphNodeTypeGraph,
    .issue = issue_replay,
    .instant = replay_is_instant,
    .run = run_replay,
    .copy = copy_replay,
    .drop = drop_replay,
};

static struct replay_op *new_replay(cudaGraph_t graph)
{
    size_t count = graph->nodes.count;
    struct replay_op *r = calloc(1, sizeof *r + count * sizeof r->node[0]);
    if (!r)
        return NULL;
    r->op.type = &replay_type;
    r->graph = graph;
    keep(graph);
    for (; r->count < count; r->count++) {
        const struct sim_op *op = graph->nodes.node[r->count]->op;
        r->node[r->count].op = op ? op->type->copy(op) : NULL;
        if (op && !r->node[r->count].op) {
            drop_replay(&r->op);
            return NULL;
        }
    }
    return r;
}

static struct sim_op *copy_replay(const struct sim_op *op)
{
    struct replay_op *r = new_replay(((const struct replay_op *)op)->graph);
    return r ? &r->op : NULL;
}

static cudaError_t instantiate(cudaGraphExec_t *exec, cudaGraph_t graph)
{
    if (!graph)
        return cudaErrorInvalidValue;
    *exec = malloc(sizeof **exec);
    SIM_OUT_OF_MEMORY(*exec);
    (*exec)->graph = graph;
    keep(graph);
    return cudaSuccess;
}

API cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                     unsigned long long flags)
{
    SIM_ENTER();
    (void)flags;
    return DONE(instantiate(exec, graph));
}

API cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
                                              unsigned long long flags)
{
    SIM_ENTER();
    (void)flags;
    return DONE(instantiate(exec, graph));
}

API cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    SIM_ENTER();
    if (!exec)
        return DONE(cudaErrorInvalidValue);
    struct replay_op *r = new_replay(exec->graph);
    return DONE(r ? simEnqueue(stream, &r->op) : cudaErrorMemoryAllocation);
}

API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    SIM_ENTER();
    if (!exec)
        return DONE(cudaErrorInvalidValue);
    sim_graph_drop(exec->graph);
    free(exec);
    return cudaSuccess;
}

API cudaError_t cudaDeviceGetGraphMemAttribute(int device, enum cudaGraphMemAttributeType attribute,
                                               void *value)
{
    SIM_ENTER();
    (void)device;
    (void)attribute;
    memset(value, 0, sizeof(size_t));
    return cudaSuccess;
}

API cudaError_t cudaDeviceSetGraphMemAttribute(int device, enum cudaGraphMemAttributeType attribute,
                                               void *value)
{
    SIM_ENTER();
    (void)device;
    (void)attribute;
    (void)value;
    return cudaSuccess;
}
