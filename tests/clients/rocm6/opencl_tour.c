// A tour through OpenCL's memory: a buffer, shared virtual memory, then buffers until there is neither device memory nor host
// memory that stands in for it. The output is the same in every run: no addresses, no times.
#define CL_TARGET_OPENCL_VERSION 200
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)
enum { MAX_BUFFERS = 256 };

static void must(cl_int status, const char *what) {
    if (status == CL_SUCCESS) return;
    printf("FAILED %s: %d\n", what, status);
    exit(10);
}

static cl_device_id find_device(void) {
    cl_platform_id platform;
    cl_device_id device;
    char name[128];
    cl_ulong bytes = 0;
    must(clGetPlatformIDs(1, &platform, NULL), "clGetPlatformIDs");
    must(clGetDeviceIDs(platform, CL_DEVICE_TYPE_GPU, 1, &device, NULL), "clGetDeviceIDs");
    must(clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof name, name, NULL), "clGetDeviceInfo");
    must(clGetDeviceInfo(device, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof bytes, &bytes, NULL), "clGetDeviceInfo");
    printf("device: %s, %llu bytes\n", name, (unsigned long long)bytes);
    return device;
}

static void round_trip(cl_context context, cl_command_queue queue, size_t size) {
    unsigned char *sent = malloc(size), *received = calloc(1, size);
    for (size_t i = 0; i < size; i++) sent[i] = (unsigned char)(i * 2654435761u >> 24);
    cl_int status;
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, size, NULL, &status);
    must(status, "clCreateBuffer");
    must(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, size, sent, 0, NULL, NULL), "clEnqueueWriteBuffer");
    must(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, size, received, 0, NULL, NULL), "clEnqueueReadBuffer");
    printf("buffer of %zu: %s\n", size, memcmp(sent, received, size) ? "DIFFERS" : "copied there and back");
    must(clReleaseMemObject(buffer), "clReleaseMemObject");
    free(sent);
    free(received);
}

static void shared(cl_context context) {
    void *memory = clSVMAlloc(context, CL_MEM_READ_WRITE, 2 * MIB, 0);
    printf("clSVMAlloc %zu: %s\n", 2 * MIB, memory ? "given" : "NULL");
    if (memory) clSVMFree(context, memory);
}

// Each is written to, so that it can't be put off.
static void fill(cl_context context, cl_command_queue queue, size_t size) {
    cl_mem buffers[MAX_BUFFERS];
    int count = 0;
    cl_int status = CL_SUCCESS;
    const char *what = "clCreateBuffer";
    while (count < MAX_BUFFERS) {
        buffers[count] = clCreateBuffer(context, CL_MEM_READ_WRITE, size, NULL, &status);
        if (status != CL_SUCCESS) break;
        status = clEnqueueWriteBuffer(queue, buffers[count++], CL_TRUE, 0, sizeof status, &status, 0, NULL, NULL);
        what = status == CL_SUCCESS ? what : "clEnqueueWriteBuffer";
        if (status != CL_SUCCESS) break;
    }
    printf("%d buffers of %zu, then %s: %d\n", count, size, what, status);
    while (count > 0) must(clReleaseMemObject(buffers[--count]), "clReleaseMemObject");
}

int main(void) {
    cl_int status;
    cl_device_id device = find_device();
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
    must(status, "clCreateContext");
    cl_command_queue queue = clCreateCommandQueueWithProperties(context, device, NULL, &status);
    must(status, "clCreateCommandQueueWithProperties");
    round_trip(context, queue, 8 * MIB);
    shared(context);
    fill(context, queue, 256 * MIB);
    must(clReleaseCommandQueue(queue), "clReleaseCommandQueue");
    must(clReleaseContext(context), "clReleaseContext");
    printf("all released\n");
    return 0;
}
