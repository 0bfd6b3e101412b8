// What PyTorch does under CUDA graphs: while a stream is captured, memory is taken in relaxed mode, and once there is
// none. An allocation by anybody else, on any thread, would make the capture void.
// The capture must succeed with the recorder as without, although the failure calls for readings; the graph's work must
// be done as often as it is launched; the program asks for less then: the failure is recovered, fell_back.
#include <unistd.h>

#include "cuda_min.h"

int cudaStreamBeginCapture(void *stream, int mode);
int cudaStreamEndCapture(void *stream, void **graph);
int cudaStreamIsCapturing(void *stream, int *state);
int cudaThreadExchangeStreamCaptureMode(int *mode);
int cudaGraphInstantiate(void **executable, void *graph, unsigned long long flags);
int cudaGraphLaunch(void *executable, void *stream);
int cudaGraphGetNodes(void *graph, void **nodes, size_t *count);
int cudaGraphExecDestroy(void *executable);
int cudaGraphDestroy(void *graph);
int cudaMemsetAsync(void *pointer, int value, size_t size, void *stream);
int cudaLaunchHostFunc(void *stream, void (*function)(void *), void *data);

enum { GLOBAL, RELAXED = 2 };

static void count_up(void *counter) { ++*(int *)counter; }

static int allocate(void **pointer, size_t size) {
    int mode = RELAXED;
    MUST(cudaThreadExchangeStreamCaptureMode(&mode));
    int status = cudaMalloc(pointer, size);
    MUST(cudaThreadExchangeStreamCaptureMode(&mode));
    return status;
}

int main(void) {
    void *stream, *graph, *executable, *buffer, *too_big;
    unsigned char byte = 0;
    int counter = 0, state;
    size_t nodes;
    MUST(cudaStreamCreate(&stream));
    MUST(cudaStreamBeginCapture(stream, GLOBAL));
    MUST(allocate(&buffer, 20 * MiB));
    MUST_NOT_FIT(allocate(&too_big, 400 * MiB));
    (void)cudaGetLastError();
    usleep(100000);  // time for whoever wants to look
    MUST(allocate(&too_big, 100 * MiB));
    MUST(cudaMemsetAsync(buffer, 7, 20 * MiB, stream));
    MUST(cudaLaunchHostFunc(stream, count_up, &counter));
    MUST(cudaStreamIsCapturing(stream, &state));
    MUST(cudaStreamEndCapture(stream, &graph));
    MUST(cudaGraphGetNodes(graph, NULL, &nodes));
    MUST(cudaGraphInstantiate(&executable, graph, 0));
    MUST(cudaGraphLaunch(executable, stream));
    MUST(cudaGraphLaunch(executable, stream));
    MUST(cudaMemcpy(&byte, buffer, 1, MEMCPY_DEFAULT));
    printf("state %d, %zu nodes, byte %d, ran %d times\n", state, nodes, byte, counter);
    MUST(cudaGraphExecDestroy(executable));
    MUST(cudaGraphDestroy(graph));
    MUST(cudaFree(too_big));
    MUST(cudaFree(buffer));
    MUST(cudaStreamDestroy(stream));
    return 0;
}
