// What a call answered, in one line that is the same in every run: its status, what it changed of hipMemGetInfo's free memory,
// and the requests to the kernel, if SIM_LOG names the log of the simulated card.
#ifndef HIP_ANSWERS_H
#define HIP_ANSWERS_H

#include <string.h>

#include "hip_any.h"

static const char *section;
static size_t free_before;
static long log_before;
static size_t only_taken;  // if any: of the requests, only those for so much count, and free memory doesn't
static void **given;  // where the call puts an address; null where it gives none

static const char *status_name(int status) {
    static char number[32];
    switch (status) {
        case 0: return "success";
        case 1: return "hipErrorInvalidValue";
        case 2: return "hipErrorOutOfMemory";
        case 17: return "hipErrorInvalidDevicePointer";
        case 101: return "hipErrorInvalidDevice";
        case 201: return "hipErrorInvalidContext";
        case 400: return "hipErrorInvalidHandle";
        case 600: return "hipErrorNotReady";
        case 712: return "hipErrorHostMemoryAlreadyRegistered";
        case 713: return "hipErrorHostMemoryNotRegistered";
        case 801: return "hipErrorNotSupported";
        case 999: return "hipErrorUnknown";
    }
    snprintf(number, sizeof number, "status %d", status);
    return number;
}

static const char *size_text(unsigned long long size) {
    static char texts[4][32];
    static int next;
    char *text = texts[next++ % 4];
    if (size && size % MiB == 0) snprintf(text, 32, "%llu MiB", size / MiB);
    else if (size && size % KiB == 0) snprintf(text, 32, "%llu KiB", size / KiB);
    else snprintf(text, 32, "%llu bytes", size);
    return text;
}

static size_t free_bytes(void) {
    size_t free = 0, total = 0;
    MUST(FUNCTION(hipMemGetInfo)(&free, &total));
    return free;
}

// The question comes first, so that what kills the process is known.
static void ask(const char *what) { printf("%s\t%s\t", section, what), fflush(stdout); }

static void answer(const char *what, const char *text) {
    ask(what);
    puts(text);
}

// A field of a line of the log; empty where it has none.
static const char *field(const char *line, const char *name, char *into, size_t size) {
    char key[64];
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = strstr(line, key);
    into[0] = 0;
    if (!at) return into;
    at += strlen(key);
    at += *at == '"';
    snprintf(into, size, "%.*s", (int)strcspn(at, "\",}"), at);
    return into;
}

// At most so many requests are told one by one: the first copy of a program makes dozens, for its queues.
enum { TOLD = 8 };

// Whether it is one that counts.
static int describe(const char *line, char *text, size_t size) {
    char event[32], kind[32], bytes[32];
    field(line, "event", event, sizeof event);
    field(line, "kind", kind, sizeof kind);
    unsigned long long requested = strtoull(field(line, "requested_bytes", bytes, sizeof bytes), NULL, 10);
    int takes = strcmp(event, "alloc") == 0 || strcmp(event, "failed") == 0 || strcmp(event, "registers") == 0;
    if (takes) snprintf(text, size, "%s %s %s", event, kind, size_text(requested));
    else snprintf(text, size, "%s", event);
    return !only_taken || (takes && requested == only_taken);
}

static long log_size(void) {
    FILE *log = getenv("SIM_LOG") ? fopen(getenv("SIM_LOG"), "r") : NULL;
    if (!log) return -1;
    fseek(log, 0, SEEK_END);
    long size = ftell(log);
    fclose(log);
    return size;
}

static void append_requests(char *text, size_t size) {
    char line[1024], told[1024] = "", one[128];
    int count = 0, taken = 0;
    FILE *log = log_before >= 0 ? fopen(getenv("SIM_LOG"), "r") : NULL;
    if (!log) return;
    fseek(log, log_before, SEEK_SET);
    while (fgets(line, sizeof line, log)) {
        if (!describe(line, one, sizeof one)) continue;
        taken += strncmp(one, "alloc", 5) == 0;
        if (count++ < TOLD) snprintf(told + strlen(told), sizeof told - strlen(told), "%s%s", count > 1 ? ", " : "", one);
    }
    fclose(log);
    if (count > TOLD) snprintf(told, sizeof told, "%d requests, %d of them for memory", count, taken);
    if (count) snprintf(text + strlen(text), size - strlen(text), "; kernel: %s", told);
}

static void begin(const char *what) {
    ask(what);
    free_before = free_bytes();
    log_before = log_size();
}

static void end(int status) {
    char text[2048];
    snprintf(text, sizeof text, "%s%s", status_name(status), status == hipSuccess && given && !*given ? ", and null" : "");
    append_requests(text, sizeof text);
    size_t now = free_bytes();
    if (now != free_before && !only_taken)
        snprintf(text + strlen(text), sizeof text - strlen(text), "; free %c%s", now > free_before ? '+' : '-',
                 size_text(now > free_before ? now - free_before : free_before - now));
    puts(text);
}

// A call whose answer is a line. `step_status` is what it answered, -1 where the release has no such function.
static int step_status;
#define STEP(what, name, ...)                           \
    do {                                                \
        step_status = -1;                               \
        if (!dlsym(hip, #name)) {                       \
            answer(what, "no such function");           \
            break;                                      \
        }                                               \
        begin(what);                                    \
        step_status = FUNCTION(name)(__VA_ARGS__);      \
        end(step_status);                               \
    } while (0)

static void answer_size(const char *what, int status, unsigned long long size) {
    answer(what, status == hipSuccess ? size_text(size) : status_name(status));
}

#endif
