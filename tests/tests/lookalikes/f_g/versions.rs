//! G. Versions and parts that look wrong.

use super::{GIB, MIB, beside, node};
use crate::looks_like;
use crate::machine::Machine;
use crate::scene::Scene;

/// The HIP of ROCm 7.0, of 6.4 and of 5.6.
const HIP_7: u64 = 70_051_831;
const HIP_6: u64 = 60_443_483;
const HIP_5_6: u64 = 50_631_061;

pub(super) fn scenes() -> Vec<Scene> {
    [xnack(), libdrm(), defects(), mismatches()].concat()
}

const KFD_NODE: &str = "sys/class/kfd/kfd/topology/nodes/1/properties";

fn target(number: &str) -> Machine {
    Machine::card().changed(KFD_NODE, "gfx_target_version 110000", &format!("gfx_target_version {number}"))
}

fn xnack() -> Vec<Scene> {
    const ID: &str = "xnack-ineffective";
    let quiet = |story, value: u32| looks_like(ID, story, "alloc a 1G; sleep 250").set("HSA_XNACK", value);
    vec![
        quiet("HSA_XNACK=0, which is what the card does anyway", 0),
        quiet("HSA_XNACK=1 on gfx942, which has it", 1).on(target("90402")),
        quiet("HSA_XNACK=1 in the environment of a CUDA program", 1).on(Machine::of("nvidia")).cuda(),
        quiet("HSA_XNACK=1 for a gfx90a, with the processor's graphics beside it", 1)
            .on(node(beside(target("90010"), 0, "0000:0e:00.0", 512 * MIB, 31 * GIB), 2, 7_777, 100_306, 0x0e00, 129))
            .set("SIM_PCI_BUS_ID", "0000:03:00.0")
            .set("SIM_SYSFS_CARD", "card1")
            .set("SIM_CAPACITY", 24 * GIB),
    ]
}

fn libdrm() -> Vec<Scene> {
    const ID: &str = "missing-libdrm-link";
    // A log is evidence where PyTorch's message is in it.
    let wrote = |story, text: &str| {
        let log = format!(
            "{text}torch.OutOfMemoryError: HIP out of memory. Tried to allocate 77.52 GiB. GPU 0 has a total capacity of \
             23.98 GiB of which 22.71 GiB is free. Of the allocated memory 1.00 GiB is allocated by PyTorch, and 0 bytes \
             is reserved by PyTorch but unallocated.\n"
        );
        looks_like(ID, story, "alloc a 1G; failures go; alloc b 77G; query; exit 1")
            .given("--torch-log", log)
            .also(&["request-exceeds-device"])
    };
    vec![
        wrote(
            "another library of libdrm is missing",
            "Fail to open libdrm_nouveau.so.2: cannot open shared object file: No such file or directory\n",
        ),
        wrote(
            "a list of what a library needs",
            "\tlibdrm_amdgpu.so.1 => /usr/lib/x86_64-linux-gnu/libdrm_amdgpu.so.1 (0x00007f0e2a000000)\n",
        ),
        wrote(
            "a note that it was found",
            "loader: opened libdrm_amdgpu.so.1\nloader: cannot open shared object file libnuma.so.1\n",
        ),
    ]
}

fn defects() -> Vec<Scene> {
    const ID: &str = "known-bad-version";
    let torch = |story, script: &str, machine: Machine| {
        looks_like(ID, story, script).on(machine).torch("2.12.0+rocm7.0", "7.0.51831").set("SIM_HIP_VERSION", HIP_7)
    };
    vec![
        looks_like(
            ID,
            "stream-ordered memory on ROCm 6.4, and nothing is refused",
            "loop 8; async a 1G; launch; free a; sync; end; sleep 250",
        )
        .set("SIM_HIP_VERSION", HIP_6),
        looks_like(
            ID,
            "stream-ordered memory on ROCm 6.4, and the card is really full",
            "async a 1G; push 1G 22; alloc b 4G",
        )
        .set("SIM_HIP_VERSION", HIP_6)
        .also(&["true-capacity"]),
        looks_like(
            ID,
            "memory is exported on ROCm 7.0, and comes back when it is freed",
            "loop 10; alloc a 4G; export a; sleep 30; free a; sleep 30; end; alloc b 20G; sleep 100",
        )
        .set("SIM_HIP_VERSION", HIP_7),
        looks_like(
            ID,
            "virtual memory on ROCm 6.4, and it comes back when it is released",
            "loop 6; virtual v 4G; launch; free v; sleep 30; end; alloc b 20G; sleep 100",
        )
        .set("SIM_HIP_VERSION", HIP_6),
        looks_like(
            ID,
            "modules come and go on ROCm 5.6.0, and nothing is lost",
            "alloc a 1G; loop 40; module; launch; unload; end; sleep 250",
        )
        .set("SIM_HIP_VERSION", HIP_5_6),
        torch("PyTorch 2.12 on RDNA3, where its defect was never seen", "push 1G 12; alloc b 1G", Machine::card())
            .set("SIM_PROCESS_LIMIT", "12G")
            .also(&["phantom-free"]),
        torch("PyTorch 2.12 on RDNA4, which uses all of the card", "push 1G 22; alloc b 4G", target("120001"))
            .also(&["true-capacity"]),
        looks_like(ID, "stream-ordered memory over CUDA", "async a 1G; free a; sync; sleep 250")
            .on(Machine::of("nvidia"))
            .cuda(),
    ]
}

fn mismatches() -> Vec<Scene> {
    const ID: &str = "version-mismatch";
    let torch = |story, version: &str, hip: &str, runtime: u64| {
        looks_like(ID, story, "alloc a 1G; launch; sleep 250").torch(version, hip).set("SIM_HIP_VERSION", runtime)
    };
    vec![
        torch("the same release in another build", "2.9.0+rocm6.4", "6.4.43482-0f2d60242", HIP_6),
        torch(
            "a wheel with the runtime that it was built for, on a machine with ROCm 7.1",
            "2.9.0+rocm6.4",
            "6.4.43483-a187df25c",
            HIP_6,
        ),
        torch("PyTorch is installed, and the process has not loaded it", "2.5.1+rocm6.2", "6.2.41133-dd7f95766", HIP_7)
            .loads_torch_late(),
        looks_like(ID, "PyTorch for CUDA", "alloc a 1G; launch; sleep 250")
            .torch("2.9.0+cu130", "")
            .on(Machine::of("nvidia"))
            .cuda(),
    ]
}
