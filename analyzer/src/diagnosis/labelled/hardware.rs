//! J. The hardware.

use gpuoom_trace::metadata::Quantity::RuntimeFree;

use super::machines::{AmdMachine, CARD};
use super::{Labelled, Says, Scene, readings};
use crate::evidence::smi::{Card, SmiReport};
use crate::evidence::{Given, kernel_log};
use crate::judgement::check::Confidence::{Possible, Proven};
use crate::testing::{GIB, MIB, TraceBuilder};

/// An MI210 whose driver keeps some pages back.
const MI210: AmdMachine = AmdMachine { target: 90_010, vram: 64 * GIB, bank: 64 * GIB, ..CARD };
const XID_48: &str = "[  102.123456] NVRM: Xid (PCI:0000:03:00): 48, pid=4711, name=llama-cli, Ch 00000008";

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "retired-pages",
        says: Says::Found(Proven),
        also: &[],
        story: "12 bad pages, and the runtime offers 63.9 of 64 GiB",
        scene: || bad_pages(12),
    },
    Labelled { id: "retired-pages", says: Says::Not, also: &[], story: "no bad page", scene: || bad_pages(0) },
    Labelled {
        id: "suspect-hardware",
        says: Says::Found(Possible),
        also: &["phantom-free"],
        story: "refused at 1 of 24 GiB, enough is free, and NVIDIA's driver tells of an ECC error",
        scene: || refused(64 * MIB, 22 * GIB, Some(XID_48)),
    },
    Labelled {
        id: "suspect-hardware",
        says: Says::Not,
        also: &["request-exceeds-device"],
        story: "the same error, and a request that explains the failure by itself",
        scene: || refused(80 * GIB, 22 * GIB, Some(XID_48)),
    },
    Labelled {
        id: "suspect-hardware",
        says: Says::Not,
        also: &["phantom-free"],
        story: "no sign of a defect",
        scene: || refused(64 * MIB, 22 * GIB, None),
    },
];

fn bad_pages(pages: u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "AMD Instinct MI210", 64 * GIB - 96 * MIB);
    trace.machine = MI210.files();
    trace.alloc(0x10_0000_0000, GIB);
    let card = Card { index: Some(0), retired_pages: Some(pages), ..Card::default() };
    let content = SmiReport { format: "amd-smi metric", cards: vec![card], processes: Vec::new() };
    trace.evidence.smi = vec![Given { path: "smi.json".into(), content }];
    Scene { trace }
}

fn refused(asked: u64, free: u64, log: Option<&str>) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.alloc(0x10_0000_0000, GIB);
    let seq = trace.refuse(asked);
    trace.read_at_failure(seq, &readings([(RuntimeFree, free)]));
    let logs = log.map(|log| Given { path: "dmesg.txt".into(), content: kernel_log::read(log) });
    trace.evidence.kernel_logs = logs.into_iter().collect();
    Scene { trace }
}
