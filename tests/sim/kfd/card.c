// Settings, what the cards hold, and the log.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "kernel.h"

static struct settings current;

static uint64_t size_setting(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    if (!text || !*text) return otherwise;
    char *end;
    uint64_t value = strtoull(text, &end, 10);
    return *end == 'G' ? value << 30 : *end == 'M' ? value << 20 : *end == 'K' ? value << 10 : value;
}

__attribute__((constructor)) static void read_environment(void) {
    const char *root = getenv("SIM_ROOT"), *log = getenv("SIM_LOG");
    snprintf(current.root, sizeof current.root, "%s", root ? root : "");
    snprintf(current.log, sizeof current.log, "%s", log ? log : "");
    current.cards = (int)size_setting("SIM_DEVICES", 1);
    if (current.cards > SIM_MAX_CARDS) current.cards = SIM_MAX_CARDS;
    current.capacity = size_setting("SIM_CAPACITY", (uint64_t)8 << 30);
    current.host_capacity = size_setting("SIM_GTT", (uint64_t)8 << 30);
    current.interrupt_every = (long)size_setting("SIM_INTERRUPT_EVERY", 0);
}

const struct settings *settings(void) { return &current; }

static uint64_t used[SIM_MAX_CARDS], host_used;

uint64_t host_used_bytes(void) { return host_used; }

uint64_t device_used(int card) { return card >= 0 && card < SIM_MAX_CARDS ? used[card] : 0; }

struct piece *piece_new(struct piece *table, int first, enum place place, int card, uint64_t held, int *index) {
    if (place == DEVICE && (held > current.capacity || used[card] + held > current.capacity)) return NULL;
    bool host = place == HOST || place == REGISTERED;
    if (host && (held > current.host_capacity || host_used + held > current.host_capacity)) return NULL;
    for (int i = first; i < SIM_MAX_OBJECTS; i++) {
        if (table[i].lives) continue;
        if (place == DEVICE) used[card] += held;
        if (host) host_used += held;
        table[i] = (struct piece){.lives = true, .place = place, .card = card, .held = held};
        *index = i;
        behind_changed(card);
        return &table[i];
    }
    return NULL;
}

void piece_drop(struct piece *piece) {
    if (piece->place == DEVICE) used[piece->card] -= piece->held;
    if (piece->place == HOST || piece->place == REGISTERED) host_used -= piece->held;
    piece->lives = false;
    behind_changed(piece->card);
}

// Opened for each line, by system call: the program's own view of its descriptors stays as it is.
void log_line(const struct line *line) {
    if (!current.log[0]) return;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    char text[512];
    int length = snprintf(
        text, sizeof text,
        "{\"at_ns\":%lld,\"pid\":%d,\"thread\":%ld,\"event\":\"%s\",\"api\":\"%s\",\"kind\":\"%s\",\"device\":%d,"
        "\"address\":\"0x%llx\",\"requested_bytes\":%llu,\"held_bytes\":%llu,\"status\":%d,\"device_used_bytes\":%llu}\n",
        (long long)now.tv_sec * 1000000000 + now.tv_nsec, (int)getpid(), syscall(SYS_gettid), line->event, line->api,
        line->kind, line->card, (unsigned long long)line->address, (unsigned long long)line->requested,
        (unsigned long long)line->held, line->status, (unsigned long long)device_used(line->card));
    int fd = (int)syscall(SYS_openat, AT_FDCWD, current.log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return;
    ssize_t written = write(fd, text, (size_t)length);
    (void)written;
    close(fd);
}
