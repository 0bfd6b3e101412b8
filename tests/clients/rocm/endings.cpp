// What takes memory away at once, and what only looks like it: the resets of HIP, and the last shutdown of HSA.
//
//     endings hip    memory of the device and of the host; hipDevicePrimaryCtxReset, hipDeviceReset, frees after it
//     endings hsa    memory of a pool, host memory that is pinned twice; the last hsa_shut_down, and a new beginning
//
// The thunk's log says what is really free afterwards. The program's own view is printed.
#include <hip/hip_runtime.h>
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>

#include <cstdio>
#include <cstring>

namespace {

constexpr size_t MIB = size_t(1) << 20;

void show_free(const char *when)
{
    size_t free_bytes = 0, total_bytes = 0;
    hipError_t error = hipMemGetInfo(&free_bytes, &total_bytes);
    printf("%s: %zu MiB free (%d)\n", when, free_bytes / MIB, error);
}

int resets()
{
    void *device = nullptr, *host = nullptr, *later = nullptr;
    printf("device %d, host %d\n", hipMalloc(&device, 512 * MIB), hipHostMalloc(&host, 64 * MIB, 0));
    show_free("before");
    printf("hipDevicePrimaryCtxReset %d\n", hipDevicePrimaryCtxReset(0));
    show_free("after it");
    printf("hipDeviceReset %d\n", hipDeviceReset());
    show_free("after it");
    printf("frees %d %d\n", hipFree(device), hipHostFree(host));
    printf("later %d, free %d\n", hipMalloc(&later, 16 * MIB), hipFree(later));
    return 0;
}

hsa_agent_t gpu;
hsa_amd_memory_pool_t pool;

hsa_status_t find_gpu(hsa_agent_t agent, void *)
{
    hsa_device_type_t type;
    hsa_agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type);
    if (type == HSA_DEVICE_TYPE_GPU)
        gpu = agent;
    return HSA_STATUS_SUCCESS;
}

hsa_status_t find_pool(hsa_amd_memory_pool_t candidate, void *)
{
    hsa_amd_segment_t segment;
    uint32_t flags = 0;
    hsa_amd_memory_pool_get_info(candidate, HSA_AMD_MEMORY_POOL_INFO_SEGMENT, &segment);
    if (segment != HSA_AMD_SEGMENT_GLOBAL)
        return HSA_STATUS_SUCCESS;
    hsa_amd_memory_pool_get_info(candidate, HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS, &flags);
    if (flags & HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED)
        pool = candidate;
    return HSA_STATUS_SUCCESS;
}

void begin()
{
    printf("hsa_init %d\n", hsa_init());
    hsa_iterate_agents(find_gpu, nullptr);
    hsa_amd_agent_iterate_memory_pools(gpu, find_pool, nullptr);
}

int shutdowns()
{
    static char buffer[MIB];
    void *block = nullptr, *pinned = nullptr, *later = nullptr;
    begin();
    printf("once more %d\n", hsa_init());
    printf("block %d\n", hsa_amd_memory_pool_allocate(pool, 512 * MIB, 0, &block));
    for (int i = 0; i < 2; i++)
        printf("lock %d\n", hsa_amd_memory_lock(buffer, sizeof buffer, &gpu, 1, &pinned));
    printf("unlock %d\n", hsa_amd_memory_unlock(buffer));
    printf("shut down %d\n", hsa_shut_down());
    printf("shut down, the last %d\n", hsa_shut_down());
    begin();
    printf("later %d\n", hsa_amd_memory_pool_allocate(pool, 16 * MIB, 0, &later));
    return 0;
}

} // namespace

int main(int count, char **arguments)
{
    setvbuf(stdout, nullptr, _IONBF, 0);
    if (count != 2)
        return 10;
    return strcmp(arguments[1], "hip") == 0 ? resets() : shutdowns();
}
