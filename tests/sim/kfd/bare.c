// Nothing behind the cards: no memory at any address, no engine, and no request beyond those that the zoo makes.
#include <errno.h>

#include "kernel.h"

uint64_t behind_memory(uint64_t size, uint32_t flags, uint64_t address, uint64_t host) {
    (void)size, (void)flags, (void)address, (void)host;
    return 0x100000;
}

void behind_free(const struct piece *piece) { (void)piece; }

int behind_queue(unsigned char *payload, int index) {
    (void)payload, (void)index;
    return 0;
}

void behind_queue_gone(int index) { (void)index; }

uint64_t behind_import(int dmabuf) {
    (void)dmabuf;
    return 0;
}

uint64_t behind_import_at(int dmabuf, uint64_t address) {
    (void)address;
    return behind_import(dmabuf);
}

int behind_kfd(unsigned number, size_t size, unsigned char *payload) {
    (void)number, (void)size, (void)payload;
    return -ENOTTY;
}

int behind_drm(int card, unsigned number, size_t size, unsigned char *payload) {
    (void)card, (void)number, (void)size, (void)payload;
    return -EINVAL;
}

bool behind_sleeps(unsigned number, uint64_t argument, int *result) {
    (void)number, (void)argument, (void)result;
    return false;
}

void behind_changed(int card) { (void)card; }
