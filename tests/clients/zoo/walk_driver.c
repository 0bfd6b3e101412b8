// The walk of walk.c over the CUDA driver, whose memory belongs to contexts: threads make contexts, push, pop, choose and
// destroy them, current or not, with memory of all kinds in them; one thread alone also keeps and drops references to primary
// contexts and resets them. Pools and physical memory outlive every context. Arguments: seed, threads, steps, parts. Wants two
// devices.
// After any number of steps the account must be what the device's own log says, byte by byte.
#include "cuda_min.h"

#include <pthread.h>

int cuCtxPushCurrent_v2(void *context);
int cuDevicePrimaryCtxReset_v2(int device);
int cuMemRetainAllocationHandle(void **handle, void *pointer);

enum { DEVICES = 2, SLOTS = 48, CONTEXTS = 5, PAGES = 48, PAGE = 4096, THREADS = 8, PRIMARY = CONTEXTS };
enum sort { NOTHING, PLAIN, MANAGED, PITCHED, ARRAY, PINNED, REGISTERED, POOLED, PIECE, SORTS };

struct walker {
    unsigned long long state;
    int number, below;
    void *contexts[CONTEXTS], *primary[DEVICES];
    struct slot { enum sort sort; void *pointer, *range; size_t size; } slots[SLOTS];
};
static char pages[THREADS][PAGES * PAGE] __attribute__((aligned(4096)));
static int threads, steps;

static unsigned random_of(struct walker *walker, unsigned below) {
    walker->state = walker->state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (unsigned)(walker->state >> 33) % below;
}

static size_t size_of(struct walker *walker) {
    switch (random_of(walker, 20)) {
        case 0: return 0;
        case 1: return SIZE_MAX - random_of(walker, 2 * PAGE);
        default: return ((size_t)1 << (9 + random_of(walker, 12))) + random_of(walker, 4000);
    }
}

// Physical memory that is mapped, and whose handle is often gone at once, as llama.cpp does it.
static int take_piece(struct walker *walker, struct slot *slot) {
    AllocationProperties properties = {.type = PINNED_MEMORY, .location = {ON_DEVICE, (int)random_of(walker, DEVICES)}};
    slot->size = (1 + random_of(walker, 2)) * 2 * MiB;
    int status = cuMemCreate(&slot->pointer, slot->size, &properties, 0);
    if (status != 0) return status;
    if (cuMemAddressReserve(&slot->range, slot->size, 0, NULL, 0) != 0) exit(72);
    status = cuMemMap(slot->range, slot->size, 0, slot->pointer, 0);
    if (status != 0) exit(72);
    void *again;
    if (random_of(walker, 3) == 0) {
        if (cuMemRetainAllocationHandle(&again, slot->range) != 0 || cuMemRelease(again) != 0) exit(72);
    }
    if (random_of(walker, 2)) {
        if (cuMemRelease(slot->pointer) != 0) exit(72);
        slot->pointer = NULL;
    }
    return 0;
}

static int give_piece(struct slot *slot) {
    if (slot->pointer && cuMemRelease(slot->pointer) != 0) exit(72);
    slot->pointer = NULL;
    int status = cuMemUnmap(slot->range, slot->size);
    return status ? status : cuMemAddressFree(slot->range, slot->size);
}

static int take(struct walker *walker, struct slot *slot) {
    ArrayShape shape = {1 + random_of(walker, 900), random_of(walker, 90), 0x20, 1};
    size_t pitch, size = size_of(walker);
    slot->sort = 1 + (enum sort)random_of(walker, SORTS - 1);
    slot->pointer = NULL;
    switch (slot->sort) {
        case PLAIN: return cuMemAlloc_v2(&slot->pointer, size);
        case MANAGED: return cuMemAllocManaged(&slot->pointer, size, ATTACH_GLOBAL);
        case PITCHED: return cuMemAllocPitch_v2(&slot->pointer, &pitch, 1 + size % 9000, 1 + random_of(walker, 99), 4);
        case ARRAY: return cuArrayCreate_v2(&slot->pointer, &shape);
        case PINNED: return random_of(walker, 2) ? cuMemHostAlloc(&slot->pointer, size, 0) : cuMemAllocHost_v2(&slot->pointer, size);
        case REGISTERED:
            slot->pointer = pages[walker->number] + random_of(walker, PAGES - 6) * PAGE;
            return cuMemHostRegister_v2(slot->pointer, (1 + random_of(walker, 6)) * PAGE, 0);
        case POOLED: return cuMemAllocAsync(&slot->pointer, size, NULL);
        default: return take_piece(walker, slot);
    }
}

static int give(struct walker *walker, struct slot *slot) {
    switch (slot->sort) {
        case ARRAY: return cuArrayDestroy(slot->pointer);
        case PINNED: return cuMemFreeHost(slot->pointer);
        case REGISTERED: return cuMemHostUnregister(slot->pointer);
        case POOLED: return random_of(walker, 2) ? cuMemFreeAsync(slot->pointer, NULL) : cuMemFree_v2(slot->pointer);
        case PIECE: return give_piece(slot);
        default: return cuMemFree_v2(slot->pointer);
    }
}

static void one_block(struct walker *walker) {
    struct slot *slot = &walker->slots[random_of(walker, SLOTS)];
    if (slot->sort == NOTHING) {
        if (take(walker, slot) != 0 || (!slot->pointer && slot->sort != PIECE)) slot->sort = NOTHING;
    } else if (random_of(walker, 8) == 0) {
        (void)cuMemFree_v2((char *)slot->pointer + 8);
        (void)cuMemFreeHost(&slot);
        (void)cuMemFree_v2(NULL);
    } else if (give(walker, slot) == 0 || slot->sort != PIECE) {
        // What a context took with it is no longer there to be freed.
        slot->sort = NOTHING;
    }
}

// What is in no context: the rest of the walk finds out by itself what went with one. Alone, dangling pointers are freed later.
static void forget_bound(struct walker *walker) {
    if (threads == 1) return;
    for (int i = 0; i < SLOTS; i++) {
        struct slot *slot = &walker->slots[i];
        if (slot->sort != POOLED && slot->sort != PIECE) slot->sort = NOTHING;
    }
}

static void one_context(struct walker *walker) {
    int which = (int)random_of(walker, CONTEXTS), device = (int)random_of(walker, DEVICES);
    void **context = &walker->contexts[which];
    switch (random_of(walker, threads == 1 ? 10 : 6)) {
        case 0:
            if (!*context && walker->below < 4 && cuCtxCreate_v2(context, 0, device) == 0) walker->below++;
            break;
        case 1:
            if (*context && cuCtxDestroy_v2(*context) == 0) {
                *context = NULL;
                forget_bound(walker);
            }
            break;
        case 2: case 3:
            if (*context) (void)cuCtxSetCurrent(*context);
            break;
        case 4:
            if (*context && walker->below < 4 && cuCtxPushCurrent_v2(*context) == 0) walker->below++;
            break;
        case 5:
            if (walker->below > 1 && cuCtxPopCurrent_v2(NULL) == 0) walker->below--;
            break;
        case 6: case 7:
            if (cuDevicePrimaryCtxRetain(&walker->primary[device], device) == 0) (void)cuCtxSetCurrent(walker->primary[device]);
            break;
        case 8: (void)cuDevicePrimaryCtxRelease_v2(device); break;
        default:
            if (random_of(walker, 3) == 0) (void)cuDevicePrimaryCtxReset_v2(device);
    }
}

static void *walk(void *argument) {
    struct walker *walker = argument;
    for (int step = 0; step < steps; step++) {
        if (random_of(walker, 5) == 0) one_context(walker);
        else one_block(walker);
    }
    return NULL;
}

int main(int count, char **arguments) {
    static struct walker walkers[THREADS];
    pthread_t running[THREADS];
    if (count != 5) return 74;
    threads = atoi(arguments[2]);
    steps = atoi(arguments[3]);
    MUST(cuInit(0));
    for (int i = 0; i < threads; i++)
        walkers[i] = (struct walker){.state = strtoull(arguments[1], NULL, 10) * 1000 + (unsigned)i, .number = i};
    for (int part = 0; part < atoi(arguments[4]); part++) {
        for (int i = 1; i < threads; i++) pthread_create(&running[i], NULL, walk, &walkers[i]);
        walk(&walkers[0]);
        for (int i = 1; i < threads; i++) pthread_join(running[i], NULL);
        for (int i = 1; i < threads; i++) walkers[i].below = 0;  // new threads come with no context
    }
    printf("walked\n");
    return 0;
}
