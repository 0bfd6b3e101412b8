// libcuda.so.1: the exported functions, from the tables.
//
// The bodies are static and the exported names aliases of them: neither the look-up nor any call of the library's own
// passes through the PLT, where a preloaded library would catch it. The real driver cannot be caught there either.
#include "driver_api.h"

#include "front_end.h"

#define LOW(address) ((void *)(uintptr_t)(address))

#define DEFINE(symbol, need, body, parameters, arguments)                     \
    static int in_##symbol parameters {                                       \
        const char *enclosing = sim_enter(#symbol);                           \
        int refusal = drv_gate(need);                                         \
        return sim_leave(enclosing, refusal ? refusal : body arguments);      \
    }                                                                         \
    EXPORT int symbol parameters __attribute__((alias("in_" #symbol)));

// First the functions ...
#define CU(symbol, base, version, ...) DEFINE(symbol, NEEDS_CONTEXT, __VA_ARGS__)
#define CU_ANY(symbol, base, version, ...) DEFINE(symbol, NEEDS_INIT, __VA_ARGS__)
#define CU_FREE(symbol, base, version, ...) DEFINE(symbol, NEEDS_NOTHING, __VA_ARGS__)
#define CU_PTSZ(symbol, base, version, twin_version, ...) \
    DEFINE(symbol, NEEDS_CONTEXT, __VA_ARGS__)            \
    DEFINE(symbol##_ptsz, NEEDS_CONTEXT, __VA_ARGS__)
#define CU_PTDS(symbol, base, version, twin_version, ...) \
    DEFINE(symbol, NEEDS_CONTEXT, __VA_ARGS__)            \
    DEFINE(symbol##_ptds, NEEDS_CONTEXT, __VA_ARGS__)
#include "memory_table.h"
#include "work_table.h"
#undef CU
#undef CU_ANY
#undef CU_FREE
#undef CU_PTSZ
#undef CU_PTDS

// ... then what cuGetProcAddress knows of them.
#define CU(symbol, base, version, ...) {#base, version, (void *)in_##symbol, 0, NULL},
#define CU_ANY CU
#define CU_FREE CU
#define CU_PTSZ(symbol, base, version, twin_version, ...) \
    {#base, version, (void *)in_##symbol, twin_version, (void *)in_##symbol##_ptsz},
#define CU_PTDS(symbol, base, version, twin_version, ...) \
    {#base, version, (void *)in_##symbol, twin_version, (void *)in_##symbol##_ptds},
const struct entry drv_entries[] = {
#include "memory_table.h"
#include "work_table.h"
    {NULL, 0, NULL, 0, NULL},
};

void sim_report_failure(void) {}
