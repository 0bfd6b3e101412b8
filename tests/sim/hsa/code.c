// Executables: code objects that are loaded lie in device memory, which nobody above is told.
#include <stdlib.h>
#include <sys/stat.h>

#include "roc.h"

enum { MAX_LOADED = 8 };

struct reader { size_t size; };
struct executable {
    bool frozen;
    int count;
    struct sim_block *loaded[MAX_LOADED];
};

static int hand_out(void *object, uint64_t *handle) {
    if (!object) return ROC_OUT_OF_RESOURCES;
    *handle = (uint64_t)object;
    return ROC_SUCCESS;
}

int roc_executable_create(uint64_t *executable) {
    return executable ? hand_out(calloc(1, sizeof(struct executable)), executable) : ROC_INVALID_ARGUMENT;
}

static int new_reader(size_t size, uint64_t *handle) {
    struct reader *reader = calloc(1, sizeof *reader);
    if (reader) reader->size = size;
    return hand_out(reader, handle);
}

int roc_reader_of_memory(const void *code, size_t size, uint64_t *reader) {
    return code && size && reader ? new_reader(size, reader) : ROC_INVALID_ARGUMENT;
}

int roc_reader_of_file(int file, uint64_t *reader) {
    struct stat data;
    if (!reader || fstat(file, &data) != 0 || data.st_size == 0) return ROC_INVALID_ARGUMENT;
    return new_reader((size_t)data.st_size, reader);
}

int roc_reader_destroy(uint64_t reader) {
    free((void *)reader);
    return reader ? ROC_SUCCESS : ROC_INVALID_READER;
}

int roc_load(uint64_t handle, uint64_t agent, uint64_t reader) {
    struct executable *executable = (struct executable *)handle;
    const struct holder *holder = roc_agent(agent);
    if (!executable || executable->count == MAX_LOADED) return ROC_INVALID_EXECUTABLE;
    if (executable->frozen) return ROC_FROZEN_EXECUTABLE;
    if (!holder || !holder->is_gpu) return ROC_INVALID_AGENT;
    if (!reader) return ROC_INVALID_READER;
    sigset_t saved;
    sim_lock(&saved);
    size_t size = ((const struct reader *)reader)->size;
    struct sim_block *block = sim_device_take(holder->device, SIM_KIND_CODE, size);
    if (block) executable->loaded[executable->count++] = block;
    if (block) sim_log_block("alloc", block);
    else sim_log_failure(SIM_KIND_CODE, holder->device, size, SIM_OUT_OF_MEMORY);
    sim_unlock(&saved);
    return block ? ROC_SUCCESS : ROC_OUT_OF_RESOURCES;
}

// Of a program there is only what stands in host memory.
int roc_load_program(uint64_t handle, uint64_t reader) {
    const struct executable *executable = (const struct executable *)handle;
    if (!executable) return ROC_INVALID_EXECUTABLE;
    if (executable->frozen) return ROC_FROZEN_EXECUTABLE;
    return reader ? ROC_SUCCESS : ROC_INVALID_READER;
}

int roc_executable_freeze(uint64_t handle) {
    struct executable *executable = (struct executable *)handle;
    if (!executable) return ROC_INVALID_EXECUTABLE;
    if (executable->frozen) return ROC_FROZEN_EXECUTABLE;
    executable->frozen = true;
    return ROC_SUCCESS;
}

int roc_executable_destroy(uint64_t handle) {
    struct executable *executable = (struct executable *)handle;
    if (!executable) return ROC_INVALID_EXECUTABLE;
    sigset_t saved;
    sim_lock(&saved);
    for (int i = 0; i < executable->count; i++) {
        sim_log_block("free", executable->loaded[i]);
        sim_device_give(executable->loaded[i]);
    }
    sim_unlock(&saved);
    free(executable);
    return ROC_SUCCESS;
}
