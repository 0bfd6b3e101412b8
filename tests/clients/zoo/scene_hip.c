// Plays the script that is its argument (see scene.h) over HIP.
#include "hip_min.h"
#define GPU(name) hip##name
#define DESTINATION_HOST hipMemcpyDeviceToHost
#define DESTINATION_DEVICE hipMemcpyHostToDevice
hipError_t hipModuleLoadData(void **module, const void *image);
hipError_t hipModuleUnload(void *module);
hipError_t hipDeviceGetDefaultMemPool(void **pool, int device);
hipError_t hipMemPoolSetAttribute(void *pool, int attribute, void *value);
hipError_t hipMemPoolTrimTo(void *pool, size_t keep);
hipError_t hipStreamBeginCapture(hipStream_t stream, int mode);
hipError_t hipStreamEndCapture(hipStream_t stream, void **graph);
#include "scene.h"
