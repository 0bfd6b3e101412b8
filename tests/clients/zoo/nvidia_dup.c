// Second handles of NVIDIA's memory (NV_ESC_RM_DUP_OBJECT): memory lives until its last handle is gone, whatever becomes of
// the number that it was allocated with.
#define _GNU_SOURCE
#include "nvidia_requests.h"

#include <sys/mman.h>

static int control;

static uint32_t alloc(uint32_t root, uint32_t parent, uint32_t object, uint32_t class, void *parameters) {
    struct rm_alloc alloc = {.root = root, .parent = parent, .object = object, .class = class, .parameters = (uintptr_t)parameters};
    show("alloc", ioctl(control, REQUEST(ALLOC, alloc), &alloc));
    printf("status %x\n", alloc.status);
    return alloc.status ? 0 : alloc.object;
}

static uint32_t memory(uint32_t root, uint32_t device, uint32_t object, uint64_t size) {
    struct memory wanted = {.size = size};
    return alloc(root, device, object, LOCAL, &wanted);
}

static uint32_t dup_of(uint32_t root, uint32_t device, uint32_t object, uint32_t source_root, uint32_t source) {
    struct rm_dup dup = {root, device, object, source_root, source, 0, 0};
    show("dup", ioctl(control, REQUEST(DUP, dup), &dup));
    printf("status %x\n", dup.status);
    return dup.status ? 0 : dup.object;
}

static void drop(uint32_t root, uint32_t parent, uint32_t object) {
    struct rm_free drop = {root, parent, object, 0};
    show("free", ioctl(control, REQUEST(FREE, drop), &drop));
    printf("status %x\n", drop.status);
}

static void malformed(uint32_t root) {
    struct rm_dup dup = {root, 77, 0, root, 78, 0, 0};
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(pages + 4096, 4096, PROT_NONE);
    show("null", ioctl(control, REQUEST(DUP, dup), NULL));
    show("nowhere", ioctl(control, REQUEST(DUP, dup), (void *)8));
    show("half", ioctl(control, REQUEST(DUP, dup), pages + 4096 - 12));
    show("an odd size", ioctl(control, 0xC0184634ul, &dup));
    show("no such object", ioctl(control, REQUEST(DUP, dup), &dup));
    printf("status %x\n", dup.status);
}

int main(void) {
    control = open("/dev/nvidiactl", O_RDWR);
    uint32_t number = 0, root[2], device[2];
    for (int i = 0; i < 2; i++) {
        root[i] = alloc(0, 0, 0, ROOT, NULL);
        device[i] = alloc(root[i], root[i], 0, DEVICE, &number);
    }
    uint32_t first = memory(root[0], device[0], 0, 3 * MiB);
    uint32_t second = dup_of(root[1], device[1], 0, root[0], first);
    uint32_t third = dup_of(root[0], device[0], 0x500, root[1], second);
    dup_of(root[0], device[0], 0x500, root[1], second);
    drop(root[0], device[0], first);
    // The number is used again, while the memory that it had is still there.
    memory(root[0], device[0], first, 5 * MiB);
    drop(root[0], device[0], third);
    drop(root[0], device[0], third);
    drop(root[1], device[1], second);
    // With its device goes one of two handles, with its client the other.
    memory(root[1], device[1], 0x600, 11 * MiB);
    dup_of(root[0], device[0], 0x601, root[1], 0x600);
    drop(root[1], root[1], device[1]);
    malformed(root[0]);
    drop(root[0], root[0], root[0]);
    // Lives until the end by its second handle alone.
    root[0] = alloc(0, 0, 0, ROOT, NULL);
    device[0] = alloc(root[0], root[0], 0, DEVICE, &number);
    device[1] = alloc(root[1], root[1], 0, DEVICE, &number);
    memory(root[0], device[0], 0x700, 7 * MiB);
    dup_of(root[1], device[1], 0x701, root[0], 0x700);
    drop(root[0], device[0], 0x700);
    return 0;
}
