// Requests to the kernel's GPU drivers by their real numbers and layouts (Linux uapi kfd_ioctl.h, drm.h, amdgpu_drm.h): our
// own declarations, so that no header of the kernel is needed.
#ifndef KERNEL_REQUESTS_H
#define KERNEL_REQUESTS_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define MiB ((uint64_t)1 << 20)

struct kfd_alloc { uint64_t va, size, handle, mmap_offset; uint32_t gpu_id, flags; };
struct kfd_map { uint64_t handle, ids; uint32_t count, done; };
struct kfd_import { uint64_t va, handle; uint32_t gpu_id, fd; };
struct kfd_ipc_import { uint64_t handle, va, mmap_offset; uint32_t share[4], gpu_id, flags; };
struct kfd_available { uint64_t bytes; uint32_t gpu_id, pad; };
struct kfd_scratch { uint64_t va; uint32_t gpu_id, pad; };
struct kfd_queue {
    uint64_t ring, write_pointer, read_pointer, doorbell;
    uint32_t ring_size, gpu_id, type, percentage, priority, queue_id;
    uint64_t eop, eop_size, save;
    uint32_t save_size, stack_size, sdma, pad;
};
struct svm_attribute { uint32_t type, value; };
struct kfd_svm { uint64_t start, size; uint32_t op, count; struct svm_attribute attributes[8]; };

#define KFD_CREATE_QUEUE 0xC0604B02ul
#define KFD_DESTROY_QUEUE 0xC0084B03ul
#define KFD_SCRATCH 0xC0104B11ul
#define KFD_ALLOC 0xC0284B16ul
#define KFD_FREE 0x40084B17ul
#define KFD_MAP 0xC0184B18ul
#define KFD_UNMAP 0xC0184B19ul
#define KFD_IMPORT_DMABUF 0xC0184B1Dul
#define KFD_SVM(count) (0xC0184B20ul + ((unsigned long)(count) * 8 << 16))
#define KFD_AVAILABLE 0xC0104B23ul
#define KFD_IPC_IMPORT 0xC0304B80ul

enum { VRAM = 1, GTT = 2, USERPTR = 4, DOORBELL = 8 };
#define AQL_QUEUE_MEM (1u << 27)
enum { GPU0 = 0x5A00, GPU1 = 0x5B11 };

// As libhsakmt does: asks again when it was only interrupted.
static inline int ask(int fd, unsigned long request, void *payload) {
    int result;
    do result = ioctl(fd, request, payload); while (result == -1 && (errno == EINTR || errno == EAGAIN));
    return result;
}

static inline uint64_t kfd_alloc(int fd, uint32_t gpu, uint64_t size, uint32_t flags) {
    struct kfd_alloc alloc = {.va = 0x700000000000, .size = size, .gpu_id = gpu, .flags = flags};
    return ask(fd, KFD_ALLOC, &alloc) == 0 ? alloc.handle : 0;
}

static inline int kfd_free(int fd, uint64_t handle) { return ask(fd, KFD_FREE, &handle); }

// What came of it, as the program sees it.
static inline void show(const char *what, int result) {
    printf("%s: %d %s\n", what, result, result == -1 ? strerrorname_np(errno) : "");
}

#endif
