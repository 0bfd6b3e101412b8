// A stand-in for the kernel's GPU drivers: what its parts share.
#ifndef SIM_KERNEL_H
#define SIM_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_MAX_CARDS 4
#define SIM_MAX_OBJECTS 4096

struct settings {
    int cards;              // SIM_DEVICES
    uint64_t capacity;      // SIM_CAPACITY: device memory of each card, in bytes
    uint64_t host_capacity; // SIM_GTT: host memory that may be given to cards, in bytes
    long interrupt_every;   // SIM_INTERRUPT_EVERY: each n-th KFD request is interrupted; 0 is never
    char root[512];         // SIM_ROOT: device files lie below this directory
    char log[512];          // SIM_LOG
};

const struct settings *settings(void);

// Whose memory a piece is.
enum place { DEVICE, HOST, REGISTERED, NOWHERE };

// A piece of memory, or another object of a driver, that lives.
struct piece {
    bool lives;
    enum place place;
    int card;
    uint64_t key;    // handle as the driver tells it
    uint64_t held;   // bytes that count
    uint64_t parent; // object that it goes with (NVIDIA)
    uint64_t memory; // number of the memory that it is a handle of (NVIDIA)
    uint64_t offset; // where it can be mapped (KFD, DRM)
    uint64_t size;   // bytes that lie there; 0 for another buffer's (KFD, DRM)
};

// Everything below wants the one lock, which entry.c takes around a request.
uint64_t device_used(int card);

// A free piece, with its memory counted; NULL when there is none left. `*index` is the lowest free number from `first` on.
struct piece *piece_new(struct piece *table, int first, enum place place, int card, uint64_t held, int *index);
void piece_drop(struct piece *piece);

// One line of the log.
struct line {
    const char *event, *api, *kind;
    int card;
    uint64_t address, requested, held;
    int status;
};
void log_line(const struct line *line);

// Whose device file a descriptor or a file is, and the number of its card.
enum driver { NO_DRIVER, KFD, DRM, NVIDIA, UVM };
struct stat;
enum driver driver_of(int fd, int *card);
enum driver driver_of_file(const struct stat *file, int *card);

// Copies from and to the caller, as a kernel does: false for a bad pointer.
bool copy_in(void *to, uint64_t from, size_t size);
bool copy_out(uint64_t to, const void *from, size_t size);

// The drivers: 0 or a negative errno. `payload` has `size` bytes of the caller's, zeros up to 256 behind them.
int kfd_request(unsigned number, size_t size, unsigned char *payload);
int drm_request(int card, int fd, unsigned number, size_t size, unsigned char *payload);
int nvidia_request(unsigned number, size_t size, unsigned char *payload);
int uvm_request(unsigned number, uint64_t argument);

// What stands behind a card. In bare.c nothing does: the zoo's programs only make requests, and their addresses lead
// nowhere. In ../amdgpu it is memory, events and engines, so that ROCm can live on it.
enum { MEMORY_VRAM = 1, MEMORY_GTT = 2, MEMORY_USERPTR = 4, MEMORY_DOORBELL = 8, MEMORY_MMIO = 16 };
// New memory of the KFD's or the DRM's; `address` is where the card sees it, `host` where registered memory lies. Where it can be mapped.
uint64_t behind_memory(uint64_t size, uint32_t flags, uint64_t address, uint64_t host);
void behind_free(const struct piece *piece);
// A queue that has got its number: fills in what the answer lacks. 0 or a negative errno.
int behind_queue(unsigned char *payload, int index);
void behind_queue_gone(int index);
// A handle of a render node's was imported from this descriptor: where its buffer can be mapped, 0 for none of ours.
uint64_t behind_import(int dmabuf);
// The KFD imported it: the card sees the buffer at `address`, where the processor need not.
uint64_t behind_import_at(int dmabuf, uint64_t address);
// All requests without a case of their own.
int behind_kfd(unsigned number, size_t size, unsigned char *payload);
int behind_drm(int card, unsigned number, size_t size, unsigned char *payload);
// Requests that may sleep, so that they can't have the one lock; false for all others.
bool behind_sleeps(unsigned number, uint64_t argument, int *result);
// What cards hold has changed.
void behind_changed(int card);

// KFD memory by its handle; NULL for none.
struct piece *kfd_memory(uint64_t handle);
// What the KFD counts for this process: not what it has by the DRM. False as long as it never asked the KFD for anything.
bool kfd_counts(int card, uint64_t *bytes);
uint64_t host_used_bytes(void);

// Whether this object, client and handle, is there.
bool nvidia_has(uint64_t key);

uint32_t kfd_gpu_id(int card);

static inline uint32_t get32(const unsigned char *at) { uint32_t v; __builtin_memcpy(&v, at, 4); return v; }
static inline uint64_t get64(const unsigned char *at) { uint64_t v; __builtin_memcpy(&v, at, 8); return v; }
static inline void put32(unsigned char *at, uint32_t v) { __builtin_memcpy(at, &v, 4); }
static inline void put64(unsigned char *at, uint64_t v) { __builtin_memcpy(at, &v, 8); }

#endif
