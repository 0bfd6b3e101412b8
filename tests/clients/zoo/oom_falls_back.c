// An allocation fails, the program asks for something else and works with that. What it asks for is the argument. Run with
// SIM_CAPACITY=1G and two devices.
// The trace must say: recovered, fell_back; of "trifle", "late" and "larger", which have nothing to do with the failure: dropped,
// gpu_work_continued; of "null", which uses the pointer that it did not get after all: dropped, failed_pointer_used.
#include <string.h>
#include <unistd.h>

#include "hip_min.h"

enum { PIECES = 8 };

static __attribute__((noinline)) void take(void **pointer, size_t size) { MUST(hipMalloc(pointer, size)); }

static void in_pieces(void) {
    static void *pieces[PIECES];
    for (int i = 0; i < PIECES; i++) MUST(hipMalloc(&pieces[i], 256 * MiB / PIECES));
}

static void on_the_other_device(void **pointer) {
    MUST(hipSetDevice(1));
    take(pointer, 600 * MiB);
}

// A retry loop that asks for four fifths each time, and clears the error as many do.
static void shrinking(void **pointer) {
    int refused = 0;
    for (size_t size = 8192 * GiB; hipMalloc(pointer, size) != hipSuccess; size = size / 5 * 4) {
        (void)hipGetLastError();
        refused++;
    }
    printf("refused %d more\n", refused);
}

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "";
    void *held, *wanted = NULL, *other;
    take(&held, 600 * MiB);
    MUST_NOT_FIT(hipMalloc(&wanted, 600 * MiB));
    if (strcmp(way, "smaller") == 0) take(&other, 300 * MiB);
    if (strcmp(way, "same_variable") == 0) take(&wanted, 4096);
    if (strcmp(way, "pieces") == 0) in_pieces();
    if (strcmp(way, "pinned") == 0) MUST(hipHostMalloc(&other, 600 * MiB, 0));
    if (strcmp(way, "managed") == 0) MUST(hipMallocManaged(&other, 300 * MiB, hipMemAttachGlobal));
    if (strcmp(way, "device") == 0) on_the_other_device(&other);
    if (strcmp(way, "shrinking") == 0) shrinking(&other);
    if (strcmp(way, "trifle") == 0) take(&other, 4096);
    if (strcmp(way, "late") == 0) {
        sleep(2);
        take(&other, 300 * MiB);
    }
    if (strcmp(way, "larger") == 0) {
        sleep(2);
        MUST(hipFree(held));
        take(&other, 700 * MiB);
    }
    if (strcmp(way, "joint") == 0) {
        MUST(hipFree(held));
        take(&other, 900 * MiB);
    }
    if (strcmp(way, "null") == 0) take(&other, 300 * MiB);
    MUST(launch_kernel());
    if (strcmp(way, "null") == 0) {
        char data[4096];
        (void)hipMemcpy(wanted, data, sizeof data, hipMemcpyHostToDevice);
    }
    return 0;
}
