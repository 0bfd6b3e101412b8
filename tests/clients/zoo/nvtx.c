// A client of NVTX 3 that does by hand what its headers do: at the first call it looks for a tool by NVTX_INJECTION64_PATH and
// lets it put its functions into a table; what the tool leaves out does nothing. Compiled twice: -DPLUGIN is a tool.
//
//     nvtx            ranges before and after the first allocation, in all their forms
//     nvtx silent     the same without a GPU call: no trace may come of it
//     nvtx storm      300,000 ranges
//
// The environment must be what it was, and another tool must get what it would get without the recorder.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

typedef void (*function)(void);
typedef const void *(*export_table)(uint32_t);
struct callbacks {
    size_t struct_size;
    int (*module_table)(int module, function ***table, unsigned *size);
};
enum { MARK_A = 2, START_A = 5, END = 7, PUSH_EX = 8, PUSH_A = 9, PUSH_W = 10, POP = 11 };
enum { DOMAIN_MARK = 1, DOMAIN_PUSH = 4, DOMAIN_POP = 5, REGISTER_A = 10, DOMAIN_CREATE_A = 12 };

#ifdef PLUGIN
static int push(const char *message) { return printf("tool: %s\n", message), 7; }

int InitializeInjectionNvtx2(export_table ask) {
    const struct callbacks *callbacks = ask(1);
    function **table;
    unsigned size;
    if (!callbacks->module_table(1, &table, &size) || size <= PUSH_A) return 0;
    *table[PUSH_A] = (function)push;
    return 1;
}
#else
#include "hip_min.h"

extern char **environ;

struct attributes {
    uint16_t version, size;
    uint32_t category, color_type, color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const void *message;
};

static function core[16], core2[16];
static function *core_table[17], *core2_table[17];

static int module_table(int module, function ***table, unsigned *size) {
    if (module != 1 && module != 5) return 0;
    *table = module == 1 ? core_table : core2_table;
    *size = 16;
    return 1;
}

static const struct callbacks exported = {sizeof exported, module_table};

static const void *table_of(uint32_t number) { return number == 1 ? &exported : NULL; }

static void find_tool(void) {
    for (int n = 1; n < 16; n++) core_table[n] = &core[n], core2_table[n] = &core2[n];
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *tool = path ? dlopen(path, RTLD_LAZY) : NULL;
    int (*begin)(export_table) = tool ? (int (*)(export_table))dlsym(tool, "InitializeInjectionNvtx2") : NULL;
    if (begin && begin(table_of) != 1) puts("the tool refuses");
}

static int push(const char *message) { return core[PUSH_A] ? ((int (*)(const char *))core[PUSH_A])(message) : -2; }
static int pop(void) { return core[POP] ? ((int (*)(void))core[POP])() : -2; }
static int push_wide(const wchar_t *message) {
    return core[PUSH_W] ? ((int (*)(const wchar_t *))core[PUSH_W])(message) : -2;
}
static int push_event(const struct attributes *event) {
    return core[PUSH_EX] ? ((int (*)(const struct attributes *))core[PUSH_EX])(event) : -2;
}
static void mark(const char *message) {
    if (core[MARK_A]) ((void (*)(const char *))core[MARK_A])(message);
}
static uint64_t start(const char *message) {
    return core[START_A] ? ((uint64_t(*)(const char *))core[START_A])(message) : 0;
}
static void end(uint64_t number) {
    if (core[END]) ((void (*)(uint64_t))core[END])(number);
}

static void in_a_domain(void) {
    void *domain = core2[DOMAIN_CREATE_A] ? ((void *(*)(const char *))core2[DOMAIN_CREATE_A])("domain") : NULL;
    char text[] = "registered";
    void *handle = core2[REGISTER_A] ? ((void *(*)(void *, const char *))core2[REGISTER_A])(domain, text) : NULL;
    memset(text, 'x', sizeof text - 1);
    struct attributes event = {.version = 3, .size = sizeof event, .message_type = 3, .message = handle};
    if (core2[DOMAIN_PUSH]) ((int (*)(void *, const void *))core2[DOMAIN_PUSH])(domain, &event);
    if (core2[DOMAIN_MARK]) ((void (*)(void *, const void *))core2[DOMAIN_MARK])(domain, &event);
    if (core2[DOMAIN_POP]) ((int (*)(void *))core2[DOMAIN_POP])(domain);
}

static void storm(void) {
    void *block;
    MUST(hipMalloc(&block, 2 * MiB));
    for (int n = 0; n < 300000; n++) push("the label of a step"), pop();
    MUST(hipFree(block));
}

int main(int argc, char **argv) {
    find_tool();
    if (argc > 1 && !strcmp(argv[1], "storm")) return storm(), 0;
    mark("before all");
    printf("%d\n", push("set up"));
    printf("%d\n", push("over before the first call"));
    printf("%d\n", pop());
    uint64_t number = start("load");
    void *block = NULL;
    if (argc == 1) MUST(hipMalloc(&block, 20 * MiB));
    printf("%d\n", push_wide(L"sch\u00f6n"));
    printf("%d\n", pop());
    struct attributes event = {.version = 3, .size = sizeof event, .message_type = 1, .message = "with attributes"};
    printf("%d\n", push_event(&event));
    printf("%d\n", pop());
    in_a_domain();
    end(number);
    printf("%d\n", pop());
    for (char **entry = environ; *entry; entry++)
        if (!strncmp(*entry, "NVTX", 4)) printf("%s\n", strchr(*entry, '=') ? "a variable" : "?");
    if (block) MUST(hipFree(block));
    return 0;
}
#endif
