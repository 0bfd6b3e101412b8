// The walk of walk.c over HSA: pools and regions of two cards and of the host, memory that is pinned once or several times,
// virtual memory that is mapped twice, released before it is unmapped and asked for by its address, frees of null, of interior
// pointers, of what was freed; and now and then the last shutdown, which gives nothing back. Arguments: seed, threads, steps,
// parts. Wants two GPUs.
// After any number of steps the account must be what the device's own log says, byte by byte.
#include "hsa_min.h"

#include <pthread.h>

enum { SLOTS = 64, PIECES = 6, PLACES = 12, THREADS = 8, PAGE = 4096, BEGINNINGS = 2 };

struct slot { void *pointer; };
static struct slot slots[THREADS][SLOTS];
static pthread_mutex_t doors[THREADS] = {[0 ... THREADS - 1] = PTHREAD_MUTEX_INITIALIZER};
static char pages[THREADS][64 * PAGE] __attribute__((aligned(4096)));
static agent agents[3];
static pool pools[3];
static handle regions[3];
static int threads, steps, agents_seen;

struct walker { unsigned long long state; int number; };

static unsigned random_of(struct walker *walker, unsigned below) {
    walker->state = walker->state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (unsigned)(walker->state >> 33) % below;
}

static int each_pool(pool found, void *at) { *(pool *)at = found; return 0; }
static int each_agent(agent found, void *unused) {
    (void)unused;
    if (agents_seen < 3) agents[agents_seen++] = found;
    return 0;
}

static void begin(void) {
    for (int i = 0; i < BEGINNINGS; i++)
        if (hsa_init() != 0) exit(70);
    agents_seen = 0;
    hsa_iterate_agents(each_agent, NULL);
    for (int i = 0; i < 3; i++) {
        hsa_amd_agent_iterate_memory_pools(agents[i], each_pool, &pools[i]);
        hsa_agent_iterate_regions(agents[i], each_pool, &regions[i]);
    }
}

static size_t size_of(struct walker *walker) {
    switch (random_of(walker, 16)) {
        case 0: return 0;
        case 1: return SIZE_MAX - random_of(walker, 2 * PAGE);
        default: return ((size_t)1 << (8 + random_of(walker, 14))) + random_of(walker, 3000);
    }
}

static void one_block(struct walker *walker) {
    int whose = (int)random_of(walker, (unsigned)threads);
    struct slot *slot = &slots[whose][random_of(walker, SLOTS)];
    pthread_mutex_lock(&doors[whose]);
    if (!slot->pointer) {
        unsigned where = random_of(walker, 3);
        size_t size = size_of(walker);
        int status = random_of(walker, 2) ? hsa_amd_memory_pool_allocate(pools[where], size, 0, &slot->pointer)
                                          : hsa_memory_allocate(regions[where], size, &slot->pointer);
        if (status != 0) slot->pointer = NULL;
    } else if (random_of(walker, 6) == 0) {
        (void)hsa_amd_memory_pool_free((char *)slot->pointer + 16);
        (void)hsa_memory_free(&whose);
        (void)hsa_amd_memory_pool_free(NULL);
    } else {
        void *gone = slot->pointer;
        int status = random_of(walker, 2) ? hsa_amd_memory_pool_free(gone) : hsa_memory_free(gone);
        if (status == 0) slot->pointer = NULL;
        if (threads == 1 && random_of(walker, 3) == 0) (void)hsa_memory_free(gone);
    }
    pthread_mutex_unlock(&doors[whose]);
}

// One walker's own pages: places that overlap, each with one size, pinned up to four times.
static void one_pin(struct walker *walker) {
    unsigned place = random_of(walker, PLACES);
    char *host = pages[walker->number] + place * 4 * PAGE;
    size_t size = (5 + place % 3) * PAGE;
    void *seen;
    switch (random_of(walker, 5)) {
        case 0: (void)hsa_memory_register(host, size); break;
        case 1: (void)hsa_amd_memory_lock(host, size, &agents[1], 1, &seen); break;
        case 2: (void)hsa_memory_deregister(host, size); break;
        case 3: (void)hsa_amd_memory_unlock(host); break;
        default: (void)hsa_amd_memory_unlock(host + 1);
    }
}

static void one_piece(struct walker *walker) {
    static struct piece { void *range[2]; handle memory; int mapped[2], held; size_t size; } all[THREADS][PIECES];
    struct piece *piece = &all[walker->number][random_of(walker, PIECES)];
    int side = (int)random_of(walker, 2);
    handle again;
    if (!piece->held && !piece->mapped[0] && !piece->mapped[1]) {
        for (int i = 0; i < 2; i++)
            if (piece->range[i] && hsa_amd_vmem_address_free(piece->range[i], piece->size) == 0) piece->range[i] = NULL;
        if (piece->range[0] || piece->range[1]) return;
        piece->size = (1 + random_of(walker, 3)) * 2 * MiB;
        if (hsa_amd_vmem_handle_create(pools[1 + random_of(walker, 2)], piece->size, 1, 0, &piece->memory) != 0) return;
        piece->held = 1;
        for (int i = 0; i < 2; i++)
            if (hsa_amd_vmem_address_reserve(&piece->range[i], piece->size, 0, 0) != 0) exit(72);
        return;
    }
    switch (random_of(walker, 6)) {
        case 0: case 1:
            if (piece->held && hsa_amd_vmem_handle_release(piece->memory) == 0) piece->held--;
            break;
        case 2:
            if (piece->mapped[side] && hsa_amd_vmem_retain_alloc_handle(&again, piece->range[side]) == 0) piece->held++;
            break;
        case 3: (void)hsa_amd_vmem_unmap((char *)piece->range[side] + PAGE, PAGE); break;
        case 4:
            if (piece->mapped[side] && hsa_amd_vmem_unmap(piece->range[side], piece->size) == 0) piece->mapped[side] = 0;
            break;
        default:
            if (piece->held && hsa_amd_vmem_map(piece->range[side], piece->size, 0, piece->memory, 0) == 0)
                piece->mapped[side] = 1;
    }
}

static void *walk(void *argument) {
    struct walker *walker = argument;
    for (int step = 0; step < steps; step++) switch (random_of(walker, 6)) {
        case 0: one_piece(walker); break;
        case 1: one_pin(walker); break;
        default: one_block(walker);
    }
    return NULL;
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
        begin();
        for (int i = 1; i < threads; i++) pthread_create(&running[i], NULL, walk, &walkers[i]);
        walk(&walkers[0]);
        for (int i = 1; i < threads; i++) pthread_join(running[i], NULL);
        for (int i = 0; i < BEGINNINGS; i++)
            if (hsa_shut_down() != 0) return 75;
        if (hsa_shut_down() == 0) return 76;
    }
    printf("walked\n");
    return 0;
}
