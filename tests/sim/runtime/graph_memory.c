// Memory nodes of graphs, in outline: a node has an address and a size, and no launch ever takes memory for it.
#include "sim.h"

_Static_assert(offsetof(sim_memory_node, size) == 104 && offsetof(sim_memory_node, pointer) == 112, "as the vendors have it");

enum { NODES = 64 };
static struct { void *pointer; size_t size; } nodes[NODES];  // guarded by the device lock

// Sets the first entry with that address to another; false where there is none.
static bool replace(void *pointer, void *new_pointer, size_t *size) {
    sigset_t saved;
    sim_lock(&saved);
    int i = 0;
    while (i < NODES && nodes[i].pointer != pointer) i++;
    if (i < NODES) {
        size_t old_size = nodes[i].size;
        nodes[i].pointer = new_pointer;
        nodes[i].size = *size;
        *size = old_size;
    }
    sim_unlock(&saved);
    return i < NODES;
}

int sim_GraphAddMemAllocNode(void **node, sim_memory_node *parameters) {
    if (!node || !parameters || parameters->size == 0) return SIM_INVALID_VALUE;
    size_t granule = sim_config()->granularity;
    size_t size = (parameters->size + granule - 1) / granule * granule, kept = size;
    void *pointer;
    int status = sim_MemAddressReserve(&pointer, size, 0, NULL, 0);
    if (status != SIM_SUCCESS) return status;
    if (!replace(NULL, pointer, &kept)) {
        sim_MemAddressFree(pointer, size);
        return SIM_OUT_OF_MEMORY;
    }
    parameters->pointer = pointer;
    return sim_handle_create(node);
}

int sim_GraphAddMemFreeNode(void **node, void *pointer) {
    size_t size = 0;
    if (!node || !pointer || !replace(pointer, NULL, &size)) return SIM_INVALID_VALUE;
    sim_MemAddressFree(pointer, size);
    return sim_handle_create(node);
}

int sim_GraphAddNode(void **node, sim_any_node *parameters) {
    enum { ALLOCATES = 10, FREES = 11 };
    if (!parameters) return SIM_INVALID_VALUE;
    if (parameters->type == ALLOCATES) return sim_GraphAddMemAllocNode(node, &parameters->memory);
    if (parameters->type == FREES) return sim_GraphAddMemFreeNode(node, parameters->freed);
    return node ? sim_handle_create(node) : SIM_INVALID_VALUE;
}

// On a stream that is captured, memory is a node of the graph.
static int order_node(void **pointer, size_t size) {
    sim_memory_node parameters = {.size = size};
    void *node;
    int status = pointer ? sim_GraphAddMemAllocNode(&node, &parameters) : SIM_INVALID_VALUE;
    if (status == SIM_SUCCESS) *pointer = parameters.pointer;
    return status;
}

int sim_OrderMalloc(void **pointer, size_t size, void *stream) {
    return sim_is_captured(stream) ? order_node(pointer, size) : sim_MallocAsync(pointer, size, stream);
}

int sim_OrderMallocFromPool(void **pointer, size_t size, void *pool, void *stream) {
    return sim_is_captured(stream) ? order_node(pointer, size) : sim_MallocFromPoolAsync(pointer, size, pool, stream);
}

// What a node gave may also be freed as any block, after the graph has run.
int sim_OrderFree(void *pointer, void *stream) {
    void *node;
    if (pointer && sim_GraphAddMemFreeNode(&node, pointer) == SIM_SUCCESS) return SIM_SUCCESS;
    return sim_FreeAsync(pointer, stream);
}
