// cuDNN: its version and handles. What it computes is not supported here.
#include <stddef.h>

#include "../stub.h"

EXPORT size_t cudnnGetVersion(void) { return 92600; }
EXPORT size_t cudnnGetCudartVersion(void) { return 13020; }

CREATES(cudnnCreate)
DONE(cudnnDestroy)
DONE(cudnnSetStream)

EXPORT int cudnnGetProperty(int property, int *value) {
    static const int version[] = {9, 26, 0};
    if (property < 0 || property > 2) return 2000;  // CUDNN_STATUS_BAD_PARAM
    *value = version[property];
    return 0;
}
