// cuGetProcAddress: base name, version and flags choose one of the functions that share a name.
#include <string.h>

#include "driver_api.h"

enum { FOUND, NOT_FOUND, VERSION_TOO_LOW };
enum { PER_THREAD_STREAM = 2, ALL_FLAGS = 3 };

// The newest that the version asked for has; null, and why, where it has none.
static void *look_up(const char *name, int version, unsigned long long flags, int *found) {
    const struct entry *best = NULL;
    *found = NOT_FOUND;
    for (const struct entry *entry = drv_entries; entry->base; entry++) {
        if (strcmp(entry->base, name) != 0) continue;
        if (*found == NOT_FOUND) *found = VERSION_TOO_LOW;
        if (entry->version <= version && (!best || entry->version > best->version)) best = entry;
    }
    if (!best) return NULL;
    *found = FOUND;
    bool twin = flags == PER_THREAD_STREAM && best->twin && best->twin_version <= version;
    return twin ? best->twin : best->function;
}

int drv_GetProcAddress(const char *name, void **function, int version, unsigned long long flags, int *found) {
    if (!name || !function || flags > ALL_FLAGS) return SIM_INVALID_VALUE;
    if (version > sim_config()->cuda_version) return SIM_INVALID_VALUE;
    int result;
    *function = look_up(name, version, flags, &result);
    if (found) *found = result;
    // Success in any case: what was found stands in `found`.
    return SIM_SUCCESS;
}

int drv_GetProcAddress_v1(const char *name, void **function, int version, unsigned long long flags) {
    int found = FOUND;
    int status = drv_GetProcAddress(name, function, version, flags, &found);
    return status == SIM_SUCCESS && found != FOUND ? SIM_NOT_FOUND : status;
}
