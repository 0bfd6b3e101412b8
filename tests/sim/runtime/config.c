#include "config.h"

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

// When the library is loaded: at the first call, a signal handler that came in between would wait for itself.
__attribute__((constructor)) static void read_environment(void) {
    char last_error[16];
    text_setting("SIM_LAST_ERROR", "rocm6", last_error, sizeof last_error);
    // Copied, not pointed to: the program may change its environment later.
    text_setting("SIM_DEVICE_NAME", "Simulated GPU", config.device_name, sizeof config.device_name);
    text_setting("SIM_LOG", "", config.log_path, sizeof config.log_path);
    config.capacity = size_setting("SIM_CAPACITY", (size_t)16 << 30);
    config.granularity = size_setting("SIM_GRANULARITY", (size_t)2 << 20);
    if (config.granularity == 0) config.granularity = 1;
    config.devices = (int)number_setting("SIM_DEVICES", 1);
    if (config.devices > SIM_MAX_DEVICES) config.devices = SIM_MAX_DEVICES;
    config.version = (int)number_setting("SIM_HIP_VERSION", 60200000);
    config.cuda_version = (int)number_setting("SIM_CUDA_VERSION", 13020);
    config.compute_capability = (int)number_setting("SIM_COMPUTE_CAPABILITY", 86);
    config.context_bytes = size_setting("SIM_CONTEXT_BYTES", 0);
    config.low_addresses = number_setting("SIM_LOW_ADDRESSES", 0) != 0;
    config.fail_at = number_setting("SIM_FAIL_AT", 0);
    config.self_call = number_setting("SIM_SELF_CALL", 0) != 0;
    config.sticky_last_error = strcmp(last_error, "rocm7") == 0;
    config.slow_us = (unsigned)number_setting("SIM_SLOW_US", 0);
    config.slow_at = number_setting("SIM_SLOW_AT", 0);
    config.copy_bytes = size_setting("SIM_COPY_BYTES", SIZE_MAX);
}

const struct sim_config *sim_config(void) { return &config; }
