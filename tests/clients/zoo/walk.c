// A long random walk over all that takes and gives memory back, with threads, several devices, and mistakes: sizes of 0 and
// near the largest, null and interior pointers, frees by the wrong function and from another thread or device, memory that is
// freed twice, handles that are released before they are unmapped, memory mapped at two addresses, pools destroyed while they
// are in use, a fork while all that is there, and between the parts of the walk a reset of a device. Built for HIP, and with
// -DCUDA for the CUDA runtime. Arguments: seed, threads, steps of each part, parts. Wants two devices.
// After any number of steps the account must be what the device's own log says, byte by byte.
#ifdef CUDA
#include "cuda_min.h"
#define hipMalloc cudaMalloc
#define hipMallocManaged cudaMallocManaged
#define hipMallocPitch cudaMallocPitch
#define hipMallocArray cudaMallocArray
#define hipFree cudaFree
#define hipFreeArray cudaFreeArray
#define hipHostMalloc cudaHostAlloc
#define hipHostFree cudaFreeHost
#define hipHostRegister cudaHostRegister
#define hipHostUnregister cudaHostUnregister
#define hipMallocAsync cudaMallocAsync
#define hipMallocFromPoolAsync cudaMallocFromPoolAsync
#define hipFreeAsync cudaFreeAsync
#define hipMemPoolCreate cudaMemPoolCreate
#define hipMemPoolDestroy cudaMemPoolDestroy
#define hipMemPoolTrimTo cudaMemPoolTrimTo
#define hipMemPoolSetAttribute cudaMemPoolSetAttribute
#define hipSetDevice cudaSetDevice
#define hipDeviceReset cudaDeviceReset
#define hipDeviceSynchronize cudaDeviceSynchronize
#define hipIpcGetMemHandle cudaIpcGetMemHandle
#define hipChannelFormatDesc cudaChannelFormatDesc
#define hipMemPoolProps PoolProperties
int cudaMemPoolTrimTo(void *pool, size_t keep);
int cudaMemPoolSetAttribute(void *pool, int attribute, void *value);
typedef int hipError_t;
#else
#include "hip_min.h"
hipError_t hipMemPoolTrimTo(void *pool, size_t keep);
hipError_t hipMemPoolSetAttribute(void *pool, int attribute, void *value);
#endif
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct { char bytes[64]; } ipc_handle;
hipError_t hipIpcGetMemHandle(ipc_handle *handle, void *pointer);

enum { DEVICES = 2, SLOTS = 96, PAGES = 64, POOLS = 4, PIECES = 8, PAGE = 4096, THREADS = 8 };
enum sort { NOTHING, PLAIN, MANAGED, PITCHED, ARRAY, PINNED, REGISTERED, POOLED, SORTS };

struct slot { enum sort sort; void *pointer; };
static struct slot slots[THREADS][SLOTS];
static pthread_mutex_t doors[THREADS] = {[0 ... THREADS - 1] = PTHREAD_MUTEX_INITIALIZER};
static char pages[THREADS][PAGES * PAGE] __attribute__((aligned(4096)));
static int threads, steps;

struct walker {
    unsigned long long state;
    int number;
    void *pools[POOLS];
};

static unsigned random_of(struct walker *walker, unsigned below) {
    walker->state = walker->state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (unsigned)(walker->state >> 33) % below;
}

static size_t size_of(struct walker *walker) {
    switch (random_of(walker, 24)) {
        case 0: return 0;
        case 1: return SIZE_MAX - random_of(walker, 3 * PAGE);
        case 2: return (size_t)1 << (40 + random_of(walker, 24));
        case 3: return 1 + random_of(walker, 300);
        default: return ((size_t)1 << (10 + random_of(walker, 12))) + random_of(walker, 5000);
    }
}

static hipError_t take(struct walker *walker, struct slot *slot) {
    hipChannelFormatDesc channels = {32, 0, 0, 0, 2};
    size_t pitch, size = size_of(walker);
    unsigned page;
    slot->sort = 1 + (enum sort)random_of(walker, SORTS - 1);
    slot->pointer = NULL;
    switch (slot->sort) {
        case PLAIN: return hipMalloc(&slot->pointer, size);
        case MANAGED: return hipMallocManaged(&slot->pointer, size, 1);
        case PITCHED: return hipMallocPitch(&slot->pointer, &pitch, size % 9000, random_of(walker, 200));
        case ARRAY: return hipMallocArray(&slot->pointer, &channels, 1 + size % 900, random_of(walker, 100), 0);
        case PINNED: return hipHostMalloc(&slot->pointer, size, 0);
        case REGISTERED:
            // Ranges that overlap, and some that begin where another one does.
            page = random_of(walker, PAGES - 8);
            slot->pointer = pages[walker->number] + page * PAGE;
            return hipHostRegister(slot->pointer, (1 + random_of(walker, 8)) * PAGE - random_of(walker, 2) * 100, 0);
        default:
            page = random_of(walker, POOLS + 1);
            if (page == POOLS || !walker->pools[page]) return hipMallocAsync(&slot->pointer, size, NULL);
            return hipMallocFromPoolAsync(&slot->pointer, size, walker->pools[page], NULL);
    }
}

static hipError_t give(struct walker *walker, enum sort sort, void *pointer) {
    switch (sort) {
        case ARRAY: return hipFreeArray(pointer);
        case PINNED: return hipHostFree(pointer);
        case REGISTERED: return hipHostUnregister(pointer);
        case POOLED: return random_of(walker, 3) ? hipFreeAsync(pointer, NULL) : hipFree(pointer);
        default: return hipFree(pointer);
    }
}

// By which function, and of what, nobody should.
static void mistake(struct walker *walker, const struct slot *slot) {
    enum sort wrong = 1 + (enum sort)random_of(walker, SORTS - 1);
    char *inside = (char *)slot->pointer + 1 + random_of(walker, 64);
    switch (random_of(walker, 4)) {
        case 0: (void)give(walker, wrong, NULL); break;
        case 1: (void)give(walker, wrong, &wrong); break;
        case 2:
            if (slot->sort != NOTHING && slot->sort != ARRAY && slot->pointer) (void)give(walker, slot->sort, inside);
            break;
        default: (void)hipSetDevice(DEVICES + (int)random_of(walker, 3));
    }
}

static void one_block(struct walker *walker) {
    int whose = (int)random_of(walker, (unsigned)threads);
    struct slot *slot = &slots[whose][random_of(walker, SLOTS)];
    ipc_handle handle;
    pthread_mutex_lock(&doors[whose]);
    if (slot->sort == NOTHING) {
        if (take(walker, slot) != 0 || !slot->pointer) slot->sort = NOTHING;
    } else if (random_of(walker, 6) == 0) {
        mistake(walker, slot);
    } else if (random_of(walker, 8) == 0) {
        (void)hipIpcGetMemHandle(&handle, slot->pointer);
    } else if (give(walker, slot->sort, slot->pointer) == 0) {
        struct slot gone = *slot;
        slot->sort = NOTHING;
        // With one thread nobody can have the address by now.
        if (threads == 1 && random_of(walker, 4) == 0) (void)give(walker, gone.sort, gone.pointer);
    }
    pthread_mutex_unlock(&doors[whose]);
}

static void one_pool(struct walker *walker) {
    void **pool = &walker->pools[random_of(walker, POOLS)];
    uint64_t threshold = random_of(walker, 2) ? 64 * MiB : 0;
    hipMemPoolProps properties = {1, 0, {1, (int)random_of(walker, DEVICES + 1)}, NULL, 0, {0}};
    if (!*pool) {
        if (random_of(walker, 2) && hipMemPoolCreate(pool, &properties) != 0) *pool = NULL;
        return;
    }
    switch (random_of(walker, 5)) {
        case 0:
            if (hipMemPoolDestroy(*pool) == 0) *pool = NULL;
            break;
        case 1: (void)hipMemPoolTrimTo(*pool, random_of(walker, 2) * MiB); break;
        case 2: (void)hipMemPoolSetAttribute(*pool, 4, &threshold); break;
        default: (void)hipDeviceSynchronize();
    }
}

#ifndef CUDA
hipError_t hipMemRetainAllocationHandle(void **handle, void *pointer);

// Virtual memory of one walker: pieces of physical memory, mapped at no, one or two addresses.
static void one_piece(struct walker *walker) {
    static struct piece { void *range[2], *handle; int mapped[2], held; size_t size; } all[THREADS][PIECES];
    struct piece *piece = &all[walker->number][random_of(walker, PIECES)];
    hipMemAllocationProp properties = {.type = 1, .location = {1, (int)random_of(walker, DEVICES)}};
    int side = (int)random_of(walker, 2);
    void *again;
    if (!piece->held && !piece->mapped[0] && !piece->mapped[1]) {
        size_t granule = 2 * MiB;
        for (int i = 0; i < 2; i++)
            if (piece->range[i] && hipMemAddressFree(piece->range[i], piece->size) == 0) piece->range[i] = NULL;
        if (piece->range[0] || piece->range[1]) return;
        piece->size = (1 + random_of(walker, 3)) * granule;
        (void)hipMemCreate(&again, piece->size + 1, &properties, 0);
        (void)hipMemCreate(&again, (size_t)1 << 46, &properties, 0);
        if (hipMemCreate(&piece->handle, piece->size, &properties, 0) != 0) return;
        piece->held = 1;
        for (int i = 0; i < 2; i++)
            if (hipMemAddressReserve(&piece->range[i], piece->size, 0, NULL, 0) != 0) exit(72);
        return;
    }
    switch (random_of(walker, 7)) {
        case 0: case 1:
            if (piece->held && hipMemRelease(piece->handle) == 0) piece->held--;
            break;
        case 2:
            if (piece->mapped[side] && hipMemRetainAllocationHandle(&again, piece->range[side]) == 0) piece->held++;
            break;
        case 3: (void)hipMemMap(piece->range[side], piece->size + 2 * MiB, 0, piece->handle, 0); break;
        case 4: (void)hipMemUnmap((char *)piece->range[side] + PAGE, PAGE); break;
        case 5:
            if (piece->mapped[side] && hipMemUnmap(piece->range[side], piece->size) == 0) piece->mapped[side] = 0;
            break;
        default:
            if (piece->held && hipMemMap(piece->range[side], piece->size, 0, piece->handle, 0) == 0) piece->mapped[side] = 1;
    }
}
#else
static void one_piece(struct walker *walker) { one_pool(walker); }
#endif

static void *walk(void *argument) {
    struct walker *walker = argument;
    for (int step = 0; step < steps; step++) {
        if (random_of(walker, 12) == 0) (void)hipSetDevice((int)random_of(walker, DEVICES));
        switch (random_of(walker, 8)) {
            case 0: one_pool(walker); break;
            case 1: one_piece(walker); break;
            default: one_block(walker);
        }
    }
    return NULL;
}

// What a child does is none of its parent's; it leaves without a word.
static void fork_once(void) {
    pid_t child = fork();
    if (child == 0) _exit(0);
    waitpid(child, NULL, 0);
}

// Memory that a reset took is nobody's any more; what it did not take, its free still gives back. With several threads that is tried
// at once: later, an address that was taken may be another thread's new block, and a free of that races with the call that gives it.
static void reset(struct walker *walker) {
    if (hipSetDevice((int)random_of(walker, DEVICES)) != 0 || hipDeviceReset() != 0) exit(73);
    for (int whose = 0; threads > 1 && whose < threads; whose++)
        for (struct slot *slot = slots[whose]; slot < slots[whose] + SLOTS; slot++) {
            if (slot->sort != NOTHING) (void)give(walker, slot->sort, slot->pointer);
            slot->sort = NOTHING;
        }
}

int main(int count, char **arguments) {
    static struct walker walkers[THREADS];
    pthread_t running[THREADS];
    if (count != 5) return 74;
    threads = atoi(arguments[2]);
    steps = atoi(arguments[3]);
    for (int i = 0; i < threads; i++)
        walkers[i] = (struct walker){.state = strtoull(arguments[1], NULL, 10) * 1000 + (unsigned)i, .number = i};
    for (int part = 0; part < atoi(arguments[4]); part++) {
        if (part) {
            fork_once();
            reset(&walkers[0]);
        }
        for (int i = 1; i < threads; i++) pthread_create(&running[i], NULL, walk, &walkers[i]);
        walk(&walkers[0]);
        for (int i = 1; i < threads; i++) pthread_join(running[i], NULL);
    }
    printf("walked\n");
    return 0;
}
