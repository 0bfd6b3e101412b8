// The functions of the C library that reach a driver: for files below SIM_ROOT/dev they end here, for all others in the
// next library.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernel.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

// Through a file, so that the kernel copies as it does for a driver: what the processor may read is readable, also memory
// that was mapped to be written only.
static bool copy(void *to, const void *from, size_t size) {
    static int file = -1;
    if (file < 0) file = memfd_create("simulated kernel", MFD_CLOEXEC);
    return pwrite(file, from, size, 0) == (ssize_t)size && pread(file, to, size, 0) == (ssize_t)size;
}

bool copy_in(void *to, uint64_t from, size_t size) { return copy(to, (const void *)from, size); }

bool copy_out(uint64_t to, const void *from, size_t size) { return copy((void *)to, from, size); }

// By system call: what the C library says of these files may be made up (../amdgpu).
static bool is_node(const struct stat *file, const char *name) {
    char path[640];
    struct stat node;
    snprintf(path, sizeof path, "%s/dev/%s", settings()->root, name);
    return syscall(SYS_stat, path, &node) == 0 && node.st_dev == file->st_dev && node.st_ino == file->st_ino;
}

// In the order of enum driver.
static const unsigned char letters[] = {0, 'K', 'd', 'F', 0};

enum driver driver_of_file(const struct stat *file, int *card) {
    if (!settings()->root[0]) return NO_DRIVER;
    if (is_node(file, "kfd")) return KFD;
    if (is_node(file, "nvidia-uvm")) return UVM;
    if (is_node(file, "nvidiactl") || is_node(file, "nvidia0")) return NVIDIA;
    for (*card = 0; *card < settings()->cards; (*card)++) {
        char name[32];
        snprintf(name, sizeof name, "dri/renderD%d", 128 + *card);
        if (is_node(file, name)) return DRM;
    }
    return NO_DRIVER;
}

enum driver driver_of(int fd, int *card) {
    struct stat file;
    if (!settings()->root[0] || syscall(SYS_fstat, fd, &file) != 0) return NO_DRIVER;
    return driver_of_file(&file, card);
}

// Every n-th request is interrupted by a signal that nobody sent, before anything has happened.
static int interruption(void) {
    static long requests;
    long every = settings()->interrupt_every;
    requests++;
    if (every == 0 || requests % every != 0) return 0;
    return requests / every % 2 ? -EINTR : -EAGAIN;
}

// As the kernel does: copies as many bytes as the request names, hands them to the driver with zeros behind, copies back.
static int request(enum driver driver, int card, int fd, unsigned long number, uint64_t argument) {
    static unsigned char payload[1 << 14];
    size_t size = number >> 16 & 0x3FFF;
    int interrupted = driver == KFD ? interruption() : 0;
    if (interrupted) return interrupted;
    if (driver == UVM) return number == 0x30000001 ? 0 : number < 256 ? uvm_request((unsigned)number, argument) : -EINVAL;
    memset(payload, 0, sizeof payload);
    if (size && !copy_in(payload, argument, size)) return -EFAULT;
    int result;
    switch (driver) {
        case KFD: result = kfd_request(number & 0xFF, size, payload); break;
        case DRM: result = drm_request(card, fd, number & 0xFF, size, payload); break;
        default: result = nvidia_request(number & 0xFF, size, payload);
    }
    if (size && !copy_out(argument, payload, size)) return -EFAULT;
    return result;
}

int ioctl(int fd, unsigned long number, ...) {
    va_list arguments;
    va_start(arguments, number);
    uint64_t argument = va_arg(arguments, uint64_t);
    va_end(arguments);
    unsigned letter = number >> 8 & 0xFF;
    int card = 0;
    int before = errno;
    enum driver driver = letter == 'K' || letter == 'd' || letter == 'F' || letter == 0 ? driver_of(fd, &card) : NO_DRIVER;
    if (driver == NO_DRIVER || letter != letters[driver]) {
        int (*next)(int, unsigned long, ...) = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
        errno = before;
        return next(fd, number, argument);
    }
    int result;
    if (driver == KFD && behind_sleeps(number & 0xFF, argument, &result)) {
        errno = result < 0 ? -result : before;
        return result < 0 ? -1 : result;
    }
    pthread_mutex_lock(&lock);
    result = request(driver, card, fd, number, argument);
    pthread_mutex_unlock(&lock);
    errno = result < 0 ? -result : before;
    return result < 0 ? -1 : result;
}

// "/dev/kfd" and its like are below SIM_ROOT.
static const char *place_of(const char *path, char *place, size_t size) {
    bool ours = strcmp(path, "/dev/kfd") == 0 || strncmp(path, "/dev/dri/", 9) == 0 || strncmp(path, "/dev/nvidia", 11) == 0;
    if (!ours || !settings()->root[0]) return path;
    snprintf(place, size, "%s%s", settings()->root, path);
    return place;
}

#define OPEN(name)                                                                      \
    int name(const char *path, int flags, ...) {                                        \
        va_list arguments;                                                              \
        va_start(arguments, flags);                                                     \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;    \
        va_end(arguments);                                                              \
        char place[640];                                                                \
        int (*next)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name); \
        return next(place_of(path, place, sizeof place), flags, mode);                  \
    }

OPEN(open)
OPEN(open64)
