// A tour through HSA without HIP: pools, regions, pinned memory, a queue, copies; then blocks until HSA has none left.
//
// HSA is taken down and up again in between, after which all its handles are new ones. The output is the same in every
// run: no addresses, no times.
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr size_t KIB = 1024, MIB = 1024 * KIB;
constexpr size_t BLOCK_BYTES = 256 * MIB;

void must(hsa_status_t status, const char *what)
{
    if (status == HSA_STATUS_SUCCESS)
        return;
    printf("FAILED %s: 0x%x\n", what, status);
    exit(10);
}

void must_hold(bool holds, const char *what)
{
    if (holds)
        return;
    printf("FAILED %s\n", what);
    exit(11);
}

// The first agent of each sort, and where memory can be had from it.
struct Holder {
    hsa_agent_t agent = {};
    hsa_amd_memory_pool_t pool = {};
    hsa_region_t region = {};
};

struct Machine {
    Holder gpu, cpu;
};

hsa_status_t take_pool(hsa_amd_memory_pool_t pool, void *data)
{
    bool may_allocate = false;
    auto &holder = *static_cast<Holder *>(data);
    must(hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALLOWED, &may_allocate), "pool");
    if (may_allocate && holder.pool.handle == 0)
        holder.pool = pool;
    return HSA_STATUS_SUCCESS;
}

hsa_status_t take_region(hsa_region_t region, void *data)
{
    bool may_allocate = false;
    auto &holder = *static_cast<Holder *>(data);
    must(hsa_region_get_info(region, HSA_REGION_INFO_RUNTIME_ALLOC_ALLOWED, &may_allocate), "region");
    if (may_allocate && holder.region.handle == 0)
        holder.region = region;
    return HSA_STATUS_SUCCESS;
}

hsa_status_t take_agent(hsa_agent_t agent, void *data)
{
    hsa_device_type_t type;
    must(hsa_agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type), "hsa_agent_get_info");
    auto &machine = *static_cast<Machine *>(data);
    Holder &holder = type == HSA_DEVICE_TYPE_GPU ? machine.gpu : machine.cpu;
    if (holder.agent.handle != 0)
        return HSA_STATUS_SUCCESS;
    holder.agent = agent;
    must(hsa_amd_agent_iterate_memory_pools(agent, take_pool, &holder), "pools of an agent");
    must(hsa_agent_iterate_regions(agent, take_region, &holder), "regions of an agent");
    return HSA_STATUS_SUCCESS;
}

Machine begin()
{
    Machine machine;
    must(hsa_init(), "hsa_init");
    must(hsa_iterate_agents(take_agent, &machine), "hsa_iterate_agents");
    must_hold(machine.gpu.pool.handle != 0 && machine.cpu.pool.handle != 0, "a pool on both sides");
    return machine;
}

void pools(const Machine &machine)
{
    for (size_t size_bytes : {64 * size_t(1), 3 * MIB, 8 * MIB}) {
        for (const Holder *holder : {&machine.gpu, &machine.cpu}) {
            void *memory = nullptr;
            must(hsa_amd_memory_pool_allocate(holder->pool, size_bytes, 0, &memory), "hsa_amd_memory_pool_allocate");
            must(hsa_amd_memory_pool_free(memory), "hsa_amd_memory_pool_free");
        }
        printf("pools: %zu on both sides\n", size_bytes);
    }
}

void regions(const Machine &machine)
{
    for (const Holder *holder : {&machine.gpu, &machine.cpu}) {
        void *memory = nullptr;
        must_hold(holder->region.handle != 0, "a region on both sides");
        must(hsa_memory_allocate(holder->region, 5 * MIB, &memory), "hsa_memory_allocate");
        must(hsa_memory_free(memory), "hsa_memory_free");
    }
    printf("regions: %zu on both sides\n", 5 * MIB);
}

void pinned(Machine &machine)
{
    void *host = aligned_alloc(4096, 2 * MIB), *seen = nullptr;
    must_hold(host != nullptr, "aligned_alloc");
    must(hsa_amd_memory_lock(host, 2 * MIB, &machine.gpu.agent, 1, &seen), "hsa_amd_memory_lock");
    must(hsa_amd_memory_unlock(host), "hsa_amd_memory_unlock");
    must(hsa_amd_memory_lock_to_pool(host, 1 * MIB, &machine.gpu.agent, 1, machine.cpu.pool, 0, &seen),
         "hsa_amd_memory_lock_to_pool");
    must(hsa_amd_memory_unlock(host), "hsa_amd_memory_unlock");
    must(hsa_memory_register(host, 2 * MIB), "hsa_memory_register");
    must(hsa_memory_deregister(host, 2 * MIB), "hsa_memory_deregister");
    free(host);
    printf("host memory: locked, locked to a pool, registered\n");
}

void queue(const Machine &machine)
{
    hsa_queue_t *created = nullptr;
    must(hsa_queue_create(machine.gpu.agent, 1024, HSA_QUEUE_TYPE_SINGLE, nullptr, nullptr, UINT32_MAX, UINT32_MAX,
                          &created),
         "hsa_queue_create");
    printf("queue: %u packets\n", created->size);
    must(hsa_queue_destroy(created), "hsa_queue_destroy");
    hsa_queue_t *untouched = nullptr;
    hsa_status_t status =
        hsa_queue_create(machine.gpu.agent, 1000, HSA_QUEUE_TYPE_SINGLE, nullptr, nullptr, 0, 0, &untouched);
    printf("queue of an odd size: 0x%x\n", status);
}

void copy(void *to, hsa_agent_t to_agent, const void *from, hsa_agent_t from_agent, size_t size_bytes)
{
    hsa_signal_t done;
    must(hsa_signal_create(1, 0, nullptr, &done), "hsa_signal_create");
    must(hsa_amd_memory_async_copy(to, to_agent, from, from_agent, size_bytes, 0, nullptr, done),
         "hsa_amd_memory_async_copy");
    while (hsa_signal_wait_scacquire(done, HSA_SIGNAL_CONDITION_LT, 1, UINT64_MAX, HSA_WAIT_STATE_BLOCKED) >= 1) {
    }
    must(hsa_signal_destroy(done), "hsa_signal_destroy");
}

// There and back through device memory, compared byte for byte.
void copies(const Machine &machine)
{
    constexpr size_t size_bytes = 4 * MIB;
    void *device = nullptr, *host = nullptr;
    must(hsa_amd_memory_pool_allocate(machine.gpu.pool, size_bytes, 0, &device), "device memory");
    must(hsa_amd_memory_pool_allocate(machine.cpu.pool, size_bytes, 0, &host), "host memory");
    must(hsa_amd_agents_allow_access(1, &machine.gpu.agent, nullptr, host), "hsa_amd_agents_allow_access");
    memset(host, 17, size_bytes);
    copy(device, machine.gpu.agent, host, machine.cpu.agent, size_bytes);
    memset(host, 0, size_bytes);
    copy(host, machine.cpu.agent, device, machine.gpu.agent, size_bytes);
    const auto *bytes = static_cast<const unsigned char *>(host);
    must_hold(bytes[0] == 17 && bytes[size_bytes - 1] == 17, "round trip");
    must(hsa_amd_memory_pool_free(host), "hsa_amd_memory_pool_free");
    must(hsa_amd_memory_pool_free(device), "hsa_amd_memory_pool_free");
    printf("copies: %zu there and back\n", size_bytes);
}

int fill_card(const Machine &machine)
{
    std::vector<void *> blocks;
    hsa_status_t status;
    for (;;) {
        void *block = nullptr;
        status = hsa_amd_memory_pool_allocate(machine.gpu.pool, BLOCK_BYTES, 0, &block);
        if (status != HSA_STATUS_SUCCESS)
            break;
        blocks.push_back(block);
    }
    const char *text = nullptr;
    must(hsa_status_string(status, &text), "hsa_status_string");
    printf("%zu blocks of %zu, then 0x%x: %s\n", blocks.size(), BLOCK_BYTES, status, text);
    for (void *block : blocks)
        must(hsa_amd_memory_pool_free(block), "hsa_amd_memory_pool_free");
    return status == HSA_STATUS_ERROR_OUT_OF_RESOURCES ? 1 : 12;
}

} // namespace

// With --once it is not taken down in between: ROCr 6.4 refuses to come up again in the same process.
int main(int argc, char **argv)
{
    bool once = argc == 2 && strcmp(argv[1], "--once") == 0;
    Machine machine = begin();
    pools(machine);
    regions(machine);
    pinned(machine);
    queue(machine);
    copies(machine);
    if (!once) {
        must(hsa_shut_down(), "hsa_shut_down");
        machine = begin();
        pools(machine);
    }
    int status = fill_card(machine);
    must(hsa_shut_down(), "hsa_shut_down");
    return status;
}
