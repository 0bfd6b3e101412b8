// libcudart.so: the functions that CUDA shares with HIP come from the table, CUDA's own stand below.
// NVIDIA's library calls none of its functions through its own PLT, so neither does this one.
#include "front_end.h"

#define API(hip, cuda, body, parameters, arguments) EXPORTED(cuda, body, parameters, arguments)
#include "api_table.h"

// Up to CUDA 12: the old name.
EXPORTED(cudaThreadSynchronize, noted, (void), ("sync", NULL, sim_DeviceSynchronize()))

EXPORT int cudaGetLastError(void) { return sim_GetLastError(); }
EXPORT int cudaPeekAtLastError(void) { return sim_PeekAtLastError(); }
EXPORT const char *cudaGetErrorName(int status) {
    const char *name = sim_status_name(status, SIM_CUDA_RUNTIME);
    return name ? name : "unrecognized error code";
}
EXPORT const char *cudaGetErrorString(int status) {
    const char *text = sim_status_text(status);
    return text ? text : "unrecognized error code";
}

void sim_report_failure(void) {}

enum { TOTAL_OFFSET = 288 };  // of totalGlobalMem in cudaDeviceProp

EXPORTED(cudaGetDeviceProperties, properties, (void *q, int d), (q, TOTAL_OFFSET, d))
EXPORTED(cudaGetDeviceProperties_v2, properties, (void *q, int d), (q, TOTAL_OFFSET, d))
// As of CUDA 12; with 13 the form of _v2 has the plain name.
EXPORTED(cudaGraphAddNode, GraphAddNode, (void **node, void *g, const void *d, size_t n, sim_any_node *q), (node, q))
EXPORTED(cudaGraphAddNode_v2, GraphAddNode,
         (void **node, void *g, const void *d, const void *edges, size_t n, sim_any_node *q), (node, q))
EXPORTED(cudaExternalMemoryGetMappedMipmappedArray, unsupported, (void **a, void *m, const void *d), ())
EXPORTED(cudaGraphInstantiate, noted_new, (void **e, void *g, unsigned long long f),
         ("graph", e, sim_object_create(e)))
