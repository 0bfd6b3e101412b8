// The files of a simulated machine: the KFD's topology, the cards of the DRM, the processors' caches.
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../engine/chips.h"
#include "launch.h"

#define TOPOLOGY "sys/devices/virtual/kfd/kfd/topology"

static const char *root;

static void make_folders_of(char *path) {
    for (char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = 0;
        must(mkdir(path, 0755) == 0 || errno == EEXIST, "mkdir", path);
        *at = '/';
    }
}

static void write_file(const char *path, const char *format, ...) {
    char full[1024];
    snprintf(full, sizeof full, "%s/%s", root, path);
    make_folders_of(full);
    FILE *file = fopen(full, "w");
    must(file != NULL, "write", full);
    va_list values;
    va_start(values, format);
    vfprintf(file, format, values);
    va_end(values);
    fclose(file);
}

static void make_link(const char *path, const char *target) {
    char full[1024];
    snprintf(full, sizeof full, "%s/%s", root, path);
    make_folders_of(full);
    must(symlink(target, full) == 0, "symlink", full);
}

static const char *path_of(const char *format, ...) {
    static char path[512];
    va_list values;
    va_start(values, format);
    vsnprintf(path, sizeof path, format, values);
    va_end(values);
    return path;
}

static uint64_t host_bytes(void) { return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE); }

static void write_link(int from, int to, int number) {
    write_file(path_of(TOPOLOGY "/nodes/%d/io_links/%d/properties", from, number),
               "type 2\nversion_major 0\nversion_minor 0\nnode_from %d\nnode_to %d\nweight 20\nmin_latency 0\n"
               "max_latency 0\nmin_bandwidth 312\nmax_bandwidth 31504\nrecommended_transfer_size 0\nflags 1\n",
               from, to);
}

static void write_bank(int node, int heap, uint64_t bytes) {
    write_file(path_of(TOPOLOGY "/nodes/%d/mem_banks/0/properties", node),
               "heap_type %d\nsize_in_bytes %llu\nflags 0\nwidth 256\nmem_clk_max 1000\n", heap, (unsigned long long)bytes);
}

static void write_cpu_node(int cards) {
    write_file(TOPOLOGY "/nodes/0/gpu_id", "0\n");
    write_file(TOPOLOGY "/nodes/0/name", "\n");
    write_file(TOPOLOGY "/nodes/0/properties",
               "cpu_cores_count %ld\nsimd_count 0\nmem_banks_count 1\ncaches_count 0\nio_links_count %d\n"
               "p2p_links_count 0\ncpu_core_id_base 0\nsimd_id_base 0\nmax_waves_per_simd 0\nlds_size_in_kb 0\n"
               "wave_front_size 0\ndrm_render_minor 0\nmax_engine_clk_ccompute 3000\n",
               sysconf(_SC_NPROCESSORS_ONLN), cards);
    write_bank(0, 0, host_bytes());
    for (int card = 0; card < cards; card++) write_link(0, card + 1, card);
}

static void write_caches(int node) {
    for (int level = 1; level <= 2; level++) {
        write_file(path_of(TOPOLOGY "/nodes/%d/caches/%d/properties", node, level - 1),
                   "processor_id_low 2147487744\nlevel %d\nsize %d\ncache_line_size 64\ncache_lines_per_tag 1\n"
                   "association 16\nlatency 1\ntype 9\nsibling_map 1,0,0\n",
                   level, level == 1 ? 16 : 4096);
    }
}

// Capability: doorbells of type 2, two watch points, and no shared virtual memory, so that memory comes as buffers.
static void write_gpu_properties(int node, const struct chip *chip, int minor, uint64_t capacity_bytes) {
    char text[4096];
    int length = snprintf(
        text, sizeof text,
        "cpu_cores_count 0\nsimd_count %u\nmem_banks_count 1\ncaches_count 2\nio_links_count 1\np2p_links_count 0\n"
        "cpu_core_id_base 0\nsimd_id_base 2147487744\nmax_waves_per_simd %u\nlds_size_in_kb 64\ngds_size_in_kb 0\n"
        "num_gws 64\nwave_front_size %u\narray_count %u\nsimd_arrays_per_engine %u\ncu_per_simd_array %u\n"
        "simd_per_cu %u\nmax_slots_scratch_cu 32\ngfx_target_version %u\nvendor_id 4098\ndevice_id %u\n",
        chip->compute_units * chip->simds_per_unit, chip->waves_per_simd, chip->wave_lanes,
        chip->shader_engines * chip->arrays_per_engine, chip->arrays_per_engine, chip->units_per_array,
        chip->simds_per_unit, chip->gfx_major * 10000 + chip->gfx_minor * 100 + chip->gfx_stepping, chip->device_id);
    snprintf(text + length, sizeof text - (size_t)length,
             "location_id %d\ndomain 0\ndrm_render_minor %d\nhive_id 0\nnum_sdma_engines 2\nnum_sdma_xgmi_engines %u\n"
             "num_sdma_queues_per_engine 8\nnum_cp_queues 24\nmax_engine_clk_fcompute 2250\nlocal_mem_size %llu\n"
             "fw_version 102\ncapability %u\ndebug_prop 0\nsdma_fw_version 76\nunique_id %d\nnum_xcc 1\n"
             "max_engine_clk_ccompute 3000\n",
             0x300 + (minor - 128) * 0x100, minor, chip->sdma_xgmi_engines, (unsigned long long)capacity_bytes,
             8848u | chip->asic_revision << 22 | (unsigned)chip->sram_ecc << 26, 1000 + minor);
    write_file(path_of(TOPOLOGY "/nodes/%d/properties", node), "%s", text);
}

static void write_gpu_node(int card, const struct chip *chip, uint64_t capacity_bytes) {
    int node = card + 1;
    write_file(path_of(TOPOLOGY "/nodes/%d/gpu_id", node), "%d\n", 0x5A00 + card * 0x111);
    write_file(path_of(TOPOLOGY "/nodes/%d/name", node), "%s\n", chip->name);
    write_gpu_properties(node, chip, 128 + card, capacity_bytes);
    write_bank(node, 1, capacity_bytes);
    write_caches(node);
    write_link(node, 0, 0);
}

static void write_card(int card, const struct chip *chip, uint64_t capacity_bytes, uint64_t host_capacity_bytes) {
    char folder[128];
    snprintf(folder, sizeof folder, "sys/devices/pci0000:00/0000:%02x:00.0", 3 + card);
    write_file(path_of("%s/uevent", folder), "DRIVER=amdgpu\nPCI_ID=1002:%04X\nPCI_SLOT_NAME=0000:%02x:00.0\n",
               chip->device_id, 3 + card);
    write_file(path_of("%s/vendor", folder), "0x1002\n");
    write_file(path_of("%s/device", folder), "0x%04x\n", chip->device_id);
    write_file(path_of("%s/subsystem_vendor", folder), "0x1002\n");
    write_file(path_of("%s/subsystem_device", folder), "0x0e3a\n");
    write_file(path_of("%s/revision", folder), "0xc1\n");
    make_link(path_of("%s/subsystem", folder), "/sys/bus/pci");
    for (int total = 1; total >= 0; total--) {
        const char *name = total ? "total" : "used";
        unsigned long long bytes = total ? capacity_bytes : 0;
        write_file(path_of("%s/mem_info_vram_%s", folder, name), "%llu\n", bytes);
        write_file(path_of("%s/mem_info_vis_vram_%s", folder, name), "%llu\n", bytes);
        write_file(path_of("%s/mem_info_gtt_%s", folder, name), "%llu\n", total ? (unsigned long long)host_capacity_bytes : 0);
    }
    char target[192];
    snprintf(target, sizeof target, "/%s", folder);
    make_link(path_of("sys/class/drm/card%d/device", card), target);
    make_link(path_of("sys/class/drm/renderD%d/device", 128 + card), target);
    make_link(path_of("sys/dev/char/226:%d/device", 128 + card), target);
    write_file(path_of("%s/drm/renderD%d/dev", folder, 128 + card), "226:%d\n", 128 + card);
    write_file(path_of("dev/dri/renderD%d", 128 + card), "%s", "");
    write_file(path_of("dev/dri/card%d", card), "%s", "");
}

// The thunk counts caches by processor, and the C library processors by these files.
static void write_processors(void) {
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    write_file("sys/devices/system/cpu/online", "0-%ld\n", count - 1);
    write_file("sys/devices/system/cpu/possible", "0-%ld\n", count - 1);
    for (long cpu = 0; cpu < count; cpu++) {
        char folder[96];
        snprintf(folder, sizeof folder, "sys/devices/system/cpu/cpu%ld/cache/index0", cpu);
        write_file(path_of("%s/shared_cpu_list", folder), "%ld\n", cpu);
        write_file(path_of("%s/shared_cpu_map", folder), "%x\n", 1u << (cpu % 32));
        write_file(path_of("%s/level", folder), "1\n");
        write_file(path_of("%s/type", folder), "Data\n");
        write_file(path_of("%s/size", folder), "32K\n");
        write_file(path_of("%s/coherency_line_size", folder), "64\n");
        write_file(path_of("%s/ways_of_associativity", folder), "8\n");
        write_file(path_of("%s/physical_line_partition", folder), "1\n");
    }
}

void make_machine(const char *below, const char *chip_name, int cards, uint64_t capacity_bytes, uint64_t host_capacity_bytes) {
    root = below;
    const struct chip *chip = chip_named(chip_name);
    must(chip != NULL, "no such chip", chip_name);
    write_file(TOPOLOGY "/generation_id", "1\n");
    write_file(TOPOLOGY "/system_properties", "platform_oem 0\nplatform_id 0\nplatform_rev 0\n");
    write_cpu_node(cards);
    for (int card = 0; card < cards; card++) {
        write_gpu_node(card, chip, capacity_bytes);
        write_card(card, chip, capacity_bytes, host_capacity_bytes);
    }
    make_link("sys/class/kfd/kfd", "/sys/devices/virtual/kfd/kfd");
    write_file("sys/devices/virtual/kfd/kfd/proc/.keep", "%s", "");
    write_file("sys/module/amdgpu/initstate", "live\n");
    // The limit by which a kernel refuses such memory, although the machine has more: TTM's, of all cards.
    write_file("sys/module/ttm/parameters/pages_limit", "%llu\n",
               (unsigned long long)host_capacity_bytes / (unsigned long long)sysconf(_SC_PAGESIZE));
    write_file("dev/kfd", "%s", "");
    write_processors();
}
