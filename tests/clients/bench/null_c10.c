/* What PyTorch's allocator calls for each block that it gives out or takes back, and it does nothing: what is measured is the hook. */
#include <stddef.h>
#include <stdint.h>

void report(void *block, int64_t change, size_t allocated, size_t reserved, uint16_t device)
    __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");

void report(void *block, int64_t change, size_t allocated, size_t reserved, uint16_t device) {
    __asm__ volatile("" ::"r"(block), "r"(change), "r"(allocated), "r"(reserved), "r"(device));
}
