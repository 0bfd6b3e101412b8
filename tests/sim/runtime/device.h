// The device model: capacity, granularity, and address ranges handed out first fit.
//
// All of it stands behind one lock, which also holds signals back: a handler that allocates while its thread is inside
// this library would otherwise wait for itself.
#ifndef SIM_DEVICE_H
#define SIM_DEVICE_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

enum sim_kind {
    SIM_KIND_DEVICE,
    SIM_KIND_MANAGED,
    SIM_KIND_ARRAY,
    SIM_KIND_POOL,
    SIM_KIND_POOL_IN_RAM,  // of a pool of host memory or of managed memory: it takes nothing of the card
    SIM_KIND_PHYSICAL,    // VMM handle: holds memory, has no address of its own
    SIM_KIND_PHYSICAL_IN_RAM,  // the same of host memory: it takes nothing of the card
    SIM_KIND_PINNED,      // host memory of the runtime
    SIM_KIND_REGISTERED,  // host memory of the program
    SIM_KIND_RESERVED,    // address range without memory
    SIM_KIND_CONTEXT,     // what a CUDA context takes for itself
    SIM_KIND_GRAPH,       // memory node of a graph
    SIM_KIND_CODE,        // code objects
    SIM_KIND_IMPORTED,    // address range onto memory that somebody else owns
    SIM_KIND_NONE,        // no memory at all
};

struct sim_pool;

struct sim_block {
    struct sim_block *next;
    uintptr_t address;  // a VMM handle's is the block itself
    size_t requested, held;
    enum sim_kind kind;
    int device;
    void *owner;             // CUDA context whose end is the end of this block
    struct sim_pool *pool;   // kind POOL: where the memory goes back to
    enum { IN_USE, RELEASED, WAITS } released;  // kind POOL: whether it waits in the pool for its next use, or for its free
    int references, mappings;  // kind PHYSICAL: memory lives until both are 0
    int file;                // kind PHYSICAL: descriptor + 1
    void *mapping;           // SIM_REAL_MAPPINGS, SIM_REAL_ADDRESSES
    size_t mapped;           // its size
    int exported;            // a handle for other processes was made of it
    int in_piece;            // kind DEVICE: shares its granule
    int untouched;           // kind MANAGED: takes nothing of the card yet
};

void sim_lock(sigset_t *saved);
void sim_unlock(const sigset_t *saved);

// Everything below wants the lock held.

struct sim_block *sim_block_new(void);
void sim_block_delete(struct sim_block *block);

size_t sim_round_up(size_t size, size_t unit);  // SIZE_MAX where the sum would not fit

// Memory with an address: null where it does not fit.
struct sim_block *sim_device_take(int device, enum sim_kind kind, size_t requested);
void sim_device_give(struct sim_block *block);
// Memory without an address, for VMM handles: zero where it does not fit.
int sim_device_charge(int device, size_t held);
void sim_device_refund(int device, size_t held);

struct sim_block *sim_device_find(uintptr_t address);      // the block that begins there, or null
struct sim_block *sim_device_find_containing(uintptr_t address);
struct sim_block *sim_device_first(int device);            // head of the list, in address order
size_t sim_device_used(int device);
size_t sim_device_free(int device);  // what really can be had
size_t sim_device_total(void);       // what is said to be its size
void sim_device_hide(int device, size_t size);  // the runtime takes more for itself, whether there is so much or not
int sim_device_hide_if_free(int device, size_t size);  // zero where it does not fit
void sim_device_unhide(int device, size_t size);
void sim_device_touch(uintptr_t address);  // the card works on what lies there: managed memory comes to it

// pieces.c: small blocks of a real card share granules, which are there as long as one of their blocks is
int sim_pieces_suit(enum sim_kind kind, size_t requested);
// Answers the link behind which the block goes, and its address; null where no piece has room.
struct sim_block **sim_pieces_find(struct sim_block **blocks, size_t held, const void *owner, uintptr_t *address);
// Where the memory begins that goes with this block, which stands behind that one in the list, and its size.
size_t sim_pieces_end(const struct sim_block *before, const struct sim_block *block, uintptr_t *address);

// shared.c
void sim_shared_join(void);  // once, with the settings read
void sim_shared_update(int device, size_t held);  // by this process
size_t sim_shared_by_others(int device);

// sysfs.c
void sim_sysfs_update(int device, size_t process, size_t all);  // what KFD and the card say is in use

#endif
