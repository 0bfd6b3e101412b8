// Programs that look at the status of each call and do without what was refused, in the ways that real ones do. None drops an error.
//   arena     takes all of a card of 1 GiB in equal blocks until one is refused, and works with what it got
//   rollback  a range of physical memory is refused half way, is given back, and the slow path is taken
//   service   a request that is too large is answered with an error, and the service goes on with the next
//   queue     keeps each request's block until the queue is full, then works it off
//   logger    another thread asks for the error's text
// Others that say less than they seem to:
//   pool      a pool of its own with a limit of 256 MiB, which refuses 300 MiB
//   pooled    the program's stream-ordered pool keeps 800 MiB when the card is first read, and hipMalloc of 600 MiB is refused
//   retained  asks for the handle of its own memory by its address, which opens nothing of another process
//   twice     does not ask what the first refusal was, and asks after the second
//   unchecked looks at nothing: 640 MiB are refused, and 16 MiB for something else are not
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "hip_min.h"
#include "../../../interposer/include/gpuoom.h"

static void launch(void) { hipLaunchKernel("kernel", (dim3){1, 1, 1}, (dim3){1, 1, 1}, NULL, 0, NULL); }

static void work(void *block) {
    for (int i = 0; i < 5; i++) {
        MUST(hipMemset(block, 0, MiB));
        launch();
    }
}

static int arena(void) {
    void *blocks[64];
    int count = 0;
    while (hipMalloc(&blocks[count], 64 * MiB) == hipSuccess) count++;
    for (int i = 0; i < count; i++) MUST(hipMemset(blocks[i], 0, MiB));
    for (int i = 0; i < count; i++) MUST(hipFree(blocks[i]));
    return 0;
}

static int grow(void **grown, size_t size) {
    hipMemAllocationProp properties = {1, 0, {1, 0}, NULL, 0};
    hipMemAccessDesc access = {{1, 0}, 3};
    size_t part = 128 * MiB;
    void *handles[64];
    if (hipMemAddressReserve(grown, size, 0, NULL, 0)) return 1;
    for (size_t i = 0; i < size / part; i++) {
        if (hipMemCreate(&handles[i], part, &properties, 0) == hipSuccess) {
            MUST(hipMemMap((char *)*grown + i * part, part, 0, handles[i], 0));
            continue;
        }
        for (size_t j = 0; j < i; j++) {
            MUST(hipMemUnmap((char *)*grown + j * part, part));
            MUST(hipMemRelease(handles[j]));
        }
        MUST(hipMemAddressFree(*grown, size));
        return 1;
    }
    MUST(hipMemSetAccess(*grown, size, &access, 1));
    return 0;
}

static int rollback(void) {
    void *small, *large;
    MUST(hipMalloc(&small, 500 * MiB));
    if (grow(&large, GiB) == 0) return 1;
    work(small);
    return 0;
}

static int service(void) {
    void *own, *block;
    MUST(hipMalloc(&own, 16 * MiB));
    for (int request = 0; request < 40; request++) {
        size_t size = (request == 30 ? 2048 : 20 + request * 37 % 80) * MiB;
        if (hipMalloc(&block, size) != hipSuccess) {
            MUST(hipMemset(own, 0, MiB));
            continue;
        }
        MUST(hipMemset(block, 0, MiB));
        MUST(hipFree(block));
    }
    return 0;
}

static int queue(void) {
    void *kept[64];
    int count = 0;
    for (; count < 64; count++) {
        gpuoom_mark(count % 2 == 0 ? "request" : "request again");
        if (hipMalloc(&kept[count], 31 * MiB) != hipSuccess) break;
        launch();
        usleep(1000);
    }
    for (int i = 0; i < count; i++) {
        launch();
        MUST(hipFree(kept[i]));
    }
    return 0;
}

static int status;

static void *log_it(void *argument) {
    fprintf(stderr, "refused: %s\n", hipGetErrorString(status));
    return argument;
}

static int logger(void) {
    pthread_t thread;
    void *own, *block;
    MUST(hipMalloc(&own, 700 * MiB));
    status = hipMalloc(&block, 500 * MiB);
    pthread_create(&thread, NULL, log_it, NULL);
    pthread_join(thread, NULL);
    work(own);
    return 0;
}

static int pool(void) {
    hipMemPoolProps properties = {.allocType = 1, .location = {1, 0}, .maxSize = 256 * MiB};
    hipStream_t stream;
    void *of_own, *block;
    MUST(hipStreamCreate(&stream));
    MUST(hipMemPoolCreate(&of_own, &properties));
    MUST(hipMallocFromPoolAsync(&block, 100 * MiB, of_own, stream));
    return hipMallocFromPoolAsync(&block, 300 * MiB, of_own, stream) != hipSuccess;
}

hipError_t hipDeviceGetDefaultMemPool(void **pool, int device);
hipError_t hipMemPoolSetAttribute(void *pool, int attribute, void *value);

static int pooled(void) {
    hipStream_t stream;
    uint64_t keep_all = ~(uint64_t)0;
    void *blocks[8], *of_device, *block;
    MUST(hipStreamCreate(&stream));
    MUST(hipDeviceGetDefaultMemPool(&of_device, 0));
    MUST(hipMemPoolSetAttribute(of_device, 4, &keep_all));
    for (int i = 0; i < 8; i++) MUST(hipMallocAsync(&blocks[i], 100 * MiB, stream));
    for (int i = 0; i < 8; i++) MUST(hipFreeAsync(blocks[i], stream));
    MUST(hipStreamSynchronize(stream));
    return hipMalloc(&block, 600 * MiB) != hipSuccess;
}

static int retained(void) {
    hipMemAllocationProp properties = {1, 0, {1, 0}, NULL, 0};
    void *range, *handle, *again, *block;
    MUST(hipMemAddressReserve(&range, 128 * MiB, 0, NULL, 0));
    MUST(hipMemCreate(&handle, 128 * MiB, &properties, 0));
    MUST(hipMemMap(range, 128 * MiB, 0, handle, 0));
    MUST(hipMemRetainAllocationHandle(&again, range));
    MUST(hipMemRelease(again));
    return hipMalloc(&block, 2 * GiB) != hipSuccess;
}

static int twice(void) {
    void *own, *first, *second;
    MUST(hipMalloc(&own, 700 * MiB));
    if (hipMalloc(&first, 500 * MiB) == hipSuccess) return 1;
    usleep(1000);
    if (hipMalloc(&second, 600 * MiB) == hipSuccess) return 1;
    fprintf(stderr, "%s\n", hipGetErrorString(hipGetLastError()));
    return 3;
}

static int unchecked(void) {
    void *base, *weights, *log;
    MUST(hipMalloc(&base, 500 * MiB));
    hipMalloc(&weights, 640 * MiB);
    hipMalloc(&log, 16 * MiB);
    work(log);
    return 0;
}

// A wrapper, which writes to its own variable for all, and nobody looks at what it gives.
static __attribute__((noinline)) void *wrapped(size_t size) {
    void *block = NULL;
    return hipMalloc(&block, size) == hipSuccess ? block : NULL;
}

static int wrapper(void) {
    void *weights = wrapped(500 * MiB);
    void *cache = wrapped(640 * MiB);
    void *log = wrapped(16 * MiB);
    work(log);
    return weights == cache;
}

int main(int argc, char **argv) {
    static const struct { const char *name; int (*does)(void); } ways[] = {
        {"arena", arena}, {"rollback", rollback}, {"service", service}, {"queue", queue},
        {"logger", logger}, {"pool", pool}, {"pooled", pooled}, {"retained", retained}, {"twice", twice},
        {"unchecked", unchecked}, {"wrapper", wrapper},
    };
    for (size_t i = 0; argc > 1 && i < sizeof ways / sizeof *ways; i++)
        if (strcmp(argv[1], ways[i].name) == 0) return ways[i].does();
    return 2;
}
