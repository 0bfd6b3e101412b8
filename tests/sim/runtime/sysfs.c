// The kernel's counters of the first device, kept up to date as the real driver does: Linux `amdgpu_vram_mgr.c`
// (mem_info_vram_used) and `amdkfd/kfd_process.c` (a directory per process).
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"
#include "device.h"

// Opened for each change, as the log is. In place and with one write: who reads meanwhile finds the old number or the new.
static void put(const char *path, size_t value) {
    int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0) return;
    char text[32];
    int length = snprintf(text, sizeof text, "%020zu\n", value);
    ssize_t written = pwrite(file, text, (size_t)length, 0);
    (void)written;
    close(file);
}

void sim_sysfs_update(int device, size_t process, size_t all) {
    const struct sim_sysfs *sysfs = &sim_config()->sysfs;
    if (!sysfs->root[0] || device != 0) return;
    int kept_errno = errno;
    char path[512];
    // The process first: what it holds is never more than what all hold.
    if (sysfs->gpu[0]) {
        snprintf(path, sizeof path, "%s/sys/class/kfd/kfd/proc", sysfs->root);
        mkdir(path, 0755);
        snprintf(path, sizeof path, "%s/sys/class/kfd/kfd/proc/%d", sysfs->root, (int)getpid());
        mkdir(path, 0755);
        snprintf(path, sizeof path, "%s/sys/class/kfd/kfd/proc/%d/vram_%s", sysfs->root, (int)getpid(), sysfs->gpu);
        put(path, process);
    }
    if (sysfs->card[0]) {
        snprintf(path, sizeof path, "%s/sys/class/drm/%s/device/mem_info_vram_used", sysfs->root, sysfs->card);
        put(path, all);
    }
    errno = kept_errno;
}
