#include "truth_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "config.h"
#include "status.h"

static const char *const kind_names[] = {
    [SIM_KIND_DEVICE] = "device",     [SIM_KIND_MANAGED] = "managed",       [SIM_KIND_ARRAY] = "array",
    [SIM_KIND_POOL_IN_RAM] = "pool",  [SIM_KIND_PHYSICAL_IN_RAM] = "physical",
    [SIM_KIND_POOL] = "pool",         [SIM_KIND_PHYSICAL] = "physical",     [SIM_KIND_PINNED] = "host-pinned",
    [SIM_KIND_REGISTERED] = "registered", [SIM_KIND_RESERVED] = "reserved",
    [SIM_KIND_CONTEXT] = "context",   [SIM_KIND_GRAPH] = "graph",           [SIM_KIND_IMPORTED] = "imported",
    [SIM_KIND_CODE] = "code",             [SIM_KIND_NONE] = "none",
};

struct line {
    const char *event;
    enum sim_kind kind;
    int device;
    uintptr_t address, handle;
    size_t requested, held;
    int status;
};

// Opened for each line: a kept descriptor could be closed behind our back, and its number become the program's file.
static void append(const char *text, size_t length) {
    int fd = open(sim_config()->log_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return;
    // One write of one line: lines of several processes do not mix.
    ssize_t written = write(fd, text, length);
    (void)written;
    close(fd);
}

static void write_line(const struct line *line) {
    if (!sim_config()->log_path[0]) return;
    int kept_errno = errno;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const char *api = sim_thread()->api;
    char text[512];
    int length = snprintf(
        text, sizeof text,
        "{\"at_ns\":%lld,\"pid\":%d,\"thread\":%ld,\"event\":\"%s\",\"api\":\"%s\",\"kind\":\"%s\",\"device\":%d,"
        "\"address\":\"0x%zx\",\"handle\":\"0x%zx\",\"requested_bytes\":%zu,\"held_bytes\":%zu,\"status\":%d,\"device_used_bytes\":%zu}\n",
        (long long)now.tv_sec * 1000000000 + now.tv_nsec, (int)getpid(), syscall(SYS_gettid), line->event,
        api ? api : "", kind_names[line->kind], line->device, (size_t)line->address, (size_t)line->handle, line->requested, line->held,
        line->status, sim_device_used(line->device));
    append(text, (size_t)length);
    errno = kept_errno;
}

void sim_log_block(const char *event, const struct sim_block *block) {
    sim_log_range(event, block, block->address, block->requested);
}

void sim_log_range(const char *event, const struct sim_block *block, uintptr_t address, size_t size) {
    write_line(&(struct line){event, block->kind, block->device, address, block->address, size, block->held, SIM_SUCCESS});
}

void sim_log_failure(enum sim_kind kind, int device, size_t requested, int status) {
    write_line(&(struct line){"failed", kind, device, 0, 0, requested, 0, status});
}

int sim_noted(const char *event, const void *address, int status) {
    if (status != SIM_SUCCESS) return status;
    sigset_t saved;
    sim_lock(&saved);
    write_line(&(struct line){event, SIM_KIND_NONE, sim_thread()->device, (uintptr_t)address, 0, 0, 0, status});
    sim_unlock(&saved);
    return status;
}

int sim_noted_new(const char *event, void **made, int status) {
    return sim_noted(event, status == SIM_SUCCESS ? *made : NULL, status);
}
