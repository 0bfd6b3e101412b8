// Memory nodes that are added to a graph by the general function, whose structure says what they are: an allocation, its
// free, and a node of another sort, beside one by the function of its own. Built for HIP, and with -DCUDA for the CUDA
// runtime as of 12 and as of 13, whose general function has another form. There the graph runs, and the program reads how much is
// reserved for it.
// The trace must name the bytes of both allocations (13 and 5 MiB), and no others.
#ifdef CUDA
#include "cuda_min.h"
#define hipGraphCreate cudaGraphCreate
#define hipGraphAddNode cudaGraphAddNode
#define hipGraphAddMemAllocNode cudaGraphAddMemAllocNode
#define hipMalloc cudaMalloc
typedef PoolProperties hipMemPoolProps;
typedef struct {
    PoolProperties poolProps;
    const void *accessDescs;
    size_t accessDescCount, bytesize;
    void *dptr;
} hipMemAllocNodeParams;
int cudaGraphCreate(void **graph, unsigned flags);
int cudaGraphAddMemAllocNode(void **node, void *graph, void **after, size_t count, hipMemAllocNodeParams *parameters);
#if CUDA >= 13
int cudaGraphAddNode(void **node, void *graph, void **after, const void *edges, size_t count, void *parameters);
#define ADD(node, graph, parameters) cudaGraphAddNode(node, graph, NULL, NULL, 0, parameters)
int cudaGraphInstantiate(void **executable, void *graph, unsigned long long flags);
int cudaGraphLaunch(void *executable, void *stream);
int cudaDeviceGetGraphMemAttribute(int device, int attribute, void *value);
#else
int cudaGraphAddNode(void **node, void *graph, void **after, size_t count, void *parameters);
#define ADD(node, graph, parameters) cudaGraphAddNode(node, graph, NULL, 0, parameters)
#endif
#else
#include "hip_min.h"
hipError_t hipGraphAddNode(void **node, void *graph, void **after, size_t count, void *parameters);
#define ADD(node, graph, parameters) hipGraphAddNode(node, graph, NULL, 0, parameters)
#endif

enum { EMPTY = 5, ALLOCATES = 10, FREES = 11, RESERVED_HIGH = 3 };

typedef struct {
    int type, reserved[3];
    union { hipMemAllocNodeParams memory; void *freed; long long room[29]; };
    long long more;
} Node;

int main(void) {
    void *graph, *node, *block;
    MUST(hipGraphCreate(&graph, 0));
    Node any = {.type = ALLOCATES};
    any.memory.poolProps = (hipMemPoolProps){1, 0, {1, 0}, NULL, 0, {0}};
    any.memory.bytesize = 13 * MiB;
    MUST(ADD(&node, graph, &any));
    printf("an address: %d\n", any.memory.dptr != NULL);
    Node freed = {.type = FREES};
    freed.freed = any.memory.dptr;
    MUST(ADD(&node, graph, &freed));
    MUST(ADD(&node, graph, &(Node){.type = EMPTY}));
    hipMemAllocNodeParams own = any.memory;
    own.bytesize = 5 * MiB;
    MUST(hipGraphAddMemAllocNode(&node, graph, NULL, 0, &own));
    printf("no parameters: %d\n", ADD(&node, graph, NULL) != 0);
#if defined CUDA && CUDA >= 13
    unsigned long long reserved = 0;
    void *executable;
    MUST(cudaGraphInstantiate(&executable, graph, 0));
    MUST(cudaGraphLaunch(executable, NULL));
    MUST(cudaDeviceGetGraphMemAttribute(0, RESERVED_HIGH, &reserved));
    printf("reserved %llu\n", reserved);
#endif
    MUST(hipMalloc(&block, 7 * MiB));
    return 0;
}
