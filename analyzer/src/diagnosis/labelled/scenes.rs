//! Machines and readings for labelled traces.

use gpuoom_trace::metadata::{Quantity, Reading, trigger};
use gpuoom_trace::record::{Event, Kind, NO_DEVICE, Record};

use super::Scene;
use super::machines::{AmdMachine, CARD};
use crate::evidence::{Given, torch_message};
use crate::testing::TraceBuilder;

/// KFD's number of a Navi 31 (gfx1100): a card with memory of its own.
pub(super) const NAVI_31: u64 = 110_000;
/// KFD's number of a Strix Halo (gfx1151): an APU.
pub(super) const STRIX_HALO: u64 = 110_501;

/// Puts a GPU of AMD's into the machine, at the place of the builder's first device.
pub(super) fn amd_gpu(trace: &mut TraceBuilder, target: u64, vram_bytes: u64, gtt_bytes: u64) {
    trace.machine.extend(AmdMachine { target, vram: vram_bytes, gtt: gtt_bytes, ..CARD }.files());
}

/// Loads PyTorch's library.
pub(super) fn torch(trace: TraceBuilder) -> TraceBuilder {
    trace.library("/usr/lib/python3/torch/lib/libtorch_hip.so", 0x7000_0000, 9)
}

/// Readings at a failure on a card that nobody else uses.
pub(super) fn full(trace: &mut TraceBuilder, seq: u64, total: u64, own: u64, free: u64) {
    use Quantity::{KfdOthersVram, KfdProcessVram, RuntimeFree, VramTotal, VramUsed};
    let used = total - free;
    let read = [(RuntimeFree, free), (VramTotal, total), (VramUsed, used), (KfdProcessVram, own), (KfdOthersVram, 0)];
    at_failure(trace, seq, read);
}

/// Puts one more file of the first card into the machine.
pub(super) fn card_file(trace: &mut TraceBuilder, name: &str, text: &str) {
    trace.machine.push((format!("/sys/class/drm/card0/device/{name}"), text.to_owned()));
}

/// A trace with the program's output beside it, which has a message of PyTorch.
pub(super) fn with_log(mut trace: TraceBuilder, log: &str) -> Scene {
    trace.evidence.torch_logs.push(Given { path: "output.log".into(), content: torch_message::find_all(log) });
    Scene { trace }
}

/// Sets a variable of the environment.
pub(super) fn set(trace: &mut TraceBuilder, name: &str, value: &str) {
    trace.process.environment.push((name.into(), value.into()));
}

fn is_of_process(quantity: Quantity) -> bool {
    use Quantity::*;
    matches!(
        quantity,
        OpenDescriptors
            | DescriptorLimit
            | MemoryMaps
            | MemoryMapLimit
            | AddressSpace
            | AddressSpaceLimit
            | ResidentMemory
            | CgroupUsed
            | CgroupLimit
            | HostTotal
            | HostAvailable
    )
}

fn read<const N: usize>(trace: &mut TraceBuilder, status: i32, seq: u64, values: [(Quantity, u64); N]) {
    let record = trace.record(Event::Reading, Kind::None, "gpuoom_reading");
    let record = Record { address: seq, status, device: NO_DEVICE, ..record };
    let reading = |(quantity, value)| {
        let device = if is_of_process(quantity) { NO_DEVICE } else { 0 };
        Reading { quantity: quantity as u16, device, value }
    };
    trace.reading(record, &values.map(reading));
}

/// Readings because of a failure, of the first device and of the process.
pub(super) fn at_failure<const N: usize>(trace: &mut TraceBuilder, seq: u64, values: [(Quantity, u64); N]) {
    read(trace, trigger::FAILURE, seq, values);
}

/// Readings because of a failure that began before the record that was added last, and so long ago.
pub(super) fn at_failure_since<const N: usize>(
    trace: &mut TraceBuilder,
    seq: u64,
    began_ns_ago: u64,
    values: [(Quantity, u64); N],
) {
    let record = trace.record(Event::Reading, Kind::None, "gpuoom_reading");
    let (at, duration) = (record.at - began_ns_ago, began_ns_ago as u32);
    let record = Record { at, duration, address: seq, status: trigger::FAILURE, device: NO_DEVICE, ..record };
    let reading = |(quantity, value)| Reading { quantity: quantity as u16, device: 0, value };
    trace.reading(record, &values.map(reading));
}

/// Readings of the sampling period.
pub(super) fn sampled<const N: usize>(trace: &mut TraceBuilder, values: [(Quantity, u64); N]) {
    read(trace, trigger::PERIOD, 0, values);
}
