//! ggml's buffers in builds that tell nothing of them: device memory by what the functions on the way to its call say that it is for.

use std::cmp::Reverse;

use gpuoom_trace::record::Kind;

use crate::passes::device::DeviceSummary;
use crate::passes::fragmentation::saturate;
use crate::passes::ledger::DeviceLedger;
use crate::passes::shape::paths;
use crate::passes::tensors::{AllocatedBy, GGML, TensorMoment, TensorRow, Tensors, labelled};
use crate::replay::blocks::Owner;
use crate::replay::census::Census;
use crate::replay::purpose::Purpose;
use crate::symbols::{Frame, Stacks};

/// Call sites that are looked at, those with most bytes. llama.cpp has a handful.
const MOST_SITES: usize = 64;

/// Blocks that were asked for by one way, and are for one thing.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffers {
    purpose: Purpose,
    /// The place, for people, and what other runs call it.
    label: String,
    key: String,
    bytes: u64,
    blocks: u64,
    stack: Vec<Frame>,
}

/// What the ways to the calls say of the device memory in a census.
pub fn of_census(stacks: &Stacks<'_>, census: &Census) -> Vec<Buffers> {
    let of_device = census.own.iter().filter(|(caller, _)| caller.kind == Kind::Device && caller.site != 0);
    let mut callers: Vec<_> = of_device.collect();
    callers.sort_unstable_by_key(|(caller, held)| (Reverse(held.requested_bytes), caller.site));
    let buffers = callers.into_iter().take(MOST_SITES).filter_map(|(caller, held)| {
        let stack = stacks.of(caller.site).frames;
        let (purpose, _) = paths::purpose(&stack)?;
        let known = stacks.call_site(caller.site)?;
        let (bytes, blocks) = (saturate(held.requested_bytes), held.blocks);
        Some(Buffers { purpose, label: known.label.clone(), key: known.key.clone(), bytes, blocks, stack })
    });
    buffers.collect()
}

/// Says of devices of which no allocator told anything what the ways to the calls say.
pub fn add_to(devices: &mut [DeviceSummary], ledgers: &[DeviceLedger]) {
    for device in devices.iter_mut().filter(|device| device.tensors.is_none()) {
        let of_device = ledgers.iter().filter(|ledger| ledger.device == device.index && !ledger.is_host);
        let moments: Vec<TensorMoment> = of_device.map(moment).collect();
        let peak_allocated_bytes = moments.iter().map(|moment| moment.allocated_bytes).max().unwrap_or(0);
        if peak_allocated_bytes > 0 {
            device.tensors = Some(Tensors {
                framework: GGML.to_owned(),
                owner: Owner::Ggml,
                by_call_paths: true,
                has_captured: false,
                moments,
                events: 0,
                mismatches: 0,
                peak_allocated_bytes,
                with_python_share: None,
                others: Vec::new(),
            });
        }
    }
}

/// Each of these blocks is memory of its own: nothing of it is unused.
fn moment(ledger: &DeviceLedger) -> TensorMoment {
    let mut rows: Vec<TensorRow> = Vec::new();
    for buffers in &ledger.buffers {
        let (label, kind) = (labelled(buffers.purpose, buffers.label.clone()), buffers.purpose.name());
        match rows.iter_mut().find(|row| row.label == label) {
            Some(row) => {
                row.bytes = row.bytes.saturating_add(buffers.bytes);
                row.blocks += buffers.blocks;
            }
            None => rows.push(TensorRow {
                label,
                bytes: buffers.bytes,
                blocks: buffers.blocks,
                key: Some(buffers.key.clone()),
                kind,
                stack: buffers.stack.clone(),
                ..TensorRow::default()
            }),
        }
    }
    rows.sort_by_key(|row| Reverse((row.bytes, row.blocks)));
    let bytes = rows.iter().fold(0u64, |sum, row| sum.saturating_add(row.bytes));
    let blocks = rows.iter().map(|row| row.blocks).sum();
    TensorMoment {
        at: ledger.moment.clone(),
        at_ns: ledger.at_ns,
        allocated_bytes: bytes,
        reserved_bytes: Some(bytes),
        unused_bytes: Some(0),
        largest_unused_bytes: Some(0),
        unused_pieces: Some(0),
        whole_unused_bytes: Some(0),
        allocated_by: AllocatedBy { rows, ..AllocatedBy::default() },
        segments: if blocks > 0 { vec![(Kind::Device, bytes, blocks)] } else { Vec::new() },
    }
}
