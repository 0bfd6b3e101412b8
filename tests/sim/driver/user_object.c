// User objects: data of the program that graphs keep alive. The last one to let go runs the destructor.
#include <stdlib.h>

#include "driver.h"

enum { OBJECT_MAGIC = 0x4f424a45 };

struct object {
    uint32_t magic;
    unsigned references;
    void *data;
    void (*destroy)(void *);
};

struct retained {
    struct retained *next;
    struct object *object;
    unsigned count;
};

static struct object *checked(void *handle) {
    struct object *object = handle;
    return object && object->magic == OBJECT_MAGIC ? object : NULL;
}

static void let_go(struct object *object, unsigned count) {
    if (__atomic_sub_fetch(&object->references, count, __ATOMIC_ACQ_REL)) return;
    object->magic = 0;
    object->destroy(object->data);
    free(object);
}

int drv_UserObjectCreate(void **handle, void *data, void (*destroy)(void *), unsigned count) {
    if (!handle || !destroy || !count) return SIM_INVALID_VALUE;
    struct object *object = malloc(sizeof *object);
    if (!object) return SIM_OUT_OF_MEMORY;
    *object = (struct object){OBJECT_MAGIC, count, data, destroy};
    *handle = object;
    return SIM_SUCCESS;
}

int drv_UserObjectRetain(void *handle, unsigned count) {
    struct object *object = checked(handle);
    if (!object) return SIM_INVALID_VALUE;
    __atomic_add_fetch(&object->references, count, __ATOMIC_RELAXED);
    return SIM_SUCCESS;
}

int drv_UserObjectRelease(void *handle, unsigned count) {
    struct object *object = checked(handle);
    if (!object || object->references < count) return SIM_INVALID_VALUE;
    let_go(object, count);
    return SIM_SUCCESS;
}

int drv_GraphRetainUserObject(void *graph, void *handle, unsigned count, unsigned flags) {
    enum { MOVE = 1 };
    struct object *object = checked(handle);
    struct retained **list = drv_graph_retained(graph), *entry = malloc(sizeof *entry);
    if (!entry) return SIM_OUT_OF_MEMORY;
    if (!object || !list || !count) {
        free(entry);
        return SIM_INVALID_VALUE;
    }
    // A moved reference is the caller's own; otherwise the graph gets new ones.
    if (!(flags & MOVE)) drv_UserObjectRetain(handle, count);
    *entry = (struct retained){*list, object, count};
    *list = entry;
    return SIM_SUCCESS;
}

int drv_GraphReleaseUserObject(void *graph, void *handle, unsigned count) {
    struct object *object = checked(handle);
    struct retained **list = drv_graph_retained(graph);
    while (list && *list && ((*list)->object != object || (*list)->count < count)) list = &(*list)->next;
    if (!object || !list || !*list) return SIM_INVALID_VALUE;
    (*list)->count -= count;
    let_go(object, count);
    return SIM_SUCCESS;
}

void drv_retained_copy(struct retained **to, const struct retained *from) {
    for (; from; from = from->next) {
        struct retained *entry = malloc(sizeof *entry);
        if (!entry || !from->count) {
            free(entry);
            continue;
        }
        drv_UserObjectRetain(from->object, from->count);
        *entry = (struct retained){*to, from->object, from->count};
        *to = entry;
    }
}

void drv_retained_drop(struct retained **list) {
    for (struct retained *entry = *list, *next; entry; entry = next) {
        next = entry->next;
        if (entry->count) let_go(entry->object, entry->count);
        free(entry);
    }
    *list = NULL;
}
