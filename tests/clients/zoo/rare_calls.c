// What takes no memory by itself and explains where memory went: captures and the graphs they make, exports to other
// processes, modules and libraries, trims and attributes of pools.
// The trace must show each of them, with the address that the card saw; those that are refused show as refused. Between
// the failure and the next request stands only such a call: none of them is work, and none shows that the failure was seen.
#include "hip_min.h"

typedef struct { char bytes[64]; } hipIpcMemHandle_t;
enum { CAPTURE_RELAXED = 2, RELEASE_THRESHOLD = 4, REUSE_OPPORTUNISTIC = 2, FILE_DESCRIPTOR = 1 };

hipError_t hipStreamBeginCapture(hipStream_t stream, int mode);
hipError_t hipStreamEndCapture(hipStream_t stream, void **graph);
hipError_t hipGraphInstantiate(void **executable, void *graph, void **node, char *log, size_t size);
hipError_t hipGraphInstantiateWithParams(void **executable, void *graph, void *parameters);
hipError_t hipGraphLaunch(void *executable, hipStream_t stream);
hipError_t hipGraphExecDestroy(void *executable);
hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t *handle, void *pointer);
hipError_t hipMemExportToShareableHandle(void *out, void *handle, int type, unsigned long long flags);
hipError_t hipMemPoolExportToShareableHandle(void *out, void *pool, int type, unsigned flags);
hipError_t hipMemPoolExportPointer(hipIpcMemHandle_t *data, void *pointer);
hipError_t hipModuleLoad(void **module, const char *path);
hipError_t hipModuleLoadData(void **module, const void *image);
hipError_t hipModuleLoadDataEx(void **module, const void *image, unsigned count, int *options, void **values);
hipError_t hipModuleLoadFatBinary(void **module, const void *image);
hipError_t hipModuleUnload(void *module);
hipError_t hipLibraryLoadData(void **library, const void *code, int *options, void **values, unsigned count,
                              int *more, void **more_values, unsigned more_count);
hipError_t hipLibraryLoadFromFile(void **library, const char *path, int *options, void **values, unsigned count,
                                  int *more, void **more_values, unsigned more_count);
hipError_t hipLibraryUnload(void *library);
hipError_t hipDeviceGetDefaultMemPool(void **pool, int device);
hipError_t hipMemPoolTrimTo(void *pool, size_t keep);
hipError_t hipMemPoolSetAttribute(void *pool, int attribute, void *value);

static const char image[64] = "code";

static void captures(void) {
    hipStream_t stream;
    void *kept, *graph, *executables[3];
    MUST(hipStreamCreate(&stream));
    MUST(hipStreamBeginCapture(stream, CAPTURE_RELAXED));
    MUST(hipMalloc(&kept, 24 * MiB));
    MUST(hipStreamEndCapture(stream, &graph));
    printf("default stream: %d\n", hipStreamBeginCapture(NULL, CAPTURE_RELAXED));
    MUST(hipGraphInstantiate(&executables[0], graph, NULL, NULL, 0));
    MUST(hipGraphInstantiateWithFlags(&executables[1], graph, 0));
    MUST(hipGraphInstantiateWithParams(&executables[2], graph, NULL));
    printf("no executable: %d\n", hipGraphInstantiate(NULL, graph, NULL, NULL, 0));
    MUST(hipGraphLaunch(executables[0], stream));
    for (int i = 0; i < 2; i++) MUST(hipGraphExecDestroy(executables[i]));
    printf("no graph: %d\n", hipGraphDestroy(NULL));
    MUST(hipGraphDestroy(graph));
    MUST(hipStreamDestroy(stream));
}

static void exports(void) {
    hipMemAllocationProp properties = {.type = 1, .location = {1, 0}};
    hipIpcMemHandle_t handle;
    void *block, *physical;
    int file = -1;
    MUST(hipMalloc(&block, 96 * MiB));
    MUST(hipIpcGetMemHandle(&handle, block));
    printf("no memory: %d\n", hipIpcGetMemHandle(&handle, &handle));
    printf("of no pool: %d\n", hipMemPoolExportPointer(&handle, block));
    MUST(hipMemCreate(&physical, 4 * MiB, &properties, 0));
    MUST(hipMemExportToShareableHandle(&file, physical, FILE_DESCRIPTOR, 0));
    MUST(hipMemRelease(physical));
    MUST(hipFree(block));
}

static void modules(void) {
    void *module[4], *library[2];
    MUST(hipModuleLoad(&module[0], "/nowhere/kernels.hsaco"));
    MUST(hipModuleLoadData(&module[1], image));
    MUST(hipModuleLoadDataEx(&module[2], image, 0, NULL, NULL));
    MUST(hipModuleLoadFatBinary(&module[3], image));
    MUST(hipLibraryLoadData(&library[0], image, NULL, NULL, 0, NULL, NULL, 0));
    MUST(hipLibraryLoadFromFile(&library[1], "/nowhere/kernels.hsaco", NULL, NULL, 0, NULL, NULL, 0));
    for (int i = 0; i < 3; i++) MUST(hipModuleUnload(module[i]));
    MUST(hipLibraryUnload(library[0]));
    printf("no module: %d, no place: %d\n", hipModuleUnload(NULL), hipModuleLoadData(NULL, image));
}

static void pools(void) {
    uint64_t threshold = 64 * MiB;
    int off = 0, file = -1;
    void *pool, *block;
    hipIpcMemHandle_t handle;
    MUST(hipDeviceGetDefaultMemPool(&pool, 0));
    MUST(hipMemPoolExportToShareableHandle(&file, pool, FILE_DESCRIPTOR, 0));
    MUST(hipMallocAsync(&block, 2 * MiB, NULL));
    MUST(hipMemPoolExportPointer(&handle, block));
    MUST(hipFreeAsync(block, NULL));
    MUST(hipMemPoolSetAttribute(pool, RELEASE_THRESHOLD, &threshold));
    MUST(hipMemPoolSetAttribute(pool, REUSE_OPPORTUNISTIC, &off));
    printf("no value: %d\n", hipMemPoolSetAttribute(pool, RELEASE_THRESHOLD, NULL));
    MUST(hipMemPoolTrimTo(pool, 8 * MiB));
    MUST(hipDeviceGraphMemTrim(0));
}

int main(void) {
    void *too_big;
    captures();
    exports();
    modules();
    pools();
    MUST_NOT_FIT(hipMalloc(&too_big, (size_t)1 << 45));
    modules();
    pools();
    exports();
    return 0;
}
