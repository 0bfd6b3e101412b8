// The render node's requests by which libdrm, ROCr and Mesa get to know a card.
#include <errno.h>
#include <libdrm/amdgpu_drm.h>
#include <stddef.h>
#include <string.h>

#include "amdgpu.h"

// A text that is copied where there is room for it, and how long it is.
static bool tell(char *to, __kernel_size_t *length, const char *text) {
    size_t size = strlen(text), room = *length;
    *length = size;
    return room < size || copy_out((uint64_t)to, text, size);
}

// Asked without room for the texts, it says how long they are.
static int version(unsigned char *payload) {
    struct drm_version version;
    memcpy(&version, payload, sizeof version);
    version.version_major = 3;
    version.version_minor = 54;
    bool told = tell(version.name, &version.name_len, "amdgpu") && tell(version.date, &version.date_len, "20150101") &&
                tell(version.desc, &version.desc_len, "AMD GPU");
    memcpy(payload, &version, sizeof version);
    return told ? 0 : -EFAULT;
}

static struct drm_amdgpu_info_device device(void) {
    struct drm_amdgpu_info_device device = {
        .device_id = chip()->device_id,
        .external_rev = chip()->drm_revision,
        .family = chip()->drm_family,
        .num_shader_engines = chip()->shader_engines,
        .num_shader_arrays_per_engine = chip()->arrays_per_engine,
        .gpu_counter_freq = 100000,
        .max_engine_clock = 2250000,
        .max_memory_clock = 1000000,
        .cu_active_number = chip()->compute_units,
        .num_rb_pipes = chip()->shader_engines * chip()->arrays_per_engine * 2,
        .num_hw_gfx_contexts = 8,
        .pcie_gen = 4,
        .pcie_num_lanes = 16,
        .virtual_address_offset = (uint64_t)2 << 20,
        .virtual_address_max = (uint64_t)1 << 47,
        .virtual_address_alignment = 4096,
        .pte_fragment_size = 2 << 20,
        .gart_page_size = 4096,
        .vram_type = AMDGPU_VRAM_TYPE_GDDR6,
        .vram_bit_width = 256,
        .wave_front_size = chip()->wave_lanes,
        .num_shader_visible_vgprs = 1024,
        .num_cu_per_sh = chip()->units_per_array,
        .num_tcc_blocks = 16,
        .gs_vgt_table_depth = 32,
        .gs_prim_buffer_depth = 1792,
        .max_gs_waves_per_vgt = 32,
        .high_va_offset = (uint64_t)0xFFFF8 << 44,
        .high_va_max = (uint64_t)0xFFFFF << 44,
    };
    device.enabled_rb_pipes_mask = (1u << device.num_rb_pipes) - 1;
    for (uint32_t engine = 0; engine < device.num_shader_engines && engine < 4; engine++) {
        for (uint32_t array = 0; array < device.num_shader_arrays_per_engine; array++) {
            device.cu_bitmap[engine][array] = (1u << device.num_cu_per_sh) - 1;
        }
    }
    return device;
}

static struct drm_amdgpu_heap_info heap(uint64_t bytes, uint64_t used) {
    return (struct drm_amdgpu_heap_info){.total_heap_size = bytes, .usable_heap_size = bytes, .heap_usage = used,
                                         .max_allocation = bytes * 3 / 4};
}

static struct drm_amdgpu_memory_info memory(int card) {
    struct drm_amdgpu_heap_info vram = heap(settings()->capacity, device_used(card));
    return (struct drm_amdgpu_memory_info){vram, vram, heap(settings()->host_capacity, host_used_bytes())};
}

// A ring for graphics, one for computing, two for copies; no video.
static struct drm_amdgpu_info_hw_ip engine(uint32_t kind) {
    struct drm_amdgpu_info_hw_ip engine = {
        .hw_ip_version_major = chip()->gfx_major,
        .hw_ip_version_minor = chip()->gfx_minor,
        .ib_start_alignment = 32,
        .ib_size_alignment = 32,
        .ip_discovery_version = chip()->gfx_major << 16 | chip()->gfx_minor << 8 | chip()->gfx_stepping,
    };
    switch (kind) {
        case AMDGPU_HW_IP_GFX: engine.available_rings = 1; break;
        case AMDGPU_HW_IP_COMPUTE: engine.available_rings = 0xF; break;
        case AMDGPU_HW_IP_DMA:
            engine.available_rings = 3;
            engine.hw_ip_version_major = 5;
            engine.hw_ip_version_minor = 2;
            engine.ip_discovery_version = 0x050200;
            break;
        default: return (struct drm_amdgpu_info_hw_ip){0};
    }
    return engine;
}

static const struct drm_amdgpu_info_firmware FIRMWARE = {.ver = 64, .feature = 50};

// The answer goes to where the question says, as much of it as there is room for.
static int info(int card, const unsigned char *payload) {
    struct drm_amdgpu_info question;
    memcpy(&question, payload, sizeof question);
    unsigned char answer[512] = {0};
    struct drm_amdgpu_info_device told = device();
    struct drm_amdgpu_memory_info heaps = memory(card);
    struct drm_amdgpu_info_hw_ip ip = engine(question.query_hw_ip.type);
    switch (question.query) {
        case AMDGPU_INFO_ACCEL_WORKING: put32(answer, 1); break;
        case AMDGPU_INFO_DEV_INFO: memcpy(answer, &told, sizeof told); break;
        case AMDGPU_INFO_READ_MMR_REG: put32(answer, chip()->gb_addr_config); break;
        case AMDGPU_INFO_HW_IP_COUNT: put32(answer, ip.available_rings != 0); break;
        case AMDGPU_INFO_HW_IP_INFO: memcpy(answer, &ip, sizeof ip); break;
        case AMDGPU_INFO_FW_VERSION: memcpy(answer, &FIRMWARE, sizeof FIRMWARE); break;
        case AMDGPU_INFO_MEMORY: memcpy(answer, &heaps, sizeof heaps); break;
        case AMDGPU_INFO_VRAM_USAGE: put64(answer, heaps.vram.heap_usage); break;
        case AMDGPU_INFO_VIS_VRAM_USAGE: put64(answer, heaps.vram.heap_usage); break;
        case AMDGPU_INFO_GTT_USAGE: put64(answer, heaps.gtt.heap_usage); break;
        default: return -EINVAL;
    }
    size_t size = question.return_size < sizeof answer ? question.return_size : sizeof answer;
    return copy_out(question.return_pointer, answer, size) ? 0 : -EFAULT;
}

int behind_drm(int card, unsigned number, size_t size, unsigned char *payload) {
    (void)size;
    switch (number) {
        case 0x00: return version(payload);
        case DRM_COMMAND_BASE + DRM_AMDGPU_INFO: return info(card, payload);
        // The processor's mapping of the same address is all that the engines need.
        case DRM_COMMAND_BASE + DRM_AMDGPU_GEM_VA: return 0;
        default: return graphics_request(number, payload);
    }
}
