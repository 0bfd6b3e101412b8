// Does the last HIP error belong to a thread or to the process, and what clears it?
//
// The main thread makes hipMalloc fail; another thread then makes successful calls; the main thread reads
// its last error afterwards. A recorder that calls HIP on a thread of its own may do so only if the first
// answer is "the thread".
#include <hip/hip_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

namespace {

constexpr size_t FAR_TOO_MUCH_BYTES = size_t(1) << 50;

void fail()
{
    void *memory = nullptr;
    hipError_t error = hipMalloc(&memory, FAR_TOO_MUCH_BYTES);
    printf("main: hipMalloc = %s\n", hipGetErrorName(error));
    if (error != hipErrorOutOfMemory)
        exit(10);
}

void successful_calls()
{
    size_t free_bytes = 0, total_bytes = 0;
    void *memory = nullptr;
    printf("other: its last error = %s\n", hipGetErrorName(hipPeekAtLastError()));
    printf("other: hipSetDevice = %s\n", hipGetErrorName(hipSetDevice(0)));
    printf("other: hipMemGetInfo = %s\n", hipGetErrorName(hipMemGetInfo(&free_bytes, &total_bytes)));
    printf("other: hipMalloc = %s\n", hipGetErrorName(hipMalloc(&memory, 1 << 20)));
    printf("other: hipFree = %s\n", hipGetErrorName(hipFree(memory)));
}

const char *peek()
{
    return hipGetErrorName(hipPeekAtLastError());
}

} // namespace

int main()
{
    if (hipSetDevice(0) != hipSuccess)
        return 10;
    fail();
    std::thread(successful_calls).join();
    const char *after_other_thread = peek();
    printf("main: hipPeekAtLastError after the other thread = %s\n", after_other_thread);
    printf("main: hipGetLastError = %s\n", hipGetErrorName(hipGetLastError()));
    printf("main: hipGetLastError again = %s\n", hipGetErrorName(hipGetLastError()));

    fail();
    size_t free_bytes = 0, total_bytes = 0;
    (void)hipMemGetInfo(&free_bytes, &total_bytes);
    printf("main: hipPeekAtLastError after hipMemGetInfo on this thread = %s\n", peek());
    bool per_thread = hipGetErrorName(hipErrorOutOfMemory) == after_other_thread;
    printf("the last error belongs to the %s\n", per_thread ? "thread" : "process");
    return 0;
}
