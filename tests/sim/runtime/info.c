// What a program can ask about devices and versions.
#include <stdio.h>
#include <string.h>

#include "sim.h"

static int valid(int device) { return device >= 0 && device < sim_config()->devices; }

int sim_GetDeviceCount(int *count) {
    if (!count) return SIM_INVALID_VALUE;
    *count = sim_config()->devices;
    return SIM_SUCCESS;
}

int sim_SetDevice(int device) {
    if (!valid(device)) return SIM_INVALID_DEVICE;
    sim_thread()->device = device;
    return SIM_SUCCESS;
}

int sim_GetDevice(int *device) {
    if (!device) return SIM_INVALID_VALUE;
    *device = sim_thread()->device;
    return SIM_SUCCESS;
}

int sim_DeviceGet(int *device, int ordinal) {
    if (!device) return SIM_INVALID_VALUE;
    if (!valid(ordinal)) return SIM_INVALID_DEVICE;
    *device = ordinal;
    return SIM_SUCCESS;
}

int sim_version(int *version) {
    if (!version) return SIM_INVALID_VALUE;
    *version = sim_config()->version;
    return SIM_SUCCESS;
}

// The structure grew between versions: the name has always been first, the total moved. The rest is left alone,
// because its size depends on which version the caller was compiled against.
int sim_properties(void *properties, size_t total_offset, int device) {
    if (!properties) return SIM_INVALID_VALUE;
    if (!valid(device)) return SIM_INVALID_DEVICE;
    snprintf(properties, 256, "%s", sim_config()->device_name);
    size_t total = sim_device_total();
    memcpy((char *)properties + total_offset, &total, sizeof total);
    return SIM_SUCCESS;
}

int sim_DeviceGetAttribute(int *value, int attribute, int device) {
    if (!value) return SIM_INVALID_VALUE;
    if (!valid(device)) return SIM_INVALID_DEVICE;
    *value = 0;
#ifndef SIM_CUDA
    // HIP's totalGlobalMem; CUDA has no such attribute.
    enum { TOTAL_GLOBAL_MEM = 84 };
    size_t total = sim_device_total();
    if (attribute == TOTAL_GLOBAL_MEM) *value = total > INT32_MAX ? INT32_MAX : (int)total;
#else
    (void)attribute;
#endif
    return SIM_SUCCESS;
}

// As up to ROCm 5: the device's heap may have the whole card.
int sim_DeviceGetLimit(size_t *value, int limit) {
    enum { HEAP = 2 };
    if (!value) return SIM_INVALID_VALUE;
    *value = limit == HEAP ? sim_device_total() : 1024;
    return SIM_SUCCESS;
}

int sim_DeviceGetName(char *name, int length, int device) {
    if (!name || length <= 0) return SIM_INVALID_VALUE;
    if (!valid(device)) return SIM_INVALID_DEVICE;
    snprintf(name, (size_t)length, "%s", sim_config()->device_name);
    return SIM_SUCCESS;
}

int sim_DeviceTotalMem(size_t *bytes, int device) {
    if (!bytes) return SIM_INVALID_VALUE;
    if (!valid(device)) return SIM_INVALID_DEVICE;
    *bytes = sim_device_total();
    return SIM_SUCCESS;
}

int sim_DeviceGetPCIBusId(char *text, int length, int device) {
    if (!text || length < 13) return SIM_INVALID_VALUE;
    if (!valid(device)) return SIM_INVALID_DEVICE;
    const char *place = sim_config()->sysfs.pci_bus_ids;
    for (int before = 0; before < device && *place; before++) {
        place += strcspn(place, ",");
        place += *place == ',';
    }
    size_t size = strcspn(place, ",");
    if (size == 1 && *place == '-') return SIM_INVALID_DEVICE;
    if (size > 0) {
        snprintf(text, (size_t)length, "%.*s", (int)size, place);
        return SIM_SUCCESS;
    }
    // A bus that no machine this runs on has: sysfs must not be asked about someone's real card.
    snprintf(text, (size_t)length, "fa5e:%02x:00.0", device + 1);
    return SIM_SUCCESS;
}
