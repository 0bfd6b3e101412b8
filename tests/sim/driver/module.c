// Modules, kernels and launches. A kernel does nothing.
#include <stdlib.h>
#include <string.h>

#include "driver.h"

enum { MODULE_MAGIC = 0x4d4f4455, KERNEL_MAGIC = 0x4b45524e };

struct kernel {
    uint32_t magic;
    struct kernel *next;
    int dynamic_shared_bytes;
    char name[];
};

struct module {
    uint32_t magic;
    struct kernel *kernels;
};

static struct module *checked_module(void *handle) {
    struct module *module = handle;
    return module && module->magic == MODULE_MAGIC ? module : NULL;
}

static struct kernel *checked_kernel(void *handle) {
    struct kernel *kernel = handle;
    return kernel && kernel->magic == KERNEL_MAGIC ? kernel : NULL;
}

int drv_ModuleLoad(void **handle, const void *image) {
    if (!handle || !image) return SIM_INVALID_VALUE;
    struct module *module = calloc(1, sizeof *module);
    if (!module) return SIM_OUT_OF_MEMORY;
    module->magic = MODULE_MAGIC;
    *handle = module;
    return SIM_SUCCESS;
}

int drv_ModuleUnload(void *handle) {
    struct module *module = checked_module(handle);
    if (!module) return SIM_INVALID_HANDLE;
    for (struct kernel *kernel = module->kernels, *next; kernel; kernel = next) {
        next = kernel->next;
        kernel->magic = 0;
        free(kernel);
    }
    module->magic = 0;
    free(module);
    return SIM_SUCCESS;
}

int drv_GetKernel(void **handle, void *module_handle, const char *name) {
    struct module *module = checked_module(module_handle);
    if (!module) return SIM_INVALID_HANDLE;
    if (!handle || !name || !*name) return SIM_INVALID_VALUE;
    struct kernel *kernel = calloc(1, sizeof *kernel + strlen(name) + 1);
    if (!kernel) return SIM_OUT_OF_MEMORY;
    kernel->magic = KERNEL_MAGIC;
    strcpy(kernel->name, name);
    sigset_t saved;
    sim_lock(&saved);
    kernel->next = module->kernels;
    module->kernels = kernel;
    sim_unlock(&saved);
    *handle = kernel;
    return SIM_SUCCESS;
}

int drv_ModuleGetLoadingMode(int *mode) {
    enum { EAGER = 1 };
    if (!mode) return SIM_INVALID_VALUE;
    *mode = EAGER;
    return SIM_SUCCESS;
}

enum { MAX_THREADS = 0, REGISTERS = 4, PTX_VERSION, BINARY_VERSION, DYNAMIC_SHARED = 8 };

int drv_FuncGetAttribute(int *value, int attribute, void *function) {
    struct kernel *kernel = checked_kernel(function);
    if (!kernel) return SIM_INVALID_HANDLE;
    if (!value) return SIM_INVALID_VALUE;
    switch (attribute) {
        case MAX_THREADS: *value = 1024; break;
        case REGISTERS: *value = 32; break;
        case PTX_VERSION: case BINARY_VERSION: *value = sim_config()->compute_capability; break;
        case DYNAMIC_SHARED: *value = kernel->dynamic_shared_bytes; break;
        default: *value = 0;
    }
    return SIM_SUCCESS;
}

int drv_FuncSetAttribute(void *function, int attribute, int value) {
    struct kernel *kernel = checked_kernel(function);
    if (!kernel) return SIM_INVALID_HANDLE;
    if (attribute == DYNAMIC_SHARED) kernel->dynamic_shared_bytes = value;
    return SIM_SUCCESS;
}

int drv_FuncGetName(const char **name, void *function) {
    struct kernel *kernel = checked_kernel(function);
    if (!name || !kernel) return SIM_INVALID_VALUE;
    *name = kernel->name;
    return SIM_SUCCESS;
}

int drv_Occupancy(int *blocks, void *function, int block_size) {
    enum { THREADS_PER_MULTIPROCESSOR = 2048, MAX_BLOCKS = 16 };
    if (!checked_kernel(function)) return SIM_INVALID_HANDLE;
    if (!blocks || block_size <= 0) return SIM_INVALID_VALUE;
    int fit = THREADS_PER_MULTIPROCESSOR / block_size;
    *blocks = fit < MAX_BLOCKS ? fit : MAX_BLOCKS;
    return SIM_SUCCESS;
}

int drv_Launch(void *function, void *stream) {
    if (!checked_kernel(function)) return SIM_INVALID_HANDLE;
    struct stream *capturing = drv_capturing_stream(stream);
    return capturing ? drv_capture_add(capturing, &(struct work){.type = NODE_KERNEL}) : SIM_SUCCESS;
}

int drv_LaunchEx(const struct launch_configuration *configuration, void *function) {
    return configuration ? drv_Launch(function, configuration->stream) : SIM_INVALID_VALUE;
}

int drv_LaunchHostFunc(void *stream, void (*function)(void *), void *data) {
    if (!function) return SIM_INVALID_VALUE;
    struct stream *capturing = drv_capturing_stream(stream);
    if (capturing)
        return drv_capture_add(capturing, &(struct work){.type = NODE_HOST, .function = function, .data = data});
    function(data);
    return SIM_SUCCESS;
}

int drv_StreamAddCallback(void *stream, void (*function)(void *, int, void *), void *data) {
    if (!function) return SIM_INVALID_VALUE;
    if (drv_capturing_stream(stream)) return SIM_CAPTURE_UNSUPPORTED;
    function(stream, SIM_SUCCESS, data);
    return SIM_SUCCESS;
}
