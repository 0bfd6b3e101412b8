// Everything that can be wrong about a request: its pointer, its size, its descriptor. What the program sees must be the
// kernel's answer, and only the one good request may be in the trace.
#define _GNU_SOURCE
#include "kernel_requests.h"

#include <sys/mman.h>

static unsigned long sized(unsigned long request, unsigned size) { return (request & ~(0x3FFFul << 16)) | (unsigned long)size << 16; }

static void pointers(int kfd) {
    static const unsigned long requests[] = {KFD_CREATE_QUEUE, KFD_DESTROY_QUEUE, KFD_SCRATCH, KFD_ALLOC, KFD_FREE, KFD_MAP, KFD_UNMAP,
                                             KFD_IMPORT_DMABUF, KFD_SVM(2), KFD_AVAILABLE, KFD_IPC_IMPORT};
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(pages + 4096, 4096, PROT_NONE);
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        show("null", ioctl(kfd, requests[i], NULL));
        show("nowhere", ioctl(kfd, requests[i], (void *)0x10));
        show("beyond", ioctl(kfd, requests[i], (void *)~0ul));
        show("half", ioctl(kfd, requests[i], pages + 4096 - 4));
        show("forbidden", ioctl(kfd, requests[i], pages + 4096));
        for (unsigned size = 0; size <= 4; size += 4) {
            show("short", ioctl(kfd, sized(requests[i], size), pages));
        }
    }
}

static void sizes(int kfd) {
    // Shorter than the fields, so the flags are zeros for the kernel: refused. Longer than the structure: accepted.
    struct { struct kfd_alloc alloc; char more[4000]; } large = {.alloc = {.size = 2 * MiB, .gpu_id = GPU0, .flags = VRAM}};
    show("without flags", ioctl(kfd, sized(KFD_ALLOC, 36), &large));
    show("with more behind", ioctl(kfd, sized(KFD_ALLOC, sizeof large), &large));
    printf("%d\n", large.alloc.handle != 0);
    struct kfd_svm svm = {0x1000, 4096, 0, 0xFFFFFFFF, {{1, GPU0}}};
    show("endless attributes", ioctl(kfd, KFD_SVM(1), &svm));
    show("a direction that is not there", ioctl(kfd, 0x00284B16ul, &large));
}

static void descriptors(void) {
    struct kfd_alloc alloc = {.size = MiB, .gpu_id = GPU0, .flags = VRAM};
    int pipes[2], file = open("plain", O_RDWR | O_CREAT, 0600), terminal = posix_openpt(O_RDWR | O_NOCTTY);
    if (pipe(pipes)) return;
    int all[] = {-1, 1 << 20, file, terminal, pipes[0], open("/dev/null", O_RDWR), open("/dev/dri/renderD128", O_RDWR)};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        show("alloc", ioctl(all[i], KFD_ALLOC, &alloc));
        show("free", ioctl(all[i], KFD_FREE, &alloc));
    }
}

// Memory that was mapped to be written only can be read by the processor, and so by the kernel, but not by who asks for it
// by its address in a process: the request succeeds, and looking at it before has failed.
static void write_only(int kfd) {
    struct kfd_available *question = mmap(NULL, 4096, PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *question = (struct kfd_available){.gpu_id = GPU0};
    errno = 123;
    int result = ioctl(kfd, KFD_AVAILABLE, question);
    printf("write-only: %d, errno %d\n", result, errno);
}

int main(void) {
    int kfd = open("/dev/kfd", O_RDWR);
    descriptors();
    pointers(kfd);
    sizes(kfd);
    write_only(kfd);
    errno = 123;
    uint64_t handle = kfd_alloc(kfd, GPU0, MiB, VRAM);
    printf("errno after a success: %d %d\n", errno, handle != 0);
    return 0;
}
