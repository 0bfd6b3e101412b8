// A HIP that asks the kernel by itself (the plugin half, under the name of the real one), partly through a library that
// passes requests on for others. What it asks inside a call of the program belongs to that call; what it takes when it is
// loaded is its own; what the program asks directly is the program's.
#define _GNU_SOURCE
#include <dlfcn.h>

#include "kernel_requests.h"

#ifdef PLUGIN

static int (*pass_on)(int, unsigned long, void *);
static int kfd = -1;

__attribute__((constructor)) static void load(void) {
    kfd = open("/dev/kfd", O_RDWR);
    if (getenv("IS_HELPER") == NULL) kfd_alloc(kfd, GPU0, 1 * MiB, VRAM);
}

int helper_ioctl(int fd, unsigned long request, void *payload) {
    // Not the last thing in this function, so that it does not become a jump: the call must come from here.
    int result = ioctl(fd, request, payload);
    return result ? -1 : 0;
}

void use_helper(int (*helper)(int, unsigned long, void *)) { pass_on = helper; }

int hipMalloc(void **pointer, size_t size) {
    uint64_t handle = kfd_alloc(kfd, GPU0, size, VRAM);
    *pointer = (void *)handle;
    struct { uint64_t size, alignment, domains, flags; } buffer = {4096, 0, 2, 0};
    if (pass_on) pass_on(open("/dev/dri/renderD128", O_RDWR), 0xC0206440ul, &buffer);
    return handle ? 0 : 2;
}

#else

int main(int argc, char **argv) {
    (void)argc;
    setenv("IS_HELPER", "1", 1);
    void *helper = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
    unsetenv("IS_HELPER");
    void *hip = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    int (*malloc_on_gpu)(void **, size_t) = (int (*)(void **, size_t))dlsym(hip, "hipMalloc");
    void (*use_helper)(void *) = (void (*)(void *))dlsym(hip, "use_helper");
    use_helper(dlsym(helper, "helper_ioctl"));
    void *pointer = NULL;
    printf("%d\n", malloc_on_gpu(&pointer, 2 * MiB));
    printf("%d\n", kfd_alloc(open("/dev/kfd", O_RDWR), GPU0, 3 * MiB, VRAM) != 0);
    printf("%d\n", malloc_on_gpu(&pointer, 1024 * MiB));
    return 0;
}

#endif
