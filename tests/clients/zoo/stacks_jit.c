// Allocates below code that was made at run time and has no call frame information: 1 MiB below code that keeps a frame
// pointer, 2 MiB below code that has something else in rbp, 3 MiB without such code.
// The trace must find the way through the first one and stop at the second.
#pragma GCC optimize("O2", "omit-frame-pointer")
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>

#include "hip_min.h"

static size_t mebibytes;

__attribute__((noinline, noipa)) static int take(void) {
    void *block;
    MUST(hipMalloc(&block, mebibytes * MiB));
    return (int)mebibytes;
}

// push rbp; mov rbp, rsp; call rdi; pop rbp; ret
static const unsigned char keeps[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
// push rbp; mov ebp, 77; call rdi; pop rbp; ret
static const unsigned char changes[] = {0x55, 0xbd, 77, 0, 0, 0, 0xff, 0xd7, 0x5d, 0xc3};

__attribute__((noinline, noipa)) static int through(const unsigned char *code, size_t bytes) {
    int (*made)(int (*)(void)) = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy((void *)made, code, bytes);
    mebibytes++;
    return made(take) + 1;
}

int main(void) {
    int sum = through(keeps, sizeof keeps) + through(changes, sizeof changes);
    mebibytes++;
    sum += take();
    printf("%p %p %d\n", (void *)through, (void *)main, sum);
    return 0;
}
