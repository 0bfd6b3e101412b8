// The CUDA runtime's calls on a card, linked in or shared: its own kinds of memory, what it does with its last error when a request
// is refused, stream capture, and a reset with memory still held. Free memory is the driver's count, asked below the runtime.
#include "card.h"

int cudaPeekAtLastError(void);
int cudaMemPoolTrimTo(void *pool, size_t keep);
int cudaDeviceGetDefaultMemPool(void **pool, int device);
int cudaStreamCreateWithFlags(void **stream, unsigned flags);
int cudaStreamBeginCapture(void *stream, int mode);
int cudaStreamEndCapture(void *stream, void **graph);
int cudaGraphInstantiate(void **executable, void *graph, unsigned long long flags);
int cudaGraphLaunch(void *executable, void *stream);
int cudaGraphExecDestroy(void *executable);
int cudaGraphDestroy(void *graph);
int cudaDeviceGraphMemTrim(int device);
int cudaMemset(void *pointer, int value, size_t size);
int cudaRuntimeGetVersion(int *version);
int cudaDriverGetVersion(int *version);

static void device_memory(void) {
    const cudaChannelFormatDesc floats = {32, 0, 0, 0, 2};
    void *block, *second, *managed, *pitched, *array;
    cudaPitchedPtr solid;
    size_t pitch;
    begin("device");
    MUST(CALL(cudaMalloc, (&block, 100 * MiB), 100 * MiB, block));
    MUST(CALL(cudaMalloc, (&second, 1000), 1000, second));
    MUST(CALL(cudaMallocManaged, (&managed, 32 * MiB, ATTACH_GLOBAL), 32 * MiB, managed));
    MUST(CALL(cudaMallocPitch, (&pitched, &pitch, 9000, 3000), pitch * 3000, pitched));
    MUST(CALL(cudaMalloc3D, (&solid, (cudaExtent){1000, 500, 10}), 0, solid.ptr));
    MUST(CALL(cudaMallocArray, (&array, &floats, 3200, 2000, 0), (size_t)3200 * 2000 * 4, array));
    MUST(cudaMemset(block, 1, 100 * MiB));
    MUST(CALL(cudaFree, (block), 0, block));
    MUST(CALL(cudaFree, (second), 0, second));
    MUST(CALL(cudaFree, (managed), 0, managed));
    MUST(CALL(cudaFree, (pitched), 0, pitched));
    MUST(CALL(cudaFree, (solid.ptr), 0, solid.ptr));
    MUST(CALL(cudaFreeArray, (array), 0, array));
    MUST(CALL(cudaFree, (NULL), 0, NULL));
}

static void host_memory(void) {
    void *pinned, *flagged, *own;
    begin("host");
    if (posix_memalign(&own, 4096, 8 * MiB) != 0) exit(79);
    memset(own, 1, 8 * MiB);
    MUST(CALL(cudaMallocHost, (&pinned, 16 * MiB), 16 * MiB, pinned));
    MUST(CALL(cudaHostAlloc, (&flagged, 5 * MiB, 1), 5 * MiB, flagged));
    MUST(CALL(cudaHostRegister, (own, 8 * MiB, 0), 8 * MiB, own));
    MUST(CALL(cudaHostUnregister, (own), 0, own));
    MUST(CALL(cudaFreeHost, (pinned), 0, pinned));
    MUST(CALL(cudaFreeHost, (flagged), 0, flagged));
    free(own);
}

static void stream_ordered(void *stream) {
    void *block, *pool;
    begin("stream-ordered");
    MUST(cudaDeviceGetDefaultMemPool(&pool, 0));
    MUST(CALL(cudaMallocAsync, (&block, 70 * MiB, stream), 70 * MiB, block));
    MUST(CALL(cudaFreeAsync, (block, stream), 0, block));
    MUST(CALL(cudaStreamSynchronize, (stream), 0, NULL));
    MUST(CALL(cudaMemPoolTrimTo, (pool, 0), 0, pool));
}

static void captured(void *stream) {
    void *block, *graph, *executable;
    begin("captured");
    MUST(cudaStreamBeginCapture(stream, 2));
    MUST(CALL(cudaMallocAsync, (&block, 90 * MiB, stream), 90 * MiB, block));
    MUST(CALL(cudaFreeAsync, (block, stream), 0, block));
    MUST(cudaStreamEndCapture(stream, &graph));
    MUST(CALL(cudaGraphInstantiate, (&executable, graph, 0), 0, executable));
    MUST(CALL(cudaGraphLaunch, (executable, stream), 0, executable));
    MUST(CALL(cudaStreamSynchronize, (stream), 0, NULL));
    MUST(CALL(cudaGraphExecDestroy, (executable), 0, executable));
    MUST(cudaGraphDestroy(graph));
    MUST(CALL(cudaDeviceGraphMemTrim, (0), 0, NULL));
}

// What a refusal leaves behind, whoever looked at memory in between.
static void refused(const char *name, int status) {
    int number = errno;
    int peeked = cudaPeekAtLastError(), got = cudaGetLastError(), then = cudaGetLastError();
    printf("{\"refused\": \"%s\", \"status\": %d, \"peeked\": %d, \"got\": %d, \"then\": %d, \"errno\": %d}\n", name, status, peeked,
           got, then, number);
}

static void refusals(void *stream) {
    void *none = NULL;
    cudaPitchedPtr solid;
    size_t pitch;
    begin("refusals");
    errno = 77;
    refused("cudaMalloc", cudaMalloc(&none, (size_t)1 << 50));
    errno = 77;
    refused("cudaMalloc above the card", cudaMalloc(&none, total_bytes() + 2 * MiB));
    errno = 77;
    refused("cudaMallocAsync", cudaMallocAsync(&none, (size_t)1 << 50, stream));
    errno = 77;
    refused("cudaMallocPitch", cudaMallocPitch(&none, &pitch, (size_t)1 << 30, (size_t)1 << 20));
    errno = 77;
    refused("cudaMalloc3D", cudaMalloc3D(&solid, (cudaExtent){(size_t)1 << 20, (size_t)1 << 14, (size_t)1 << 14}));
    errno = 77;
    refused("cudaMallocHost", cudaMallocHost(&none, (size_t)1 << 50));
    errno = 77;
    refused("cudaFree of no block", cudaFree((void *)0x1234));
    MUST(cudaMalloc(&none, 2 * MiB));
    MUST(cudaMemset(none, 1, 2 * MiB));
    MUST(cudaFree(none));
}

int main(void) {
    void *stream, *held;
    int runtime = 0, driver = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    MUST(cudaRuntimeGetVersion(&runtime));
    MUST(cudaDriverGetVersion(&driver));
    say("runtime", runtime);
    say("driver", driver);
    MUST(cudaSetDevice(0));
    MUST(cudaFree(NULL));
    say_nvml("with a context");
    say("free", (long long)free_bytes());
    MUST(cudaStreamCreateWithFlags(&stream, 1));
    device_memory();
    host_memory();
    stream_ordered(stream);
    captured(stream);
    refusals(stream);
    MUST(cudaMalloc(&held, 3 * MiB));
    MUST(cudaDeviceReset());
    return 0;
}
