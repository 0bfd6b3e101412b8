// The CUDA driver's kinds of memory on a card, one after the other: plain blocks of many sizes, pitched, arrays, managed, pinned,
// stream-ordered, pools, virtual memory, graphs, code, contexts, what another process opens, and refusals.
//     driver_tour            everything
//     driver_tour open HEX   what the other process does: opens a block that the first one passed on
#include "card.h"

typedef struct { char bytes[64]; } IpcHandle;
typedef struct {
    PoolProperties pool;
    const AccessDescription *accesses;
    size_t access_count, size;
    void *address;
} NodeProperties;

int cuCtxSynchronize(void);
int cuMemsetD8_v2(void *pointer, unsigned char value, size_t count);
int cuMemPoolSetAttribute(void *pool, int attribute, void *value);
int cuMemPoolGetAttribute(void *pool, int attribute, void *value);
int cuMemPoolTrimTo(void *pool, size_t keep);
int cuDeviceGetDefaultMemPool(void **pool, int device);
int cuIpcGetMemHandle(IpcHandle *handle, void *pointer);
int cuIpcOpenMemHandle_v2(void **pointer, IpcHandle handle, unsigned flags);
int cuIpcCloseMemHandle(void *pointer);
int cuModuleLoadData(void **module, const void *image);
int cuModuleUnload(void *module);
int cuModuleGetFunction(void **function, void *module, const char *name);
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *stream, void **arguments, void **extra);
int cuGraphCreate(void **graph, unsigned flags);
int cuGraphAddMemAllocNode(void **node, void *graph, void *const *before, size_t count, NodeProperties *properties);
int cuGraphAddMemFreeNode(void **node, void *graph, void *const *before, size_t count, void *pointer);
int cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags);
int cuGraphLaunch(void *executable, void *stream);
int cuGraphExecDestroy(void *executable);
int cuGraphDestroy(void *graph);
int cuDeviceGraphMemTrim(int device);
int cuDeviceGetGraphMemAttribute(int device, int attribute, void *value);

enum { RELEASE_THRESHOLD = 4, RESERVED_NOW = 5, USED_NOW = 7 };

static const AllocationProperties pinned_on_card = {.type = PINNED_MEMORY, .location = {ON_DEVICE, 0}};
static const PoolProperties pool_on_card = {.type = PINNED_MEMORY, .location = {ON_DEVICE, 0}};

static void sizes(void) {
    const size_t wanted[] = {1, 512, 4 * KiB, 64 * KiB, MiB - 1, MiB, MiB + 1, 2 * MiB - 1, 2 * MiB, 2 * MiB + 1,
                             3 * MiB, 4 * MiB, 5 * MiB, 33 * MiB, 255 * MiB, 256 * MiB, GiB + 1};
    enum { COUNT = sizeof wanted / sizeof wanted[0] };
    void *blocks[COUNT];
    size_t granule = 0;
    begin("sizes");
    MUST(cuMemGetAllocationGranularity(&granule, &pinned_on_card, 0));
    say("minimum granularity", (long long)granule);
    MUST(cuMemGetAllocationGranularity(&granule, &pinned_on_card, 1));
    say("recommended granularity", (long long)granule);
    for (int i = 0; i < COUNT; i++) MUST(CALL(cuMemAlloc_v2, (&blocks[i], wanted[i]), wanted[i], blocks[i]));
    for (int i = 0; i < COUNT; i++) MUST(CALL(cuMemFree_v2, (blocks[i]), 0, blocks[i]));
}

// How many small ones one granule holds.
static void small_blocks(void) {
    enum { COUNT = 1000 };
    static void *blocks[COUNT];
    begin("small blocks");
    size_t before = free_bytes();
    for (int i = 0; i < COUNT; i++) MUST(cuMemAlloc_v2(&blocks[i], 4 * KiB));
    say("1000 blocks of 4 KiB take", (long long)before - (long long)free_bytes());
    for (int i = 0; i < COUNT; i++) MUST(cuMemFree_v2(blocks[i]));
    say("and keep when freed", (long long)before - (long long)free_bytes());
}

static void shapes(void) {
    enum { FLOAT = 0x20 };
    ArrayShape flat = {3200, 2000, FLOAT, 1};
    Array3DShape solid = {128, 128, 64, FLOAT, 4, 0};
    void *pitched, *array, *array3d, *mipmapped;
    size_t pitch;
    begin("shapes");
    MUST(CALL(cuMemAllocPitch_v2, (&pitched, &pitch, 9000, 3000, 4), pitch * 3000, pitched));
    say("pitch of 9000", (long long)pitch);
    MUST(CALL(cuArrayCreate_v2, (&array, &flat), (size_t)3200 * 2000 * 4, array));
    MUST(CALL(cuArray3DCreate_v2, (&array3d, &solid), (size_t)128 * 128 * 64 * 16, array3d));
    MUST(CALL(cuMipmappedArrayCreate, (&mipmapped, &solid, 3), 0, mipmapped));
    MUST(CALL(cuMemFree_v2, (pitched), 0, pitched));
    MUST(CALL(cuArrayDestroy, (array), 0, array));
    MUST(CALL(cuArrayDestroy, (array3d), 0, array3d));
    MUST(CALL(cuMipmappedArrayDestroy, (mipmapped), 0, mipmapped));
}

static void managed_memory(void) {
    void *managed;
    begin("managed");
    MUST(CALL(cuMemAllocManaged, (&managed, 64 * MiB, ATTACH_GLOBAL), 64 * MiB, managed));
    size_t before = free_bytes();
    say_nvml("managed, not touched");
    MUST(cuMemsetD8_v2(managed, 1, 64 * MiB));
    MUST(cuCtxSynchronize());
    say("taken when the card writes", (long long)before - (long long)free_bytes());
    say_nvml("managed, on the card");
    MUST(CALL(cuMemFree_v2, (managed), 0, managed));
    say_nvml("managed, freed");
}

static void host_memory(void) {
    void *pinned, *portable, *own;
    begin("host");
    if (posix_memalign(&own, 4096, 8 * MiB) != 0) exit(79);
    memset(own, 1, 8 * MiB);
    MUST(CALL(cuMemAllocHost_v2, (&pinned, 48 * MiB), 48 * MiB, pinned));
    MUST(CALL(cuMemHostAlloc, (&portable, 3 * MiB, 1), 3 * MiB, portable));
    MUST(CALL(cuMemHostRegister_v2, (own, 8 * MiB, 0), 8 * MiB, own));
    MUST(CALL(cuMemHostUnregister, (own), 0, own));
    MUST(CALL(cuMemFreeHost, (pinned), 0, pinned));
    MUST(CALL(cuMemFreeHost, (portable), 0, portable));
    free(own);
}

static void say_pool(const char *name, void *pool) {
    uint64_t reserved = 0, used = 0;
    MUST(cuMemPoolGetAttribute(pool, RESERVED_NOW, &reserved));
    MUST(cuMemPoolGetAttribute(pool, USED_NOW, &used));
    printf("{\"pool\": \"%s\", \"reserved_bytes\": %llu, \"used_bytes\": %llu, \"free_bytes\": %zu}\n", name,
           (unsigned long long)reserved, (unsigned long long)used, free_bytes());
}

static void pools(void) {
    void *ordered, *pool, *pooled[2], *standard;
    uint64_t keep = UINT64_MAX;
    begin("pools");
    MUST(cuDeviceGetDefaultMemPool(&standard, 0));
    MUST(CALL(cuMemAllocAsync, (&ordered, 80 * MiB, NULL), 80 * MiB, ordered));
    MUST(CALL(cuMemFreeAsync, (ordered, NULL), 0, ordered));
    say_pool("the device's, freed", standard);
    MUST(cuStreamSynchronize(NULL));
    say_pool("the device's, waited for", standard);
    MUST(CALL(cuMemPoolCreate, (&pool, &pool_on_card), 0, pool));
    MUST(cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, &keep));
    for (int i = 0; i < 2; i++) {
        MUST(CALL(cuMemAllocFromPoolAsync, (&pooled[i], 50 * MiB + 1, pool, NULL), 50 * MiB + 1, pooled[i]));
    }
    say_pool("own, two blocks", pool);
    for (int i = 0; i < 2; i++) MUST(CALL(cuMemFreeAsync, (pooled[i], NULL), 0, pooled[i]));
    MUST(cuStreamSynchronize(NULL));
    say_pool("own, freed and waited for", pool);
    MUST(CALL(cuMemPoolTrimTo, (pool, 0), 0, pool));
    say_pool("own, trimmed", pool);
    MUST(CALL(cuMemPoolDestroy, (pool), 0, pool));
}

// A map keeps memory whose handle was given up, and a handle keeps memory that is not mapped.
static void virtual_memory(void) {
    AccessDescription access = {{ON_DEVICE, 0}, READ_WRITE};
    void *range, *first, *second;
    begin("virtual memory");
    MUST(CALL(cuMemAddressReserve, (&range, 4 * GiB, 0, NULL, 0), 4 * GiB, range));
    MUST(CALL(cuMemCreate, (&first, 20 * MiB, &pinned_on_card, 0), 20 * MiB, first));
    MUST(CALL(cuMemCreate, (&second, 40 * MiB, &pinned_on_card, 0), 40 * MiB, second));
    MUST(CALL(cuMemMap, (range, 20 * MiB, 0, first, 0), 20 * MiB, range));
    MUST(CALL(cuMemMap, ((char *)range + GiB, 40 * MiB, 0, second, 0), 40 * MiB, (char *)range + GiB));
    MUST(CALL(cuMemSetAccess, (range, 20 * MiB, &access, 1), 20 * MiB, range));
    MUST(CALL(cuMemRelease, (first), 0, first));
    MUST(CALL(cuMemUnmap, ((char *)range + GiB, 40 * MiB), 40 * MiB, (char *)range + GiB));
    MUST(CALL(cuMemUnmap, (range, 20 * MiB), 20 * MiB, range));
    MUST(CALL(cuMemRelease, (second), 0, second));
    MUST(CALL(cuMemAddressFree, (range, 4 * GiB), 4 * GiB, range));
}

static void say_graphs(const char *moment) {
    uint64_t used = 0, reserved = 0;
    int status = cuDeviceGetGraphMemAttribute(0, 0, &used);
    int other = cuDeviceGetGraphMemAttribute(0, 2, &reserved);
    printf("{\"graphs\": \"%s\", \"statuses\": [%d, %d], \"used_bytes\": %llu, \"reserved_bytes\": %llu, \"free_bytes\": %zu}\n",
           moment, status, other, (unsigned long long)used, (unsigned long long)reserved, free_bytes());
}

static void graphs(void) {
    void *graph, *taken, *given, *executable;
    NodeProperties node = {.pool = pool_on_card, .size = 96 * MiB};
    begin("graphs");
    MUST(cuGraphCreate(&graph, 0));
    MUST(CALL(cuGraphAddMemAllocNode, (&taken, graph, NULL, 0, &node), 96 * MiB, node.address));
    MUST(CALL(cuGraphAddMemFreeNode, (&given, graph, &taken, 1, node.address), 0, node.address));
    MUST(CALL(cuGraphInstantiateWithFlags, (&executable, graph, 0), 0, executable));
    say_graphs("instantiated");
    MUST(CALL(cuGraphLaunch, (executable, NULL), 0, executable));
    MUST(cuStreamSynchronize(NULL));
    say_graphs("launched");
    MUST(CALL(cuGraphExecDestroy, (executable), 0, executable));
    MUST(cuGraphDestroy(graph));
    say_graphs("destroyed");
    MUST(CALL(cuDeviceGraphMemTrim, (0), 0, NULL));
    say_graphs("trimmed");
}

// 8 MiB of variables, and a kernel whose threads have 16 KiB of their own each.
static const char code[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .global .align 16 .b8 table[8388608];\n"
    ".visible .entry deep(.param .u64 out)\n{\n"
    ".local .align 16 .b8 own[16384];\n.reg .u64 %at, %to, %base;\n.reg .u32 %who, %value;\n"
    "mov.u32 %who, %tid.x;\nmul.wide.u32 %at, %who, 4;\nmov.u64 %base, own;\nadd.u64 %at, %at, %base;\n"
    "st.local.u32 [%at], %who;\nld.local.u32 %value, [%at];\nld.param.u64 %to, [out];\nst.global.u32 [%to], %value;\nret;\n}\n";

static void modules(void) {
    void *module, *function, *out;
    begin("code");
    MUST(cuMemAlloc_v2(&out, 4 * KiB));
    int status = CALL(cuModuleLoadData, (&module, code), 0, module);
    if (status == SUCCESS) {
        void *arguments[] = {&out};
        MUST(cuModuleGetFunction(&function, module, "deep"));
        MUST(CALL(cuLaunchKernel, (function, 1, 1, 1, 32, 1, 1, 0, NULL, arguments, NULL), 0, NULL));
        MUST(CALL(cuCtxSynchronize, (), 0, NULL));
        MUST(CALL(cuModuleUnload, (module), 0, module));
    }
    MUST(cuMemFree_v2(out));
}

static void another_context(void) {
    void *context, *inside, *popped, *first;
    begin("another context");
    size_t before = free_bytes();
    MUST(cuCtxCreate_v2(&context, 0, 0));
    say("a second context takes", (long long)before - (long long)free_bytes());
    MUST(CALL(cuMemAlloc_v2, (&inside, 40 * MiB), 40 * MiB, inside));
    MUST(cuCtxPopCurrent_v2(&popped));
    MUST(cuCtxDestroy_v2(context));
    MUST(cuDevicePrimaryCtxRetain(&first, 0));
    MUST(cuCtxSetCurrent(first));
    MUST(cuDevicePrimaryCtxRelease_v2(0));
    say("and leaves, with 40 MiB never freed", (long long)before - (long long)free_bytes());
}

static void other_process(const char *self) {
    IpcHandle handle;
    void *block;
    char text[sizeof handle.bytes * 2 + 1], command[4096];
    begin("another process");
    MUST(CALL(cuMemAlloc_v2, (&block, 64 * MiB), 64 * MiB, block));
    int status = cuIpcGetMemHandle(&handle, block);
    say("a handle for another process: status", status);
    for (size_t i = 0; status == SUCCESS && i < sizeof handle.bytes; i++) sprintf(text + 2 * i, "%02x", (unsigned char)handle.bytes[i]);
    snprintf(command, sizeof command, "%s open %s", self, text);
    fflush(stdout);
    if (status == SUCCESS) say("the other process ended with", system(command));
    MUST(CALL(cuMemFree_v2, (block), 0, block));
}

static int open_block(const char *text) {
    IpcHandle handle;
    void *block;
    for (size_t i = 0; i < sizeof handle.bytes; i++) {
        unsigned byte = 0;
        if (sscanf(text + 2 * i, "%2x", &byte) != 1) return 78;
        handle.bytes[i] = (char)byte;
    }
    size_t before = free_bytes();
    MUST(cuIpcOpenMemHandle_v2(&block, handle, 1));
    say("opened there, it takes", (long long)before - (long long)free_bytes());
    MUST(cuIpcCloseMemHandle(block));
    return 0;
}

// No managed memory here: more of it than the card has can hang a card.
static void refusals(void) {
    void *none = NULL, *pool;
    size_t too_much = total_bytes() / (2 * MiB) * (2 * MiB) + 2 * MiB;
    begin("refusals");
    CALL(cuMemAlloc_v2, (&none, 0), 0, NULL);
    CALL(cuMemAlloc_v2, (&none, (size_t)1 << 50), (size_t)1 << 50, NULL);
    CALL(cuMemAlloc_v2, (&none, too_much), too_much, NULL);
    CALL(cuMemCreate, (&none, too_much, &pinned_on_card, 0), too_much, NULL);
    CALL(cuMemCreate, (&none, 12345, &pinned_on_card, 0), 12345, NULL);
    CALL(cuMemAllocAsync, (&none, (size_t)1 << 50, NULL), (size_t)1 << 50, NULL);
    MUST(cuMemPoolCreate(&pool, &pool_on_card));
    CALL(cuMemAllocFromPoolAsync, (&none, (size_t)1 << 50, pool, NULL), (size_t)1 << 50, NULL);
    MUST(cuMemPoolDestroy(pool));
    CALL(cuMemAllocHost_v2, (&none, (size_t)1 << 50), (size_t)1 << 50, NULL);
    CALL(cuMemAddressReserve, (&none, (size_t)1 << 60, 0, NULL, 0), (size_t)1 << 60, NULL);
    CALL(cuMemFree_v2, ((void *)0x1234), 0, NULL);
}

int main(int argc, char **argv) {
    void *context;
    setvbuf(stdout, NULL, _IOLBF, 0);
    say_nvml("before");
    MUST(cuInit(0));
    say_nvml("set up");
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    if (argc > 2) return open_block(argv[2]);
    say_nvml("with a context");
    say("total", (long long)total_bytes());
    say("free", (long long)free_bytes());
    sizes();
    small_blocks();
    shapes();
    managed_memory();
    host_memory();
    pools();
    virtual_memory();
    graphs();
    modules();
    another_context();
    other_process(argv[0]);
    refusals();
    say_nvml("at the end");
    return 0;
}
