// The render node's requests by which libdrm and ROCr get to know a card, and those for imported buffers.
#include <errno.h>
#include <libdrm/amdgpu_drm.h>
#include <stddef.h>
#include <string.h>

#include "amdgpu.h"

#define MAX_HANDLES 4096

// Where imported buffers can be mapped, by card and handle.
static uint64_t offsets[SIM_MAX_CARDS][MAX_HANDLES];

void behind_import(int card, uint32_t handle, int dmabuf) {
    uint64_t size;
    if (handle < MAX_HANDLES) offsets[card][handle] = exported_offset(dmabuf, &size);
}

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
    return (struct drm_amdgpu_info_device){
        .device_id = chip()->device_id,
        .external_rev = chip()->drm_revision,
        .family = chip()->drm_family,
        .num_shader_engines = chip()->shader_engines,
        .num_shader_arrays_per_engine = chip()->arrays_per_engine,
        .gpu_counter_freq = 100000,
        .max_engine_clock = 2250000,
        .max_memory_clock = 1000000,
        .cu_active_number = chip()->compute_units,
        .virtual_address_offset = (uint64_t)2 << 20,
        .virtual_address_max = (uint64_t)1 << 47,
        .virtual_address_alignment = 4096,
        .pte_fragment_size = 2 << 20,
        .gart_page_size = 4096,
        .vram_bit_width = 256,
        .wave_front_size = chip()->wave_lanes,
        .high_va_offset = (uint64_t)0xFFFF8 << 44,
        .high_va_max = (uint64_t)0xFFFFF << 44,
    };
}

// The answer goes to where the question says, as much of it as there is room for.
static int info(const unsigned char *payload) {
    struct drm_amdgpu_info question;
    memcpy(&question, payload, sizeof question);
    unsigned char answer[512] = {0};
    struct drm_amdgpu_info_device told = device();
    switch (question.query) {
        case AMDGPU_INFO_ACCEL_WORKING: put32(answer, 1); break;
        case AMDGPU_INFO_DEV_INFO: memcpy(answer, &told, sizeof told); break;
        case AMDGPU_INFO_READ_MMR_REG: put32(answer, chip()->gb_addr_config); break;
        case AMDGPU_INFO_HW_IP_COUNT: put32(answer, 1); break;
        default: return -EINVAL;
    }
    size_t size = question.return_size < sizeof answer ? question.return_size : sizeof answer;
    return copy_out(question.return_pointer, answer, size) ? 0 : -EFAULT;
}

static int gem_mmap(int card, unsigned char *payload) {
    uint32_t handle = get32(payload);
    if (handle >= MAX_HANDLES || !offsets[card][handle]) return -EINVAL;
    put64(payload, offsets[card][handle]);
    return 0;
}

int behind_drm(int card, unsigned number, size_t size, unsigned char *payload) {
    (void)size;
    switch (number) {
        case 0x00: return version(payload);
        case DRM_COMMAND_BASE + DRM_AMDGPU_GEM_MMAP: return gem_mmap(card, payload);
        case DRM_COMMAND_BASE + DRM_AMDGPU_INFO: return info(payload);
        // The processor's mapping of the same address is all that the engines need.
        case DRM_COMMAND_BASE + DRM_AMDGPU_GEM_VA: return 0;
        default: return -EINVAL;
    }
}
