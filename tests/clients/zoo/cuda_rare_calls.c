// The same as rare_calls.c for CUDA: the runtime's calls over the driver's, and the driver's own.
#include "cuda_min.h"

typedef struct { unsigned char bytes[64]; } IpcHandle;
enum { CAPTURE_RELAXED = 2, RELEASE_THRESHOLD = 4, FILE_DESCRIPTOR = 1 };

int cudaStreamBeginCapture(void *stream, int mode);
int cudaStreamEndCapture(void *stream, void **graph);
int cudaGraphInstantiate(void **executable, void *graph, unsigned long long flags);
int cudaGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags);
int cudaGraphExecDestroy(void *executable);
int cudaGraphDestroy(void *graph);
int cudaIpcGetMemHandle(IpcHandle *handle, void *pointer);
int cudaLibraryLoadData(void **library, const void *code, int *options, void **values, unsigned count, int *more,
                        void **more_values, unsigned more_count);
int cudaLibraryUnload(void *library);
int cudaDeviceGetDefaultMemPool(void **pool, int device);
int cudaMemPoolTrimTo(void *pool, size_t keep);
int cudaMemPoolSetAttribute(void *pool, int attribute, void *value);
int cuModuleLoad(void **module, const char *path);
int cuModuleLoadData(void **module, const void *image);
int cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options, void **values);
int cuModuleLoadFatBinary(void **module, const void *image);
int cuModuleUnload(void *module);
int cuLibraryLoadFromFile(void **library, const char *path, int *options, void **values, unsigned count, int *more,
                          void **more_values, unsigned more_count);
int cuStreamBeginCapture(void *stream);
int cuStreamBeginCapture_v2_ptsz(void *stream, int mode);
int cuStreamEndCapture(void *stream, void **graph);
int cuStreamEndCapture_ptsz(void *stream, void **graph);
int cuGraphInstantiate(void **executable, void *graph, void **node, char *log, size_t size);
int cuGraphInstantiate_v2(void **executable, void *graph, void **node, char *log, size_t size);
int cuGraphExecDestroy(void *executable);
int cuGraphDestroy(void *graph);
int cuIpcGetMemHandle(IpcHandle *handle, void *pointer);
int cuDeviceGetDefaultMemPool(void **pool, int device);
int cudaMemPoolExportToShareableHandle(void *out, void *pool, int type, unsigned flags);
int cuMemPoolExportToShareableHandle(void *out, void *pool, int type, unsigned long long flags);
int cuMemExportToShareableHandle(void *out, void *handle, int type, unsigned long long flags);
int cuMemPoolTrimTo(void *pool, size_t keep);

static const char image[64] = "code";

static void of_the_runtime(void) {
    void *stream, *graph, *executable, *block, *library, *pool;
    uint64_t threshold = 64 * MiB;
    IpcHandle handle;
    MUST(cudaStreamCreate(&stream));
    MUST(cudaStreamBeginCapture(stream, CAPTURE_RELAXED));
    MUST(cudaMalloc(&block, 24 * MiB));
    MUST(cudaStreamEndCapture(stream, &graph));
    MUST(cudaGraphInstantiate(&executable, graph, 0));
    MUST(cudaGraphExecDestroy(executable));
    MUST(cudaGraphInstantiateWithFlags(&executable, graph, 0));
    MUST(cudaGraphDestroy(graph));
    MUST(cudaIpcGetMemHandle(&handle, block));
    MUST(cudaFree(block));
    MUST(cudaLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
    MUST(cudaLibraryUnload(library));
    MUST(cudaDeviceGetDefaultMemPool(&pool, 0));
    MUST(cudaMemPoolSetAttribute(pool, RELEASE_THRESHOLD, &threshold));
    MUST(cudaMemPoolTrimTo(pool, 8 * MiB));
    MUST(cuMemPoolTrimTo(pool, 0));
    MUST(cuStreamBeginCapture(stream));
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphInstantiate(&executable, graph, NULL, NULL, 0));
    MUST(cuGraphExecDestroy(executable));
    MUST(cuGraphInstantiate_v2(&executable, graph, NULL, NULL, 0));
    MUST(cuGraphDestroy(graph));
    MUST(cuStreamBeginCapture_v2_ptsz(stream, CAPTURE_RELAXED));
    MUST(cuStreamEndCapture_ptsz(stream, &graph));
    MUST(cudaStreamDestroy(stream));
}

static void of_the_driver(void) {
    AllocationProperties properties = {.type = PINNED_MEMORY, .location = {ON_DEVICE, 0}};
    void *module[4], *library, *block, *physical;
    IpcHandle handle;
    int file = -1;
    MUST(cuModuleLoad(&module[0], "/nowhere/kernels.cubin"));
    MUST(cuModuleLoadData(&module[1], image));
    MUST(cuModuleLoadDataEx(&module[2], image, 0, NULL, NULL));
    MUST(cuModuleLoadFatBinary(&module[3], image));
    MUST(cuLibraryLoadFromFile(&library, "/nowhere/kernels.cubin", NULL, NULL, 0, NULL, NULL, 0));
    for (int i = 0; i < 3; i++) MUST(cuModuleUnload(module[i]));
    printf("no module: %d\n", cuModuleUnload(NULL) != SUCCESS);
    MUST(cuMemAlloc_v2(&block, 12 * MiB));
    MUST(cuIpcGetMemHandle(&handle, block));
    MUST(cuMemFree_v2(block));
    MUST(cuMemCreate(&physical, 4 * MiB, &properties, 0));
    MUST(cuMemExportToShareableHandle(&file, physical, FILE_DESCRIPTOR, 0));
    MUST(cuMemRelease(physical));
    void *pool;
    MUST(cuDeviceGetDefaultMemPool(&pool, 0));
    MUST(cuMemPoolExportToShareableHandle(&file, pool, FILE_DESCRIPTOR, 0));
    MUST(cudaMemPoolExportToShareableHandle(&file, pool, FILE_DESCRIPTOR, 0));
}

int main(void) {
    void *nothing, *too_big;
    MUST(cudaMalloc(&nothing, MiB));
    of_the_runtime();
    of_the_driver();
    MUST_NOT_FIT(cudaMalloc(&too_big, (size_t)1 << 45));
    of_the_driver();
    return 0;
}
