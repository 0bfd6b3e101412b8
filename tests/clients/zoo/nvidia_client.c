// Speaks to NVIDIA's resource manager without any library (open-gpu-kernel-modules nv_escape.h, nvos.h): a client, two
// devices, memory of all classes in each form of the request, and frees that take children along.
#define _GNU_SOURCE
#include "nvidia_requests.h"

static int control;
static uint32_t root;

static uint32_t alloc(uint32_t parent, uint32_t class, void *parameters, size_t size) {
    struct rm_alloc alloc = {.root = root, .parent = parent, .class = class, .parameters = (uintptr_t)parameters, .size = (uint32_t)size};
    int result = ioctl(control, REQUEST(ALLOC, alloc), &alloc);
    printf("class %x: %d, status %x\n", class, result, alloc.status);
    return alloc.status ? 0 : alloc.object;
}

static uint32_t memory(uint32_t device, uint32_t class, uint64_t size, uint32_t attr) {
    struct memory wanted = {.size = size, .attr = attr};
    uint32_t object = alloc(device, class, &wanted, sizeof wanted);
    printf("%llu bytes\n", (unsigned long long)wanted.size);
    return object;
}

static void drop(uint32_t parent, uint32_t object) {
    struct rm_free drop = {root, parent, object, 0};
    int result = ioctl(control, REQUEST(FREE, drop), &drop);
    printf("free: %d, status %x\n", result, drop.status);
}

static void other_forms(uint32_t device) {
    struct memory wanted = {.size = 3 * MiB};
    struct rm_alloc_short old = {.root = root, .parent = device, .class = LOCAL, .parameters = (uintptr_t)&wanted};
    show("the old form", ioctl(control, REQUEST(ALLOC, old), &old));
    struct rm_alloc inner = {.root = root, .parent = device, .class = LOCAL, .parameters = (uintptr_t)&wanted};
    struct transfer carried = {ALLOC, sizeof inner, (uintptr_t)&inner};
    show("carried", ioctl(control, REQUEST(TRANSFER, carried), &carried));
    drop(device, old.object);
    drop(device, inner.object);
    struct heap heap = {.root = root, .parent = device, .function = 2, .size = 5 * MiB + 1};
    show("heap", ioctl(control, REQUEST(HEAP, heap), &heap));
    heap.function = 3;
    show("heap, free", ioctl(control, REQUEST(HEAP, heap), &heap));
}

static void malformed(uint32_t device) {
    struct transfer bad = {ALLOC, sizeof(struct rm_alloc), 8};
    show("carried from nowhere", ioctl(control, REQUEST(TRANSFER, bad), &bad));
    bad = (struct transfer){TRANSFER, 16, (uintptr_t)&bad};
    show("carried twice", ioctl(control, REQUEST(TRANSFER, bad), &bad));
    show("null", ioctl(control, REQUEST(ALLOC, struct rm_alloc), NULL));
    show("an odd size", ioctl(control, 0xC028462Bul, &bad));
    alloc(device, LOCAL, (void *)8, 128);
    alloc(device, LOCAL, NULL, 0);
    show("on a terminal", ioctl(posix_openpt(O_RDWR | O_NOCTTY), REQUEST(ALLOC, struct rm_alloc), &bad));
}

int main(void) {
    control = open("/dev/nvidiactl", O_RDWR);
    struct rm_alloc client = {.class = ROOT};
    show("client", ioctl(control, REQUEST(ALLOC, client), &client));
    root = client.object;
    uint32_t numbers[2] = {0, 1};
    uint32_t first = alloc(root, DEVICE, &numbers[0], 4), second = alloc(root, DEVICE, &numbers[1], 4);
    uint32_t block = memory(first, LOCAL, 3 * MiB, 0);
    memory(first, LOCAL, 100, 0);
    memory(second, LOCAL, 5 * MiB, 0);
    memory(second, LOCAL, 2 * MiB, 1u << 25);
    memory(first, SYSTEM, MiB, 1u << 25);
    memory(first, VIRTUAL, 1024 * MiB, 0);
    struct pages pinned = {.limit = 2 * MiB - 1};
    alloc(first, PAGES, &pinned, sizeof pinned);
    memory(first, LOCAL, 1024 * MiB, 0);
    other_forms(second);
    malformed(first);
    drop(first, block);
    drop(first, block);
    drop(root, second);
    drop(root, root);
    return 0;
}
