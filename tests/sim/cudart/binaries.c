// The fat binaries that a program registers before main, and the kernels and variables in them. Loading waits until one
// of its kernels is wanted. PyTorch registers more than 100000 kernels: hence the table.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cudart.h"

#define EXPORT __attribute__((visibility("default")))

struct binary {
    const void *image;
    void *library;  // the driver's; null until it is loaded
};

struct symbol {
    const void *host;  // the address by which the program knows it; null: a free slot
    const char *name;
    struct binary *binary;
    void *kernel;      // the driver's; null until it is wanted
    size_t size;       // of a variable
    void *storage;
};

// All guarded by the mutex.
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct symbol *symbols;
static size_t capacity, used;

static struct symbol *slot_of(struct symbol *table, size_t slots, const void *host) {
    size_t i = ((uintptr_t)host >> 4) * 0x9e3779b97f4a7c15u % slots;
    while (table[i].host && table[i].host != host) i = (i + 1) % slots;
    return &table[i];
}

static bool grow(void) {
    size_t larger = capacity ? capacity * 2 : 1024;
    struct symbol *table = calloc(larger, sizeof *table);
    if (!table) return false;
    for (size_t i = 0; i < capacity; i++)
        if (symbols[i].host) *slot_of(table, larger, symbols[i].host) = symbols[i];
    free(symbols);
    symbols = table;
    capacity = larger;
    return true;
}

static void insert(struct symbol symbol) {
    pthread_mutex_lock(&mutex);
    if (used * 2 < capacity || grow()) {
        struct symbol *slot = slot_of(symbols, capacity, symbol.host);
        if (!slot->host) used++;
        *slot = symbol;
    }
    pthread_mutex_unlock(&mutex);
}

static struct symbol *find(const void *host) {
    struct symbol *slot = capacity ? slot_of(symbols, capacity, host) : NULL;
    return slot && slot->host ? slot : NULL;
}

static void load_kernel(const struct driver *d, struct symbol *symbol) {
    struct binary *binary = symbol->binary;
    if (!binary->library) (void)d->cuLibraryLoadData(&binary->library, binary->image, NULL, NULL, 0, NULL, NULL, 0);
    if (binary->library) (void)d->cuLibraryGetKernel(&symbol->kernel, binary->library, symbol->name);
}

void *rt_kernel(const struct driver *d, const void *host) {
    pthread_mutex_lock(&mutex);
    struct symbol *symbol = host ? find(host) : NULL;
    if (symbol && !symbol->kernel && !symbol->size) load_kernel(d, symbol);
    void *kernel = symbol ? symbol->kernel : (void *)host;
    pthread_mutex_unlock(&mutex);
    return kernel;
}

// Variables have host memory here: what the real driver takes for them is part of the module.
void *rt_variable(const void *host, size_t *size) {
    pthread_mutex_lock(&mutex);
    struct symbol *symbol = host ? find(host) : NULL;
    if (symbol && symbol->size && !symbol->storage) symbol->storage = calloc(1, symbol->size);
    void *storage = symbol ? symbol->storage : NULL;
    if (symbol && size) *size = symbol->size;
    pthread_mutex_unlock(&mutex);
    return storage;
}

EXPORT void **__cudaRegisterFatBinary(void *image) {
    struct binary *binary = calloc(1, sizeof *binary);
    if (binary) binary->image = image;
    return (void **)binary;
}

EXPORT void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }

EXPORT void __cudaUnregisterFatBinary(void **handle) {
    struct binary *binary = (struct binary *)handle;
    if (!binary) return;
    pthread_mutex_lock(&mutex);
    if (binary->library) (void)rt_driver()->cuLibraryUnload(binary->library);
    binary->library = NULL;
    // The binary stays: its symbols still point to it.
    pthread_mutex_unlock(&mutex);
}

EXPORT char __cudaInitModule(void **handle) { return handle != NULL; }

EXPORT void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int thread_limit,
                                   void *thread, void *block, void *block_size, void *grid_size, int *warp_size) {
    (void)device, (void)thread_limit, (void)thread, (void)block, (void)block_size, (void)grid_size, (void)warp_size;
    insert((struct symbol){.host = host, .name = name, .binary = (struct binary *)handle});
}

static void insert_variable(void **handle, const void *host, const char *name, size_t size) {
    insert((struct symbol){.host = host, .name = name, .binary = (struct binary *)handle, .size = size});
}

EXPORT void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external, size_t size,
                              int constant, int global) {
    (void)device, (void)external, (void)constant, (void)global;
    insert_variable(handle, host, name, size);
}

EXPORT void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name, int external,
                                     size_t size, int constant, int global) {
    (void)device, (void)external, (void)constant, (void)global;
    insert_variable(handle, host, name, size);
    *host = rt_variable(host, NULL);
}
