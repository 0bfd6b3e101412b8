#include "chips.h"

#include <stddef.h>
#include <string.h>

static const struct chip CHIPS[] = {
    {.name = "gfx1030", .gfx_major = 10, .gfx_minor = 3, .gfx_stepping = 0, .device_id = 0x73bf,
     .compute_units = 72, .simds_per_unit = 2, .waves_per_simd = 16, .wave_lanes = 32,
     .shader_engines = 4, .arrays_per_engine = 2, .units_per_array = 10,
     .asic_revision = 1, .gb_addr_config = 0x444, .vgpr_bytes_per_unit = 0x40000,
     .drm_family = 143, .drm_revision = 0x28, .known_to_rocm5 = true},
    {.name = "gfx90a", .gfx_major = 9, .gfx_minor = 0, .gfx_stepping = 10, .device_id = 0x740f,
     .compute_units = 104, .simds_per_unit = 4, .waves_per_simd = 8, .wave_lanes = 64,
     .shader_engines = 8, .arrays_per_engine = 1, .units_per_array = 14,
     .asic_revision = 1, .sdma_xgmi_engines = 3, .gb_addr_config = 0x22011003,
     .vgpr_bytes_per_unit = 0x80000, .drm_family = 141, .drm_revision = 0x3c, .sram_ecc = true,
     .known_to_rocm5 = true},
    {.name = "gfx906", .gfx_major = 9, .gfx_minor = 0, .gfx_stepping = 6, .device_id = 0x66a1,
     .compute_units = 60, .simds_per_unit = 4, .waves_per_simd = 10, .wave_lanes = 64,
     .shader_engines = 4, .arrays_per_engine = 1, .units_per_array = 16,
     .asic_revision = 1, .sdma_xgmi_engines = 0, .gb_addr_config = 0x22011003,
     .vgpr_bytes_per_unit = 0x40000, .drm_family = 141, .drm_revision = 0x28, .known_to_rocm5 = true},
    {.name = "gfx1100", .gfx_major = 11, .gfx_minor = 0, .gfx_stepping = 0, .device_id = 0x744c,
     .compute_units = 96, .simds_per_unit = 2, .waves_per_simd = 16, .wave_lanes = 32,
     .shader_engines = 6, .arrays_per_engine = 2, .units_per_array = 8,
     .gb_addr_config = 0x545, .vgpr_bytes_per_unit = 0x60000, .drm_family = 145, .drm_revision = 0x01},
    {.name = "gfx942", .gfx_major = 9, .gfx_minor = 4, .gfx_stepping = 2, .device_id = 0x74a1,
     .compute_units = 304, .simds_per_unit = 4, .waves_per_simd = 8, .wave_lanes = 64,
     .shader_engines = 32, .arrays_per_engine = 1, .units_per_array = 10,
     .sdma_xgmi_engines = 14, .gb_addr_config = 0x22011003, .vgpr_bytes_per_unit = 0x80000,
     .drm_family = 141, .drm_revision = 0x46, .sram_ecc = true},
};

const struct chip *chip_named(const char *name)
{
    for (size_t i = 0; i < sizeof CHIPS / sizeof CHIPS[0]; i++) {
        if (strcmp(CHIPS[i].name, name) == 0)
            return &CHIPS[i];
    }
    return NULL;
}
