// What lies behind memory of the card: one file without a name, in which each buffer has a place of its own. A mapping of
// the device file is a mapping of that file, so that two mappings of a buffer show the same bytes.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../engine/engine.h"
#include "amdgpu.h"

#define FILE_BYTES ((uint64_t)1 << 46)
#define PAGE ((uint64_t)4096)
#define DOORBELLS ((uint64_t)3 << 62)

static int file = -1;
// A forked child has a card of its own, also where both go on to allocate.
static pid_t owner;
// Places are never used twice: a mapping that outlives its buffer can't show another's bytes.
static uint64_t next_offset = PAGE;

// Registered host memory: the card sees it at an address of its own, at which nothing is mapped in this process.
struct window {
    uint64_t id, gpu_start, host_start, size;
};
static struct window windows[SIM_MAX_OBJECTS];
static pthread_mutex_t windows_lock = PTHREAD_MUTEX_INITIALIZER;

// Descriptors that stand for a buffer, told by their inode. A buffer that was exported keeps its bytes. What other processes exported
// lies in their file, and has numbers of its own here, from FOREIGN on.
static struct {
    uint64_t inode, offset, size;
    int card, file;
    off_t offset_there;
} exports[SIM_MAX_OBJECTS];
static int export_count;
#define FOREIGN ((uint64_t)1 << 56)
#define FOREIGN_BYTES ((uint64_t)1 << 40)
// What such a descriptor is called, so that another process finds whose memory it is: process, its descriptor, place, card.
#define EXPORT_NAME "simulated dma-buf %d %d %llu %d"

static bool open_file(void) {
    if (file < 0 || owner != getpid()) {
        owner = getpid();
        file = memfd_create("simulated VRAM", MFD_CLOEXEC);
        if (file >= 0 && ftruncate(file, (off_t)FILE_BYTES) != 0) file = -1;
    }
    return file >= 0;
}

static void open_window(uint64_t id, uint64_t gpu_start, uint64_t host_start, uint64_t size) {
    pthread_mutex_lock(&windows_lock);
    for (int i = 0; i < SIM_MAX_OBJECTS; i++) {
        if (windows[i].size) continue;
        windows[i] = (struct window){id, gpu_start, host_start, size};
        break;
    }
    pthread_mutex_unlock(&windows_lock);
}

static void close_window(uint64_t id) {
    pthread_mutex_lock(&windows_lock);
    for (int i = 0; i < SIM_MAX_OBJECTS; i++) {
        if (windows[i].id == id) windows[i] = (struct window){0, 0, 0, 0};
    }
    pthread_mutex_unlock(&windows_lock);
}

void *mapping_resolve(const void *gpu_address) {
    uint64_t address = (uint64_t)gpu_address;
    pthread_mutex_lock(&windows_lock);
    for (int i = 0; i < SIM_MAX_OBJECTS; i++) {
        if (address - windows[i].gpu_start < windows[i].size) {
            address = windows[i].host_start + (address - windows[i].gpu_start);
            break;
        }
    }
    pthread_mutex_unlock(&windows_lock);
    return (void *)address;
}

uint64_t behind_memory(uint64_t size, uint32_t flags, uint64_t address, uint64_t host) {
    uint64_t offset = next_offset;
    next_offset += (size + PAGE - 1) / PAGE * PAGE;
    if (flags & MEMORY_USERPTR && address != host) open_window(offset, address, host, size);
    return offset;
}

static bool was_exported(uint64_t offset) {
    for (int i = 0; i < export_count; i++) {
        if (exports[i].offset == offset) return true;
    }
    return false;
}

void behind_free(const struct piece *piece) {
    close_window(piece->offset);
    if (file < 0 || owner != getpid() || was_exported(piece->offset)) return;
    fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)piece->offset, (off_t)piece->size);
}

// {u64 handle, u32 flags, u32 descriptor}. libdrm asks the descriptor for the buffer's size.
int export_memory(unsigned char *payload) {
    const struct piece *piece = kfd_memory(get64(payload));
    struct stat status;
    char name[128];
    if (!piece || export_count == SIM_MAX_OBJECTS || !open_file()) return -EINVAL;
    snprintf(name, sizeof name, EXPORT_NAME, getpid(), file, (unsigned long long)piece->offset, piece->card);
    int fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)piece->size) != 0 || fstat(fd, &status) != 0) return -ENOMEM;
    exports[export_count].inode = status.st_ino;
    exports[export_count].offset = piece->offset;
    exports[export_count].card = piece->card;
    exports[export_count++].size = piece->size;
    put32(payload + 12, (uint32_t)fd);
    return 0;
}

// Enters what another process exported, as long as that process lives.
static int enter_foreign(int dmabuf, const struct stat *status) {
    char path[64], name[160] = "";
    int process, its_file, card;
    unsigned long long offset;
    snprintf(path, sizeof path, "/proc/self/fd/%d", dmabuf);
    if (readlink(path, name, sizeof name - 1) < 0) return -1;
    if (sscanf(name, "/memfd:" EXPORT_NAME, &process, &its_file, &offset, &card) != 4) return -1;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", process, its_file);
    int there = open(path, O_RDWR | O_CLOEXEC);
    if (there < 0 || export_count == SIM_MAX_OBJECTS) return -1;
    exports[export_count].inode = status->st_ino;
    exports[export_count].offset = FOREIGN + (uint64_t)export_count * FOREIGN_BYTES;
    exports[export_count].size = (uint64_t)status->st_size;
    exports[export_count].card = card;
    exports[export_count].file = there;
    exports[export_count].offset_there = (off_t)offset;
    return export_count++;
}

static int export_of(int dmabuf) {
    struct stat status;
    if (fstat(dmabuf, &status) != 0) return -1;
    // From the end: inodes are used again.
    for (int i = export_count - 1; i >= 0; i--) {
        if (exports[i].inode == status.st_ino) return i;
    }
    return enter_foreign(dmabuf, &status);
}

uint64_t behind_import(int dmabuf) {
    int found = export_of(dmabuf);
    return found < 0 ? 0 : exports[found].offset;
}

// Another process's memory: the engines see it through a window.
uint64_t behind_import_at(int dmabuf, uint64_t address) {
    int found = export_of(dmabuf);
    if (found < 0) return 0;
    uint64_t size = exports[found].size, offset = exports[found].offset;
    if (offset < FOREIGN) return offset;
    void *host = map_node(NULL, size, MAP_SHARED, true, offset);
    if (host != MAP_FAILED) open_window(offset, address, (uint64_t)host, size);
    return offset;
}

// {u64 size, u64 and u32 of metadata, u32 card, u32 flags, u32 descriptor}
int describe_export(unsigned char *payload) {
    int found = export_of((int)get32(payload + 28));
    if (found < 0) return -EINVAL;
    put64(payload, exports[found].size);
    put32(payload + 16, 0);
    put32(payload + 20, kfd_gpu_id(exports[found].card));
    put32(payload + 24, MEMORY_VRAM);
    return 0;
}

// Always to be read and written: the engines use these mappings, also where the thunk wants none for the processor.
void *map_node(void *address, size_t length, int flags, bool is_kfd, uint64_t offset) {
    int protection = PROT_READ | PROT_WRITE;
    if (is_kfd && (offset & DOORBELLS) == DOORBELLS) {
        return (void *)syscall(SYS_mmap, address, length, protection, flags | MAP_ANONYMOUS, -1, 0);
    }
    if (offset >= FOREIGN) {
        uint64_t number = (offset - FOREIGN) / FOREIGN_BYTES;
        if (number < (uint64_t)export_count && exports[number].file > 0) {
            off_t there = exports[number].offset_there + (off_t)((offset - FOREIGN) % FOREIGN_BYTES);
            return (void *)syscall(SYS_mmap, address, length, protection, flags, exports[number].file, there);
        }
    }
    if (!open_file()) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, address, length, protection, flags, file, offset);
}
