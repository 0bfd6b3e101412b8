// The mathematical libraries: one handle of each, and the same again. With SIM_HANDLE_FAIL_AT=2 the second is refused for
// want of memory, with each library's own status.
// The trace must show the creations and, of those that failed, out-of-memory returns; no sizes, since nobody tells them.
#include <stddef.h>
#include <stdio.h>

#define LIBRARIES(X)                                        \
    X(hipblasCreate, hipblasDestroy)                        \
    X(rocblas_create_handle, rocblas_destroy_handle)        \
    X(miopenCreate, miopenDestroy)                          \
    X(cublasCreate_v2, cublasDestroy_v2)                    \
    X(cudnnCreate, cudnnDestroy)

#define DECLARE(create, destroy) \
    int create(void **handle);   \
    int destroy(void *handle);
LIBRARIES(DECLARE)

#define TRY(create, destroy)                                            \
    {                                                                   \
        void *handle = NULL;                                            \
        int status = create(&handle);                                   \
        printf("%s: %d\n", #create, status);                            \
        if (status == 0) destroy(handle);                               \
    }

int main(void) {
    for (int i = 0; i < 2; i++) {
        LIBRARIES(TRY)
    }
    return 0;
}
