// Speaks to amdgpu's render nodes without any library: buffers by domain, pinned pages, imports, handles that are the same
// number on two descriptors, and requests that make no sense.
#define _GNU_SOURCE
#include "kernel_requests.h"

#include <sys/mman.h>

union gem_create {
    struct { uint64_t size, alignment, domains, flags; } in;
    struct { uint32_t handle, pad; } out;
};
struct gem_userptr { uint64_t address, size; uint32_t flags, handle; };
struct gem_close { uint32_t handle, pad; };
struct prime { uint32_t handle, flags; int32_t fd; };

#define GEM_CLOSE 0x40086409ul
#define PRIME_FD_TO_HANDLE 0xC00C642Eul
#define GEM_CREATE 0xC0206440ul
#define GEM_USERPTR 0xC0186451ul
enum { DOMAIN_CPU = 1, DOMAIN_GTT = 2, DOMAIN_VRAM = 4, DOMAIN_GDS = 8 };

static uint32_t create(int node, uint64_t size, uint64_t domains) {
    union gem_create create = {.in = {size, 4096, domains, 1}};
    return ioctl(node, GEM_CREATE, &create) == 0 ? create.out.handle : 0;
}

static int close_buffer(int node, uint32_t handle) {
    struct gem_close buffer = {handle, 0};
    return ioctl(node, GEM_CLOSE, &buffer);
}

int main(void) {
    int first = open("/dev/dri/renderD128", O_RDWR), second = open("/dev/dri/renderD129", O_RDWR);
    uint32_t vram = create(first, 3 * MiB, DOMAIN_VRAM), other = create(second, 5 * MiB, DOMAIN_VRAM);
    printf("the same number twice: %d\n", vram == other);
    uint32_t gtt = create(first, 7 * MiB + 1, DOMAIN_GTT), either = create(first, 9 * MiB, DOMAIN_VRAM | DOMAIN_GTT);
    void *pages = mmap(NULL, MiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct gem_userptr pinned = {(uintptr_t)pages, MiB, 8, 0};
    show("userptr", ioctl(first, GEM_USERPTR, &pinned));
    struct prime prime = {0, 0, second};
    show("import", ioctl(first, PRIME_FD_TO_HANDLE, &prime));
    show("close", close_buffer(first, vram));
    show("close again", close_buffer(first, vram));
    printf("the number comes back: %d\n", create(first, 2 * MiB, DOMAIN_VRAM) == vram);
    show("close", close_buffer(first, gtt));
    show("close", close_buffer(first, either));
    show("close", close_buffer(first, pinned.handle));
    show("close", close_buffer(first, prime.handle));
    show("too much", create(second, 1024 * MiB, DOMAIN_VRAM) ? 0 : -1);
    show("nothing", create(second, 0, DOMAIN_VRAM) ? 0 : -1);
    show("null", ioctl(first, GEM_CREATE, NULL));
    show("nowhere", ioctl(first, GEM_CREATE, (void *)24));
    show("short", ioctl(first, 0xC0106440ul, &pinned));
    show("a request of KFD", ioctl(first, KFD_ALLOC, &pinned));
    show("on a plain file", ioctl(open("plain", O_RDWR | O_CREAT, 0600), GEM_CREATE, &pinned));
    return 0;
}
