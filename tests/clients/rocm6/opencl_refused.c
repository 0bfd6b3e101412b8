// Takes buffers until clCreateBuffer fails, and then does what its argument says:
//   ends      ends with a failure
//   smaller   takes a smaller buffer and writes to it
//   null      writes to the buffer that it was not given
//   goes-on   writes to an older one, as if nothing had happened
// With `too-large` it asks for one buffer that no device has: what OpenCL then answers, it answers by itself.
#define CL_TARGET_OPENCL_VERSION 200
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

static cl_context context;
static cl_command_queue queue;

static cl_mem buffer(size_t size, cl_int *error) {
    return clCreateBuffer(context, CL_MEM_READ_WRITE, size, NULL, error);
}

static void write_to(cl_mem memory) {
    static char bytes[4096];
    printf("written: %d\n", clEnqueueWriteBuffer(queue, memory, CL_TRUE, 0, sizeof bytes, bytes, 0, NULL, NULL));
}

int main(int count, char **arguments) {
    const char *then = count > 1 ? arguments[1] : "ends";
    cl_platform_id platform;
    cl_device_id device;
    cl_int error;
    if (clGetPlatformIDs(1, &platform, NULL) || clGetDeviceIDs(platform, CL_DEVICE_TYPE_GPU, 1, &device, NULL)) return 2;
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    queue = clCreateCommandQueueWithProperties(context, device, NULL, &error);
    if (error) return 3;
    cl_mem older = buffer(MIB, &error);
    if (!strcmp(then, "too-large")) {
        buffer((size_t)1 << 60, &error);
        printf("answered: %d\n", error);
        return error != 0;
    }
    int taken = 0;
    while (buffer(256 * MIB, &error)) taken++;
    printf("%d taken, then %d\n", taken, error);
    if (!strcmp(then, "smaller")) write_to(buffer(16 * MIB, &error));
    if (!strcmp(then, "null")) write_to(NULL);
    if (!strcmp(then, "goes-on")) write_to(older);
    return strcmp(then, "ends") ? 0 : 4;
}
