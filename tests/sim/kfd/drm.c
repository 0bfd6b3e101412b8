// amdgpu's render nodes, after Linux include/uapi/drm/drm.h and amdgpu_drm.h. Handles are numbers per descriptor, from 1 on.
#include <errno.h>
#include <string.h>

#include "kernel.h"

#define MAX_DESCRIPTORS 64
static struct piece buffers[MAX_DESCRIPTORS][SIM_MAX_OBJECTS];

// What was asked of the card may as well lie in host memory: the kernel puts it there where the card is full.
static int add(int fd, struct line *line, enum place place, uint64_t held) {
    int handle = 0;
    struct piece *piece = piece_new(buffers[fd], 1, place, line->card, held, &handle);
    if (!piece && place == DEVICE) piece = piece_new(buffers[fd], 1, HOST, line->card, held, &handle);
    if (!piece) {
        line->event = "failed";
        line->status = ENOMEM;
        log_line(line);
        return -ENOMEM;
    }
    line->address = (uint64_t)(uint32_t)fd << 32 | (uint32_t)handle;
    line->held = held;
    log_line(line);
    return handle;
}

static uint64_t pages(uint64_t size) { return (size + 4095) & ~(uint64_t)4095; }

// The answer overlays the question.
static int create(int card, int fd, unsigned char *payload) {
    uint64_t size = get64(payload), domains = get64(payload + 16);
    if (size == 0 || size > (uint64_t)1 << 47) return -EINVAL;
    struct line line = {"alloc", "DRM_IOCTL_AMDGPU_GEM_CREATE", domains & 4 ? "device" : "host-pinned", card, 0, size, 0, 0};
    enum place place = domains & 4 ? DEVICE : domains & 2 ? HOST : NOWHERE;
    if (place == NOWHERE) line.event = "no memory";
    int handle = add(fd, &line, place, pages(size));
    if (handle < 0) return handle;
    buffers[fd][handle].size = pages(size);
    buffers[fd][handle].offset = behind_memory(pages(size), 0, 0, 0);
    memset(payload, 0, 32);
    put32(payload, (uint32_t)handle);
    return 0;
}

static int userptr(int card, int fd, unsigned char *payload) {
    uint64_t size = get64(payload + 8);
    struct line line = {"alloc", "DRM_IOCTL_AMDGPU_GEM_USERPTR", "registered", card, 0, size, 0, 0};
    if (size == 0 || size % 4096 || get64(payload) % 4096) return -EINVAL;
    int handle = add(fd, &line, REGISTERED, size);
    if (handle < 0) return handle;
    put32(payload + 20, (uint32_t)handle);
    return 0;
}

static int close_handle(int card, int fd, unsigned char *payload) {
    uint32_t handle = get32(payload);
    if (handle == 0 || handle >= SIM_MAX_OBJECTS || !buffers[fd][handle].lives) return -EINVAL;
    uint64_t address = (uint64_t)(uint32_t)fd << 32 | handle;
    log_line(&(struct line){"free", "DRM_IOCTL_GEM_CLOSE", "device", card, address, 0, buffers[fd][handle].held, 0});
    if (buffers[fd][handle].size) behind_free(&buffers[fd][handle]);
    piece_drop(&buffers[fd][handle]);
    return 0;
}

static int import(int card, int fd, unsigned char *payload) {
    struct line line = {"import", "DRM_IOCTL_PRIME_FD_TO_HANDLE", "imported", card, 0, 0, 0, 0};
    int handle = add(fd, &line, NOWHERE, 0);
    if (handle < 0) return handle;
    buffers[fd][handle].offset = behind_import((int)get32(payload + 8));
    put32(payload, (uint32_t)handle);
    return 0;
}

// {u32 handle, u32 pad}, answered by where it can be mapped.
static int tell_place(int fd, unsigned char *payload) {
    uint32_t handle = get32(payload);
    if (handle >= SIM_MAX_OBJECTS || !buffers[fd][handle].lives || !buffers[fd][handle].offset) return -EINVAL;
    put64(payload, buffers[fd][handle].offset);
    return 0;
}

int drm_request(int card, int fd, unsigned number, size_t size, unsigned char *payload) {
    if (fd >= MAX_DESCRIPTORS) return -EINVAL;
    switch (number) {
        case 0x09: return close_handle(card, fd, payload);
        case 0x2E: return import(card, fd, payload);
        case 0x40: return create(card, fd, payload);
        case 0x41: return tell_place(fd, payload);
        case 0x51: return userptr(card, fd, payload);
        default: return behind_drm(card, number, size, payload);
    }
}
