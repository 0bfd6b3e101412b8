/* The thunk's own account of memory, one JSON object per line.
 *
 * One write(2) per line on an O_APPEND file: no line is lost to SIGKILL or abort(), and two processes
 * with the same path do not tear each other's lines.
 */
#include "thunk.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static int log_fd = -1;

static const char *status_name(HSAKMT_STATUS status)
{
    switch (status) {
    case HSAKMT_STATUS_SUCCESS: return "ok";
    case HSAKMT_STATUS_INVALID_PARAMETER: return "invalid_parameter";
    case HSAKMT_STATUS_INVALID_NODE_UNIT: return "invalid_node";
    case HSAKMT_STATUS_NO_MEMORY: return "no_memory";
    case HSAKMT_STATUS_NOT_SUPPORTED: return "not_supported";
    case HSAKMT_STATUS_MEMORY_NOT_REGISTERED: return "not_registered";
    default: return "error";
    }
}

static void write_line(const char *line, int length_bytes)
{
    /* A log that cannot be written must not look like a run without allocations. */
    if (write(log_fd, line, (size_t)length_bytes) != length_bytes)
        dprintf(STDERR_FILENO, "simthunk: the log could not be written\n");
}

void log_open(void)
{
    if (!sim.log_path || log_fd >= 0)
        return;
    log_fd = open(sim.log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log_fd < 0) {
        fprintf(stderr, "simthunk: cannot open SIMTHUNK_LOG %s\n", sim.log_path);
        return;
    }
    char line[512];
    int length = snprintf(line, sizeof line,
                          "{\"at_ns\":%" PRIu64 ",\"pid\":%d,\"thread\":%ld,\"op\":\"open\",\"gfx\":\"%s\","
                          "\"capacity_bytes\":%" PRIu64 ",\"granularity_bytes\":%" PRIu64 "}\n",
                          monotonic_ns(), getpid(), syscall(SYS_gettid), sim.chip->name,
                          sim.capacity_bytes, sim.granularity_bytes);
    write_line(line, length);
}

void log_write(const struct log_record *record)
{
    if (log_fd < 0)
        return;
    char line[512];
    int length = snprintf(line, sizeof line,
                          "{\"at_ns\":%" PRIu64 ",\"pid\":%d,\"thread\":%ld,\"op\":\"%s\",\"heap\":\"%s\","
                          "\"use\":\"%s\",\"handle\":%" PRIu64 ",\"address\":\"0x%" PRIx64 "\","
                          "\"asked_bytes\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"status\":\"%s\","
                          "\"vram_bytes\":%" PRIu64 "}\n",
                          monotonic_ns(), getpid(), syscall(SYS_gettid), record->op, record->heap, record->use,
                          record->handle, record->address, record->asked_bytes, record->bytes,
                          status_name(record->status), record->vram_bytes);
    write_line(line, length);
}
