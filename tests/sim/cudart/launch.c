// Launches, and what can be asked of kernels and done with variables.
#include <string.h>

#include "cudart.h"

#define EXPORT __attribute__((visibility("default")))

// The driver says of a bad kernel that the handle is none; the runtime, that the function is none.
static int of_function(int status) { return status == SIM_INVALID_HANDLE ? INVALID_DEVICE_FUNCTION : status; }

int rt_GetKernel(const struct driver *d, void **kernel, const void *symbol) {
    if (!kernel) return SIM_INVALID_VALUE;
    *kernel = rt_kernel(d, symbol);
    return *kernel ? SIM_SUCCESS : INVALID_DEVICE_FUNCTION;
}

int rt_Launch(const struct driver *d, const void *function, struct dim3 grid, struct dim3 block, void **arguments,
              size_t shared, void *stream) {
    void *kernel = rt_kernel(d, function);
    return of_function(d->cuLaunchKernel(kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z, (unsigned)shared,
                                         stream, arguments, NULL));
}

int rt_LaunchCooperative(const struct driver *d, const void *function, struct dim3 grid, struct dim3 block,
                         void **arguments, size_t shared, void *stream) {
    void *kernel = rt_kernel(d, function);
    return of_function(d->cuLaunchCooperativeKernel(kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                                    (unsigned)shared, stream, arguments));
}

// The configurations of runtime and driver have one layout.
int rt_LaunchEx(const struct driver *d, const struct launch_configuration *configuration, const void *function,
                void **arguments) {
    return of_function(d->cuLaunchKernelEx(configuration, rt_kernel(d, function), arguments, NULL));
}

int rt_FuncGetAttributes(const struct driver *d, struct function_attributes *attributes, const void *function) {
    enum { MAX_THREADS, SHARED, CONSTANT, LOCAL, REGISTERS, PTX, BINARY, CACHE_MODE, DYNAMIC_SHARED, COUNT };
    if (!attributes) return SIM_INVALID_VALUE;
    void *kernel = rt_kernel(d, function);
    int device = 0, values[COUNT];
    (void)rt_GetDevice(d, &device);
    for (int i = 0; i < COUNT; i++) {
        int status = d->cuKernelGetAttribute(&values[i], i, kernel, device);
        if (status != SIM_SUCCESS) return of_function(status);
    }
    *attributes = (struct function_attributes){
        .shared = (size_t)values[SHARED], .constant = (size_t)values[CONSTANT], .local = (size_t)values[LOCAL],
        .max_threads = values[MAX_THREADS], .registers = values[REGISTERS], .ptx_version = values[PTX],
        .binary_version = values[BINARY], .cache_mode = values[CACHE_MODE],
        .max_dynamic_shared = values[DYNAMIC_SHARED],
    };
    return SIM_SUCCESS;
}

int rt_FuncSetAttribute(const struct driver *d, const void *function, int attribute, int value) {
    int device = 0;
    (void)rt_GetDevice(d, &device);
    return of_function(d->cuKernelSetAttribute(attribute, value, rt_kernel(d, function), device));
}

int rt_FuncSetCacheConfig(const struct driver *d, const void *function, int value) {
    return of_function(d->cuFuncSetCacheConfig(rt_kernel(d, function), value));
}

int rt_FuncGetName(const struct driver *d, const char **name, const void *function) {
    return of_function(d->cuFuncGetName(name, rt_kernel(d, function)));
}

int rt_Occupancy(const struct driver *d, int *blocks, const void *function, int block, size_t shared) {
    void *kernel = rt_kernel(d, function);
    return of_function(d->cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, kernel, block, shared, 0));
}

int rt_GetSymbolAddress(void **address, const void *symbol) {
    if (!address) return SIM_INVALID_VALUE;
    *address = rt_variable(symbol, NULL);
    return *address ? SIM_SUCCESS : INVALID_SYMBOL;
}

int rt_GetSymbolSize(size_t *size, const void *symbol) {
    if (!size) return SIM_INVALID_VALUE;
    return rt_variable(symbol, size) ? SIM_SUCCESS : INVALID_SYMBOL;
}

// The place in the variable; null where the symbol is none or the range does not fit.
static char *place(const void *symbol, size_t size, size_t offset, int *status) {
    size_t available = 0;
    char *storage = rt_variable(symbol, &available);
    bool fits = size <= available && offset <= available - size;
    *status = !storage ? INVALID_SYMBOL : fits ? SIM_SUCCESS : SIM_INVALID_VALUE;
    return *status == SIM_SUCCESS ? storage + offset : NULL;
}

static int copy(const struct driver *d, void *to, const void *from, size_t size, void *stream, bool in_stream) {
    return in_stream ? d->cuMemcpyAsync(to, from, size, stream) : d->cuMemcpy(to, from, size);
}

int rt_MemcpyToSymbol(const struct driver *d, const void *symbol, const void *from, size_t size, size_t offset,
                      void *stream, bool in_stream) {
    int status;
    char *to = place(symbol, size, offset, &status);
    return to ? copy(d, to, from, size, stream, in_stream) : status;
}

int rt_MemcpyFromSymbol(const struct driver *d, void *to, const void *symbol, size_t size, size_t offset, void *stream,
                        bool in_stream) {
    int status;
    char *from = place(symbol, size, offset, &status);
    return from ? copy(d, to, from, size, stream, in_stream) : status;
}

int rt_ConditionalHandle(const struct driver *d, unsigned long long *handle, void *graph, unsigned value,
                         unsigned flags) {
    void *context = NULL;
    int status = d->cuCtxGetCurrent(&context);
    return status == SIM_SUCCESS ? d->cuGraphConditionalHandleCreate(handle, graph, context, value, flags) : status;
}

// What <<<...>>> leaves between its two halves, by thread
enum { MAX_NESTED = 16 };
static __thread struct { struct dim3 grid, block; size_t shared; void *stream; } pushed[MAX_NESTED]
    __attribute__((tls_model("initial-exec")));
static __thread int depth __attribute__((tls_model("initial-exec")));

EXPORT unsigned __cudaPushCallConfiguration(struct dim3 grid, struct dim3 block, size_t shared, void *stream) {
    if (depth == MAX_NESTED) return 1;
    pushed[depth].grid = grid;
    pushed[depth].block = block;
    pushed[depth].shared = shared;
    pushed[depth++].stream = stream;
    return 0;
}

EXPORT int __cudaPopCallConfiguration(struct dim3 *grid, struct dim3 *block, size_t *shared, void *stream) {
    enum { MISSING_CONFIGURATION = 52 };
    if (!depth) return MISSING_CONFIGURATION;
    depth--;
    *grid = pushed[depth].grid;
    *block = pushed[depth].block;
    *shared = pushed[depth].shared;
    *(void **)stream = pushed[depth].stream;
    return SIM_SUCCESS;
}
