/* hipBLAS and rocBLAS that do nothing and succeed: kernels do nothing on the simulated card either. */
#include <hipblas/hipblas.h>
#include <rocblas/rocblas.h>

void rocblas_initialize(void)
{
}

hipblasStatus_t hipblasCreate(hipblasHandle_t *handle)
{
    static int only;
    *handle = &only;
    return HIPBLAS_STATUS_SUCCESS;
}

hipblasStatus_t hipblasSetStream(hipblasHandle_t handle, hipStream_t stream)
{
    (void)handle, (void)stream;
    return HIPBLAS_STATUS_SUCCESS;
}

hipblasStatus_t hipblasSgemm(hipblasHandle_t handle, hipblasOperation_t op_a, hipblasOperation_t op_b, int m, int n,
                             int k, const float *alpha, const float *a, int stride_a, const float *b, int stride_b,
                             const float *beta, float *c, int stride_c)
{
    (void)handle, (void)op_a, (void)op_b, (void)m, (void)n, (void)k, (void)alpha, (void)a, (void)stride_a, (void)b;
    (void)stride_b, (void)beta, (void)c, (void)stride_c;
    return HIPBLAS_STATUS_SUCCESS;
}

hipblasStatus_t hipblasGemmEx(hipblasHandle_t handle, hipblasOperation_t op_a, hipblasOperation_t op_b, int m, int n,
                              int k, const void *alpha, const void *a, hipblasDatatype_t type_a, int stride_a,
                              const void *b, hipblasDatatype_t type_b, int stride_b, const void *beta, void *c,
                              hipblasDatatype_t type_c, int stride_c, hipblasDatatype_t compute_type,
                              hipblasGemmAlgo_t algorithm)
{
    (void)handle, (void)op_a, (void)op_b, (void)m, (void)n, (void)k, (void)alpha, (void)a, (void)type_a;
    (void)stride_a, (void)b, (void)type_b, (void)stride_b, (void)beta, (void)c, (void)type_c, (void)stride_c;
    (void)compute_type, (void)algorithm;
    return HIPBLAS_STATUS_SUCCESS;
}

hipblasStatus_t hipblasGemmBatchedEx(hipblasHandle_t handle, hipblasOperation_t op_a, hipblasOperation_t op_b, int m,
                                     int n, int k, const void *alpha, const void *a[], hipblasDatatype_t type_a,
                                     int stride_a, const void *b[], hipblasDatatype_t type_b, int stride_b,
                                     const void *beta, void *c[], hipblasDatatype_t type_c, int stride_c,
                                     int batch_count, hipblasDatatype_t compute_type, hipblasGemmAlgo_t algorithm)
{
    (void)handle, (void)op_a, (void)op_b, (void)m, (void)n, (void)k, (void)alpha, (void)a, (void)type_a;
    (void)stride_a, (void)b, (void)type_b, (void)stride_b, (void)beta, (void)c, (void)type_c, (void)stride_c;
    (void)batch_count, (void)compute_type, (void)algorithm;
    return HIPBLAS_STATUS_SUCCESS;
}

hipblasStatus_t hipblasGemmStridedBatchedEx(hipblasHandle_t handle, hipblasOperation_t op_a, hipblasOperation_t op_b,
                                            int m, int n, int k, const void *alpha, const void *a,
                                            hipblasDatatype_t type_a, int stride_a, long long batch_stride_a,
                                            const void *b, hipblasDatatype_t type_b, int stride_b,
                                            long long batch_stride_b, const void *beta, void *c,
                                            hipblasDatatype_t type_c, int stride_c, long long batch_stride_c,
                                            int batch_count, hipblasDatatype_t compute_type,
                                            hipblasGemmAlgo_t algorithm)
{
    (void)handle, (void)op_a, (void)op_b, (void)m, (void)n, (void)k, (void)alpha, (void)a, (void)type_a;
    (void)stride_a, (void)batch_stride_a, (void)b, (void)type_b, (void)stride_b, (void)batch_stride_b, (void)beta;
    (void)c, (void)type_c, (void)stride_c, (void)batch_stride_c, (void)batch_count, (void)compute_type;
    (void)algorithm;
    return HIPBLAS_STATUS_SUCCESS;
}
