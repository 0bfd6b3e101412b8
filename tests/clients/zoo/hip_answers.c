// Asks a release of HIP what its memory calls answer, and prints a line for each: section, question, answer. The sections are
// programs of their own, so that one doesn't see what another left. Made for a card of 8 GiB with 8 GiB of host memory.
#include "hip_answers.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct { char reserved[64]; } hipIpcMemHandle_t;
typedef struct { unsigned width, height, format, channels; } HIP_ARRAY_DESCRIPTOR;

hipError_t hipExtGetLastError(void);
hipError_t hipExtMallocWithFlags(void **pointer, size_t size, unsigned flags);
hipError_t hipDeviceGetDefaultMemPool(void **pool, int device);
hipError_t hipMemPoolTrimTo(void *pool, size_t keep);
hipError_t hipMemPoolGetAttribute(void *pool, int attribute, void *value);
hipError_t hipMemPoolSetAttribute(void *pool, int attribute, void *value);
hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t *handle, void *pointer);
hipError_t hipIpcOpenMemHandle(void **pointer, hipIpcMemHandle_t handle, unsigned flags);
hipError_t hipIpcCloseMemHandle(void *pointer);
hipError_t hipGraphInstantiate(void **executable, void *graph, void **node, char *log, size_t size);
hipError_t hipGraphLaunch(void *executable, hipStream_t stream);
hipError_t hipGraphExecDestroy(void *executable);
hipError_t hipDeviceGetGraphMemAttribute(int device, int attribute, void *value);

// More than the card; and as much as a card that has 15 blocks of it lacks.
#define FAR_TOO_MUCH ((size_t)1 << 40)
#define BLOCK (512 * MiB)

static void *const untouched = (void *)0x1234;

// Makes the queues, so that no answer tells of them; the stream is for stream-ordered calls: on 5.2 those to the null stream crash.
static hipStream_t warm_up(void) {
    static char source[MiB];
    hipStream_t stream;
    void *block;
    MUST(FUNCTION(hipMalloc)(&block, sizeof source));
    MUST(FUNCTION(hipStreamCreate)(&stream));
    MUST(FUNCTION(hipMemcpy)(block, source, sizeof source, hipMemcpyHostToDevice));
    MUST(FUNCTION(hipMemcpyAsync)(block, source, sizeof source, hipMemcpyHostToDevice, stream));
    MUST(FUNCTION(hipStreamSynchronize)(stream));
    MUST(FUNCTION(hipDeviceSynchronize)());
    return stream;
}

#include "hip_answers_ranges.h"

static void fail(void) {
    void *pointer;
    MUST_NOT_FIT(FUNCTION(hipMalloc)(&pointer, FAR_TOO_MUCH));
}

static void peek(const char *what) { answer(what, status_name(FUNCTION(hipPeekAtLastError)())); }

static void *work_elsewhere(void *block) {
    MUST(FUNCTION(hipMalloc)(&block, MiB));
    return block;
}

static void last_error(void) {
    size_t free, total;
    void *pointer;
    int device;
    fail();
    peek("hipPeekAtLastError after a refused hipMalloc");
    peek("the same again");
    answer("then hipGetLastError", status_name(FUNCTION(hipGetLastError)()));
    answer("hipGetLastError again", status_name(FUNCTION(hipGetLastError)()));
    fail();
    pthread_t thread;
    pthread_create(&thread, NULL, work_elsewhere, NULL);
    pthread_join(thread, NULL);
    peek("after a success of another thread");
    fail();
    MUST(FUNCTION(hipMalloc)(&pointer, MiB));
    peek("after a hipMalloc that succeeds");
    fail();
    MUST(FUNCTION(hipFree)(pointer));
    peek("after a hipFree");
    fail();
    MUST(FUNCTION(hipMemGetInfo)(&free, &total));
    peek("after hipMemGetInfo");
    fail();
    MUST(FUNCTION(hipGetDevice)(&device));
    peek("after hipGetDevice");
    fail();
    MUST(FUNCTION(hipDeviceSynchronize)());
    peek("after hipDeviceSynchronize");
    fail();
    (void)FUNCTION(hipGetErrorName)(hipErrorOutOfMemory);
    (void)FUNCTION(hipGetErrorString)(hipErrorOutOfMemory);
    peek("after hipGetErrorString");
    fail();
    if (FUNCTION(hipExtGetLastError)) {
        answer("hipExtGetLastError", status_name(FUNCTION(hipExtGetLastError)()));
        answer("hipExtGetLastError again", status_name(FUNCTION(hipExtGetLastError)()));
        fail();
        (void)FUNCTION(hipExtGetLastError)();
        peek("hipPeekAtLastError after hipExtGetLastError");
    } else {
        answer("hipExtGetLastError", "no such function");
    }
    answer("the text of hipErrorOutOfMemory", FUNCTION(hipGetErrorString)(hipErrorOutOfMemory));
}

static void fill(void) {
    for (int i = 0; i < 15; i++) {
        void *block;
        MUST(FUNCTION(hipMalloc)(&block, BLOCK));
    }
}

// Each way to ask for `size`; `how` says what is wrong with it.
static void ask_for(size_t size, const char *how, hipStream_t stream) {
    void *pointer = NULL, *pool = NULL;
    size_t pitch;
    char what[128];
    hipExtent extent = {MiB, size / MiB, 1};
    hipPitchedPtr pitched;
    hipMemAllocationProp properties = {.type = 1, .location = {1, 0}};
#define ASK(name, ...)                                           \
    do {                                                         \
        snprintf(what, sizeof what, "%s, %s", #name, how);       \
        pointer = NULL;                                          \
        STEP(what, name, __VA_ARGS__);                           \
    } while (0)
    ASK(hipMalloc3D, &pitched, extent);
    given = &pointer;
    ASK(hipMalloc, &pointer, size);
    ASK(hipExtMallocWithFlags, &pointer, size, 1);
    ASK(hipMallocPitch, &pointer, &pitch, MiB, size / MiB);
    ASK(hipMemCreate, &pointer, size, &properties, 0);
    ASK(hipMallocAsync, &pointer, size, stream);
    if (FUNCTION(hipDeviceGetDefaultMemPool)(&pool, 0) == hipSuccess)
        ASK(hipMallocFromPoolAsync, &pointer, size, pool, stream);
#undef ASK
    given = NULL;
}

static void out_pointer(const char *what, size_t size) {
    void *pointer = untouched;
    int status = FUNCTION(hipMalloc)(&pointer, size);
    char text[128];
    const char *left = pointer == untouched ? "unchanged" : pointer ? "an address" : "null";
    snprintf(text, sizeof text, "%s, the pointer %s", status_name(status), left);
    answer(what, text);
}

static void odd_requests(hipStream_t stream) {
    void *pointer = NULL;
    STEP("hipMalloc to a null pointer", hipMalloc, NULL, MiB);
    STEP("hipMallocAsync of 0 bytes", hipMallocAsync, &pointer, 0, stream);
    STEP("hipHostMalloc of 0 bytes", hipHostMalloc, &pointer, 0, 0);
    STEP("hipMallocManaged of 0 bytes", hipMallocManaged, &pointer, 0, hipMemAttachGlobal);
    STEP("hipFree of null", hipFree, NULL);
    STEP("hipFree of a foreign address", hipFree, untouched);
    STEP("hipFreeAsync of null", hipFreeAsync, NULL, stream);
    STEP("hipHostFree of null", hipHostFree, NULL);
    MUST(FUNCTION(hipMalloc)(&pointer, MiB));
    MUST(FUNCTION(hipFree)(pointer));
    STEP("hipFree for the second time", hipFree, pointer);
}

static void refusals(void) {
    hipStream_t stream = warm_up();
    hipChannelFormatDesc quads = {32, 32, 32, 32, 2};
    void *array;
    out_pointer("hipMalloc of 0 bytes", 0);
    out_pointer("hipMalloc of 1 TiB", FAR_TOO_MUCH);
    odd_requests(stream);
    ask_for(FAR_TOO_MUCH, "1 TiB on 8 GiB", stream);
    fill();
    out_pointer("hipMalloc of 512 MiB where less is free", BLOCK);
    STEP("hipMallocArray, 512 MiB where less is free", hipMallocArray, &array, &quads, 16384, 2048, 0);
    ask_for(BLOCK, "512 MiB where less is free", stream);
}

static void attribute(const char *what, void *pool, int which) {
    uint64_t value = 0;
    int status = FUNCTION(hipMemPoolGetAttribute)(pool, which, &value);
    answer_size(what, status, value);
}

enum { RELEASE_THRESHOLD = 4, RESERVED_NOW, RESERVED_HIGH, USED_NOW, USED_HIGH };

static void pool_counts(const char *when, void *pool) {
    char what[128];
    snprintf(what, sizeof what, "ReservedMemCurrent %s", when);
    attribute(what, pool, RESERVED_NOW);
    snprintf(what, sizeof what, "UsedMemCurrent %s", when);
    attribute(what, pool, USED_NOW);
}

static void limited_pool(hipStream_t stream) {
    hipMemPoolProps properties = {.allocType = 1, .location = {1, 0}, .maxSize = 64 * MiB};
    void *pool = NULL, *pointer = NULL;
    STEP("hipMemPoolCreate with a maxSize of 64 MiB", hipMemPoolCreate, &pool, &properties);
    if (step_status != hipSuccess) return;
    STEP("hipMallocFromPoolAsync of 128 MiB from it", hipMallocFromPoolAsync, &pointer, 128 * MiB, pool, stream);
    STEP("hipMemPoolDestroy", hipMemPoolDestroy, pool);
}

static void pools(void) {
    hipStream_t stream = warm_up();
    void *pool = NULL, *first = NULL, *second = NULL;
    STEP("hipDeviceGetDefaultMemPool", hipDeviceGetDefaultMemPool, &pool, 0);
    STEP("hipMallocAsync of 64 MiB", hipMallocAsync, &first, 64 * MiB, stream);
    if (step_status != hipSuccess) return;
    attribute("ReleaseThreshold", pool, RELEASE_THRESHOLD);
    pool_counts("after it", pool);
    STEP("hipFreeAsync", hipFreeAsync, first, stream);
    pool_counts("after hipFreeAsync", pool);
    STEP("hipMallocAsync of as much", hipMallocAsync, &second, 64 * MiB, stream);
    answer("its address", second == first ? "the same" : "another");
    STEP("hipFree of it", hipFree, second);
    STEP("hipDeviceSynchronize", hipDeviceSynchronize);
    pool_counts("after hipDeviceSynchronize", pool);
    uint64_t threshold = UINT64_MAX;
    STEP("hipMemPoolSetAttribute, ReleaseThreshold", hipMemPoolSetAttribute, pool, RELEASE_THRESHOLD, &threshold);
    STEP("hipMallocAsync of 64 MiB, within the threshold", hipMallocAsync, &first, 64 * MiB, stream);
    STEP("hipFreeAsync, within the threshold", hipFreeAsync, first, stream);
    STEP("hipDeviceSynchronize, within the threshold", hipDeviceSynchronize);
    pool_counts("then", pool);
    STEP("hipMallocAsync of 32 MiB from what the pool has", hipMallocAsync, &second, 32 * MiB, stream);
    pool_counts("with 32 MiB in use", pool);
    STEP("hipFreeAsync of it", hipFreeAsync, second, stream);
    STEP("hipDeviceSynchronize, with 32 MiB more", hipDeviceSynchronize);
    STEP("hipMemPoolTrimTo 0", hipMemPoolTrimTo, pool, 0);
    STEP("hipMemPoolTrimTo 0 again", hipMemPoolTrimTo, pool, 0);
    pool_counts("after it all", pool);
    attribute("ReservedMemHigh", pool, RESERVED_HIGH);
    attribute("UsedMemHigh", pool, USED_HIGH);
    limited_pool(stream);
}

static void null_stream(void) {
    void *block = NULL;
    warm_up();
    STEP("hipMallocAsync of 64 MiB to the null stream", hipMallocAsync, &block, 64 * MiB, NULL);
}

// A block that a stream copied to, freed after the stream was destroyed.
static void stream_and_block(const char *with, int waits) {
    static char source[MiB];
    hipStream_t stream = NULL;
    void *block = NULL;
    char what[128];
    snprintf(what, sizeof what, "hipStreamCreate, for %s", with);
    STEP(what, hipStreamCreate, &stream);
    MUST(FUNCTION(hipMalloc)(&block, 64 * MiB));
    MUST(FUNCTION(hipMemcpyAsync)(block, source, sizeof source, hipMemcpyHostToDevice, stream));
    if (waits) MUST(FUNCTION(hipStreamSynchronize)(stream));
    snprintf(what, sizeof what, "hipStreamDestroy, after %s", with);
    STEP(what, hipStreamDestroy, stream);
    snprintf(what, sizeof what, "hipFree of its 64 MiB, then hipDeviceSynchronize, after %s", with);
    begin(what);
    step_status = FUNCTION(hipFree)(block);
    MUST(FUNCTION(hipDeviceSynchronize)());
    end(step_status);
}

static void blocks(void) {
    size_t free = 0, total = 0;
    void *one = NULL, *two = NULL, *large = NULL;
    static char source[MiB];
    MUST(FUNCTION(hipMemGetInfo)(&free, &total));
    answer("hipMemGetInfo, total", size_text(total));
    answer("hipMemGetInfo, not free at the start", size_text(total - free));
    STEP("hipMalloc of 1 byte", hipMalloc, &one, 1);
    STEP("hipMalloc of 1 byte, the second", hipMalloc, &two, 1);
    STEP("hipFree of the second", hipFree, two);
    STEP("hipFree of the first", hipFree, one);
    STEP("hipMalloc of 64 MiB and 1 byte", hipMalloc, &large, 64 * MiB + 1);
    STEP("hipMemcpy of 1 MiB to it, the first copy", hipMemcpy, large, source, MiB, hipMemcpyHostToDevice);
    STEP("hipMemcpy of 1 MiB to it, the second", hipMemcpy, large, source, MiB, hipMemcpyHostToDevice);
    STEP("hipFree of the 64 MiB and 1 byte", hipFree, large);
    stream_and_block("a copy that was waited for", 1);
    stream_and_block("a copy that was not waited for", 0);
    STEP("hipMalloc of 64 MiB, then hipDeviceReset", hipMalloc, &large, 64 * MiB);
    STEP("hipDeviceReset", hipDeviceReset);
}

static void pin_until_refused(void) {
    void *pointer = NULL;
    char text[64];
    int pinned = 0;
    while (pinned < 32 && FUNCTION(hipHostMalloc)(&pointer, 1024 * MiB, 0) == hipSuccess) pinned++;
    snprintf(text, sizeof text, "%d GiB, then %s", pinned, status_name(FUNCTION(hipPeekAtLastError)()));
    answer("hipHostMalloc of 1 GiB until it is refused", text);
    STEP("the refused hipHostMalloc of 1 GiB", hipHostMalloc, &pointer, 1024 * MiB, 0);
    STEP("hipMallocManaged of 1 GiB, then", hipMallocManaged, &pointer, 1024 * MiB, hipMemAttachGlobal);
}

static void host(void) {
    void *pinned = NULL, *managed = NULL;
    warm_up();
    void *pages = mmap(NULL, 64 * MiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    STEP("hipHostMalloc of 64 MiB", hipHostMalloc, &pinned, 64 * MiB, 0);
    STEP("hipHostFree", hipHostFree, pinned);
    STEP("hipHostRegister of 64 MiB", hipHostRegister, pages, 64 * MiB, 0);
    STEP("hipHostRegister for the second time", hipHostRegister, pages, 64 * MiB, 0);
    STEP("hipHostUnregister", hipHostUnregister, pages);
    STEP("hipHostUnregister for the second time", hipHostUnregister, pages);
    STEP("hipMallocManaged of 64 MiB", hipMallocManaged, &managed, 64 * MiB, hipMemAttachGlobal);
    STEP("hipFree of the managed memory", hipFree, managed);
    STEP("hipHostMalloc of 1 TiB", hipHostMalloc, &pinned, FAR_TOO_MUCH, 0);
    STEP("hipMallocManaged of 1 TiB", hipMallocManaged, &managed, FAR_TOO_MUCH, hipMemAttachGlobal);
    pin_until_refused();
}

int main(int count, char **arguments) {
    static const struct { const char *name; void (*run)(void); } sections[] = {
        {"last-error", last_error}, {"refusals", refusals}, {"pools", pools},   {"vmm", virtual_memory},
        {"null-stream", null_stream}, {"vmm-twice", virtual_memory_twice}, {"ipc", sharing}, {"graphs", graphs}, {"captures", captures},
        {"blocks", blocks}, {"host", host},
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    load_hip();
    for (size_t i = 0; count > 1 && i < sizeof sections / sizeof *sections; i++) {
        if (strcmp(sections[i].name, arguments[1]) != 0) continue;
        section = sections[i].name;
        sections[i].run();
        return 0;
    }
    fprintf(stderr, "usage: hip_answers SECTION\n");
    return 64;
}
