/* The one function of rocBLAS that llama.cpp's GPU backend calls; see hipblas.c. */
#ifndef GPUOOM_STUB_ROCBLAS_H
#define GPUOOM_STUB_ROCBLAS_H

#ifdef __cplusplus
extern "C" {
#endif

void rocblas_initialize(void);

#ifdef __cplusplus
}
#endif

#endif
