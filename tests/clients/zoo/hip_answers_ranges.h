// The sections of hip_answers.c about virtual memory, memory of other processes, and memory nodes of graphs: a part of that file.
#ifndef HIP_ANSWERS_RANGES_H
#define HIP_ANSWERS_RANGES_H

static void granularity(const char *what, int option, const hipMemAllocationProp *properties) {
    size_t size = 0;
    int status = FUNCTION(hipMemGetAllocationGranularity)(&size, properties, option);
    answer_size(what, status, size);
}

static void odd_virtual_memory(const hipMemAllocationProp *properties) {
    void *other = NULL;
    STEP("hipMemAddressReserve of 100 bytes", hipMemAddressReserve, &other, 100, 0, NULL, 0);
    STEP("hipMemAddressReserve of 1 TiB", hipMemAddressReserve, &other, FAR_TOO_MUCH, 0, NULL, 0);
    STEP("hipMemCreate of 100 bytes", hipMemCreate, &other, 100, properties, 0);
    STEP("hipMemCreate of 0 bytes", hipMemCreate, &other, 0, properties, 0);
}

// What crashes a release comes last.
static void virtual_memory(void) {
    enum { MINIMUM, RECOMMENDED };
    hipMemAllocationProp properties = {.type = 1, .location = {1, 0}};
    hipMemAccessDesc access = {{1, 0}, 3};
    void *range = NULL, *handle = NULL, *retained = NULL;
    warm_up();
    granularity("granularity, minimum", MINIMUM, &properties);
    granularity("granularity, recommended", RECOMMENDED, &properties);
    odd_virtual_memory(&properties);
    STEP("hipMemAddressReserve of 64 MiB", hipMemAddressReserve, &range, 64 * MiB, 0, NULL, 0);
    STEP("hipMemCreate of 64 MiB", hipMemCreate, &handle, 64 * MiB, &properties, 0);
    if (step_status != hipSuccess) return;
    STEP("hipMemMap", hipMemMap, range, 64 * MiB, 0, handle, 0);
    STEP("hipMemSetAccess", hipMemSetAccess, range, 64 * MiB, &access, 1);
    STEP("hipMemRetainAllocationHandle", hipMemRetainAllocationHandle, &retained, range);
    if (step_status == hipSuccess) STEP("hipMemRelease of what was retained", hipMemRelease, retained);
    STEP("hipMemRelease while it is mapped", hipMemRelease, handle);
    STEP("hipMemUnmap", hipMemUnmap, range, 64 * MiB);
    STEP("hipMemAddressFree", hipMemAddressFree, range, 64 * MiB);
    STEP("hipMemAddressFree for the second time", hipMemAddressFree, range, 64 * MiB);
}

// The other way round: unmapped before it is released, and mapped twice.
static void virtual_memory_twice(void) {
    hipMemAllocationProp properties = {.type = 1, .location = {1, 0}};
    void *range = NULL, *handle = NULL;
    warm_up();
    MUST(FUNCTION(hipMemAddressReserve)(&range, 128 * MiB, 0, NULL, 0));
    if (FUNCTION(hipMemCreate)(&handle, 64 * MiB, &properties, 0) != hipSuccess) return;
    STEP("hipMemMap", hipMemMap, range, 64 * MiB, 0, handle, 0);
    STEP("hipMemUnmap before the release", hipMemUnmap, range, 64 * MiB);
    STEP("hipMemRelease", hipMemRelease, handle);
    STEP("hipMemRelease for the second time", hipMemRelease, handle);
    STEP("hipMemUnmap for the second time", hipMemUnmap, range, 64 * MiB);
}

static void sharing(void) {
    hipIpcMemHandle_t handle, inner;
    void *block, *host, *opened = NULL;
    warm_up();
    MUST(FUNCTION(hipMalloc)(&block, 64 * MiB));
    MUST(FUNCTION(hipHostMalloc)(&host, MiB, 0));
    STEP("hipIpcGetMemHandle", hipIpcGetMemHandle, &handle, block);
    int exported = step_status;
    STEP("hipIpcGetMemHandle of an address inside", hipIpcGetMemHandle, &inner, (char *)block + MiB);
    STEP("hipIpcGetMemHandle of pinned host memory", hipIpcGetMemHandle, &inner, host);
    STEP("hipIpcGetMemHandle of a foreign address", hipIpcGetMemHandle, &inner, untouched);
    if (exported == hipSuccess) {
        STEP("hipIpcOpenMemHandle by the process that exported it", hipIpcOpenMemHandle, &opened, handle, 1);
        if (step_status == hipSuccess) STEP("hipIpcCloseMemHandle", hipIpcCloseMemHandle, opened);
    }
    memset(&inner, 0, sizeof inner);
    STEP("hipIpcOpenMemHandle of zeros", hipIpcOpenMemHandle, &opened, inner, 1);
    STEP("hipIpcCloseMemHandle of what was not opened", hipIpcCloseMemHandle, untouched);
    STEP("hipFree of what was exported", hipFree, block);
}

enum { GRAPH_USED_NOW, GRAPH_USED_HIGH, GRAPH_RESERVED_NOW };

static void graph_count(const char *what, int which) {
    uint64_t value = 0;
    if (!FUNCTION(hipDeviceGetGraphMemAttribute)) return answer(what, "no such function");
    int status = FUNCTION(hipDeviceGetGraphMemAttribute)(0, which, &value);
    answer_size(what, status, value);
}

// A thread of the runtime may give back what a graph freed, at some time: free memory counts when it has come to rest.
static size_t free_at_rest(size_t wanted) {
    size_t free = free_bytes();
    for (int tries = 0; free < wanted && tries < 1000; tries++, free = free_bytes()) usleep(1000);
    return free;
}

static void launch_thrice(void *executable) {
    only_taken = 64 * MiB;
    begin("three times hipGraphLaunch and hipDeviceSynchronize");
    for (int i = 0; i < 3; i++) {
        step_status = FUNCTION(hipGraphLaunch)(executable, NULL);
        MUST(FUNCTION(hipDeviceSynchronize)());
    }
    end(step_status);
    only_taken = 0;
}

static void run_graph(void *graph) {
    void *executable = NULL;
    STEP("hipGraphInstantiate", hipGraphInstantiate, &executable, graph, NULL, NULL, 0);
    if (step_status != hipSuccess) return;
    size_t before = free_bytes();
    launch_thrice(executable);
    graph_count("graph memory, ReservedMemCurrent after it", GRAPH_RESERVED_NOW);
    MUST(FUNCTION(hipGraphExecDestroy)(executable));
    MUST(FUNCTION(hipGraphDestroy)(graph));
    answer("hipGraphExecDestroy, hipGraphDestroy: less free than before the launches",
           size_text(before - free_at_rest(before)));
    STEP("hipDeviceGraphMemTrim", hipDeviceGraphMemTrim, 0);
    graph_count("graph memory, ReservedMemCurrent at the end", GRAPH_RESERVED_NOW);
}

static void graphs(void) {
    void *graph, *allocation = NULL, *after = NULL;
    warm_up();
    MUST(FUNCTION(hipGraphCreate)(&graph, 0));
    hipMemAllocNodeParams parameters = {.poolProps = {.allocType = 1, .location = {1, 0}}, .bytesize = 64 * MiB};
    STEP("hipGraphAddMemAllocNode of 64 MiB", hipGraphAddMemAllocNode, &allocation, graph, NULL, 0, &parameters);
    if (step_status != hipSuccess) return;
    answer("the address that the node gives", parameters.dptr ? "an address" : "null");
    STEP("hipGraphAddMemFreeNode", hipGraphAddMemFreeNode, &after, graph, &allocation, 1, parameters.dptr);
    run_graph(graph);
    parameters.bytesize = FAR_TOO_MUCH;
    MUST(FUNCTION(hipGraphCreate)(&graph, 0));
    STEP("hipGraphAddMemAllocNode of 1 TiB", hipGraphAddMemAllocNode, &allocation, graph, NULL, 0, &parameters);
}

// Blocks that are ordered on a stream while it is captured: one that the graph frees, and one that is freed after it has run.
static void captures(void) {
    enum { RELAXED = 2 };
    hipStream_t stream = NULL;
    void *graph = NULL, *executable = NULL, *freed_inside = NULL, *freed_later = NULL;
    warm_up();
    if (!FUNCTION(hipMallocAsync)) return answer("hipMallocAsync", "no such function");
    MUST(FUNCTION(hipStreamCreate)(&stream));
    STEP("hipStreamBeginCapture, relaxed", hipStreamBeginCapture, stream, RELAXED);
    STEP("hipMallocAsync of 64 MiB on the stream", hipMallocAsync, &freed_inside, 64 * MiB, stream);
    STEP("hipMallocAsync of 64 MiB more on the stream", hipMallocAsync, &freed_later, 64 * MiB, stream);
    answer("their addresses", freed_inside && freed_later ? "two addresses" : "null");
    STEP("hipFreeAsync of the first on the stream", hipFreeAsync, freed_inside, stream);
    STEP("hipStreamEndCapture", hipStreamEndCapture, stream, &graph);
    STEP("hipGraphInstantiate of what was captured", hipGraphInstantiate, &executable, graph, NULL, NULL, 0);
    if (step_status != hipSuccess) return;
    size_t before = free_bytes();
    only_taken = 64 * MiB;
    begin("hipGraphLaunch, then hipStreamSynchronize");
    step_status = FUNCTION(hipGraphLaunch)(executable, stream);
    MUST(FUNCTION(hipStreamSynchronize)(stream));
    end(step_status);
    // What a graph gives back, a thread of the runtime's may give back later.
    answer("less free than before it, at rest", size_text(before - free_at_rest(before - 64 * MiB)));
    begin("hipFreeAsync of the second when it has run, then hipDeviceSynchronize");
    step_status = FUNCTION(hipFreeAsync)(freed_later, stream);
    MUST(FUNCTION(hipDeviceSynchronize)());
    end(step_status);
    only_taken = 0;
    answer("less free than before all, at rest", size_text(before - free_at_rest(before)));
    MUST(FUNCTION(hipGraphExecDestroy)(executable));
    MUST(FUNCTION(hipGraphDestroy)(graph));
    STEP("hipDeviceGraphMemTrim after all", hipDeviceGraphMemTrim, 0);
}

#endif
