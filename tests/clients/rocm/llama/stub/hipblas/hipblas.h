/* The part of hipBLAS that llama.cpp's GPU backend refers to. Debian 12 does not have hipBLAS, and nothing
 * here depends on what a matrix product yields: see hipblas.c. */
#ifndef GPUOOM_STUB_HIPBLAS_H
#define GPUOOM_STUB_HIPBLAS_H

#include <hip/hip_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void *hipblasHandle_t;
typedef enum { HIPBLAS_STATUS_SUCCESS = 0, HIPBLAS_STATUS_ALLOC_FAILED = 2 } hipblasStatus_t;
typedef enum { HIPBLAS_OP_N = 111, HIPBLAS_OP_T = 112 } hipblasOperation_t;
typedef enum { HIPBLAS_R_16F = 150, HIPBLAS_R_32F = 151 } hipblasDatatype_t;
typedef enum { HIPBLAS_GEMM_DEFAULT = 160 } hipblasGemmAlgo_t;

hipblasStatus_t hipblasCreate(hipblasHandle_t *handle);
hipblasStatus_t hipblasSetStream(hipblasHandle_t handle, hipStream_t stream);

hipblasStatus_t hipblasSgemm(hipblasHandle_t handle, hipblasOperation_t op_a, hipblasOperation_t op_b, int m, int n,
                             int k, const float *alpha, const float *a, int stride_a, const float *b, int stride_b,
                             const float *beta, float *c, int stride_c);

hipblasStatus_t hipblasGemmEx(hipblasHandle_t handle, hipblasOperation_t op_a, hipblasOperation_t op_b, int m, int n,
                              int k, const void *alpha, const void *a, hipblasDatatype_t type_a, int stride_a,
                              const void *b, hipblasDatatype_t type_b, int stride_b, const void *beta, void *c,
                              hipblasDatatype_t type_c, int stride_c, hipblasDatatype_t compute_type,
                              hipblasGemmAlgo_t algorithm);

hipblasStatus_t hipblasGemmBatchedEx(hipblasHandle_t handle, hipblasOperation_t op_a, hipblasOperation_t op_b, int m,
                                     int n, int k, const void *alpha, const void *a[], hipblasDatatype_t type_a,
                                     int stride_a, const void *b[], hipblasDatatype_t type_b, int stride_b,
                                     const void *beta, void *c[], hipblasDatatype_t type_c, int stride_c,
                                     int batch_count, hipblasDatatype_t compute_type, hipblasGemmAlgo_t algorithm);

hipblasStatus_t hipblasGemmStridedBatchedEx(hipblasHandle_t handle, hipblasOperation_t op_a, hipblasOperation_t op_b,
                                            int m, int n, int k, const void *alpha, const void *a,
                                            hipblasDatatype_t type_a, int stride_a, long long batch_stride_a,
                                            const void *b, hipblasDatatype_t type_b, int stride_b,
                                            long long batch_stride_b, const void *beta, void *c,
                                            hipblasDatatype_t type_c, int stride_c, long long batch_stride_c,
                                            int batch_count, hipblasDatatype_t compute_type,
                                            hipblasGemmAlgo_t algorithm);

#ifdef __cplusplus
}
#endif

#endif
