/* What distinguishes one simulated chip from another, as far as ROCm's user space looks at it. */
#ifndef GPUOOM_CHIPS_H
#define GPUOOM_CHIPS_H

#include <stdbool.h>
#include <stdint.h>

struct chip {
    const char *name;
    uint32_t gfx_major, gfx_minor, gfx_stepping;
    uint16_t device_id;
    uint32_t compute_units, simds_per_unit, waves_per_simd, wave_lanes;
    uint32_t shader_engines, arrays_per_engine, units_per_array;
    uint32_t asic_revision, sdma_xgmi_engines, gb_addr_config;
    uint32_t vgpr_bytes_per_unit;
    uint32_t drm_family, drm_revision; /* as amdgpu's render node tells them */
    bool sram_ecc;
    bool known_to_rocm5; /* ROCr 5.2 would skip the others without a message */
};

/* NULL for none of that name. */
const struct chip *chip_named(const char *name);

#endif
