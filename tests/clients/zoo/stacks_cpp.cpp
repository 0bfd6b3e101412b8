// Allocates inside C++: from constructors, while an exception passes, in a handler of one, and below frames with and
// without frame pointers. Prints glibc's backtrace() of each, as stacks.c does.
#include <execinfo.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "hip_min.h"

static inline __attribute__((always_inline)) void take(size_t mebibytes) {
    void *frames[256], *block;
    int count = backtrace(frames, 256);
    char line[256 * 20], *end = line + sprintf(line, "%zu", mebibytes);
    for (int i = 0; i < count; i++) end += sprintf(end, " %p", frames[i]);
    *end++ = '\n';
    if (write(1, line, (size_t)(end - line)) < 0) abort();
    MUST(hipMalloc(&block, mebibytes * MiB));
    MUST(hipFree(block));
}

struct Guard {
    size_t mebibytes;
    explicit Guard(size_t first) : mebibytes(first) { take(first); }
    ~Guard() { take(mebibytes + 1); }
};

__attribute__((noinline)) static void through(int depth, const std::function<void()> &function) {
    if (depth == 0) return function();
    std::vector<int> some(static_cast<size_t>(depth), 1);
    through(depth - 1, function);
    if (some.back() != 1) abort();
}

__attribute__((noinline, optimize("no-omit-frame-pointer"))) static void with_frame_pointer(size_t mebibytes) {
    std::vector<int> numbers{3, 1, 2};
    bool done = false;
    std::sort(numbers.begin(), numbers.end(), [&](int a, int b) {
        if (!done) take(mebibytes);
        done = true;
        return a < b;
    });
}

int main() {
    through(20, [] { Guard guard(1); });
    try {
        through(10, [] {
            Guard guard(3);
            throw std::runtime_error("passes a guard");
        });
    } catch (const std::exception &) {
        take(5);
    }
    with_frame_pointer(6);
    std::thread([] { through(5, [] { with_frame_pointer(7); }); }).join();
    std::function<void()> call = [] { take(8); };
    call();
    return 0;
}
