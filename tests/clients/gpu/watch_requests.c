// Writes down what a program asks of NVIDIA's drivers, seen from outside of it: what a recorder inside can be compared with.
//
//     gcc -O2 -Wall -Wextra -o watch_requests watch_requests.c
//     ./watch_requests LOG PROGRAM [ARG...]            (env LD_PRELOAD=... as PROGRAM leaves this one without a recorder)
//
// LOG gets one JSON object per line, when a request is over: "what" is "ioctl", or "mmap" for a mapping of such a file. Bytes
// are hexadecimal. "after" is "same" where nothing changed. "nested" is the structure that a request points to, "inner" the
// request that another one carries. A program that dies in a request leaves "return": null.
//
// WATCH_PREFIX    what the path of a descriptor begins with (/dev/nvidia)
// WATCH_SECCOMP   0: stop at every system call instead of at two, for kernels without filters
//
// Layouts: NVIDIA open-gpu-kernel-modules nv_escape.h, nv-ioctl.h, nvos.h, uvm_ioctl.h.
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RM_CONTROL = 0x2A, RM_ALLOC = 0x2B, TRANSFER = 0xD3 };
enum { MOST = 16384, MOST_PAYLOAD = 4096, MOST_CONTROL = 256, UNKNOWN = 256, PAGE = 4096, THREADS = 4096 };

// A structure in the program. Short where not all of it was readable.
struct bytes {
    uint64_t address;
    size_t wanted, before_size, after_size;
    unsigned char before[MOST], after[MOST];
};

// A request that a thread is in.
struct call {
    int is_mmap, fd, inner_number;
    uint64_t seq, arguments[6], entry_ns;
    char node[128];
    struct bytes payload, inner, nested;
};

struct thread {
    pid_t tid, pid;
    struct call *call;
};

static struct thread threads[THREADS];
static FILE *output;
static const char *prefix = "/dev/nvidia";
static uint64_t requests;
static pid_t program;
static int *has_filter; // shared with the child, which installs it

static void die(const char *what) {
    fprintf(stderr, "watch_requests: %s: %s\n", what, strerror(errno));
    exit(125);
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

// Bytes of the structure behind a request of unified memory, which has no size in its number: the larger of 580 and 595.
static size_t uvm_size(uint32_t request) {
    static const struct { uint32_t request; uint16_t size; } sizes[] = {
        {1, 24}, {2, 24}, {23, 16}, {24, 16}, {25, 32}, {26, 20}, {27, 56}, {28, 28}, {29, 36}, {30, 36}, {31, 32}, {33, 9264},
        {34, 24}, {35, 24}, {37, 40}, {38, 20}, {39, 8}, {40, 272}, {41, 272}, {42, 40}, {43, 24}, {44, 24}, {45, 24}, {46, 40},
        {47, 40}, {51, 80}, {53, 32}, {54, 20}, {55, 20}, {56, 56}, {57, 8}, {58, 16}, {59, 16}, {60, 16}, {61, 16}, {62, 40},
        {63, 40}, {64, 16}, {65, 40}, {66, 40}, {67, 4}, {68, 9248}, {69, 4}, {70, 24}, {71, 24}, {72, 24}, {73, 24}, {74, 40},
        {75, 8}, {76, 56}, {77, 16}, {78, 56}, {79, 4}, {80, 32}, {2047, 8}, {0x30000001, 16}, {0x30000002, 0},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].request == request) return sizes[i].size;
    return UNKNOWN;
}

// Copies out of the program, as far as it is readable: page by page, because a piece is read whole or not at all.
static size_t copy(pid_t tid, uint64_t address, size_t size, unsigned char *to) {
    size_t done = 0;
    while (address && done < size) {
        size_t piece = PAGE - (address + done) % PAGE;
        if (piece > size - done) piece = size - done;
        struct iovec here = {to + done, piece}, there = {(void *)(uintptr_t)(address + done), piece};
        if (process_vm_readv(tid, &here, 1, &there, 1, 0) != (ssize_t)piece) break;
        done += piece;
    }
    return done;
}

static void read_before(pid_t tid, struct bytes *bytes, uint64_t address, size_t size, size_t most) {
    bytes->address = address;
    bytes->wanted = size < most ? size : most;
    bytes->before_size = copy(tid, address, bytes->wanted, bytes->before);
}

static void read_after(pid_t tid, struct bytes *bytes) {
    bytes->after_size = copy(tid, bytes->address, bytes->wanted, bytes->after);
}

static uint64_t field(const struct bytes *bytes, size_t at, size_t size) {
    uint64_t value = 0;
    if (at + size <= bytes->before_size) memcpy(&value, bytes->before + at, size);
    return value;
}

// The structure that a request of the resource manager points to.
static void read_nested(pid_t tid, struct call *call, int number, const struct bytes *payload) {
    if (number == RM_ALLOC) {
        // NVOS64_PARAMETERS has paramsSize behind a second pointer, NVOS21_PARAMETERS does not. 0: the class says it.
        size_t size = field(payload, payload->wanted == 48 ? 32 : 24, 4);
        read_before(tid, &call->nested, field(payload, 16, 8), size ? size : UNKNOWN, MOST_PAYLOAD);
    } else if (number == RM_CONTROL) {
        read_before(tid, &call->nested, field(payload, 16, 8), field(payload, 24, 4), MOST_CONTROL);
    }
}

static int is_uvm(const struct call *call) {
    const char *name = strrchr(call->node, '/');
    return name && strncmp(name, "/nvidia-uvm", 11) == 0;
}

static void read_ioctl(pid_t tid, struct call *call) {
    uint32_t request = (uint32_t)call->arguments[1];
    int number = request & 0xFF;
    uint64_t address = call->arguments[2];
    if (is_uvm(call)) {
        read_before(tid, &call->payload, address, uvm_size(request), MOST);
        return;
    }
    read_before(tid, &call->payload, address, request >> 16 & 0x3FFF, MOST_PAYLOAD);
    if ((request >> 8 & 0xFF) != 'F') return;
    if (number != TRANSFER) {
        read_nested(tid, call, number, &call->payload);
        return;
    }
    call->inner_number = (int)field(&call->payload, 0, 4);
    read_before(tid, &call->inner, field(&call->payload, 8, 8), field(&call->payload, 4, 4), MOST_PAYLOAD);
    read_nested(tid, call, call->inner_number, &call->inner);
}

// A system call begins. Whether its end is of interest.
static int begin(struct thread *thread, uint64_t number, const uint64_t *arguments) {
    if (number != SYS_ioctl && number != SYS_mmap) return 0;
    int is_mmap = number == SYS_mmap, fd = (int)arguments[is_mmap ? 4 : 0];
    char path[64], node[128];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", thread->tid, fd);
    ssize_t length = fd < 0 ? -1 : readlink(path, node, sizeof node - 1);
    if (length < 0) return 0;
    node[length] = 0;
    if (strncmp(node, prefix, strlen(prefix)) != 0 || strpbrk(node, "\"\\")) return 0;
    struct call *call = calloc(1, sizeof *call);
    if (!call) die("memory");
    call->is_mmap = is_mmap;
    call->fd = fd;
    call->seq = ++requests;
    memcpy(call->arguments, arguments, sizeof call->arguments);
    strcpy(call->node, node);
    if (!is_mmap) read_ioctl(thread->tid, call);
    call->entry_ns = now();
    thread->call = call;
    return 1;
}

static void write_hex(const char *name, const unsigned char *bytes, size_t size) {
    fprintf(output, ",\"%s\":\"", name);
    for (size_t i = 0; i < size; i++) {
        putc_unlocked("0123456789abcdef"[bytes[i] >> 4], output);
        putc_unlocked("0123456789abcdef"[bytes[i] & 15], output);
    }
    putc_unlocked('"', output);
}

static void write_bytes(const struct bytes *bytes) {
    write_hex("before", bytes->before, bytes->before_size);
    int is_same = bytes->before_size == bytes->after_size && memcmp(bytes->before, bytes->after, bytes->after_size) == 0;
    if (is_same && bytes->after_size) fputs(",\"after\":\"same\"", output);
    else write_hex("after", bytes->after, bytes->after_size);
}

static void write_structure(const char *name, int number, const struct bytes *bytes) {
    if (!bytes->address) return;
    fprintf(output, ",\"%s\":{\"number\":%d,\"address\":%" PRIu64 ",\"size\":%zu", name, number, bytes->address, bytes->wanted);
    write_bytes(bytes);
    putc('}', output);
}

static void write_ioctl(const struct call *call) {
    uint32_t request = (uint32_t)call->arguments[1], letter = request >> 8 & 0xFF;
    fprintf(output, ",\"request\":%u,\"number\":%u,\"letter\":", request, request & 0xFF);
    if (letter > ' ' && letter < 0x7F && letter != '"' && letter != '\\') fprintf(output, "\"%c\"", letter);
    else fprintf(output, "%u", letter);
    fprintf(output, ",\"argument\":%" PRIu64 ",\"size\":%zu", call->arguments[2], call->payload.wanted);
    write_bytes(&call->payload);
    int is_carrier = call->inner.address != 0;
    write_structure("inner", call->inner_number, &call->inner);
    write_structure("nested", is_carrier ? call->inner_number : (int)(request & 0xFF), &call->nested);
}

// The name of a thread, of letters, digits and dashes; others become underscores.
static void write_name(pid_t tid) {
    char path[64], name[17] = "";
    snprintf(path, sizeof path, "/proc/%d/comm", tid);
    FILE *file = fopen(path, "r");
    size_t length = file ? fread(name, 1, sizeof name - 1, file) : 0;
    if (file) fclose(file);
    fputs(",\"name\":\"", output);
    for (size_t i = 0; i < length && name[i] != '\n'; i++) fputc(isalnum((unsigned char)name[i]) || name[i] == '-' ? name[i] : '_', output);
    fputc('"', output);
}

// A system call is over, or its thread is: then nobody knows the result.
static void end(struct thread *thread, int is_known, int64_t result) {
    struct call *call = thread->call;
    thread->call = NULL;
    uint64_t exit_ns = now();
    int failed = result < 0 && result >= -4095;
    if (!is_known) failed = 1;
    if (!(call->is_mmap && failed)) {
        struct bytes *structures[] = {&call->payload, &call->inner, &call->nested};
        for (size_t i = 0; is_known && i < 3; i++) read_after(thread->tid, structures[i]);
        fprintf(output, "{\"what\":\"%s\",\"seq\":%" PRIu64 ",\"pid\":%d,\"tid\":%d,\"entry_ns\":%" PRIu64 ",\"exit_ns\":%" PRIu64,
            call->is_mmap ? "mmap" : "ioctl", call->seq, thread->pid, thread->tid, call->entry_ns, exit_ns);
        write_name(thread->tid);
        fprintf(output, ",\"node\":\"%s\",\"fd\":%d", call->node, call->fd);
        if (!is_known) fputs(",\"return\":null,\"errno\":0", output);
        else fprintf(output, ",\"return\":%" PRId64 ",\"errno\":%d", failed ? -1 : result, failed ? (int)-result : 0);
        if (call->is_mmap)
            fprintf(output, ",\"address\":%" PRId64 ",\"length\":%" PRIu64 ",\"protection\":%" PRIu64 ",\"flags\":%" PRIu64
                ",\"offset\":%" PRIu64, result, call->arguments[1], call->arguments[2], call->arguments[3], call->arguments[5]);
        else write_ioctl(call);
        fputs("}\n", output);
        fflush(output); // whoever ends us early should find what was seen
    }
    free(call);
}

static pid_t process_of(pid_t tid) {
    char path[64], line[128];
    snprintf(path, sizeof path, "/proc/%d/status", tid);
    FILE *status = fopen(path, "r");
    pid_t pid = tid;
    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "Tgid: %d", &pid) == 1) break;
    if (status) fclose(status);
    return pid;
}

static struct thread *thread_of(pid_t tid) {
    struct thread *unused = NULL;
    for (size_t i = 0; i < THREADS; i++) {
        if (threads[i].tid == tid) return &threads[i];
        if (!threads[i].tid && !unused) unused = &threads[i];
    }
    if (!unused) die("too many threads");
    *unused = (struct thread){tid, process_of(tid), NULL};
    return unused;
}

static void forget(pid_t tid) {
    struct thread *thread = thread_of(tid);
    if (thread->call) end(thread, 0, 0);
    thread->tid = 0;
}

// A stop at a system call, by the filter or by ptrace. Whether to stop at its end, too.
static int at_call(struct thread *thread) {
    struct __ptrace_syscall_info info = {0};
    if (ptrace(PTRACE_GET_SYSCALL_INFO, thread->tid, sizeof info, &info) <= 0) return 0;
    if (info.op == PTRACE_SYSCALL_INFO_EXIT) {
        if (thread->call) end(thread, 1, info.exit.rval);
        return 0;
    }
    if (info.op == PTRACE_SYSCALL_INFO_SECCOMP) return begin(thread, info.seccomp.nr, info.seccomp.args);
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY) return begin(thread, info.entry.nr, info.entry.args);
    return 0;
}

static void at_stop(pid_t tid, int status) {
    struct thread *thread = thread_of(tid);
    int signal = WSTOPSIG(status), event = status >> 16, to_end = 0;
    int is_job_control = signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
    if (event == PTRACE_EVENT_STOP && is_job_control) {
        ptrace(PTRACE_LISTEN, tid, 0, 0); // stays stopped until somebody continues it
        return;
    }
    if (event == PTRACE_EVENT_EXEC) {
        // The other threads are gone, and the caller has the number of the first.
        unsigned long before = 0;
        ptrace(PTRACE_GETEVENTMSG, tid, 0, &before);
        if (thread->call) end(thread, 0, 0);
        if ((pid_t)before != tid && before) forget((pid_t)before);
    }
    if (signal == (SIGTRAP | 0x80) || event == PTRACE_EVENT_SECCOMP) to_end = at_call(thread);
    if (event || signal == (SIGTRAP | 0x80)) signal = 0;
    ptrace(to_end || !*has_filter ? PTRACE_SYSCALL : PTRACE_CONT, tid, 0, (void *)(intptr_t)signal);
}

// Stops at ioctl and at mappings of files, and lets all else run at full speed.
static void install_filter(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 0, 5),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[3])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MAP_ANONYMOUS, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    const char *wish = getenv("WATCH_SECCOMP");
    if (wish && strcmp(wish, "0") == 0) return;
    // Who may not install it otherwise gives up the privileges of setuid programs for it.
    int failed = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
    if (failed && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) failed = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
    *has_filter = !failed;
}

static void pass_on(int signal, siginfo_t *info, void *context) {
    (void)context;
    // What the terminal sends it sends to the program as well.
    if (info->si_code <= 0) kill(program, signal);
}

static void start(char **arguments) {
    int gate[2];
    if (pipe2(gate, O_CLOEXEC) != 0) die("pipe");
    program = fork();
    if (program < 0) die("fork");
    if (program == 0) {
        char byte;
        close(gate[1]);
        if (read(gate[0], &byte, 1) != 1) _exit(125);
        install_filter();
        execvp(arguments[0], arguments);
        fprintf(stderr, "watch_requests: %s: %s\n", arguments[0], strerror(errno));
        _exit(127);
    }
    long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC |
        PTRACE_O_TRACESECCOMP;
    if (ptrace(PTRACE_SEIZE, program, 0, (void *)options) != 0) die("ptrace");
    struct sigaction action = {.sa_sigaction = pass_on, .sa_flags = SA_SIGINFO | SA_RESTART};
    int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) sigaction(signals[i], &action, NULL);
    if (write(gate[1], "", 1) != 1) die("pipe");
    close(gate[0]);
    close(gate[1]);
}

// Until the last process is gone: whom nobody watches any more, the filter would refuse every ioctl.
static int watch(void) {
    int result = 125, status;
    pid_t tid;
    while ((tid = waitpid(-1, &status, __WALL)) > 0 || (tid < 0 && errno == EINTR)) {
        if (tid < 0) continue;
        if (WIFSTOPPED(status)) {
            at_stop(tid, status);
            continue;
        }
        forget(tid);
        if (tid == program) result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    return result;
}

int main(int count, char **arguments) {
    if (count < 3) {
        fprintf(stderr, "usage: watch_requests LOG PROGRAM [ARG...]\n");
        return 125;
    }
    if (getenv("WATCH_PREFIX")) prefix = getenv("WATCH_PREFIX");
    output = fopen(arguments[1], "we");
    if (!output) die(arguments[1]);
    has_filter = mmap(NULL, sizeof *has_filter, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (has_filter == MAP_FAILED) die("memory");
    start(arguments + 2);
    int result = watch();
    return fclose(output) == 0 ? result : 125;
}
