// captured_pool.c, over the CUDA runtime.
#include "cuda_min.h"
int cudaStreamBeginCapture(void *stream, int mode);
int cudaStreamEndCapture(void *stream, void **graph);
int cudaGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags);
int cudaGraphLaunch(void *executable, void *stream);
#define GPU(name) cuda##name
#include "captured_pool.c"
