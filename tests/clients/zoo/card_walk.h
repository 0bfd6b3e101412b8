// A long walk of allocations and frees of all sorts, the same for the same seed. After each step it prints what the
// program is told: status, free and total memory, last errors. On a virtual card that must be, byte for byte, what it is
// told on a real card of that size.
#ifndef CARD_WALK_H
#define CARD_WALK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BLOCKS = 64, STEPS = 400 };

struct walk_block {
    int sort;
    void *pointer, *handle;
    size_t size;
};

// What the interface gives: sorts of memory by number, how to take and give one, and what to print after each step.
extern const int walk_sorts;
int walk_take(struct walk_block *block);
int walk_give(struct walk_block *block);
void walk_show(unsigned random);
void walk_end(void);

static unsigned walk_random(void) {
    static unsigned long long state;
    if (!state) state = strtoull(getenv("WALK_SEED") ? getenv("WALK_SEED") : "1", NULL, 10);
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (unsigned)(state >> 33);
}

static size_t walk_size(void) {
    size_t unit = (size_t)1 << (12 + walk_random() % 17);
    return unit + walk_random() % unit;
}

int main(void) {
    static struct walk_block blocks[MOST_BLOCKS];
    int count = 0, refused = 0;
    for (int step = 0; step < STEPS; step++) {
        int gives = count && (count == MOST_BLOCKS || walk_random() % 5 < 2);
        struct walk_block block = {.sort = (int)(walk_random() % (unsigned)walk_sorts), .size = walk_size()};
        int status;
        if (gives) {
            int which = (int)(walk_random() % (unsigned)count);
            block = blocks[which];
            blocks[which] = blocks[--count];
            status = walk_give(&block);
        } else {
            status = walk_take(&block);
            if (status == 0) blocks[count++] = block;
            else refused++;
        }
        printf("%d %s %d %zu: %d %s", step, gives ? "give" : "take", block.sort, block.size, status,
               block.pointer ? "some" : "none");
        walk_show(walk_random());
        printf("\n");
    }
    while (count) printf("end: %d\n", walk_give(&blocks[--count]));
    walk_show(0);
    walk_end();
    printf("\nrefused %d\n", refused);
    return refused ? 3 : 4;
}

#endif
