// Memory that is ordered while a stream is captured: nodes of the graph, which take nothing before it runs. Of four blocks of 128 MiB two
// are freed in the capture, one when the graph has run, one never. What is ordered on another stream is taken at once.
#ifndef GPU
#include "hip_min.h"
#define GPU(name) hip##name
#endif

enum { BLOCKS = 4, RELAXED = 2 };

int main(void) {
    void *stream, *other;
    void *graph, *no_graph, *executable, *later, *blocks[BLOCKS], *outside;
    MUST(GPU(StreamCreate)(&stream));
    MUST(GPU(StreamCreate)(&other));
    MUST(GPU(StreamBeginCapture)(stream, RELAXED));
    for (int i = 0; i < BLOCKS; i++) MUST(GPU(MallocAsync)(&blocks[i], 128 * MiB, stream));
    MUST(GPU(MallocAsync)(&outside, 64 * MiB, other));
    for (int i = 0; i < BLOCKS / 2; i++) MUST(GPU(FreeAsync)(blocks[i], stream));
    MUST(GPU(StreamEndCapture)(stream, &graph));
    // Of a null stream there is no capture, and its end is an error.
    printf("end of none: %d\n", GPU(StreamEndCapture)(NULL, &no_graph) != 0);
    MUST(GPU(GraphInstantiateWithFlags)(&executable, graph, 0));
    MUST(GPU(GraphLaunch)(executable, stream));
    MUST(GPU(FreeAsync)(blocks[2], stream));
    MUST(GPU(MallocAsync)(&later, 96 * MiB, stream));
    MUST(GPU(FreeAsync)(later, stream));
    MUST(GPU(FreeAsync)(outside, other));
    MUST(GPU(DeviceSynchronize)());
    puts("done");
    return 0;
}
