// A tour through the HIP memory APIs, ending in a real out-of-memory.
//
// Every kind of memory is taken, used and given back; then 512 MiB blocks until hipErrorOutOfMemory. What
// the program does about the failure is chosen by --then, so that one program shows all the outcomes a
// recorder has to tell apart; with "nothing" there is no failure. The output is the same in every run: no addresses, no times.
#include <hip/hip_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr size_t KIB = 1024, MIB = 1024 * KIB;
constexpr size_t BLOCK_BYTES = 512 * MIB;

__global__ void add_one(int *values, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        values[i] += 1;
}

// The tour proper must succeed; anything else ends the program with its own status.
void must(hipError_t error, const char *what)
{
    if (error == hipSuccess)
        return;
    printf("FAILED %s: %s\n", what, hipGetErrorName(error));
    exit(10);
}

void must_hold(bool holds, const char *what)
{
    if (holds)
        return;
    printf("FAILED %s\n", what);
    exit(11);
}

void say_free(const char *when)
{
    size_t free_bytes = 0, total_bytes = 0;
    must(hipMemGetInfo(&free_bytes, &total_bytes), "hipMemGetInfo");
    printf("%s: free %zu of %zu\n", when, free_bytes, total_bytes);
}

std::vector<unsigned char> pattern(size_t size_bytes, unsigned seed)
{
    std::vector<unsigned char> bytes(size_bytes);
    unsigned state = seed * 2654435761u + 1;
    for (auto &byte : bytes) {
        state = state * 1664525u + 1013904223u;
        byte = static_cast<unsigned char>(state >> 24);
    }
    return bytes;
}

void show_device()
{
    int count = 0;
    must(hipGetDeviceCount(&count), "hipGetDeviceCount");
    must(hipSetDevice(0), "hipSetDevice");
    hipDeviceProp_t properties;
    must(hipGetDeviceProperties(&properties, 0), "hipGetDeviceProperties");
    printf("%d device: %s, %s, %zu bytes\n", count, properties.name, properties.gcnArchName,
           properties.totalGlobalMem);
}

// There and back through device memory, compared byte for byte.
void round_trip(size_t size_bytes)
{
    std::vector<unsigned char> sent = pattern(size_bytes, 7), received(size_bytes, 0);
    void *device = nullptr;
    must(hipMalloc(&device, size_bytes), "hipMalloc");
    must(hipMemcpy(device, sent.data(), size_bytes, hipMemcpyHostToDevice), "hipMemcpy to device");
    must(hipMemcpy(received.data(), device, size_bytes, hipMemcpyDeviceToHost), "hipMemcpy to host");
    must_hold(sent == received, "round trip");
    must(hipFree(device), "hipFree");
    printf("hipMalloc %zu: copied there and back\n", size_bytes);
}

void pitched()
{
    constexpr size_t width_bytes = 1000, rows = 64;
    std::vector<unsigned char> sent = pattern(width_bytes * rows, 11), received(width_bytes * rows, 0);
    void *device = nullptr;
    size_t pitch_bytes = 0;
    must(hipMallocPitch(&device, &pitch_bytes, width_bytes, rows), "hipMallocPitch");
    must(hipMemcpy2D(device, pitch_bytes, sent.data(), width_bytes, width_bytes, rows, hipMemcpyHostToDevice),
         "hipMemcpy2D to device");
    must(hipMemcpy2D(received.data(), width_bytes, device, pitch_bytes, width_bytes, rows, hipMemcpyDeviceToHost),
         "hipMemcpy2D to host");
    must_hold(sent == received, "pitched round trip");
    must(hipFree(device), "hipFree pitched");
    printf("hipMallocPitch %zux%zu: pitch %zu, copied there and back\n", width_bytes, rows, pitch_bytes);
}

void three_dimensional()
{
    hipPitchedPtr volume = {};
    must(hipMalloc3D(&volume, make_hipExtent(512, 32, 8)), "hipMalloc3D");
    must(hipFree(volume.ptr), "hipFree 3D");
    printf("hipMalloc3D 512x32x8: pitch %zu\n", volume.pitch);
}

void managed()
{
    unsigned char *shared = nullptr;
    must(hipMallocManaged(reinterpret_cast<void **>(&shared), 3 * MIB, hipMemAttachGlobal), "hipMallocManaged");
    memset(shared, 42, 3 * MIB);
    must(hipDeviceSynchronize(), "hipDeviceSynchronize");
    must_hold(shared[3 * MIB - 1] == 42, "managed memory");
    must(hipFree(shared), "hipFree managed");
    printf("hipMallocManaged %zu: written and read\n", 3 * MIB);
}

void pinned()
{
    unsigned char *host = nullptr;
    must(hipHostMalloc(reinterpret_cast<void **>(&host), 5 * MIB, hipHostMallocDefault), "hipHostMalloc");
    void *device = nullptr;
    must(hipMalloc(&device, 5 * MIB), "hipMalloc");
    memset(host, 17, 5 * MIB);
    must(hipMemcpy(device, host, 5 * MIB, hipMemcpyHostToDevice), "hipMemcpy from pinned");
    memset(host, 0, 5 * MIB);
    must(hipMemcpy(host, device, 5 * MIB, hipMemcpyDeviceToHost), "hipMemcpy to pinned");
    must_hold(host[0] == 17 && host[5 * MIB - 1] == 17, "pinned round trip");
    must(hipFree(device), "hipFree");
    must(hipHostFree(host), "hipHostFree");
    printf("hipHostMalloc %zu: copied there and back\n", 5 * MIB);
}

void registered()
{
    void *host = aligned_alloc(4096, 6 * MIB);
    must_hold(host != nullptr, "aligned_alloc");
    memset(host, 1, 6 * MIB);
    must(hipHostRegister(host, 6 * MIB, hipHostRegisterDefault), "hipHostRegister");
    void *device = nullptr;
    must(hipHostGetDevicePointer(&device, host, 0), "hipHostGetDevicePointer");
    must_hold(device != nullptr, "device pointer of registered memory");
    must(hipHostUnregister(host), "hipHostUnregister");
    free(host);
    printf("hipHostRegister %zu\n", 6 * MIB);
}

// Image support is the part of the runtime that depends most on the hardware: its absence is no failure.
void array()
{
    hipArray *image = nullptr;
    hipChannelFormatDesc format = hipCreateChannelDesc(32, 0, 0, 0, hipChannelFormatKindFloat);
    hipError_t error = hipMallocArray(&image, &format, 256, 256, hipArrayDefault);
    printf("hipMallocArray 256x256 float: %s\n", hipGetErrorName(error));
    if (error == hipSuccess)
        must(hipFreeArray(image), "hipFreeArray");
}

void stream_ordered()
{
    hipStream_t stream = nullptr;
    void *first = nullptr, *second = nullptr;
    must(hipStreamCreate(&stream), "hipStreamCreate");
    must(hipMallocAsync(&first, 4 * MIB, stream), "hipMallocAsync");
    must(hipFreeAsync(first, stream), "hipFreeAsync");
    must(hipMallocAsync(&second, 4 * MIB, stream), "hipMallocAsync again");
    must(hipFreeAsync(second, stream), "hipFreeAsync again");
    must(hipStreamSynchronize(stream), "hipStreamSynchronize");
    hipMemPool_t pool = nullptr;
    must(hipDeviceGetDefaultMemPool(&pool, 0), "hipDeviceGetDefaultMemPool");
    must(hipMemPoolTrimTo(pool, 0), "hipMemPoolTrimTo");
    must(hipStreamDestroy(stream), "hipStreamDestroy");
    printf("hipMallocAsync %zu: twice, trimmed\n", 4 * MIB);
}

void launch()
{
    constexpr int count = 1024;
    int *values = nullptr;
    hipStream_t stream = nullptr;
    hipEvent_t begin = nullptr, end = nullptr;
    must(hipMalloc(reinterpret_cast<void **>(&values), count * sizeof(int)), "hipMalloc");
    must(hipStreamCreate(&stream), "hipStreamCreate");
    must(hipEventCreate(&begin), "hipEventCreate");
    must(hipEventCreate(&end), "hipEventCreate");
    must(hipEventRecord(begin, stream), "hipEventRecord");
    hipLaunchKernelGGL(add_one, dim3(count / 256), dim3(256), 0, stream, values, count);
    must(hipGetLastError(), "kernel launch");
    must(hipEventRecord(end, stream), "hipEventRecord");
    must(hipEventSynchronize(end), "hipEventSynchronize");
    float milliseconds = -1;
    must(hipEventElapsedTime(&milliseconds, begin, end), "hipEventElapsedTime");
    must_hold(milliseconds >= 0, "elapsed time");
    must(hipEventDestroy(begin), "hipEventDestroy");
    must(hipEventDestroy(end), "hipEventDestroy");
    must(hipStreamDestroy(stream), "hipStreamDestroy");
    must(hipFree(values), "hipFree");
    printf("kernel launched between two events\n");
}

void free_all(std::vector<void *> &blocks)
{
    for (void *block : blocks)
        must(hipFree(block), "hipFree block");
    blocks.clear();
    must(hipDeviceSynchronize(), "hipDeviceSynchronize");
    say_free("at the end");
}

// Takes blocks until the card is full; returns the error that ended it.
hipError_t fill_card(std::vector<void *> &blocks)
{
    for (;;) {
        void *block = nullptr;
        hipError_t error = hipMalloc(&block, BLOCK_BYTES);
        if (error != hipSuccess) {
            printf("%zu blocks of %zu, then the next one failed\n", blocks.size(), BLOCK_BYTES);
            return error;
        }
        blocks.push_back(block);
    }
}

// The mistake this looks for: the failure goes unread and the GPU is given more work.
void carry_on(std::vector<void *> &blocks)
{
    hipLaunchKernelGGL(add_one, dim3(4), dim3(256), 0, nullptr, static_cast<int *>(blocks[0]), 1024);
    (void)hipMemset(blocks[0], 0, 1 * MIB);
    (void)hipDeviceSynchronize();
    printf("carried on as if nothing had happened\n");
}

void retry(std::vector<void *> &blocks)
{
    must(hipFree(blocks.back()), "hipFree for the retry");
    blocks.pop_back();
    void *block = nullptr;
    must(hipMalloc(&block, BLOCK_BYTES), "hipMalloc retried");
    blocks.push_back(block);
    printf("freed one block and succeeded\n");
}

int report(hipError_t error)
{
    printf("out of memory: %s\n", hipGetErrorString(error));
    return 1;
}

int react(const std::string &then, hipError_t error, std::vector<void *> &blocks)
{
    fflush(stdout);
    int status = 0;
    if (then == "report")
        status = report(error);
    else if (then == "ignore")
        carry_on(blocks);
    else if (then == "retry")
        retry(blocks);
    else if (then == "exit")
        exit(3);
    else if (then == "abort")
        abort();
    else
        throw std::runtime_error("no memory left on the device");
    free_all(blocks);
    return status;
}

int run(const std::string &then)
{
    show_device();
    say_free("at the start");
    round_trip(64);
    round_trip(8 * MIB);
    pitched();
    three_dimensional();
    managed();
    pinned();
    registered();
    array();
    stream_ordered();
    launch();
    say_free("before the blocks");
    if (then == "nothing")
        return 0;
    std::vector<void *> blocks;
    hipError_t error = fill_card(blocks);
    try {
        return react(then, error, blocks);
    } catch (const std::runtime_error &failure) {
        printf("caught: %s\n", failure.what());
        free_all(blocks);
        return 4;
    }
}

} // namespace

int main(int argc, char **argv)
{
    std::string then = argc == 3 && strcmp(argv[1], "--then") == 0 ? argv[2] : argc == 1 ? "report" : "";
    for (const char *known : {"report", "ignore", "retry", "exit", "abort", "throw", "nothing"}) {
        if (then == known)
            return run(then);
    }
    fprintf(stderr, "usage: %s [--then report|ignore|retry|exit|abort|throw|nothing]\n", argv[0]);
    return 2;
}
