// Speaks to /dev/kfd without any library: memory of all kinds, queues, SVM, imports, what fails and what is only
// interrupted. The stand-in's log must hold the same as the trace, to the byte.
#define _GNU_SOURCE
#include "kernel_requests.h"

static void memory(int kfd) {
    uint64_t handles[6];
    handles[0] = kfd_alloc(kfd, GPU0, 3 * MiB, VRAM);
    handles[1] = kfd_alloc(kfd, GPU1, 5 * MiB + 4096, VRAM | 1u << 31);
    handles[2] = kfd_alloc(kfd, GPU0, 7 * MiB, GTT);
    handles[3] = kfd_alloc(kfd, GPU0, 9 * MiB, USERPTR);
    handles[4] = kfd_alloc(kfd, GPU0, 8192, DOORBELL);
    handles[5] = kfd_alloc(kfd, GPU1, 4 * MiB, VRAM | AQL_QUEUE_MEM);
    uint32_t gpus[2] = {GPU0, GPU1};
    struct kfd_map map = {handles[0], (uintptr_t)gpus, 2, 0};
    show("map", ask(kfd, KFD_MAP, &map));
    printf("for %u cards\n", map.done);
    show("unmap", ask(kfd, KFD_UNMAP, &map));
    map = (struct kfd_map){handles[4], (uintptr_t)gpus, 1, 0};
    show("map doorbells", ask(kfd, KFD_MAP, &map));
    show("unmap doorbells", ask(kfd, KFD_UNMAP, &map));
    map.handle = 77;
    show("map nothing", ask(kfd, KFD_MAP, &map));
    show("unmap nothing", ask(kfd, KFD_UNMAP, &map));
    map = (struct kfd_map){handles[0], 8, 2, 0};
    show("cards from nowhere", ask(kfd, KFD_MAP, &map));
    show("cards from nowhere", ask(kfd, KFD_UNMAP, &map));
    show("free", kfd_free(kfd, handles[0]));
    show("free again", kfd_free(kfd, handles[0]));
    uint64_t reused = kfd_alloc(kfd, GPU0, 11 * MiB, VRAM);
    printf("the handle comes back: %d\n", reused == handles[0]);
    for (int i = 1; i < 6; i++) kfd_free(kfd, handles[i]);
    // `reused` lives until the end.
}

static void imports(int kfd) {
    struct kfd_import dmabuf = {0x710000000000, 0, GPU1, 0};
    show("import", ask(kfd, KFD_IMPORT_DMABUF, &dmabuf));
    struct kfd_ipc_import ipc = {.va = 0x720000000000, .gpu_id = GPU0};
    show("ipc", ask(kfd, KFD_IPC_IMPORT, &ipc));
    show("free", kfd_free(kfd, dmabuf.handle));
    show("free", kfd_free(kfd, ipc.handle));
}

static void queues(int kfd) {
    for (int i = 0; i < 2; i++) {
        struct kfd_queue queue = {.ring = 0x730000000000, .ring_size = 65536, .gpu_id = GPU0, .type = 2};
        show("queue", ask(kfd, KFD_CREATE_QUEUE, &queue));
        printf("number %u\n", queue.queue_id);
    }
    uint32_t queue[2] = {0, 0};
    show("destroy", ask(kfd, KFD_DESTROY_QUEUE, queue));
    struct kfd_scratch scratch = {0x740000000000 >> 16, GPU0, 0};
    show("scratch", ask(kfd, KFD_SCRATCH, &scratch));
}

static void svm(int kfd) {
    struct kfd_svm svm = {0x750000000000, 16 * MiB, 0, 3, {{5, 1}, {0, GPU0}, {7, 9}}};
    show("prefer", ask(kfd, KFD_SVM(3), &svm));
    svm = (struct kfd_svm){0x750000000000, 4 * MiB, 0, 1, {{1, GPU1}}};
    show("prefetch", ask(kfd, KFD_SVM(1), &svm));
    svm = (struct kfd_svm){0x750000000000, 4 * MiB, 0, 1, {{1, 0}}};
    show("back to the host", ask(kfd, KFD_SVM(1), &svm));
    svm = (struct kfd_svm){0x750000000000, 4 * MiB, 1, 1, {{1, 0}}};
    show("asked", ask(kfd, KFD_SVM(1), &svm));
    svm.count = 2;
    show("attributes and size differ", ask(kfd, KFD_SVM(1), &svm));
}

static void failures(int kfd) {
    show("too much", kfd_alloc(kfd, GPU0, 1024 * MiB, VRAM) ? 0 : -1);
    show("nothing", kfd_alloc(kfd, GPU0, 0, VRAM) ? 0 : -1);
    show("no such card", kfd_alloc(kfd, 77, MiB, VRAM) ? 0 : -1);
    struct kfd_available available = {0, GPU0, 0};
    show("available", ask(kfd, KFD_AVAILABLE, &available));
    printf("%llu MiB\n", (unsigned long long)(available.bytes / MiB));
}

int main(void) {
    int kfd = open("/dev/kfd", O_RDWR | O_CLOEXEC);
    int copy = dup(kfd);
    memory(kfd);
    close(kfd);
    imports(copy);
    queues(copy);
    svm(copy);
    failures(copy);
    return 0;
}
