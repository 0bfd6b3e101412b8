// Closes every descriptor above 2 in the middle of the run, as daemons do, and opens files of its own, which get the
// numbers that the recorder's file had. Then it goes on allocating.
// The files must keep their content to the byte, and the trace must hold the allocations from before and after.
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "hip_min.h"

enum { FILES = 24, SIZE = 8192, ROUNDS = 300 };

static int fds[FILES];

static void fill(char *text, int number) { memset(text, 'a' + number, SIZE); }

static void open_own_files(void) {
    char name[32], text[SIZE];
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "own-%02d", i);
        fds[i] = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
        fill(text, i);
        if (write(fds[i], text, SIZE) != SIZE) exit(75);
    }
}

static int count_damaged(void) {
    int damaged = 0;
    char wanted[SIZE], found[SIZE + 1];
    for (int i = 0; i < FILES; i++) {
        fill(wanted, i);
        damaged += pread(fds[i], found, SIZE + 1, 0) != SIZE || memcmp(wanted, found, SIZE) != 0;
    }
    return damaged;
}

int main(void) {
    void *block;
    MUST(hipMalloc(&block, 6 * MiB));
    MUST(hipFree(block));
    closefrom(3);
    open_own_files();
    for (int i = 0; i < ROUNDS; i++) {
        MUST(hipMalloc(&block, 7 * MiB));
        MUST(hipFree(block));
    }
    printf("%d damaged\n", count_damaged());
    return 0;
}
