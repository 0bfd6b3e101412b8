// The KFD's requests that are neither memory nor queues: what a process sees of its cards.
#include <errno.h>
#include <stdlib.h>

#include "../engine/engine.h"
#include "amdgpu.h"

// Where the flat address space has windows to local memory, and where buffers may lie.
#define LDS_BASE ((uint64_t)1 << 48)
#define SCRATCH_BASE ((uint64_t)2 << 48)
#define WINDOW_BYTES ((uint64_t)4 << 30)
#define BUFFERS_BASE ((uint64_t)4096)
#define BUFFERS_LIMIT (((uint64_t)1 << 47) - 1)

const struct chip *chip(void) {
    static const struct chip *chip;
    if (!chip) {
        const char *name = getenv("SIM_GFX");
        chip = chip_named(name ? name : "gfx1030");
        if (!chip) abort();
    }
    return chip;
}

// {u64 array, u32 count}: struct kfd_process_device_apertures each. Asked for none, it says how many there are.
static int apertures(unsigned char *payload) {
    uint32_t room = get32(payload + 8), count = (uint32_t)settings()->cards;
    put32(payload + 8, count);
    for (uint32_t card = 0; card < count && card < room; card++) {
        uint64_t entry[7] = {LDS_BASE, LDS_BASE + WINDOW_BYTES - 1, SCRATCH_BASE, SCRATCH_BASE + WINDOW_BYTES - 1,
                             BUFFERS_BASE, BUFFERS_LIMIT, kfd_gpu_id((int)card)};
        if (!copy_out(get64(payload) + card * sizeof entry, entry, sizeof entry)) return -EFAULT;
    }
    return 0;
}

// One clock for all: the engines stamp their work with the same one.
static int clocks(unsigned char *payload) {
    uint64_t now_ns = monotonic_ns();
    for (int i = 0; i < 3; i++) put64(payload + 8 * i, now_ns);
    put64(payload + 24, 1000000000);
    return 0;
}

static int tile_config(unsigned char *payload) {
    put32(payload + 16, 0);
    put32(payload + 20, 0);
    put32(payload + 28, chip()->gb_addr_config);
    return 0;
}

int behind_kfd(unsigned number, size_t size, unsigned char *payload) {
    (void)size;
    switch (number) {
        case 0x04: return 0; // memory policy
        case 0x05: return clocks(payload);
        case 0x07: return update_queue(payload);
        case 0x08: return create_event(payload);
        case 0x09: return event_destroy(get32(payload)) ? 0 : -EINVAL;
        case 0x0A: return event_raise(get32(payload)) ? 0 : -EINVAL;
        case 0x0B: return event_reset(get32(payload)) ? 0 : -EINVAL;
        case 0x12: return tile_config(payload);
        case 0x13: return 0; // trap handler
        case 0x14: return apertures(payload);
        case 0x1C: return describe_export(payload);
        case 0x1A: return 0; // mask of compute units
        case 0x21: return put32(payload, 0), 0; // XNACK: off
        case 0x24: return export_memory(payload);
        default: return -ENOTTY;
    }
}
