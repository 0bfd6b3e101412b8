// A mathematical library of which nothing is left but that one gets a handle, or is told that there is no memory for it.
// Built once for each library, with its names and its status for "no memory" (CREATE, DESTROY, NO_MEMORY).
//
// SIM_HANDLE_FAIL_AT: this creation (1-based) of each library fails; 0 is never.
// SIM_HANDLE_STATUS: with this status, where it is not "no memory".
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int CREATE(void **handle) {
    static atomic_long calls;
    static char object;
    const char *text = getenv("SIM_HANDLE_FAIL_AT");
    if (atomic_fetch_add(&calls, 1) + 1 == (text ? strtol(text, NULL, 10) : 0)) {
        const char *status = getenv("SIM_HANDLE_STATUS");
        return status ? (int)strtol(status, NULL, 10) : NO_MEMORY;
    }
    *handle = &object;
    return 0;
}

EXPORT int DESTROY(void *handle) { return handle == NULL; }
