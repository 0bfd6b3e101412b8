// Small blocks that share a granule of the card, a piece. No block of another kind lies among them, so that a piece is no more
// than blocks beside each other in the device's list.
#include "config.h"
#include "device.h"

int sim_pieces_suit(enum sim_kind kind, size_t requested) {
    return kind == SIM_KIND_DEVICE && requested < sim_config()->card.shared_below;
}

static uintptr_t begin_of_piece(const struct sim_block *block) {
    return block->address - block->address % sim_config()->granularity;
}

static uintptr_t end_of_piece(const struct sim_block *block) { return begin_of_piece(block) + sim_config()->granularity; }

static int share_piece(const struct sim_block *a, const struct sim_block *b) {
    return a && b && a->in_piece && b->in_piece && begin_of_piece(a) == begin_of_piece(b);
}

static int is_piece_of(const struct sim_block *block, const void *owner) {
    return block && block->in_piece && block->owner == owner;
}

static int fits(size_t held, uintptr_t begin, uintptr_t end, uintptr_t *address) {
    *address = begin;
    return end - begin >= held;
}

// First fit. A piece is of one context.
struct sim_block **sim_pieces_find(struct sim_block **blocks, size_t held, const void *owner, uintptr_t *address) {
    const struct sim_block *before = NULL;
    for (struct sim_block **link = blocks;; before = *link, link = &(*link)->next) {
        const struct sim_block *behind = *link;
        int is_between = share_piece(before, behind);
        if (is_piece_of(before, owner)) {
            uintptr_t end = is_between ? behind->address : end_of_piece(before);
            if (fits(held, before->address + before->held, end, address)) return link;
        }
        if (is_piece_of(behind, owner) && !is_between) {
            if (fits(held, begin_of_piece(behind), behind->address, address)) return link;
        }
        if (!behind) return NULL;
    }
}

size_t sim_pieces_end(const struct sim_block *before, const struct sim_block *block, uintptr_t *address) {
    *address = block->in_piece ? begin_of_piece(block) : block->address;
    if (!block->in_piece) return block->held;
    int is_last = !share_piece(before, block) && !share_piece(block, block->next);
    return is_last ? sim_config()->granularity : 0;
}
