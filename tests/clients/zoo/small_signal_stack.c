// A handler runs on an alternate stack of 16 KiB beyond the machine's minimum, with an unmapped page below it, and
// allocates there.
// The trace must show the handler's allocation: the recorder's hooks may not need a deep stack.
#define _GNU_SOURCE
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hip_min.h"

static void *from_handler;

static void handler(int signal) {
    (void)signal;
    MUST(hipMalloc(&from_handler, 14 * MiB));
}

int main(void) {
    void *block;
    size_t page = 4096, size = 16 * KiB + ((size_t)sysconf(_SC_MINSIGSTKSZ) + page - 1) / page * page;
    char *pages = mmap(NULL, page + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(pages, page, PROT_NONE);
    stack_t stack = {.ss_sp = pages + page, .ss_size = size};
    sigaltstack(&stack, NULL);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    // Before, on the ordinary stack: whatever the first call sets up.
    MUST(hipMalloc(&block, 15 * MiB));
    raise(SIGUSR1);
    MUST(hipFree(from_handler));
    MUST(hipFree(block));
    puts("done");
    return 0;
}
