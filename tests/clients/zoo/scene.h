// Plays a script: what a program does with GPU memory, one command a line (or between semicolons). The right program for
// each story of tests/tests/diagnoses, without a source file of its own. `@FILE` is a script in a file. Commands for what is
// around a program (call paths, devices, threads, other processes) are in scene_world.h.
//
//     alloc NAME SIZE      device memory; also async, host, managed, virtual (reserve, create, map), register
//     push SIZE [COUNT]    blocks of device memory on a stack; pop [COUNT] frees the latest ones (all without a number)
//     through FILE [FUNCTION]   from now on a loaded library asks for `alloc` and `push`, in a function of that name
//     device N             the thread's device
//     release NAME         unmaps and releases virtual memory, and keeps its addresses
//     unmap NAME           only unmaps it: its handle still has the memory
//     free NAME            gives back what NAME is, the way it was made
//     reserve SIZE         addresses without memory
//     copy NAME, fetch NAME, use NAME   to the device, from it, within it (NAME may be a failed allocation)
//     export NAME          a handle of it for other processes
//     device N             what follows on this thread is on that device
//     launch, sync, query  a kernel, a synchronisation, the last error
//     keep SIZE, trim      what the default pool keeps at a synchronisation; release all of it
//     capture, end_capture a stream's capture
//     module, unload       loads a module; unloads the latest one
//     handle FILE FUNCTION a library's handle
//     load FILE            a shared object
//     mark LABEL           gpuoom_mark
//     failures exit|go|retry|throw  what a refused allocation leads to: exit 1 with a message (the default), the next
//                          command, one more try after what stands in the block `on_failure`
//     loop N ... end       repeats; a size may grow with it: 1G+64M is 1G, 1G+64M, 1G+128M ...
//     on_failure ... end   played when an allocation is refused, before it is tried again
//     sleep MS, files N, mappings LEFT   waits; lowers the limit of descriptors; maps pages until so many mappings are left
//     addresses SIZE       lowers the limit of addresses to so many more than are mapped
//     open N               opens so many files that have nothing to do with the GPU
//     resident SIZE        touches memory of the host
//     exit N, abort, kill, crash; kill_in MS
//     child                the rest is played by a forked child; this process waits for it and ends
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

__attribute__((weak)) void gpuoom_mark(const char *label);

enum { MAX_LINES = 1 << 16, MAX_NAMES = 512, MAX_STACK = 1 << 16, NO_MEMORY = 2 };

struct ipc_handle { char bytes[64]; };
int GPU(IpcGetMemHandle)(struct ipc_handle *handle, void *pointer);

struct thing {
    char name[16];
    char how;  // first letter of the command that made it; V for virtual memory
    void *pointer, *handle;
    size_t size;
};

static char *lines[MAX_LINES];
static int line_count, on_failure = -1;
// What a thread has names for. All threads share the first one, unless they run at the same time.
struct store {
    struct thing things[MAX_NAMES];
    struct { void *pointer; size_t size; } stack[MAX_STACK];
    int stacked;
};
static struct store common;
static __thread struct store *store = &common;
static void *modules[4096];
static int loaded;
static char policy[8] = "exit";
static int (*through)(int (*)(void **, size_t), void **, size_t);
static __thread long turn;  // of the innermost loop
static void *graph;

static void play(int from, int to);

static void wrong(const char *what, const char *line) {
    fprintf(stderr, "scene: %s: %s\n", what, line);
    exit(99);
}

// What must succeed in a sound script.
static void must(int status, const char *line) {
    if (status != 0) wrong("failed", line);
}

static size_t one_size(const char *text, char **end) {
    size_t size = strtoull(text, end, 10);
    switch (**end) {
        case 'T': size <<= 10; /* fall through */
        case 'G': size <<= 10; /* fall through */
        case 'M': size <<= 10; /* fall through */
        case 'K': size <<= 10; ++*end;
    }
    return size;
}

static size_t size_of(const char *text) {
    char *end;
    size_t size = one_size(text, &end);
    if (*end == '+') size += (size_t)turn * one_size(end + 1, &end);
    if (*end) wrong("no size", text);
    return size;
}

static struct thing *find(const char *name) {
    for (int i = 0; i < MAX_NAMES; i++)
        if (strcmp(store->things[i].name, name) == 0) return &store->things[i];
    return NULL;
}

static int make_virtual(struct thing *thing) {
#ifdef WITHOUT_DRIVER
    (void)thing;
    return 801;
#else
    hipMemAllocationProp properties = {.type = 1, .location = {1, 0}};
    hipMemAccessDesc access = {.location = {1, 0}, .flags = 3};
    int status = hipMemAddressReserve(&thing->pointer, thing->size, 0, NULL, 0);
    if (status) return status;
    status = hipMemCreate(&thing->handle, thing->size, &properties, 0);
    if (status == 0) status = hipMemMap(thing->pointer, thing->size, 0, thing->handle, 0);
    if (status == 0) status = hipMemSetAccess(thing->pointer, thing->size, &access, 1);
    return status;
#endif
}

static int free_virtual(struct thing *thing, int addresses_too) {
#ifdef WITHOUT_DRIVER
    (void)thing, (void)addresses_too;
    return 801;
#else
    hipMemUnmap(thing->pointer, thing->size);
    hipMemRelease(thing->handle);
    if (!addresses_too) return 0;
    return hipMemAddressFree(thing->pointer, thing->size);
#endif
}

static int make_once(struct thing *thing) {
    switch (thing->how) {
        case 'a':
            if (through) return through(GPU(Malloc), &thing->pointer, thing->size);
            return GPU(Malloc)(&thing->pointer, thing->size);
        case 's': return GPU(MallocAsync)(&thing->pointer, thing->size, NULL);
        case 'm': return GPU(MallocManaged)(&thing->pointer, thing->size, 1);
        case 'v': return make_virtual(thing);
        case 'r':
            thing->pointer =
                mmap(NULL, thing->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            return GPU(HostRegister)(thing->pointer, thing->size, 0);
#ifdef WITHOUT_DRIVER
        default: return GPU(HostAlloc)(&thing->pointer, thing->size, 0);
#else
        default: return GPU(HostMalloc)(&thing->pointer, thing->size, 0);
#endif
    }
}

// A size of 0 or another error is no matter of memory, and no part of any story.
static void make(struct thing *thing, const char *line) {
    int status = make_once(thing);
    if (status == NO_MEMORY && strcmp(policy, "retry") == 0) {
        if (on_failure >= 0) play(on_failure, line_count);
        status = make_once(thing);
    }
    if (status == 0) return;
    thing->pointer = NULL;
    if (strcmp(policy, "go") == 0) return;
    fprintf(stderr, "scene: %s: %s\n", line, GPU(GetErrorString)(status));
    exit(1);
}

static void give_back(struct thing *thing, const char *line) {
    switch (thing->how) {
        case 'a':
        case 'm': must(GPU(Free)(thing->pointer), line); break;
        case 's': must(GPU(FreeAsync)(thing->pointer, NULL), line); break;
        case 'v': must(free_virtual(thing, 1), line); break;
        case 'r': must(GPU(HostUnregister)(thing->pointer), line); break;
#ifdef WITHOUT_DRIVER
        default: must(GPU(FreeHost)(thing->pointer), line);
#else
        default: must(GPU(HostFree)(thing->pointer), line);
#endif
    }
    *thing = (struct thing){0};
}

static void push(size_t size, long count, const char *line) {
    for (long i = 0; i < count; i++) {
        struct thing block = {.how = 'a', .size = size};
        make(&block, line);
        if (store->stacked == MAX_STACK) wrong("too many blocks", line);
        if (!block.pointer) continue;
        store->stack[store->stacked].size = size;
        store->stack[store->stacked++].pointer = block.pointer;
    }
}

static void copy(const char *name, int to_device, const char *line) {
    static char host[4096];
    struct thing *thing = find(name);
    int top = store->stacked - 1;
    void *pointer = thing ? thing->pointer : top >= 0 ? store->stack[top].pointer : NULL;
    size_t size = thing ? thing->size : top >= 0 ? store->stack[top].size : 1;
    (void)line;
    // The simulated device moves no more than SIM_COPY_BYTES of it.
    if (to_device) GPU(Memcpy)(pointer, host, size, DESTINATION_DEVICE);
    else GPU(Memcpy)(host, pointer, size, DESTINATION_HOST);
}

static void export_memory(struct thing *thing, const char *line) {
    struct ipc_handle handle;
    must(thing ? GPU(IpcGetMemHandle)(&handle, thing->pointer) : 1, line);
}

static void launch(void) {
    static char kernel;
    dim3 one = {1, 1, 1};
    GPU(LaunchKernel)(&kernel, one, one, NULL, 0, NULL);
}

static void make_handle(const char *file, const char *function) {
    void *library = dlopen(file, RTLD_NOW);
    int (*create)(void **) = library ? (int (*)(void **))dlsym(library, function) : NULL;
    if (!create) wrong("no such function", file);
    void *handle;
    int status = create(&handle);
    if (status == 0 || strcmp(policy, "go") == 0) return;
    fprintf(stderr, "scene: %s: status %d\n", function, status);
    exit(1);
}

static void map_until(long left) {
    FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
    long limit = 0, used = 0;
    if (!file || fscanf(file, "%ld", &limit) != 1) wrong("no limit", "mappings");
    fclose(file);
    file = fopen("/proc/self/maps", "r");
    for (int c; (c = getc(file)) != EOF;) used += c == '\n';
    fclose(file);
    // Each other page of a range with another protection: two mappings for each.
    size_t pages = limit > used + left ? (size_t)(limit - used - left) : 0;
    char *range = mmap(NULL, pages * 4096 + 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (size_t page = 1; page < pages; page += 2) mprotect(range + page * 4096, 4096, PROT_READ);
}

static void limit_addresses(size_t left) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld", &pages) != 1) wrong("no size", "addresses");
    fclose(file);
    rlim_t most = (rlim_t)pages * 4096 + left;
    setrlimit(RLIMIT_AS, &(struct rlimit){most, most});
}

static void pool(const char *command, const char *size) {
    void *pool;
    GPU(DeviceGetDefaultMemPool)(&pool, 0);
    uint64_t keep = size ? size_of(size) : 0;
    if (*command == 't') GPU(MemPoolTrimTo)(pool, 0);
    else GPU(MemPoolSetAttribute)(pool, 4, &keep);
}

#include "scene_world.h"

static bool begins_block(const char *text) {
    const char *blocks[] = {"loop ", "on_failure", "thread ", "at ", "worker ", "start ", "process "};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        if (!strncmp(text, blocks[i], strlen(blocks[i]))) return true;
    return false;
}

// The line of the `end` that belongs to the block which begins at this line.
static int end_of(int line) {
    for (int depth = 0; line < line_count; line++) {
        if (begins_block(lines[line])) depth++;
        if (!strcmp(lines[line], "end") && --depth == 0) return line;
    }
    wrong("no end", "of a block");
    return line_count;
}

static void kill_now(int number) {
    (void)number;
    raise(SIGKILL);
}

static void kill_in(long milliseconds) {
    signal(SIGALRM, kill_now);
    struct itimerval once = {.it_value = {milliseconds / 1000, milliseconds % 1000 * 1000}};
    setitimer(ITIMER_REAL, &once, NULL);
}

static void go_through(const char *file, const char *function) {
    void *library = dlopen(file, RTLD_NOW | RTLD_NOLOAD);
    if (!function) function = "scene_allocate";
    through = library ? (int (*)(int (*)(void **, size_t), void **, size_t))dlsym(library, function) : NULL;
    if (!through) wrong("not loaded", file);
}

static void process_command(const char *command, const char *a) {
    long number = a ? atol(a) : 0;
    if (!strcmp(command, "sleep")) {
        nanosleep(&(struct timespec){number / 1000, number % 1000 * 1000000}, NULL);
    } else if (!strcmp(command, "files")) {
        setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)number, (rlim_t)number});
    } else if (!strcmp(command, "addresses")) {
        limit_addresses(size_of(a));
    } else if (!strcmp(command, "open")) {
        while (number-- > 0 && open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0) continue;
    } else if (!strcmp(command, "resident")) {
        // Volatile: nobody reads it, and a compiler would leave it out.
        static void *volatile resident;
        resident = memset(malloc(size_of(a)), 1, size_of(a));
        (void)resident;
    } else if (!strcmp(command, "mappings")) {
        map_until(number);
    } else if (!strcmp(command, "load")) {
        if (!dlopen(a, RTLD_NOW | RTLD_GLOBAL)) wrong("can't be loaded", a);
    } else if (!strcmp(command, "mark")) {
        if (gpuoom_mark) gpuoom_mark(a);
    } else if (!strcmp(command, "failures")) {
        snprintf(policy, sizeof policy, "%s", a);
    } else if (!strcmp(command, "exit")) {
        exit((int)number);
    } else if (!strcmp(command, "child")) {
        if (fork() == 0) return;
        wait(NULL);
        exit(0);
    } else if (!strcmp(command, "abort")) {
        abort();
    } else if (!strcmp(command, "kill")) {
        raise(SIGKILL);
    } else if (!strcmp(command, "kill_in")) {
        kill_in(number);
    } else if (!strcmp(command, "crash")) {
        raise(SIGSEGV);
    } else {
        wrong("no such command", command);
    }
}

static void gpu_command(const char *command, char *a, char *b, const char *line) {
    const char *makers[] = {"alloc", "async", "host", "managed", "virtual", "register"};
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++) {
        if (strcmp(command, makers[i]) != 0) continue;
        struct thing *thing = find(a) ? find(a) : find("");
        if (!thing) wrong("too many names", line);
        *thing = (struct thing){.how = "ashmvr"[i], .size = size_of(b)};
        snprintf(thing->name, sizeof thing->name, "%s", a);
        make(thing, line);
        return;
    }
    if (!strcmp(command, "free")) give_back(find(a), line);
    else if (!strcmp(command, "release")) must(free_virtual(find(a), 0), line);
    else if (!strcmp(command, "push")) push(size_of(a), b ? atol(b) : 1, line);
    else if (!strcmp(command, "pop"))
        for (long n = a ? atol(a) : store->stacked; n > 0 && store->stacked > 0; n--)
            must(GPU(Free)(store->stack[--store->stacked].pointer), line);
    else if (!strcmp(command, "copy") || !strcmp(command, "fetch")) copy(a ? a : "-", *command == 'c', line);
    else if (!strcmp(command, "export")) export_memory(find(a), line);
    else if (!strcmp(command, "use")) GPU(Memcpy)(find(a)->pointer, find(a)->pointer, find(a)->size, 3);
    else if (!strcmp(command, "device")) must(GPU(SetDevice)(atoi(a)), line);
    else if (!strcmp(command, "launch")) launch();
    else if (!strcmp(command, "sync")) GPU(DeviceSynchronize)();
    else if (!strcmp(command, "query")) GPU(GetErrorString)(GPU(GetLastError)());
    else if (!strcmp(command, "keep") || !strcmp(command, "trim")) pool(command, a);
    else if (!strcmp(command, "capture")) must(GPU(StreamBeginCapture)(NULL, 2), line);
    else if (!strcmp(command, "end_capture")) must(GPU(StreamEndCapture)(NULL, &graph), line);
    else if (!strcmp(command, "handle")) make_handle(a, b);
    else if (!strcmp(command, "through")) go_through(a, b);
    else if (!strcmp(command, "device")) must(GPU(SetDevice)(atoi(a)), line);
#ifndef WITHOUT_DRIVER
    else if (!strcmp(command, "module")) must(hipModuleLoadData(&modules[loaded++ % 4096], "code"), line);
    else if (!strcmp(command, "unload")) must(hipModuleUnload(modules[--loaded % 4096]), line);
    else if (!strcmp(command, "unmap")) must(hipMemUnmap(find(a)->pointer, find(a)->size), line);
    else if (!strcmp(command, "reserve")) {
        void *range;
        if (hipMemAddressReserve(&range, size_of(a), 0, NULL, 0) && strcmp(policy, "go") != 0) exit(1);
    }
#endif
    else process_command(command, a);
}

static void play(int from, int to) {
    for (int line = from; line < to; line++) {
        char text[128], *rest = text;
        snprintf(text, sizeof text, "%s", lines[line]);
        char *command = strsep(&rest, " "), *a = strsep(&rest, " "), *b = strsep(&rest, " ");
        if (!strcmp(command, "end")) return;
        if (!strcmp(command, "loop")) {
            int end = end_of(line);
            long outer = turn;
            for (turn = 0; turn < atol(a); turn++) play(line + 1, end);
            turn = outer;
            line = end;
        } else if (!strcmp(command, "on_failure")) {
            on_failure = line + 1;
            line = end_of(line);
        } else if (begins_block(lines[line])) {
            int end = end_of(line);
            world_block(command, a, line + 1, end);
            line = end;
        } else if (!world_command(command, a, lines[line])) {
            gpu_command(command, a, b, lines[line]);
        }
    }
}

static char *script_of(const char *argument) {
    if (*argument != '@') return strdup(argument);
    FILE *file = fopen(argument + 1, "r");
    char *text = NULL;
    size_t size = 0;
    if (!file || getdelim(&text, &size, '\0', file) < 0) wrong("no script", argument);
    fclose(file);
    return text;
}

int main(int count, char **arguments) {
    world_script = count > 1 ? arguments[1] : "";
    char *script = script_of(world_script);
    for (char *line; (line = strsep(&script, ";\n"));) {
        while (*line == ' ') line++;
        if (!*line) continue;
        if (line_count == MAX_LINES) wrong("too many lines", line);
        lines[line_count++] = line;
    }
    (void)modules, (void)loaded;
    number_paths();
    if (count > 2) return play_other(arguments + 2);
    play(0, line_count);
    return 0;
}
