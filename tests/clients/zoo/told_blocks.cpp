// An allocator that tells of its blocks as PyTorch's does, through functions of its own library, which is opened with RTLD_LOCAL.
// Compiled twice: -DPLUGIN is the library. The functions print what they were given, so a recorder that changes an argument, or
// does not pass the call on, shows.
//     told_blocks PLUGIN [tells|forks|cpu|lies|no-gpu]
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#ifdef PLUGIN
extern "C" {
#include "hip_min.h"
}

namespace c10 {
struct Device {
    int8_t type;
    int8_t index;
};

__attribute__((noinline)) void reportMemoryUsageToProfiler(void *block, int64_t change, size_t allocated, size_t reserved, Device device) {
    printf("block %d, %ld, %zu, %zu, %d:%d\n", block != nullptr, (long)change, allocated, reserved, device.type, device.index);
}

__attribute__((noinline)) void reportOutOfMemoryToProfiler(int64_t size, size_t allocated, size_t reserved, Device device) {
    printf("no memory %ld, %zu, %zu, %d:%d\n", (long)size, allocated, reserved, device.type, device.index);
}
} // namespace c10

static size_t allocated, reserved;

static void tell(char *block, long change, c10::Device device) {
    allocated += (size_t)change;
    c10::reportMemoryUsageToProfiler(block, change, allocated, reserved, device);
}

static int blocks_of_a_segment(c10::Device device, bool lies) {
    char *segment;
    MUST(hipMalloc((void **)&segment, 20 * MiB));
    reserved += 20 * MiB;
    for (int round = 0; round < 3; round++) {
        for (size_t block = 0; block < 10; block++) tell(segment + block * MiB, (long)MiB, device);
        // Of the last block the allocator says nothing.
        if (lies) allocated += 512;
        for (size_t block = 0; block < 10; block++) tell(segment + block * MiB, -(long)MiB, device);
    }
    tell(segment, 512, device);
    tell(segment + MiB, 20 << 10, device);
    void *none;
    if (hipMalloc(&none, (size_t)1 << 50) != hipErrorOutOfMemory) return 1;
    hipGetLastError();
    c10::reportOutOfMemoryToProfiler((int64_t)1 << 49, allocated, reserved, device);
    return 0;
}

extern "C" int run(const char *what) {
    setvbuf(stdout, nullptr, _IONBF, 0);
    if (!strcmp(what, "no-gpu")) {
        c10::reportMemoryUsageToProfiler(&allocated, 64, 64, 64, {1, 0});
        return 0;
    }
    if (blocks_of_a_segment({(int8_t)(strcmp(what, "cpu") ? 1 : 0), 0}, !strcmp(what, "lies"))) return 2;
    if (!strcmp(what, "cpu")) c10::reportMemoryUsageToProfiler(&allocated, 64, 64, 64, {12, 0});
    return 0;
}

extern "C" int run_again(void) {
    return blocks_of_a_segment({1, 0}, false);
}
#else
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    const char *what = argc > 2 ? argv[2] : "tells";
    void *plugin = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : nullptr;
    auto run = plugin ? (int (*)(const char *))dlsym(plugin, "run") : nullptr;
    auto again = plugin ? (int (*)(void))dlsym(plugin, "run_again") : nullptr;
    if (!run || !again) return 72;
    if (int status = run(what)) return status;
    if (!strcmp(what, "forks")) {
        pid_t child = fork();
        if (child == 0) _exit(again());
        int status;
        if (waitpid(child, &status, 0) != child || status) return 73;
    }
    return 0;
}
#endif
