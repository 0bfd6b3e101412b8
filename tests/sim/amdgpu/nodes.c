// The device files, which are plain files: what the C library says of them, and what a mapping of them is. And the counters
// in sysfs, which move with what cards hold.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "amdgpu.h"

enum { DRM_MAJOR = 226, KFD_MAJOR = 234 };

static int shown(int result, struct stat *file) {
    int card = 0, before = errno;
    if (result != 0 || !S_ISREG(file->st_mode)) return result;
    enum driver driver = driver_of_file(file, &card);
    errno = before;
    if (driver != KFD && driver != DRM) return result;
    file->st_mode = S_IFCHR | 0666;
    file->st_rdev = driver == KFD ? makedev(KFD_MAJOR, 0) : makedev(DRM_MAJOR, 128 + card);
    return result;
}

// By system call, as in mmap: these are called before anything can be looked up.
int fstat(int fd, struct stat *file) { return shown((int)syscall(SYS_fstat, fd, file), file); }

int stat(const char *path, struct stat *file) { return shown((int)syscall(SYS_stat, path, file), file); }

int fstat64(int fd, struct stat64 *file) { return fstat(fd, (struct stat *)file); }

int stat64(const char *path, struct stat64 *file) { return stat(path, (struct stat *)file); }

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset) {
    int card = 0, before = errno;
    enum driver driver = fd < 0 || flags & MAP_ANONYMOUS ? NO_DRIVER : driver_of(fd, &card);
    errno = before;
    if (driver == KFD || driver == DRM) return map_node(address, length, flags, driver == KFD, (uint64_t)offset);
    return (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
}

void *mmap64(void *address, size_t length, int protection, int flags, int fd, off64_t offset) {
    return mmap(address, length, protection, flags, fd, offset);
}

static void tell(const char *path, uint64_t number) {
    char text[32];
    int length = snprintf(text, sizeof text, "%llu\n", (unsigned long long)number);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) return;
    ssize_t written = write(fd, text, (size_t)length);
    (void)written;
    close(fd);
}

void behind_changed(int card) {
    char path[640];
    const char *root = settings()->root;
    snprintf(path, sizeof path, "%s/sys/class/drm/card%d/device/mem_info_vram_used", root, card);
    tell(path, device_used(card));
    snprintf(path, sizeof path, "%s/sys/class/drm/card%d/device/mem_info_gtt_used", root, card);
    tell(path, host_used_bytes());
    uint64_t by_kfd;
    if (!kfd_counts(card, &by_kfd)) return;
    snprintf(path, sizeof path, "%s/sys/class/kfd/kfd/proc/%d", root, (int)getpid());
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%s/sys/class/kfd/kfd/proc/%d/vram_%u", root, (int)getpid(), kfd_gpu_id(card));
    tell(path, by_kfd);
}
