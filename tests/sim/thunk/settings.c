/* The settings of one simulated card, from the environment. */
#include "thunk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ROCr 5.2 knows these three; a chip it does not know would be skipped without a message. */
static const struct chip CHIPS[] = {
    {.name = "gfx1030", .gfx_major = 10, .gfx_minor = 3, .gfx_stepping = 0, .device_id = 0x73bf,
     .compute_units = 72, .simds_per_unit = 2, .waves_per_simd = 16, .wave_lanes = 32,
     .shader_engines = 4, .arrays_per_engine = 2, .units_per_array = 10,
     .asic_revision = 1, .gb_addr_config = 0x444, .vgpr_bytes_per_unit = 0x40000},
    {.name = "gfx90a", .gfx_major = 9, .gfx_minor = 0, .gfx_stepping = 10, .device_id = 0x740f,
     .compute_units = 104, .simds_per_unit = 4, .waves_per_simd = 8, .wave_lanes = 64,
     .shader_engines = 8, .arrays_per_engine = 1, .units_per_array = 14,
     .asic_revision = 1, .sdma_xgmi_engines = 3, .gb_addr_config = 0x22011003,
     .vgpr_bytes_per_unit = 0x80000, .sram_ecc = true},
    {.name = "gfx906", .gfx_major = 9, .gfx_minor = 0, .gfx_stepping = 6, .device_id = 0x66a1,
     .compute_units = 60, .simds_per_unit = 4, .waves_per_simd = 10, .wave_lanes = 64,
     .shader_engines = 4, .arrays_per_engine = 1, .units_per_array = 16,
     .asic_revision = 1, .sdma_xgmi_engines = 0, .gb_addr_config = 0x22011003,
     .vgpr_bytes_per_unit = 0x40000},
};

struct settings sim = {
    .capacity_bytes = 8ull << 30,
    /* The page: what amdgpu charges a KFD buffer in. The 2 MiB blocks seen on top are ROCr's own. */
    .granularity_bytes = SIM_PAGE_BYTES,
    .chip = &CHIPS[0],
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
    if (!value || !*value)
        return;
    for (size_t i = 0; i < sizeof CHIPS / sizeof CHIPS[0]; i++) {
        if (strcmp(CHIPS[i].name, value) == 0) {
            sim.chip = &CHIPS[i];
            return;
        }
    }
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
