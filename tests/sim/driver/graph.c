// Graphs: lists of nodes, and executable copies of them.
#include <stdlib.h>
#include <string.h>

#include "driver.h"

enum { GRAPH_MAGIC = 0x47524150, NODE_MAGIC = 0x4e4f4445, EXECUTABLE_MAGIC = 0x45584543 };

struct node {
    uint32_t magic;
    struct node *next;
    struct work work;
    size_t count;
    struct node *dependencies[];
};

struct graph {
    uint32_t magic;
    struct node *first, **end;
    size_t count;
    struct retained *retained;
};

struct executable {
    uint32_t magic;
    struct graph *graph;
    bool frees_on_launch;
};

static struct graph *checked_graph(void *handle) {
    struct graph *graph = handle;
    return graph && graph->magic == GRAPH_MAGIC ? graph : NULL;
}

static struct node *checked_node(void *handle) {
    struct node *node = handle;
    return node && node->magic == NODE_MAGIC ? node : NULL;
}

static struct executable *checked_executable(void *handle) {
    struct executable *executable = handle;
    return executable && executable->magic == EXECUTABLE_MAGIC ? executable : NULL;
}

struct retained **drv_graph_retained(void *handle) {
    struct graph *graph = checked_graph(handle);
    return graph ? &graph->retained : NULL;
}

int drv_GraphCreate(void **handle) {
    if (!handle) return SIM_INVALID_VALUE;
    struct graph *graph = calloc(1, sizeof *graph);
    if (!graph) return SIM_OUT_OF_MEMORY;
    graph->magic = GRAPH_MAGIC;
    graph->end = &graph->first;
    *handle = graph;
    return SIM_SUCCESS;
}

int drv_GraphDestroy(void *handle) {
    struct graph *graph = checked_graph(handle);
    if (!graph) return SIM_INVALID_VALUE;
    for (struct node *node = graph->first, *next; node; node = next) {
        next = node->next;
        node->magic = 0;
        free(node);
    }
    drv_retained_drop(&graph->retained);
    graph->magic = 0;
    free(graph);
    return SIM_SUCCESS;
}

struct node *drv_graph_add(struct graph *graph, void *const *dependencies, size_t count, const struct work *work) {
    struct node *node = calloc(1, sizeof *node + count * sizeof *node->dependencies);
    if (!node) return NULL;
    node->magic = NODE_MAGIC;
    node->work = *work;
    node->count = count;
    if (count) memcpy(node->dependencies, dependencies, count * sizeof *dependencies);
    *graph->end = node;
    graph->end = &node->next;
    graph->count++;
    return node;
}

static struct node *copy_of(const struct graph *original, const struct graph *copy, const struct node *wanted) {
    struct node *twin = copy->first;
    for (struct node *node = original->first; node && node != wanted; node = node->next) twin = twin->next;
    return twin;
}

int drv_GraphClone(void **clone_handle, void *handle) {
    struct graph *graph = checked_graph(handle);
    if (!graph) return SIM_INVALID_VALUE;
    int status = drv_GraphCreate(clone_handle);
    if (status != SIM_SUCCESS) return status;
    struct graph *clone = *clone_handle;
    for (struct node *node = graph->first; node; node = node->next) {
        struct node *copy = drv_graph_add(clone, (void *const *)node->dependencies, node->count, &node->work);
        if (!copy) return SIM_OUT_OF_MEMORY;
        for (size_t i = 0; i < node->count; i++) copy->dependencies[i] = copy_of(graph, clone, node->dependencies[i]);
    }
    drv_retained_copy(&clone->retained, graph->retained);
    return SIM_SUCCESS;
}

static int add(void **node, void *handle, void *const *dependencies, size_t count, const struct work *work) {
    struct graph *graph = checked_graph(handle);
    if (!node || !graph) return SIM_INVALID_VALUE;
    *node = drv_graph_add(graph, dependencies, count, work);
    return *node ? SIM_SUCCESS : SIM_OUT_OF_MEMORY;
}

int drv_AddEmptyNode(void **node, void *graph, void *const *dependencies, size_t count) {
    return add(node, graph, dependencies, count, &(struct work){.type = NODE_EMPTY});
}

int drv_AddKernelNode(void **node, void *graph, void *const *dependencies, size_t count) {
    return add(node, graph, dependencies, count, &(struct work){.type = NODE_KERNEL});
}

int drv_AddHostNode(void **node, void *graph, void *const *dependencies, size_t count,
                    const struct host_node_parameters *parameters) {
    if (!parameters || !parameters->function) return SIM_INVALID_VALUE;
    struct work work = {.type = NODE_HOST, .function = parameters->function, .data = parameters->data};
    return add(node, graph, dependencies, count, &work);
}

int drv_AddMemAllocNode(void **node, void *graph, void *const *dependencies, size_t count,
                        struct memory_node_parameters *parameters) {
    if (!parameters || !parameters->size || !checked_graph(graph)) return SIM_INVALID_VALUE;
    int device = parameters->pool.location.id;
    if (device < 0 || device >= sim_config()->devices) return SIM_INVALID_DEVICE;
    struct graph_memory *memory = drv_graph_memory_new(device, parameters->size);
    if (!memory) return SIM_OUT_OF_MEMORY;
    parameters->address = drv_graph_memory_address(memory);
    return add(node, graph, dependencies, count, &(struct work){.type = NODE_ALLOC, .memory = memory});
}

int drv_AddMemFreeNode(void **node, void *graph, void *const *dependencies, size_t count, void *pointer) {
    struct graph_memory *memory = drv_graph_memory_find(pointer);
    if (!memory) return SIM_INVALID_VALUE;
    return add(node, graph, dependencies, count, &(struct work){.type = NODE_FREE, .memory = memory});
}

// The bodies of the condition are graphs of their own, which the program fills. They are never run.
static int add_conditional(void **node, void *graph, void *const *dependencies, size_t count,
                           struct conditional_node_parameters *parameters) {
    if (!parameters->count) return SIM_INVALID_VALUE;
    void **graphs = calloc(parameters->count, sizeof *graphs);
    if (!graphs) return SIM_OUT_OF_MEMORY;
    for (unsigned i = 0; i < parameters->count; i++)
        if (drv_GraphCreate(&graphs[i]) != SIM_SUCCESS) return SIM_OUT_OF_MEMORY;
    parameters->graphs = graphs;
    return add(node, graph, dependencies, count, &(struct work){.type = NODE_CONDITIONAL});
}

int drv_AddNode(void **node, void *graph, void *const *dependencies, size_t count, struct node_parameters *parameters) {
    if (!parameters) return SIM_INVALID_VALUE;
    switch (parameters->type) {
        case NODE_ALLOC: return drv_AddMemAllocNode(node, graph, dependencies, count, &parameters->allocation);
        case NODE_FREE: return drv_AddMemFreeNode(node, graph, dependencies, count, parameters->freed);
        case NODE_HOST: return drv_AddHostNode(node, graph, dependencies, count, &parameters->host);
        case NODE_CONDITIONAL: return add_conditional(node, graph, dependencies, count, &parameters->conditional);
        default: return add(node, graph, dependencies, count, &(struct work){.type = parameters->type});
    }
}

int drv_ConditionalHandle(unsigned long long *handle) {
    static unsigned long long last;
    if (!handle) return SIM_INVALID_VALUE;
    *handle = ++last;
    return SIM_SUCCESS;
}

// Asks for the number with null, else fills as many as there is room for.
static int list(struct node *const *from, size_t available, void **to, size_t *count) {
    if (!count) return SIM_INVALID_VALUE;
    if (to) {
        if (*count > available) *count = available;
        memcpy(to, from, *count * sizeof *to);
    } else {
        *count = available;
    }
    return SIM_SUCCESS;
}

static int list_nodes(void *handle, bool roots_only, void **nodes, size_t *count) {
    struct graph *graph = checked_graph(handle);
    if (!graph) return SIM_INVALID_VALUE;
    struct node **all = calloc(graph->count + 1, sizeof *all);
    if (!all) return SIM_OUT_OF_MEMORY;
    size_t found = 0;
    for (struct node *node = graph->first; node; node = node->next)
        if (!roots_only || node->count == 0) all[found++] = node;
    int status = list(all, found, nodes, count);
    free(all);
    return status;
}

int drv_GraphGetNodes(void *graph, void **nodes, size_t *count) { return list_nodes(graph, false, nodes, count); }
int drv_GraphGetRootNodes(void *graph, void **nodes, size_t *count) { return list_nodes(graph, true, nodes, count); }

int drv_NodeGetType(void *handle, int *type) {
    struct node *node = checked_node(handle);
    if (!node || !type) return SIM_INVALID_VALUE;
    *type = node->work.type;
    return SIM_SUCCESS;
}

int drv_NodeGetDependencies(void *handle, void **dependencies, size_t *count) {
    struct node *node = checked_node(handle);
    return node ? list(node->dependencies, node->count, dependencies, count) : SIM_INVALID_VALUE;
}

int drv_GraphInstantiate(void **handle, void *graph, unsigned long long flags) {
    enum { AUTO_FREE_ON_LAUNCH = 1 };
    if (!handle || !checked_graph(graph)) return SIM_INVALID_VALUE;
    struct executable *executable = calloc(1, sizeof *executable);
    if (!executable) return SIM_OUT_OF_MEMORY;
    executable->magic = EXECUTABLE_MAGIC;
    executable->frees_on_launch = flags & AUTO_FREE_ON_LAUNCH;
    *handle = executable;
    return drv_GraphClone((void **)&executable->graph, graph);
}

int drv_GraphInstantiateWithParams(void **handle, void *graph, struct instantiate_parameters *parameters) {
    if (!parameters) return SIM_INVALID_VALUE;
    parameters->failed_node = NULL;
    parameters->result = 0;
    return drv_GraphInstantiate(handle, graph, parameters->flags);
}

int drv_GraphExecUpdate(void *handle, void *graph, int *result) {
    enum { UPDATED, TOPOLOGY_CHANGED = 2, FAILURE = 910 };
    struct executable *executable = checked_executable(handle);
    if (!executable || !checked_graph(graph)) return SIM_INVALID_VALUE;
    bool same = executable->graph->count == ((struct graph *)graph)->count;
    if (result) *result = same ? UPDATED : TOPOLOGY_CHANGED;
    if (!same) return FAILURE;
    drv_GraphDestroy(executable->graph);
    return drv_GraphClone((void **)&executable->graph, graph);
}

int drv_GraphExecUpdate_v2(void *handle, void *graph, struct update_result *result) {
    if (result) *result = (struct update_result){0};
    return drv_GraphExecUpdate(handle, graph, result ? &result->result : NULL);
}

int drv_GraphExecDestroy(void *handle) {
    struct executable *executable = checked_executable(handle);
    if (!executable) return SIM_INVALID_VALUE;
    drv_GraphDestroy(executable->graph);
    executable->magic = 0;
    free(executable);
    return SIM_SUCCESS;
}

int drv_GraphUpload(void *handle) { return checked_executable(handle) ? SIM_SUCCESS : SIM_INVALID_VALUE; }

static int run(const struct work *work) {
    switch (work->type) {
        case NODE_COPY: return sim_Memcpy(work->to, work->from, work->size);
        case NODE_FILL: return sim_MemsetPattern(work->to, &work->value, work->size, work->count);
        case NODE_ALLOC: return drv_graph_memory_take(work->memory);
        case NODE_FREE: return drv_graph_memory_free(work->memory);
        case NODE_HOST: work->function(work->data); return SIM_SUCCESS;
        default: return SIM_SUCCESS;
    }
}

int drv_GraphLaunch(void *handle, void *stream) {
    struct executable *executable = checked_executable(handle);
    if (!executable) return SIM_INVALID_VALUE;
    struct stream *capturing = drv_capturing_stream(stream);
    if (capturing) return drv_capture_add(capturing, &(struct work){.type = NODE_CHILD});
    for (struct node *node = executable->graph->first; node && executable->frees_on_launch; node = node->next)
        if (node->work.type == NODE_ALLOC && drv_graph_memory_is_live(node->work.memory))
            drv_graph_memory_free(node->work.memory);
    for (struct node *node = executable->graph->first; node; node = node->next) {
        int status = run(&node->work);
        if (status != SIM_SUCCESS) return status;
    }
    return SIM_SUCCESS;
}
