// What is around a program that plays a script (see scene.h): call paths, devices, threads, other processes.
//
//     at NAME ... end       the block below a function of its own: another call path for each name (16 at most)
//     device N              the thread's device from now on
//     thread NAME ... end   the block on a thread of that name, to its end
//     worker NAME ... end   the same on a thread that stays, and keeps its device, for the next block of that name
//     start NAME ... end    the block on a thread of its own, at the same time, with names of its own; join waits for all
//     process NAME ... end  another process on the same cards, without the recorder: up to its first `park`, or to its end
//     resume NAME           lets it go on, up to its next `park`, or to its end
//     give NAME OFFSET SIZE a pool of the program's own gives out a part of the memory NAME; take NAME OFFSET: it is back
#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <spawn.h>
#include <sys/wait.h>

enum { MAX_PATHS = 16, MAX_WORKERS = 32, MAX_PROCESSES = 8 };

__attribute__((weak)) void gpuoom_pool_alloc(const char *pool, const char *name, const void *address, size_t bytes);
__attribute__((weak)) void gpuoom_pool_free(const char *pool, const void *address);

static const char *world_script;

// A frame of its own: nothing is left to do behind a tail call.
#define PATH(n)                                                                 \
    __attribute__((noinline)) static void path_##n(int from, int to) {          \
        play(from, to);                                                         \
        __asm__ volatile("" : : "i"(n));                                        \
    }
PATH(0) PATH(1) PATH(2) PATH(3) PATH(4) PATH(5) PATH(6) PATH(7)
PATH(8) PATH(9) PATH(10) PATH(11) PATH(12) PATH(13) PATH(14) PATH(15)
static void (*const paths[MAX_PATHS])(int, int) = {path_0, path_1, path_2,  path_3,  path_4,  path_5,  path_6,  path_7,
                                                   path_8, path_9, path_10, path_11, path_12, path_13, path_14, path_15};

static const char *path_names[MAX_PATHS];

// In the order of the script: a path's number is the same in each run, whatever thread comes to one first.
static void number_paths(void) {
    for (int line = 0, count = 0; line < line_count; line++) {
        if (strncmp(lines[line], "at ", 3) != 0) continue;
        int number = 0;
        while (number < count && strcmp(path_names[number], lines[line] + 3) != 0) number++;
        if (number == MAX_PATHS) wrong("too many paths", lines[line]);
        if (number == count) path_names[count++] = lines[line] + 3;
    }
}

static void at_path(const char *name, int from, int to) {
    int number = 0;
    while (strcmp(path_names[number], name) != 0) number++;
    paths[number](from, to);
}

struct part { int from, to; char name[16]; long turn; struct store *store; };

static void *play_thread(void *argument) {
    struct part *part = argument;
    prctl(PR_SET_NAME, part->name);
    turn = part->turn;
    store = part->store;
    play(part->from, part->to);
    return NULL;
}

static void in_thread(const char *name, int from, int to) {
    struct part part = {.from = from, .to = to, .turn = turn, .store = store};
    snprintf(part.name, sizeof part.name, "%s", name);
    pthread_t thread;
    if (pthread_create(&thread, NULL, play_thread, &part) == 0) pthread_join(thread, NULL);
}

static struct worker {
    struct part part;
    sem_t begin, done;
} workers[MAX_WORKERS];

static void *work(void *argument) {
    struct worker *worker = argument;
    prctl(PR_SET_NAME, worker->part.name);
    for (;;) {
        while (sem_wait(&worker->begin) != 0) continue;
        turn = worker->part.turn;
        store = worker->part.store;
        play(worker->part.from, worker->part.to);
        sem_post(&worker->done);
    }
    return NULL;
}

static void on_worker(const char *name, int from, int to) {
    struct worker *worker = workers;
    while (worker < workers + MAX_WORKERS && worker->part.name[0] && strcmp(worker->part.name, name) != 0) worker++;
    if (worker == workers + MAX_WORKERS) wrong("too many workers", name);
    bool is_new = !worker->part.name[0];
    worker->part = (struct part){.from = from, .to = to, .turn = turn, .store = store};
    snprintf(worker->part.name, sizeof worker->part.name, "%s", name);
    pthread_t thread;
    if (is_new && (sem_init(&worker->begin, 0, 0) || sem_init(&worker->done, 0, 0) ||
                   pthread_create(&thread, NULL, work, worker)))
        wrong("no thread", name);
    sem_post(&worker->begin);
    while (sem_wait(&worker->done) != 0) continue;
}

static pthread_t started[MAX_WORKERS];
static int started_count;

static void start(const char *name, int from, int to) {
    struct part *part = malloc(sizeof *part);
    *part = (struct part){.from = from, .to = to, .turn = turn, .store = calloc(1, sizeof(struct store))};
    snprintf(part->name, sizeof part->name, "%s", name);
    if (started_count == MAX_WORKERS || pthread_create(&started[started_count++], NULL, play_thread, part) != 0)
        wrong("no thread", name);
}

static struct other { char name[16]; pid_t process; int to, from; } others[MAX_PROCESSES];

// What makes this process's calls fail is no matter of the other one.
static bool is_of_the_card(const char *variable) {
    const char *names[] = {"SIM_CAPACITY=", "SIM_DEVICES=", "SIM_GRANULARITY=", "SIM_CARD_FILE=", "SIM_SYSFS", "SIM_OTHERS=",
                           "SIM_PCI_BUS_ID=", "SIM_HIP_VERSION=", "SIM_COPY_BYTES="};
    if (strncmp(variable, "SIM_", 4) != 0) return strncmp(variable, "LD_PRELOAD=", 11) && strncmp(variable, "GPUOOM_", 7);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strncmp(variable, names[i], strlen(names[i]))) return true;
    return false;
}

// Its directory of KFD goes with a process; the simulated runtime can't see its own end.
static void forget(struct other *other) {
    const char *root = getenv("SIM_SYSFS"), *gpu = getenv("SIM_SYSFS_GPU");
    char directory[512], file[600];
    waitpid(other->process, NULL, 0);
    snprintf(directory, sizeof directory, "%s/sys/class/kfd/kfd/proc/%d", root ? root : "", (int)other->process);
    snprintf(file, sizeof file, "%s/vram_%s", directory, gpu ? gpu : "");
    if (root && *root && gpu) unlink(file), rmdir(directory);
    close(other->to), close(other->from);
    *other = (struct other){0};
}

// Until it has parked, or is at its end.
static void await(struct other *other) {
    char state = 0;
    while (read(other->from, &state, 1) < 0 && errno == EINTR) continue;
    if (state == 'e') forget(other);
    else if (state != 'p') wrong("the other process failed", other->name);
}

static struct other *other_named(const char *name) {
    for (struct other *other = others; other < others + MAX_PROCESSES; other++)
        if (!strcmp(other->name, name)) return other;
    wrong("no such process", name);
    return NULL;
}

static void begin_process(const char *name, int from, int to) {
    extern char **environ;
    struct other *other = other_named("");
    int down[2], up[2], count = 0;
    if (pipe(down) || pipe(up)) wrong("no pipe", name);
    while (environ[count]) count++;
    char **environment = calloc((size_t)count + 1, sizeof *environment), numbers[4][16];
    for (int i = 0, kept = 0; i < count; i++)
        if (is_of_the_card(environ[i])) environment[kept++] = environ[i];
    const int values[4] = {from, to, down[0], up[1]};
    for (int i = 0; i < 4; i++) snprintf(numbers[i], sizeof numbers[i], "%d", values[i]);
    char *arguments[] = {(char *)name, (char *)world_script, numbers[0], numbers[1], numbers[2], numbers[3], NULL};
    if (posix_spawn(&other->process, "/proc/self/exe", NULL, NULL, arguments, environment) != 0) wrong("no process", name);
    free(environment);
    close(down[0]), close(up[1]);
    snprintf(other->name, sizeof other->name, "%s", name);
    other->to = down[1], other->from = up[0];
    await(other);
}

static void resume(const char *name) {
    struct other *other = other_named(name);
    if (write(other->to, "g", 1) != 1) wrong("not there any more", name);
    await(other);
}

static int from_parent, to_parent;

// The part of the script that another process plays.
static int play_other(char **arguments) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    from_parent = atoi(arguments[2]), to_parent = atoi(arguments[3]);
    play(atoi(arguments[0]), atoi(arguments[1]));
    return write(to_parent, "e", 1) == 1 ? 0 : 1;
}

static void park(void) {
    char go;
    if (!to_parent || write(to_parent, "p", 1) != 1 || read(from_parent, &go, 1) != 1) exit(0);
}

static void world_block(const char *command, const char *name, int from, int to) {
    if (!name) wrong("no name", command);
    if (!strcmp(command, "at")) at_path(name, from, to);
    else if (!strcmp(command, "thread")) in_thread(name, from, to);
    else if (!strcmp(command, "worker")) on_worker(name, from, to);
    else if (!strcmp(command, "start")) start(name, from, to);
    else begin_process(name, from, to);
}

// The generator of the script keeps the books; here is only told what it says.
static void tell(const char *line) {
    char name[16] = "", size[32] = "0";
    unsigned long long offset = 0;
    if (sscanf(line, "%*s %15s %llu %31s", name, &offset, size) < 2 || !find(name)) wrong("gives what?", line);
    const char *address = (const char *)find(name)->pointer + offset;
    if (*line == 'g' && gpuoom_pool_alloc) gpuoom_pool_alloc("arena", "block", address, size_of(size));
    if (*line == 't' && gpuoom_pool_free) gpuoom_pool_free("arena", address);
}

static bool world_command(const char *command, const char *a, const char *line) {
    if (!strcmp(command, "device")) must(GPU(SetDevice)(a ? atoi(a) : 0), "device");
    else if (!strcmp(command, "join"))
        while (started_count > 0) pthread_join(started[--started_count], NULL);
    else if (!strcmp(command, "resume")) resume(a ? a : "");
    else if (!strcmp(command, "park")) park();
    else if (!strcmp(command, "give") || !strcmp(command, "take")) tell(line);
    else return false;
    return true;
}
