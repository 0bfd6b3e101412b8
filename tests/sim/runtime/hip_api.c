// libamdhip64.so: the functions that HIP shares with CUDA come from the table, HIP's own stand below.
#include <string.h>

#include "front_end.h"

#define API(hip, cuda, body, parameters, arguments) EXPORTED(hip, body, parameters, arguments)
#include "api_table.h"

// Readers and texts leave the last error as the body left it.
EXPORT int hipGetLastError(void) { return sim_GetLastError(); }
EXPORT int hipPeekAtLastError(void) { return sim_PeekAtLastError(); }
EXPORT int hipExtGetLastError(void) { return sim_ExtGetLastError(); }

static const char *name_of(int status) {
    const char *name = sim_status_name(status, SIM_HIP);
    return name ? name : "hipErrorUnknown";
}
static const char *text_of(int status) {
    const char *text = sim_status_text(status);
    return text ? text : "unknown error";
}

EXPORT const char *hipGetErrorName(int status) { return name_of(status); }
EXPORT const char *hipGetErrorString(int status) { return text_of(status); }

EXPORT int hipDrvGetErrorName(int status, const char **name) {
    *name = name_of(status);
    return SIM_SUCCESS;
}

EXPORT int hipDrvGetErrorString(int status, const char **text) {
    *text = text_of(status);
    return SIM_SUCCESS;
}

// The real library asks itself for the free memory after each failure, to log it.
void sim_report_failure(void) {
    size_t free, total;
    sim_thread()->self_call = true;
    (void)hipMemGetInfo(&free, &total);
}

static int sim_MemAllocPitch(void **pointer, size_t *pitch, size_t width, size_t height) {
    if (!sim_config()->self_call) return sim_MallocPitch(pointer, pitch, width, height);
    sim_thread()->self_call = true;
    return hipMallocPitch(pointer, pitch, width, height);
}

// Offsets of totalGlobalMem in the property structure before and since HIP 6.0
enum { TOTAL_BEFORE_6 = 256, TOTAL_SINCE_6 = 288 };

// Device memory
EXPORTED(hipInit, done, (unsigned f), ())
EXPORTED(hipExtMallocWithFlags, ExtMallocWithFlags, (void **p, size_t n, unsigned f), (p, n, f))
EXPORTED(hipMemAllocPitch, MemAllocPitch, (void **p, size_t *pitch, size_t w, size_t h, unsigned e), (p, pitch, w, h))
EXPORTED(hipMemGetAddressRange, MemGetAddressRange, (void **base, size_t *n, void *p), (base, n, p))
// Does nothing in the real one either.
EXPORTED(hipDevicePrimaryCtxReset, done, (int d), ())
EXPORTED(hipDevicePrimaryCtxRetain, CtxRetain, (void **c, int d), (c, d))
EXPORTED(hipCtxCreate, CtxCreate, (void **c, unsigned f, int d), (c, d))
EXPORTED(hipCtxPushCurrent, CtxPush, (void *c), (c))
EXPORTED(hipCtxPopCurrent, CtxPop, (void **c), (c))
EXPORTED(hipCtxSetCurrent, CtxSet, (void *c), (c))
EXPORTED(hipCtxGetCurrent, CtxGet, (void **c), (c))
EXPORTED(hipCtxDestroy, CtxDestroy, (void *c), (c))
EXPORTED(hipGraphAddNode, GraphAddNode, (void **node, void *g, const void *d, size_t n, sim_any_node *q), (node, q))
EXPORTED(hipMemGetHandleForAddressRange, noted, (void *h, void *p, size_t n, int type, unsigned long long f),
         ("export", p, sim_MemGetAddressRange(NULL, NULL, p)))

// Arrays
EXPORTED(hipArrayCreate, ArrayCreate, (void **a, const sim_array_shape *s), (a, s))
EXPORTED(hipArray3DCreate, Array3DCreate, (void **a, const sim_array3d_shape *s), (a, s))
EXPORTED(hipMipmappedArrayCreate, MipmappedArrayCreate, (void **a, const sim_array3d_shape *s, unsigned l), (a, s, l))
EXPORTED(hipArrayDestroy, FreeArray, (void *a), (a))
EXPORTED(hipMipmappedArrayDestroy, FreeArray, (void *a), (a))

// Host memory
EXPORTED(hipHostMalloc, HostMalloc, (void **p, size_t n, unsigned f), (p, n, f))
EXPORTED(hipMemAllocHost, HostMalloc, (void **p, size_t n), (p, n, 0))
EXPORTED(hipHostFree, HostFree, (void *p), (p))

// Virtual memory management
EXPORTED(hipMemGetAllocationGranularity, MemGetAllocationGranularity,
         (size_t *n, const sim_allocation_properties *q, int o), (n, q, o))
EXPORTED(hipMemAddressReserve, MemAddressReserve,
         (void **p, size_t n, size_t a, void *hint, unsigned long long f), (p, n, a, hint, f))
EXPORTED(hipMemAddressFree, MemAddressFree, (void *p, size_t n), (p, n))
EXPORTED(hipMemCreate, MemCreate, (void **h, size_t n, const sim_allocation_properties *q, unsigned long long f),
         (h, n, q, f))
EXPORTED(hipMemRelease, MemRelease, (void *h), (h))
EXPORTED(hipMemMap, MemMap, (void *p, size_t n, size_t o, void *h, unsigned long long f), (p, n, o, h, f))
EXPORTED(hipMemUnmap, MemUnmap, (void *p, size_t n), (p, n))
EXPORTED(hipMemSetAccess, MemSetAccess, (void *p, size_t n, const void *d, size_t count), (p, n, d, count))
EXPORTED(hipMemGetAccess, unsupported, (unsigned long long *f, const void *location, void *p), ())
EXPORTED(hipMemExportToShareableHandle, noted, (void *out, void *h, int type, unsigned long long f),
         ("export", h, sim_MemExportToShareableHandle(out, h, type)))
EXPORTED(hipMemImportFromShareableHandle, unsupported, (void **h, void *os, int type), ())
EXPORTED(hipMemRetainAllocationHandle, MemRetainAllocationHandle, (void **h, void *p), (h, p))
EXPORTED(hipDrvGraphAddMemFreeNode, GraphAddMemFreeNode, (void **node, void *g, const void *d, size_t n, void *p), (node, p))

// Copies and fills
EXPORTED(hipMemcpyWithStream, Memcpy, (void *to, const void *from, size_t n, int kind, void *s), (to, from, n))
EXPORTED(hipMemcpyHtoD, Memcpy, (void *to, const void *from, size_t n), (to, from, n))
EXPORTED(hipMemcpyDtoH, Memcpy, (void *to, const void *from, size_t n), (to, from, n))
EXPORTED(hipMemcpyDtoD, Memcpy, (void *to, const void *from, size_t n), (to, from, n))
EXPORTED(hipMemcpyHtoDAsync, Memcpy, (void *to, const void *from, size_t n, void *s), (to, from, n))
EXPORTED(hipMemcpyDtoHAsync, Memcpy, (void *to, const void *from, size_t n, void *s), (to, from, n))
EXPORTED(hipMemcpyDtoDAsync, Memcpy, (void *to, const void *from, size_t n, void *s), (to, from, n))
EXPORTED(hipMemsetD8, Memset, (void *to, unsigned char v, size_t n), (to, v, n))
EXPORTED(hipMemsetD8Async, Memset, (void *to, unsigned char v, size_t n, void *s), (to, v, n))
EXPORTED(hipMemsetD16, MemsetPattern, (void *to, unsigned short v, size_t n), (to, &v, sizeof v, n))
EXPORTED(hipMemsetD16Async, MemsetPattern, (void *to, unsigned short v, size_t n, void *s), (to, &v, sizeof v, n))
EXPORTED(hipMemsetD32, MemsetPattern, (void *to, int v, size_t n), (to, &v, sizeof v, n))
EXPORTED(hipMemsetD32Async, MemsetPattern, (void *to, int v, size_t n, void *s), (to, &v, sizeof v, n))

// Launches, modules, graphs
EXPORTED(hipModuleLaunchKernel, Launch,
         (void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
          void *s, void **args, void **extra),
         (f))
EXPORTED(hipModuleLoad, noted_new, (void **m, const char *path), ("module", m, sim_module_load(m)))
EXPORTED(hipModuleLoadData, noted_new, (void **m, const void *image), ("module", m, sim_module_load(m)))
EXPORTED(hipModuleLoadFatBinary, noted_new, (void **m, const void *image), ("module", m, sim_module_load(m)))
EXPORTED(hipModuleLoadDataEx, noted_new, (void **m, const void *image, unsigned n, void *o, void **v),
         ("module", m, sim_module_load(m)))
EXPORTED(hipModuleGetFunction, handle_create, (void **f, void *m, const char *name), (f))
EXPORTED(hipModuleUnload, noted, (void *m), ("module", m, sim_object_destroy(m)))
EXPORTED(hipGraphInstantiate, noted_new, (void **e, void *g, void **node, char *log, size_t n),
         ("graph", e, sim_object_create(e)))
EXPORTED(hipGraphInstantiateWithParams, noted_new, (void **e, void *g, void *q), ("graph", e, sim_object_create(e)))

// Devices
EXPORTED(hipGetDeviceProperties, properties, (void *q, int d), (q, TOTAL_BEFORE_6, d))
EXPORTED(hipGetDevicePropertiesR0600, properties, (void *q, int d), (q, TOTAL_SINCE_6, d))
EXPORTED(hipDeviceGet, DeviceGet, (int *d, int ordinal), (d, ordinal))
EXPORTED(hipDeviceGetName, DeviceGetName, (char *t, int n, int d), (t, n, d))
EXPORTED(hipDeviceTotalMem, DeviceTotalMem, (size_t *n, int d), (n, d))
EXPORTED(hipDeviceGetLimit, DeviceGetLimit, (size_t *n, int limit), (n, limit))

// As the real library does, hipGetProcAddress answers the library's own functions, and not what a preloaded library has
// under their names: hence the hidden aliases.
#define OWN(name) extern __typeof(name) own_##name __attribute__((alias(#name), visibility("hidden")));
#undef API
#define API(hip, cuda, body, parameters, arguments) OWN(hip)
#include "api_table.h"
OWN(hipExtMallocWithFlags)
OWN(hipHostMalloc)
OWN(hipHostFree)
OWN(hipMemCreate)
OWN(hipMemRelease)
OWN(hipGetLastError)
OWN(hipModuleLoadData)
OWN(hipModuleLaunchKernel)

#define ROW(name) {#name, (void *)own_##name},
static const struct { const char *name; void *function; } own_functions[] = {
#undef API
#define API(hip, cuda, body, parameters, arguments) ROW(hip)
#include "api_table.h"
    ROW(hipExtMallocWithFlags) ROW(hipHostMalloc) ROW(hipHostFree) ROW(hipMemCreate) ROW(hipMemRelease)
    ROW(hipGetLastError) ROW(hipModuleLoadData) ROW(hipModuleLaunchKernel)
};

// The version and the flags choose nothing here: no function of this table has changed, or has a twin.
EXPORT int hipGetProcAddress(const char *symbol, void **function, int version, uint64_t flags, int *result) {
    enum { FOUND, NOT_FOUND };
    *function = NULL;
    for (size_t i = 0; i < sizeof own_functions / sizeof *own_functions; i++) {
        if (strcmp(own_functions[i].name, symbol) == 0) *function = own_functions[i].function;
    }
    if (result) *result = *function ? FOUND : NOT_FOUND;
    return *function ? SIM_SUCCESS : SIM_INVALID_VALUE;
}
