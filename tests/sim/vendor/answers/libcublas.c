// cuBLAS: handles, and matrix products that compute nothing.
#include "../stub.h"

CREATES(cublasCreate_v2)
DONE(cublasDestroy_v2)
DONE(cublasSetStream_v2)
DONE(cublasSetWorkspace_v2)
DONE(cublasSetMathMode)
DONE(cublasSetPointerMode_v2)

EXPORT int cublasGetMathMode(void *handle, int *mode) {
    (void)handle;
    *mode = 0;
    return 0;
}

EXPORT int cublasGetPointerMode_v2(void *handle, int *mode) {
    (void)handle;
    *mode = 0;
    return 0;
}

DONE(cublasSgemm_v2)
DONE(cublasSgemmEx)
DONE(cublasSgemmBatched)
DONE(cublasSgemmStridedBatched)
DONE(cublasDgemm_v2)
DONE(cublasGemmEx)
DONE(cublasGemmBatchedEx)
DONE(cublasGemmStridedBatchedEx)
DONE(cublasSgemv_v2)
DONE(cublasSdot_v2)
