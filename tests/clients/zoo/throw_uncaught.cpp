// An allocation fails, the program throws and nobody catches: std::terminate, abort.
// The trace must say: propagated, exception, and must not say that the process exited by itself.
#include <stdexcept>

#include "hip_min.h"

int main() {
    void *block;
    MUST(hipMalloc(&block, 19 * MiB));
    if (hipMalloc(&block, 4096 * GiB) != hipSuccess) throw std::runtime_error("no memory");
    return 0;
}
