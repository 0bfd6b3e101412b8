// Speaks to NVIDIA's unified memory without any library (open-gpu-kernel-modules uvm_ioctl.h): ranges, mappings of the
// resource manager's memory, migrations, and everything that can be wrong about a request without a size.
#define _GNU_SOURCE
#include "nvidia_requests.h"

#include <sys/mman.h>

static int control, uvm;
static uint32_t root, block;
static const uint8_t card[16] = {0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x08};
static const uint8_t host[16] = {0xa6, 0x5e, 0x0f, 0x4e, 0xd7, 0xd4, 0x7b, 0xa2, 0x50, 0x47, 0x41, 0x2c, 0x14, 0x2a, 0x77, 0x73};
#define BASE ((uint64_t)0x7f0000000000)

#define ASK(number, structure) (show(#number, ioctl(uvm, number, &(structure))), printf("status %x\n", (structure).status))

static void set_up(void) {
    control = open("/dev/nvidiactl", O_RDWR);
    uvm = open("/dev/nvidia-uvm", O_RDWR);
    struct rm_alloc client = {.class = ROOT};
    ioctl(control, REQUEST(ALLOC, client), &client);
    root = client.object;
    uint32_t number = 0;
    struct rm_alloc device = {.root = root, .parent = root, .class = DEVICE, .parameters = (uintptr_t)&number};
    ioctl(control, REQUEST(ALLOC, device), &device);
    struct memory wanted = {.size = 4 * MiB};
    struct rm_alloc memory = {.root = root, .parent = device.object, .class = LOCAL, .parameters = (uintptr_t)&wanted};
    show("memory", ioctl(control, REQUEST(ALLOC, memory), &memory));
    block = memory.object;
    uint64_t flags[2] = {0};
    show("initialize", ioctl(uvm, UVM_INITIALIZE, flags));
}

static void map(uint64_t base, uint64_t length, uint32_t memory) {
    if (uvm_driver().cards == 32) {
        struct uvm_map_32 map = {.base = base, .length = length, .offset = 65536, .count = 1, .fd = control, .client = root, .memory = memory};
        ASK(UVM_MAP_EXTERNAL_ALLOCATION, map);
    } else {
        static struct uvm_map_256 map;
        map = (struct uvm_map_256){.base = base, .length = length, .offset = 65536, .count = 1, .fd = control, .client = root, .memory = memory};
        ASK(UVM_MAP_EXTERNAL_ALLOCATION, map);
    }
}

static void pool(uint64_t base, uint64_t length) {
    if (uvm_driver().cards == 32) {
        struct uvm_pool_32 pool = {.base = base, .length = length};
        ASK(UVM_ALLOC_SEMAPHORE_POOL, pool);
    } else {
        static struct uvm_pool_256 pool;
        pool = (struct uvm_pool_256){.base = base, .length = length};
        ASK(UVM_ALLOC_SEMAPHORE_POOL, pool);
    }
}

static void drop(uint64_t base) {
    if (uvm_driver().has_length) {
        struct uvm_free_old drop = {.base = base, .length = 2 * MiB};
        ASK(UVM_FREE, drop);
    } else {
        struct uvm_free drop = {base, 0};
        ASK(UVM_FREE, drop);
    }
}

static void ranges(void) {
    struct uvm_range range = {BASE, 8 * MiB, 0};
    ASK(UVM_CREATE_EXTERNAL_RANGE, range);
    ASK(UVM_CREATE_EXTERNAL_RANGE, range);
    ASK(UVM_VALIDATE_VA_RANGE, range);
    map(BASE, 4 * MiB, block);
    map(BASE + 4 * MiB, 4 * MiB, block);
    map(BASE + 8 * MiB, 4 * MiB, block);
    map(BASE, MiB, 0x7777);
    struct uvm_on_card part = {.base = BASE, .length = MiB, .status = 9};
    memcpy(part.uuid, card, 16);
    ASK(UVM_UNMAP_EXTERNAL, part);
    part.base = 4096;
    ASK(UVM_UNMAP_EXTERNAL, part);
    struct uvm_on_card parallel = {.base = BASE + 64 * MiB, .length = 2 * MiB};
    ASK(UVM_MAP_DYNAMIC_PARALLELISM_REGION, parallel);
    struct uvm_p2p p2p = {.base = BASE + MiB, .length = MiB, .fd = control, .client = root, .memory = block};
    ASK(UVM_ALLOC_DEVICE_P2P, p2p);
    pool(BASE + 128 * MiB, 2 * MiB);
    pool(BASE + 256 * MiB, 1024 * MiB);
    pool(BASE + 256 * MiB, 3 * MiB);
    drop(BASE + 128 * MiB);
    drop(BASE);
    drop(BASE);
}

static void move(const uint8_t *where, uint64_t length) {
    if (uvm_driver().has_node) {
        struct uvm_prefer_new prefer = {.base = BASE, .length = length, .node = 3};
        memcpy(prefer.uuid, where, 16);
        ASK(UVM_SET_PREFERRED_LOCATION, prefer);
    } else {
        struct uvm_prefer_old prefer = {.base = BASE, .length = length};
        memcpy(prefer.uuid, where, 16);
        ASK(UVM_SET_PREFERRED_LOCATION, prefer);
    }
    struct uvm_migrate migrate = {.base = BASE, .length = length, .node = -1};
    memcpy(migrate.uuid, where, 16);
    ASK(UVM_MIGRATE, migrate);
}

static void malformed(void) {
    static const unsigned long numbers[] = {33, 34, 42, 51, 53, 65, 66, 68, 73, 78};
    char *pages = mmap(NULL, 32768, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *end = pages + 4096;
    mprotect(end, 28672, PROT_NONE);
    int others[] = {-1, control, open("/dev/kfd", O_RDWR), open("plain", O_RDWR | O_CREAT, 0600), posix_openpt(O_RDWR | O_NOCTTY)};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        show("null", ioctl(uvm, numbers[i], NULL));
        show("nowhere", ioctl(uvm, numbers[i], (void *)8));
        show("beyond", ioctl(uvm, numbers[i], (void *)~0ul));
        show("half", ioctl(uvm, numbers[i], end - 12));
        show("forbidden", ioctl(uvm, numbers[i], end));
        show("with a letter", ioctl(uvm, numbers[i] | 'F' << 8, pages));
        show("with a size", ioctl(uvm, numbers[i] | 16ul << 16, pages));
        for (size_t j = 0; j < sizeof others / sizeof *others; j++) show("elsewhere", ioctl(others[j], numbers[i], pages));
    }
    // The last bytes that can be read are enough, whatever lies behind them.
    uint64_t *at_the_end = (uint64_t *)(end - (uvm_driver().has_length ? 24 : 16));
    *at_the_end = BASE + 64 * MiB;
    show("UVM_FREE", ioctl(uvm, UVM_FREE, at_the_end));
}

int main(void) {
    set_up();
    ranges();
    move(card, 16 * MiB);
    move(host, MiB);
    move(host, 0);
    struct uvm_migrate_group group = {.group = 5};
    memcpy(group.uuid, card, 16);
    ASK(UVM_MIGRATE_RANGE_GROUP, group);
    malformed();
    errno = 123;
    drop(BASE + 256 * MiB);
    printf("errno after a success: %d\n", errno);
    return 0;
}
