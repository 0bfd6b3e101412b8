#include "config.h"

#include "device.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sim_config config;

static size_t size_setting(const char *name, size_t otherwise) {
    const char *text = getenv(name);
    if (!text || !*text) return otherwise;
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    switch (*end) {
        case 'T': value <<= 10; /* fall through */
        case 'G': value <<= 10; /* fall through */
        case 'M': value <<= 10; /* fall through */
        case 'K': value <<= 10; /* fall through */
        default: return (size_t)value;
    }
}

static long number_setting(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtol(text, NULL, 10) : otherwise;
}

static void text_setting(const char *name, const char *otherwise, char *into, size_t size) {
    const char *text = getenv(name);
    snprintf(into, size, "%s", text && *text ? text : otherwise);
}

static bool flag_setting(const char *name) { return number_setting(name, 0) != 0; }

static void read_limits(struct sim_limits *limits) {
    const struct { const char *name; size_t *size; } sizes[] = {
        {"SIM_OTHERS", &limits->others},
        {"SIM_HIDDEN", &limits->hidden},
        {"SIM_HIDDEN_PER_MODULE", &limits->hidden_per_module},
        {"SIM_REPORTED_CAPACITY", &limits->reported_capacity},
        {"SIM_OVER_REPORTED", &limits->over_reported},
        {"SIM_UNDER_REPORTED", &limits->under_reported},
        {"SIM_LARGEST_REQUEST", &limits->largest_request},
        {"SIM_PROCESS_LIMIT", &limits->process},
        {"SIM_PINNED_LIMIT", &limits->pinned},
        {"SIM_RESERVED_LIMIT", &limits->reserved},
        {"SIM_POOL_LIMIT", &limits->pool},
        {"SIM_MANAGED_LIMIT", &limits->managed},
        {"SIM_POOL_LOSES", &limits->lost_per_failure},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) *sizes[i].size = size_setting(sizes[i].name, 0);
    limits->frees_wait = flag_setting("SIM_FREES_WAIT");
    limits->handles_stay = flag_setting("SIM_HANDLES_STAY");
    limits->exports_stay = flag_setting("SIM_EXPORTS_STAY");
    limits->handle_files = flag_setting("SIM_HANDLE_FILES");
    limits->real_mappings = flag_setting("SIM_REAL_MAPPINGS");
    limits->real_addresses = flag_setting("SIM_REAL_ADDRESSES");
    limits->maps_hang = flag_setting("SIM_MAPS_HANG");
    limits->access_fails = flag_setting("SIM_ACCESS_FAILS");
}

static const struct { const char *name; struct sim_card card; } cards[] = {
    {"h200", {.start = 3407872, .context = 548995072, .kept_back = 3276800, .shared_below = 1 << 20, .step = 512,
              .pool_step = 32 << 20, .managed_when_touched = true, .graphs_stay_used = true}},
};

static void read_card(struct sim_card *card) {
    const char *name = getenv("SIM_CARD");
    if (!name || !*name) return;
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
        if (strcmp(name, cards[i].name) != 0) continue;
        *card = cards[i].card;
        return;
    }
    fprintf(stderr, "SIM_CARD: there is no card %s\n", name);
    abort();
}

static void read_sysfs(struct sim_sysfs *sysfs) {
    text_setting("SIM_SYSFS", "", sysfs->root, sizeof sysfs->root);
    text_setting("SIM_SYSFS_CARD", "", sysfs->card, sizeof sysfs->card);
    text_setting("SIM_SYSFS_GPU", "", sysfs->gpu, sizeof sysfs->gpu);
    text_setting("SIM_PCI_BUS_ID", "", sysfs->pci_bus_ids, sizeof sysfs->pci_bus_ids);
}

// When the library is loaded: at the first call, a signal handler that came in between would wait for itself.
__attribute__((constructor)) static void read_environment(void) {
    char last_error[16];
    text_setting("SIM_LAST_ERROR", "rocm6", last_error, sizeof last_error);
    // Copied, not pointed to: the program may change its environment later.
    text_setting("SIM_DEVICE_NAME", "Simulated GPU", config.device_name, sizeof config.device_name);
    text_setting("SIM_LOG", "", config.log_path, sizeof config.log_path);
    text_setting("SIM_CARD_FILE", "", config.card_file, sizeof config.card_file);
    config.capacity = size_setting("SIM_CAPACITY", (size_t)16 << 30);
    config.granularity = size_setting("SIM_GRANULARITY", (size_t)2 << 20);
    if (config.granularity == 0) config.granularity = 1;
    config.alignment = size_setting("SIM_ALIGNMENT", config.granularity);
    config.devices = (int)number_setting("SIM_DEVICES", 1);
    if (config.devices > SIM_MAX_DEVICES) config.devices = SIM_MAX_DEVICES;
    config.version = (int)number_setting("SIM_HIP_VERSION", 60200000);
    config.cuda_version = (int)number_setting("SIM_CUDA_VERSION", 13020);
    config.compute_capability = (int)number_setting("SIM_COMPUTE_CAPABILITY", 86);
    config.context_bytes = size_setting("SIM_CONTEXT_BYTES", 0);
    config.low_addresses = flag_setting("SIM_LOW_ADDRESSES");
    config.fail_at = number_setting("SIM_FAIL_AT", 0);
    config.self_call = flag_setting("SIM_SELF_CALL");
    config.sticky_last_error = strcmp(last_error, "rocm7") == 0;
    config.slow_us = (unsigned)number_setting("SIM_SLOW_US", 0);
    config.slow_at = number_setting("SIM_SLOW_AT", 0);
    read_limits(&config.limits);
    read_card(&config.card);
    read_sysfs(&config.sysfs);
    config.copy_bytes = size_setting("SIM_COPY_BYTES", SIZE_MAX);
    // Others are there before this process is.
    sim_shared_join();
    if (config.sysfs.root[0]) sim_sysfs_update(0, 0, config.limits.others + sim_shared_by_others(0));
}

const struct sim_config *sim_config(void) { return &config; }
