/* What the simulated machine looks like: one CPU node, one GPU node, a PCIe link between them. */
#include "thunk.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

/* Where the hardware would show LDS and scratch in the flat address space; ROCr wants both to be set. */
#define LDS_APERTURE 0x1000000000000ull
#define SCRATCH_APERTURE 0x2000000000000ull
#define LDS_KIB 64u
#define GPU_BANK_COUNT 4u
#define GPU_CACHE_COUNT 2u

HSAKMT_STATUS hsaKmtOpenKFD(void)
{
    if (!settings_load())
        return HSAKMT_STATUS_KERNEL_IO_CHANNEL_NOT_OPENED;
    log_open();
    return HSAKMT_STATUS_SUCCESS;
}

HSAKMT_STATUS hsaKmtCloseKFD(void)
{
    return HSAKMT_STATUS_SUCCESS;
}

HSAKMT_STATUS hsaKmtGetVersion(HsaVersionInfo *version)
{
    /* Below 1.4 ROCr hides gfx906, whose ECC state older drivers reported wrongly. */
    *version = (HsaVersionInfo){.KernelInterfaceMajorVersion = 1, .KernelInterfaceMinorVersion = 8};
    return HSAKMT_STATUS_SUCCESS;
}

HSAKMT_STATUS hsaKmtAcquireSystemProperties(HsaSystemProperties *properties)
{
    *properties = (HsaSystemProperties){.NumNodes = SIM_NODE_COUNT};
    return HSAKMT_STATUS_SUCCESS;
}

HSAKMT_STATUS hsaKmtReleaseSystemProperties(void)
{
    return HSAKMT_STATUS_SUCCESS;
}

static void set_names(HsaNodeProperties *node, const char *marketing_name, const char *amd_name)
{
    /* The name is packed and of 16-bit characters: byte-wise access only. */
    for (size_t i = 0; marketing_name[i] && i + 1 < HSA_PUBLIC_NAME_SIZE; i++)
        node->MarketingName[i] = (unsigned char)marketing_name[i];
    strncpy((char *)node->AMDName, amd_name, HSA_PUBLIC_NAME_SIZE - 1);
}

static void describe_cpu(HsaNodeProperties *node)
{
    node->NumCPUCores = (HSAuint32)sysconf(_SC_NPROCESSORS_ONLN);
    node->NumMemoryBanks = 1;
    node->NumCaches = 1; /* the runtime insists on at least one */
    node->NumIOLinks = 1;
    node->DrmRenderMinor = -1;
    node->MaxEngineClockMhzCCompute = 3000;
    set_names(node, "Simulated CPU", "simcpu");
}

static void describe_engines(HsaNodeProperties *node)
{
    const struct chip *chip = sim.chip;
    node->EngineId.ui32.uCode = 102;
    node->EngineId.ui32.Major = chip->gfx_major;
    node->EngineId.ui32.Minor = chip->gfx_minor;
    node->EngineId.ui32.Stepping = chip->gfx_stepping;
    node->uCodeEngineVersions.uCodeSDMA = 76;
    node->NumSdmaEngines = 2;
    node->NumSdmaXgmiEngines = chip->sdma_xgmi_engines;
    node->NumSdmaQueuesPerEngine = 8;
    node->NumCpQueues = 24;
}

static void describe_gpu(HsaNodeProperties *node)
{
    const struct chip *chip = sim.chip;
    node->NumFComputeCores = chip->compute_units * chip->simds_per_unit;
    node->NumMemoryBanks = GPU_BANK_COUNT;
    node->NumCaches = GPU_CACHE_COUNT;
    node->NumIOLinks = 1;
    node->FComputeIdLo = 0x80001000;
    node->Capability.ui32.DoorbellType = 2;
    node->Capability.ui32.QueueSizePowerOfTwo = 1;
    node->Capability.ui32.ASICRevision = chip->asic_revision;
    node->Capability.ui32.SRAM_EDCSupport = chip->sram_ecc;
    node->MaxWavesPerSIMD = chip->waves_per_simd;
    node->LDSSizeInKB = LDS_KIB;
    node->WaveFrontSize = chip->wave_lanes;
    node->NumShaderBanks = chip->shader_engines * chip->arrays_per_engine;
    node->NumArrays = chip->arrays_per_engine;
    node->NumCUPerArray = chip->units_per_array;
    node->NumSIMDPerCU = chip->simds_per_unit;
    node->MaxSlotsScratchCU = 32;
    node->VendorId = 0x1002;
    node->DeviceId = chip->device_id;
    node->LocationId = 0x0300;
    node->LocalMemSize = sim.capacity_bytes;
    node->MaxEngineClockMhzFCompute = 2250;
    node->DrmRenderMinor = 128;
    node->UniqueID = 0x73696d7468756e6bull;
    set_names(node, "Simulated GPU", chip->name);
}

HSAKMT_STATUS hsaKmtGetNodeProperties(HSAuint32 node, HsaNodeProperties *properties)
{
    if (node >= SIM_NODE_COUNT)
        return HSAKMT_STATUS_INVALID_NODE_UNIT;
    memset(properties, 0, sizeof *properties);
    if (node == SIM_CPU_NODE) {
        describe_cpu(properties);
    } else {
        describe_gpu(properties);
        describe_engines(properties);
    }
    return HSAKMT_STATUS_SUCCESS;
}

static uint64_t host_memory_bytes(void)
{
    struct sysinfo info;
    return sysinfo(&info) ? 0 : (uint64_t)info.totalram * info.mem_unit / SIM_PAGE_BYTES * SIM_PAGE_BYTES;
}

/* The page of flush registers: written to before some copies, read by nobody here. */
static uint64_t flush_register_page(void)
{
    static void *page;
    if (!page) {
        page = mmap(NULL, SIM_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED)
            page = NULL;
    }
    return (uintptr_t)page;
}

HSAKMT_STATUS hsaKmtGetNodeMemoryProperties(HSAuint32 node, HSAuint32 count, HsaMemoryProperties *banks)
{
    if (node >= SIM_NODE_COUNT)
        return HSAKMT_STATUS_INVALID_NODE_UNIT;
    const HsaMemoryProperties cpu[] = {
        {.HeapType = HSA_HEAPTYPE_SYSTEM, .SizeInBytes = host_memory_bytes(), .Width = 64, .MemoryClockMax = 1600},
    };
    const HsaMemoryProperties gpu[GPU_BANK_COUNT] = {
        {.HeapType = HSA_HEAPTYPE_FRAME_BUFFER_PUBLIC, .SizeInBytes = sim.capacity_bytes, .Width = 256,
         .MemoryClockMax = 1000},
        {.HeapType = HSA_HEAPTYPE_GPU_LDS, .SizeInBytes = LDS_KIB << 10, .VirtualBaseAddress = LDS_APERTURE},
        {.HeapType = HSA_HEAPTYPE_GPU_SCRATCH, .SizeInBytes = 4ull << 30,
         .VirtualBaseAddress = SCRATCH_APERTURE},
        {.HeapType = HSA_HEAPTYPE_MMIO_REMAP, .SizeInBytes = SIM_PAGE_BYTES,
         .VirtualBaseAddress = flush_register_page()},
    };
    uint32_t present = node == SIM_CPU_NODE ? 1 : GPU_BANK_COUNT;
    memset(banks, 0, count * sizeof *banks);
    memcpy(banks, node == SIM_CPU_NODE ? cpu : gpu, (count < present ? count : present) * sizeof *banks);
    return HSAKMT_STATUS_SUCCESS;
}

HSAKMT_STATUS hsaKmtGetNodeCacheProperties(HSAuint32 node, HSAuint32 processor, HSAuint32 count,
                                           HsaCacheProperties *caches)
{
    if (node >= SIM_NODE_COUNT)
        return HSAKMT_STATUS_INVALID_NODE_UNIT;
    for (uint32_t i = 0; i < count; i++) {
        memset(&caches[i], 0, sizeof caches[i]);
        caches[i].ProcessorIdLow = processor;
        caches[i].CacheLevel = i + 1;
        caches[i].CacheSize = i == 0 ? 16 : 4096;
        caches[i].CacheLineSize = 64;
        caches[i].CacheType.ui32.Data = 1;
        caches[i].CacheType.ui32.CPU = node == SIM_CPU_NODE;
        caches[i].CacheType.ui32.HSACU = node == SIM_GPU_NODE;
    }
    return HSAKMT_STATUS_SUCCESS;
}

HSAKMT_STATUS hsaKmtGetNodeIoLinkProperties(HSAuint32 node, HSAuint32 count, HsaIoLinkProperties *links)
{
    if (node >= SIM_NODE_COUNT || count != 1)
        return HSAKMT_STATUS_INVALID_PARAMETER;
    *links = (HsaIoLinkProperties){
        .IoLinkType = HSA_IOLINKTYPE_PCIEXPRESS, .NodeFrom = node, .NodeTo = 1 - node, .Weight = 20,
        .MaximumBandwidth = 31504, .MinimumBandwidth = 31504,
    };
    return HSAKMT_STATUS_SUCCESS;
}

HSAKMT_STATUS hsaKmtGetClockCounters(HSAuint32 node, HsaClockCounters *counters)
{
    if (node >= SIM_NODE_COUNT)
        return HSAKMT_STATUS_INVALID_NODE_UNIT;
    /* One clock for all: the engines stamp their work with the same one. */
    uint64_t now_ns = monotonic_ns();
    *counters = (HsaClockCounters){.GPUClockCounter = now_ns, .CPUClockCounter = now_ns,
                                   .SystemClockCounter = now_ns, .SystemClockFrequencyHz = 1000000000ull};
    return HSAKMT_STATUS_SUCCESS;
}

HSAKMT_STATUS hsaKmtGetTileConfig(HSAuint32 node, HsaGpuTileConfig *config)
{
    if (node != SIM_GPU_NODE)
        return HSAKMT_STATUS_INVALID_NODE_UNIT;
    memset(config->TileConfig, 0, config->NumTileConfigs * sizeof(HSAuint32));
    memset(config->MacroTileConfig, 0, config->NumMacroTileConfigs * sizeof(HSAuint32));
    config->GbAddrConfig = sim.chip->gb_addr_config;
    return HSAKMT_STATUS_SUCCESS;
}
