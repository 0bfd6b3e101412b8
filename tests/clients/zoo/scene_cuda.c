// Plays the script that is its argument (see scene.h) over the CUDA runtime, which has no virtual memory and no modules of
// its own.
#include "cuda_min.h"
#define GPU(name) cuda##name
#define DESTINATION_HOST 2
#define DESTINATION_DEVICE 1
#define WITHOUT_DRIVER
int cudaDeviceGetDefaultMemPool(void **pool, int device);
int cudaMemPoolSetAttribute(void *pool, int attribute, void *value);
int cudaMemPoolTrimTo(void *pool, size_t keep);
int cudaStreamBeginCapture(void *stream, int mode);
int cudaStreamEndCapture(void *stream, void **graph);
#include "scene.h"
