#include "device.h"

#include <pthread.h>
#include <sys/mman.h>

#include "config.h"
#include "status.h"

#ifndef MAP_32BIT
#define MAP_32BIT 0  // another processor: SIM_LOW_ADDRESSES does nothing
#endif

struct device {
    uintptr_t base;
    size_t span;
    size_t used;
    size_t hidden;  // by the runtime, beyond what it is set to hold from the beginning
    struct sim_block *blocks;  // in address order
};

static struct device devices[SIM_MAX_DEVICES];
static struct sim_block *spare_blocks;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

void sim_lock(sigset_t *saved) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, saved);
    pthread_mutex_lock(&mutex);
}

void sim_unlock(const sigset_t *saved) {
    pthread_mutex_unlock(&mutex);
    pthread_sigmask(SIG_SETMASK, saved, NULL);
}

static sigset_t mask_at_fork;  // guarded by the lock
static void lock_before_fork(void) {
    sigset_t saved;
    sim_lock(&saved);
    mask_at_fork = saved;
}
static void unlock_after_fork(void) {
    sigset_t saved = mask_at_fork;
    sim_unlock(&saved);
}

// A child forked while another thread holds the lock would find it held for ever.
__attribute__((constructor)) static void survive_fork(void) {
    pthread_atfork(lock_before_fork, unlock_after_fork, unlock_after_fork);
}

// Own slabs instead of malloc: a signal handler may have interrupted malloc.
static void refill_spare_blocks(void) {
    size_t size = 1 << 16;
    struct sim_block *slab = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (slab == MAP_FAILED) return;
    for (size_t i = 0; i < size / sizeof *slab; i++) {
        slab[i].next = spare_blocks;
        spare_blocks = &slab[i];
    }
}

struct sim_block *sim_block_new(void) {
    if (!spare_blocks) refill_spare_blocks();
    struct sim_block *block = spare_blocks;
    if (!block) return NULL;
    spare_blocks = block->next;
    *block = (struct sim_block){0};
    return block;
}

void sim_block_delete(struct sim_block *block) {
    block->next = spare_blocks;
    spare_blocks = block;
}

size_t sim_round_up(size_t size, size_t unit) {
    size_t rest = size % unit;
    if (rest == 0) return size;
    return size > SIZE_MAX - (unit - rest) ? SIZE_MAX : size + (unit - rest);
}

// Four times the capacity in addresses, so that holes between blocks never make an allocation fail that the capacity
// allows: on real cards placement is scattered. Less where the machine refuses so much.
static void reserve_addresses(struct device *device) {
    size_t capacity = sim_round_up(sim_config()->capacity, sim_config()->granularity);
    size_t alignment = sim_config()->alignment;
    for (size_t times = 4; times > 0; times /= 2) {
        size_t span = capacity * times + alignment;
        int low = sim_config()->low_addresses ? MAP_32BIT : 0;
        void *base =
            mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | low, -1, 0);
        if (base == MAP_FAILED) continue;
        // Neither core files nor huge pages should turn the empty range into real memory.
        madvise(base, span, MADV_DONTDUMP);
        madvise(base, span, MADV_NOHUGEPAGE);
        device->base = sim_round_up((uintptr_t)base, alignment);
        device->span = capacity * times;
        return;
    }
}

static size_t held_by_others(int index) { return sim_config()->limits.others + sim_shared_by_others(index); }

// What of a device this process does not hold as blocks of its own.
static size_t held_besides(int index) {
    return held_by_others(index) + sim_config()->limits.hidden + devices[index].hidden;
}

size_t sim_device_free(int index) {
    size_t capacity = sim_config()->capacity, taken = devices[index].used + held_besides(index);
    return taken < capacity ? capacity - taken : 0;
}

static size_t obtainable(int index) {
    size_t left = sim_device_free(index), kept_back = sim_config()->card.kept_back;
    return left > kept_back ? left - kept_back : 0;
}

size_t sim_device_total(void) {
    size_t reported = sim_config()->limits.reported_capacity;
    return reported ? reported : sim_config()->capacity;
}

static void changed(int index) {
    size_t own = devices[index].used + sim_config()->limits.hidden + devices[index].hidden;
    sim_shared_update(index, own);
    sim_sysfs_update(index, own, own + held_by_others(index));
}

static int is_refused(const struct device *device, size_t held) {
    const struct sim_limits *limits = &sim_config()->limits;
    if (limits->largest_request && held > limits->largest_request) return 1;
    return limits->process && (held > limits->process || device->used > limits->process - held);
}

int sim_device_charge(int index, size_t held) {
    if (held > obtainable(index) || is_refused(&devices[index], held)) return 0;
    devices[index].used += held;
    changed(index);
    return 1;
}

void sim_device_refund(int index, size_t held) {
    devices[index].used -= held;
    changed(index);
}

void sim_device_hide(int index, size_t size) {
    devices[index].hidden += size;
    changed(index);
}

int sim_device_hide_if_free(int index, size_t size) {
    if (size > obtainable(index)) return 0;
    if (size) sim_device_hide(index, size);
    return 1;
}

void sim_device_unhide(int index, size_t size) {
    if (!size) return;
    devices[index].hidden -= size;
    changed(index);
}

// As the real driver's, a mapping that can't be merged with its neighbours.
static int map_for_real(struct sim_block *block) {
    static unsigned count;
    if (!sim_config()->limits.real_mappings && !sim_config()->limits.real_addresses) return 1;
    int protection = count++ % 2 ? PROT_READ : PROT_NONE;
    block->mapped = sim_config()->limits.real_addresses ? block->held : 4096;
    block->mapping = mmap(NULL, block->mapped, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block->mapping == MAP_FAILED) block->mapping = NULL;
    return block->mapping != NULL;
}

// First fit: answers the link behind which a block of this size goes, and its address.
static struct sim_block **find_hole(struct device *device, size_t held, uintptr_t *address) {
    struct sim_block **link = &device->blocks;
    uintptr_t hole = device->base;
    while (*link && ((*link)->address < hole || (*link)->address - hole < held)) {
        hole = sim_round_up((*link)->address + (*link)->held, sim_config()->alignment);
        link = &(*link)->next;
    }
    *address = hole;
    uintptr_t end = device->base + device->span;
    return hole > end || end - hole < held ? NULL : link;
}

static size_t managed_bytes;  // of managed memory that lies in RAM; guarded by the lock

static int lies_in_ram(enum sim_kind kind) { return kind == SIM_KIND_MANAGED && sim_config()->limits.managed; }

static int charge_for(int index, enum sim_kind kind, size_t held) {
    if (kind == SIM_KIND_POOL_IN_RAM) return 1;
    if (!lies_in_ram(kind)) return sim_device_charge(index, held);
    size_t limit = sim_config()->limits.managed;
    if (held > limit || managed_bytes > limit - held) return 0;
    managed_bytes += held;
    return 1;
}

static void refund_for(int index, enum sim_kind kind, size_t held) {
    if (kind == SIM_KIND_POOL_IN_RAM) return;
    if (lies_in_ram(kind)) managed_bytes -= held;
    else sim_device_refund(index, held);
}

static int waits_for_touch(enum sim_kind kind) {
    return kind == SIM_KIND_MANAGED && sim_config()->card.managed_when_touched && !lies_in_ram(kind);
}

struct place {
    struct sim_block **link;  // null: there is none
    uintptr_t address;
    size_t held, taken;  // of the block, and of the card
};

static struct place find_place(struct device *device, enum sim_kind kind, size_t requested) {
    size_t granule = sim_config()->granularity, step = sim_config()->card.step;
    int is_small = sim_pieces_suit(kind, requested), is_fine = is_small || (step && kind == SIM_KIND_POOL);
    struct place place = {.held = sim_round_up(requested, is_fine ? step : granule)};
    if (is_small) place.link = sim_pieces_find(&device->blocks, place.held, sim_thread()->owner, &place.address);
    if (place.link) return place;
    size_t room = sim_round_up(place.held, granule);
    place.link = find_hole(device, room, &place.address);
    // A pool sees to it by itself that it takes whole steps.
    place.taken = waits_for_touch(kind) ? 0 : kind == SIM_KIND_POOL ? place.held : room;
    return place;
}

struct sim_block *sim_device_take(int index, enum sim_kind kind, size_t requested) {
    struct device *device = &devices[index];
    if (!device->base) reserve_addresses(device);
    struct place place = find_place(device, kind, requested);
    if (!charge_for(index, kind, place.taken)) return NULL;
    struct sim_block *block = place.link ? sim_block_new() : NULL;
    if (!block) {
        refund_for(index, kind, place.taken);
        return NULL;
    }
    *block = (struct sim_block){.next = *place.link, .address = place.address, .requested = requested, .held = place.held,
                                .kind = kind, .device = index, .owner = sim_thread()->owner,
                                .in_piece = sim_pieces_suit(kind, requested), .untouched = waits_for_touch(kind)};
    if (!map_for_real(block)) {
        sim_block_delete(block);
        refund_for(index, kind, place.taken);
        return NULL;
    }
    *place.link = block;
    return block;
}

void sim_device_give(struct sim_block *block) {
    struct device *device = &devices[block->device];
    struct sim_block **link = &device->blocks, *before = NULL;
    while (*link != block) {
        before = *link;
        link = &before->next;
    }
    uintptr_t address;
    size_t size = sim_pieces_end(before, block, &address);
    *link = block->next;
    // The next owner finds zeroes, and the host gets its pages back.
    madvise((void *)address, size, MADV_DONTNEED);
    if (block->mapping) munmap(block->mapping, block->mapped);
    // As ROCm 7 does: the handle keeps a reference that nobody gives back (ROCm/hip#3886).
    if (block->exported && sim_config()->limits.exports_stay) devices[block->device].hidden += block->held;
    refund_for(block->device, block->kind, block->untouched ? 0 : size);
    sim_block_delete(block);
}

// Where the card has no room, it stays where it is.
void sim_device_touch(uintptr_t address) {
    struct sim_block *block = sim_device_find_containing(address);
    if (block && block->untouched && sim_device_charge(block->device, block->held)) block->untouched = 0;
}

struct sim_block *sim_device_find_containing(uintptr_t address) {
    for (int i = 0; i < sim_config()->devices; i++) {
        if (address - devices[i].base >= devices[i].span) continue;
        for (struct sim_block *block = devices[i].blocks; block; block = block->next)
            if (address - block->address < block->held) return block;
    }
    return NULL;
}

struct sim_block *sim_device_find(uintptr_t address) {
    struct sim_block *block = sim_device_find_containing(address);
    return block && block->address == address ? block : NULL;
}

struct sim_block *sim_device_first(int device) { return devices[device].blocks; }

size_t sim_device_used(int device) { return devices[device].used; }
