// The plugin of py_told_lock.py: an allocator with a lock, which it holds while it tells of its blocks.
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unistd.h>

extern "C" {
#include "hip_min.h"
}

#include "c10_min.h"

static std::mutex lock;
static char *segment;
static size_t allocated, count;

extern "C" int begin(void) {
    return hipMalloc((void **)&segment, 512 * MiB);
}

extern "C" void tell_locked(void) {
    std::lock_guard<std::mutex> guard(lock);
    c10::reportMemoryUsageToProfiler(segment + 512 * count++, 512, allocated += 512, 512 * MiB, {1, 0});
    // Long enough for another thread to come to the lock with the interpreter.
    usleep(50);
}

extern "C" void take_lock(void) {
    std::lock_guard<std::mutex> guard(lock);
}

extern "C" int told(void) {
    return (int)count;
}
