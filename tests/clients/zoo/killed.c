// Four threads allocate and free for ever; each notes every call in a shared file after the call has returned. The
// test kills the process at some moment and compares. Arguments: the file, and microseconds to wait between calls.
// The trace must hold every call that the file holds, in the same order per thread, and at most one more.
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hip_min.h"

enum { THREADS = 4, CALLS = 1 << 16, HELD = 5 };

struct call { uint64_t is_free, address, size; };
struct notes {
    uint64_t thread;
    atomic_ullong count;  // published after the note itself
    struct call calls[CALLS];
};

static struct notes *all_notes;
static unsigned pause_us;

static void note(struct notes *notes, uint64_t is_free, void *address, size_t size) {
    unsigned long long count = atomic_load_explicit(&notes->count, memory_order_relaxed);
    if (count == CALLS) pause();
    notes->calls[count] = (struct call){is_free, (uintptr_t)address, size};
    atomic_store_explicit(&notes->count, count + 1, memory_order_release);
    if (pause_us) usleep(pause_us);
}

static void *work(void *argument) {
    size_t number = (size_t)argument;
    struct notes *notes = &all_notes[number];
    notes->thread = (uint64_t)syscall(SYS_gettid);
    void *held[HELD] = {NULL};
    for (size_t round = 0;; round++) {
        void **slot = &held[round % HELD];
        if (*slot) {
            MUST(hipFree(*slot));
            note(notes, 1, *slot, 0);
        }
        size_t size = (round * 7 + number) % 9 * MiB + round % 1000 + 1;
        MUST(hipMalloc(slot, size));
        note(notes, 0, *slot, size);
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 3) return 64;
    int fd = open(argv[1], O_RDWR | O_CREAT, 0644);
    size_t size = THREADS * sizeof *all_notes;
    if (fd < 0 || ftruncate(fd, (off_t)size) != 0) return 74;
    all_notes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    pause_us = (unsigned)atoi(argv[2]);
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    return 0;
}
