// A library with ggml's names logs as ggml does, and the program does with the callback what it likes. Compiled twice: -DPLUGIN is the
// library. The callbacks print what they are given, so a recorder that changes an argument, or comes in between, shows.
//     ggml_log PLUGIN says|callbacks|threads
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum level { DEBUG = 1, INFO = 2, WARN = 3, ERROR = 4, CONT = 5 };
typedef void (*log_callback)(enum level level, const char *text, void *user_data);

#ifdef PLUGIN
#include "hip_min.h"

void ggml_log_callback_default(enum level level, const char *text, void *user_data) {
    printf("default %d %d: %s", level, user_data != NULL, text);
}

static log_callback callback = ggml_log_callback_default;
static void *user_data;

void ggml_log_set(log_callback chosen, void *chosen_data) {
    callback = chosen ? chosen : ggml_log_callback_default;
    user_data = chosen_data;
}

void ggml_log_get(log_callback *current, void **current_data) {
    *current = callback;
    *current_data = user_data;
}

__attribute__((format(printf, 2, 3))) void ggml_log_internal(enum level level, const char *format, ...) {
    char buffer[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(buffer, sizeof buffer, format, arguments);
    va_end(arguments);
    callback(level, buffer, user_data);
}

static int fails(void) {
    void *block;
    return hipMalloc(&block, 4096 * GiB) != hipSuccess;
}

int fail_and_say(int device) {
    if (!fails()) return 1;
    hipGetLastError();
    ggml_log_internal(ERROR, "%s: allocating %.2f MiB on device %d: hipMalloc failed: %s\n", __func__, 4096.0 * 1024, device, "out of memory");
    return 0;
}

int give_some(void) {
    void *block;
    return hipMalloc(&block, MiB);
}

void say_much(void) {
    ggml_log_internal(ERROR, "out of memory: nobody failed yet\n");
    fail_and_say(0);
    ggml_log_internal(DEBUG, "out of memory, for whoever looks closely\n");
    ggml_log_internal(CONT, " ... still out of memory\n");
    ggml_log_internal(INFO, "nothing that matters\n");
    ggml_log_internal(WARN, "failed to fit %d of %d, %d, %d, %5.1f, %zu of memory: %s %c%%\n", 1, 2, 3, 4, 0.25, 4096 * GiB, "all", 'x');
    ggml_log_internal(ERROR, "failed to allocate %e\n", 0.5);
    for (int line = 0; line < 20; line++) ggml_log_internal(ERROR, "failed to allocate, line %d\n", line);
    // More than fits into a record's text.
    if (!fails()) return;
    ggml_log_internal(ERROR, "out of memory %0300d %0300d\n", 7, 8);
    ggml_log_internal(ERROR, "failed to allocate\n\n");
}
#else
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <string.h>

static void (*set)(log_callback, void *);
static void (*get)(log_callback *, void **);
static int (*fail_and_say)(int), (*give_some)(void);

static void prints(enum level level, const char *text, void *user_data) { printf("%s %d: %s", (char *)user_data, level, text); }

static void allocates(enum level level, const char *text, void *user_data) {
    static int depth;
    prints(level, text, user_data);
    if (depth++ == 0) printf("inside: %d %d\n", give_some(), fail_and_say(1));
    depth--;
}

static char other[] = "other";
static void replaces(enum level level, const char *text, void *user_data) {
    prints(level, text, user_data);
    set(prints, other);
}

static jmp_buf out;
static void leaves(enum level level, const char *text, void *user_data) {
    prints(level, text, user_data);
    longjmp(out, 1);
}

static int is_current(log_callback wanted, const void *wanted_data) {
    log_callback current;
    void *data;
    get(&current, &data);
    return current == wanted && data == wanted_data;
}

static int callbacks(log_callback usual) {
    if (!is_current(usual, NULL)) return 2;
    static char own[] = "own";
    set(prints, own);
    if (!is_current(prints, own) || fail_and_say(0)) return 3;
    set(allocates, own);
    if (fail_and_say(0) || !is_current(allocates, own)) return 4;
    set(replaces, own);
    if (fail_and_say(0) || fail_and_say(0) || !is_current(prints, other)) return 5;
    set(leaves, own);
    if (setjmp(out) == 0) fail_and_say(0);
    set(NULL, NULL);
    return fail_and_say(0) || !is_current(usual, NULL) ? 6 : 0;
}

enum { THREADS = 8, ROUNDS = 200 };
static atomic_int lines;
static void counts(enum level level, const char *text, void *user_data) {
    (void)user_data;
    lines += level == ERROR && strstr(text, "out of memory") != NULL;
}

static void *work(void *argument) {
    for (int round = 0; round < ROUNDS; round++) {
        set(counts, argument);
        fail_and_say((int)(size_t)argument);
    }
    return NULL;
}

static int threads(void) {
    pthread_t all[THREADS];
    set(counts, NULL);
    for (size_t i = 0; i < THREADS; i++) pthread_create(&all[i], NULL, work, (void *)i);
    for (size_t i = 0; i < THREADS; i++) pthread_join(all[i], NULL);
    printf("%d lines\n", lines);
    return 0;
}

int main(int argc, char **argv) {
    void *library = argc > 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) return 72;
    set = (void (*)(log_callback, void *))dlsym(library, "ggml_log_set");
    get = (void (*)(log_callback *, void **))dlsym(library, "ggml_log_get");
    fail_and_say = (int (*)(int))dlsym(library, "fail_and_say");
    give_some = (int (*)(void))dlsym(library, "give_some");
    setvbuf(stdout, NULL, _IONBF, 0);
    if (!strcmp(argv[2], "callbacks")) return callbacks((log_callback)dlsym(library, "ggml_log_callback_default"));
    if (!strcmp(argv[2], "threads")) return threads();
    ((void (*)(void))dlsym(library, "say_much"))();
    return 0;
}
#endif
