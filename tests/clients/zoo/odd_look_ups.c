// Look-ups that few programs make: empty and null names, RTLD_NEXT from the program and from a library, versions that there
// are not, names that begin like ours, and what dlerror says after each, also when the first GPU calls come in between.
// Arguments: the library, the plugin. What is found and said must be what it is without the recorder; where the global scope
// is asked, the message names the recorder in place of the program, so of that only the name that was looked for is shown.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void say(const char *what, const void *found) {
    const char *message = dlerror();
    const char *reason = message ? strrchr(message, ':') : NULL;
    printf("%s: %s,%s\n", what, found ? "found" : "not found", reason ? reason + 1 : " no message");
}

#ifdef PLUGIN
// What lies behind this library, and what is there at all.
void ask_from_library(const char *when) {
    char what[64];
    const char *names[] = {"hipMalloc", "hipGetLastError", "cudaMalloc", "free"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(what, sizeof what, "%s, library, next %s", when, names[i]);
        say(what, dlsym(RTLD_NEXT, names[i]));
        snprintf(what, sizeof what, "%s, library, any %s", when, names[i]);
        say(what, dlsym(RTLD_DEFAULT, names[i]));
    }
}
#else
static void ask(const char *when) {
    char what[64];
    const char *names[] = {"hipMalloc", "hipGetLastError", "cudaMalloc", "__cudaLaunchKernel", "free", ""};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(what, sizeof what, "%s, program, next %s", when, names[i]);
        say(what, dlsym(RTLD_NEXT, names[i]));
        snprintf(what, sizeof what, "%s, program, any %s", when, names[i]);
        say(what, dlsym(RTLD_DEFAULT, names[i]));
    }
    const char *versions[] = {"hip_4.2", "hip_5.1", "hip_9.9", ""};
    for (unsigned i = 0; i < sizeof versions / sizeof *versions; i++) {
        snprintf(what, sizeof what, "%s, any hipMalloc of %s", when, versions[i]);
        say(what, dlvsym(RTLD_DEFAULT, "hipMalloc", versions[i]));
        snprintf(what, sizeof what, "%s, next hipMalloc of %s", when, versions[i]);
        say(what, dlvsym(RTLD_NEXT, "hipMalloc", versions[i]));
    }
}

static void null_name(void *handle) {
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        // In the way of a compiler that knows that this is wrong.
        const char *volatile name = NULL;
        _exit(dlsym(handle, name) != NULL);
    }
    waitpid(child, &status, 0);
    printf("null name: signal %d, status %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0, WEXITSTATUS(status));
}

int main(int count, char **arguments) {
    if (count != 3) return 72;
    void *plugin = dlopen(arguments[2], RTLD_NOW | RTLD_LOCAL);
    void (*from_library)(const char *) = plugin ? (void (*)(const char *))dlsym(plugin, "ask_from_library") : NULL;
    if (!from_library) return 73;
    ask("nothing loaded");
    from_library("nothing loaded");
    void *hip = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (!hip) return 74;
    ask("loaded locally");
    from_library("loaded locally");
    null_name(hip);
    say("empty name", dlsym(hip, ""));
    say("another's name", dlsym(hip, "cudaMalloc"));
    say("another's version", dlvsym(hip, "hipMalloc", "hip_5.1"));
    say("its version", dlvsym(hip, "hipMalloc", "hip_4.2"));

    // A message waits while GPU functions are called, and is gone when names of theirs are found.
    int (*allocate)(void **, size_t) = (int (*)(void **, size_t))dlsym(hip, "hipMalloc");
    int (*release)(void *) = (int (*)(void *))dlsym(hip, "hipFree");
    void *block;
    // The first call of each is looked up, which the program can see by its message: once.
    if (allocate(&block, 1 << 20) != 0 || release(block) != 0) return 76;
    say("after the first calls", NULL);
    dlsym(hip, "no_such_function");
    int status = allocate(&block, 1 << 20);
    say("after an allocation", NULL);
    dlsym(hip, "no_such_function");
    printf("statuses %d %d\n", status, release(block));
    say("after a free", NULL);
    dlsym(hip, "no_such_function");
    say("after a success", dlsym(hip, "hipMemcpy"));
    dlsym(hip, "no_such_function");
    say("after another failure", dlsym(RTLD_DEFAULT, "hipMemcpy"));

    if (!dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL)) return 75;
    ask("loaded globally");
    from_library("loaded globally");
    return 0;
}
#endif
