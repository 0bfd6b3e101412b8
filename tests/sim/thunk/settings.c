/* The settings of one simulated card, from the environment. */
#include "thunk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct settings sim = {
    .capacity_bytes = 8ull << 30,
    /* The page: what amdgpu charges a KFD buffer in. The 2 MiB blocks seen on top are ROCr's own. */
    .granularity_bytes = SIM_PAGE_BYTES,
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool usable = true;

static void refuse(const char *name, const char *value, const char *wanted)
{
    fprintf(stderr, "simthunk: %s=%s is not %s\n", name, value, wanted);
    usable = false;
}

static void read_size(const char *name, uint64_t *size_bytes)
{
    const char *value = getenv(name);
    if (!value || !*value)
        return;
    char *end;
    errno = 0;
    uint64_t number = strtoull(value, &end, 10);
    unsigned shift = 0;
    switch (*end) {
    case 'K': case 'k': shift = 10; end++; break;
    case 'M': case 'm': shift = 20; end++; break;
    case 'G': case 'g': shift = 30; end++; break;
    }
    if (errno || *end || value[0] == '-' || number == 0 || number > (UINT64_MAX >> shift))
        refuse(name, value, "a size in bytes with an optional K, M or G");
    else
        *size_bytes = number << shift;
}

static void read_chip(void)
{
    const char *value = getenv("SIMTHUNK_GFX");
    sim.chip = chip_named(value && *value ? value : "gfx1030");
    if (!sim.chip || !sim.chip->known_to_rocm5)
        refuse("SIMTHUNK_GFX", value, "one of gfx1030, gfx90a, gfx906");
}

static void load(void)
{
    read_size("SIMTHUNK_CAPACITY", &sim.capacity_bytes);
    read_size("SIMTHUNK_GRANULARITY", &sim.granularity_bytes);
    if (sim.granularity_bytes % SIM_PAGE_BYTES)
        refuse("SIMTHUNK_GRANULARITY", getenv("SIMTHUNK_GRANULARITY"), "a multiple of 4096");
    read_chip();
    const char *path = getenv("SIMTHUNK_LOG");
    sim.log_path = path && *path ? path : NULL;
}

bool settings_load(void)
{
    pthread_once(&once, load);
    return usable;
}

uint64_t align_up(uint64_t bytes, uint64_t step_bytes)
{
    return (bytes + step_bytes - 1) / step_bytes * step_bytes;
}
