/* The copy engine: executes SDMA packets of GFX9 and later on real memory.
 *
 * Packets are decoded by 32-bit words. Counts are stored minus one on these chips.
 */
#include "engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    OP_NOP = 0, OP_COPY = 1, OP_FENCE = 5, OP_TRAP = 6, OP_POLL = 8, OP_ATOMIC = 10, OP_FILL = 11,
    OP_TIMESTAMP = 13, OP_CACHE = 17,
};
/* 22 on older chips, where ROCr leaves the others 0. */
enum { COUNT_BITS = 30 };
enum { SUB_COPY_LINEAR = 0, SUB_COPY_RECT = 4, ATOMIC_ADD_64 = 47, POLL_EQUAL = 3 };

static void *pointer_at(const uint32_t *words)
{
    return mapping_resolve((const void *)(uintptr_t)((uint64_t)words[1] << 32 | words[0]));
}

static uint32_t bits(uint32_t word, unsigned first, unsigned count)
{
    return word >> first & ((1u << count) - 1);
}

/* A packet this engine does not know would leave the program waiting for ever, so it says so and stops. */
static void unknown_packet(uint32_t header)
{
    fprintf(stderr, "simulated card: unknown SDMA packet 0x%08x\n", header);
    abort();
}

static unsigned copy_linear(const uint32_t *packet)
{
    uint64_t size_bytes = (uint64_t)bits(packet[1], 0, COUNT_BITS) + 1;
    memmove(pointer_at(&packet[5]), pointer_at(&packet[3]), size_bytes);
    return 7;
}

/* One side of a rectangle copy: 5 words from the base address on. */
struct window {
    uint8_t *base;
    uint64_t pitch_bytes, slice_bytes;
};

static struct window window_at(const uint32_t *words, unsigned element_shift)
{
    uint64_t x = bits(words[2], 0, 14), y = bits(words[2], 16, 14), z = bits(words[3], 0, 11);
    struct window window = {
        .pitch_bytes = ((uint64_t)bits(words[3], 13, 19) + 1) << element_shift,
        .slice_bytes = ((uint64_t)bits(words[4], 0, 28) + 1) << element_shift,
    };
    window.base = (uint8_t *)pointer_at(words) + (x << element_shift) + y * window.pitch_bytes
                  + z * window.slice_bytes;
    return window;
}

static unsigned copy_rect(const uint32_t *packet)
{
    unsigned element_shift = bits(packet[0], 29, 3);
    struct window from = window_at(&packet[1], element_shift), to = window_at(&packet[6], element_shift);
    uint64_t width_bytes = ((uint64_t)bits(packet[11], 0, 14) + 1) << element_shift;
    uint32_t rows = bits(packet[11], 16, 14) + 1, slices = bits(packet[12], 0, 11) + 1;
    for (uint32_t z = 0; z < slices; z++) {
        for (uint32_t y = 0; y < rows; y++)
            memmove(to.base + z * to.slice_bytes + y * to.pitch_bytes,
                    from.base + z * from.slice_bytes + y * from.pitch_bytes, width_bytes);
    }
    return 13;
}

static unsigned copy(const uint32_t *packet)
{
    switch (bits(packet[0], 8, 8)) {
    case SUB_COPY_LINEAR: return copy_linear(packet);
    case SUB_COPY_RECT: return copy_rect(packet);
    }
    unknown_packet(packet[0]);
    return 0;
}

static unsigned fill(const uint32_t *packet)
{
    uint32_t *target = pointer_at(&packet[1]);
    uint64_t word_count = bits(packet[4], 0, COUNT_BITS) / 4 + 1;
    for (uint64_t i = 0; i < word_count; i++)
        target[i] = packet[3];
    return 5;
}

static unsigned fence(const uint32_t *packet)
{
    __atomic_store_n((uint32_t *)pointer_at(&packet[1]), packet[3], __ATOMIC_RELEASE);
    return 4;
}

/* Waits for a word in memory. The form that polls a register is a cache flush: nothing to do here.
 * Returns 0 when the queue is being destroyed, so that the wait ends without the packet. */
static unsigned poll_memory(struct engine *engine, const uint32_t *packet)
{
    if (bits(packet[0], 31, 1) == 0)
        return 6;
    if (bits(packet[0], 28, 3) != POLL_EQUAL)
        unknown_packet(packet[0]);
    const uint32_t *word = pointer_at(&packet[1]);
    for (struct idle idle = {0}; (__atomic_load_n(word, __ATOMIC_ACQUIRE) & packet[4]) != packet[3];) {
        if (engine_stopping(engine))
            return 0;
        idle_wait(&idle);
    }
    return 6;
}

static unsigned atomic_add(const uint32_t *packet)
{
    if (bits(packet[0], 25, 7) != ATOMIC_ADD_64)
        unknown_packet(packet[0]);
    uint64_t addend = (uint64_t)packet[4] << 32 | packet[3];
    __atomic_add_fetch((uint64_t *)pointer_at(&packet[1]), addend, __ATOMIC_ACQ_REL);
    return 8;
}

static unsigned timestamp(const uint32_t *packet)
{
    __atomic_store_n((uint64_t *)pointer_at(&packet[1]), monotonic_ns(), __ATOMIC_RELEASE);
    return 3;
}

/* The number of words of the executed packet, 0 when it was not executed. */
static unsigned execute(struct engine *engine, const uint32_t *packet)
{
    switch (bits(packet[0], 0, 8)) {
    case OP_NOP: return 1 + bits(packet[0], 16, 14);
    case OP_COPY: return copy(packet);
    case OP_FENCE: return fence(packet);
    case OP_TRAP: event_raise(bits(packet[1], 0, 28)); return 2;
    case OP_POLL: return poll_memory(engine, packet);
    case OP_ATOMIC: return atomic_add(packet);
    case OP_FILL: return fill(packet);
    case OP_TIMESTAMP: return timestamp(packet);
    case OP_CACHE: return 5;
    }
    unknown_packet(packet[0]);
    return 0;
}

bool sdma_step(struct engine *engine)
{
    uint64_t read_at = atomic_load_explicit(engine->read_index, memory_order_relaxed);
    uint64_t written_to = atomic_load_explicit(engine->write_index, memory_order_acquire);
    if (read_at == written_to)
        return false;
    unsigned word_count = execute(engine, (const uint32_t *)(engine->ring + read_at % engine->ring_bytes));
    if (word_count == 0)
        return false;
    atomic_store_explicit(engine->read_index, read_at + word_count * sizeof(uint32_t), memory_order_release);
    return true;
}
