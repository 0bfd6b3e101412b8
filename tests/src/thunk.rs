//! The log of the simulated thunk: what the kernel driver would have seen below the real HIP and HSA.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::trace::Event;

/// The unit in which ROCr takes device memory from the driver.
const ROCR_BLOCK: u64 = 2 << 20;

/// One line of `SIMTHUNK_LOG`.
#[derive(Clone, Debug)]
pub struct ThunkLine {
    /// `alloc`, `free`, ...
    pub op: String,
    /// `vram`, `gtt`, `userptr`, ...
    pub heap: String,
    /// `data`, `queue`, ...
    pub used_for: String,
    /// `ok`, `no_memory`, ...
    pub status: String,
    /// GPU address.
    pub address: u64,
    /// Bytes that the driver gave.
    pub bytes: u64,
    /// Device memory in use after the call.
    pub vram_bytes: u64,
}

impl ThunkLine {
    /// Every line but the first, which describes the card.
    pub fn read_all(path: &Path) -> Vec<Self> {
        let text = fs::read_to_string(path).expect("the thunk wrote a log");
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("thunk log ({error}): {line}"));
        text.lines().skip(1).map(parse).map(|line: Value| Self::new(&line)).collect()
    }

    fn new(line: &Value) -> Self {
        let text = |field: &str| line[field].as_str().unwrap_or_else(|| panic!("no {field} in {line}")).to_owned();
        let number = |field: &str| line[field].as_u64().unwrap_or_else(|| panic!("no {field} in {line}"));
        let address = u64::from_str_radix(&text("address")[2..], 16).expect("an address in hexadecimal");
        Self {
            op: text("op"),
            heap: text("heap"),
            used_for: text("use"),
            status: text("status"),
            address,
            bytes: number("bytes"),
            vram_bytes: number("vram_bytes"),
        }
    }

    fn is_device_memory(&self) -> bool {
        self.op == "alloc" && self.heap == "vram" && self.used_for == "data"
    }
}

/// Asserts that trace and thunk agree on device memory.
///
/// ROCr gives each request above 2 MiB a block of its own, rounded up to 2 MiB; smaller ones share blocks of 2 MiB. So the
/// large ones must be the same in both logs, one by one, and each small one must lie in a block that the thunk gave. What
/// the thunk has beyond that are whole shared blocks and what the runtime takes for itself, never above 2 MiB.
pub fn assert_thunk_agrees(thunk: &[ThunkLine], events: &[Event]) {
    let given: Vec<&ThunkLine> = thunk.iter().filter(|line| line.is_device_memory() && line.status == "ok").collect();
    let kinds = ["device", "pool"];
    let asked: Vec<&Event> =
        events.iter().filter(|event| event.is_allocation() && kinds.contains(&event.kind())).collect();
    assert!(!asked.is_empty(), "the trace holds no device allocation: nothing was compared");

    let mut blocks: BTreeMap<(u64, u64), i64> = BTreeMap::new();
    for line in given.iter().filter(|line| line.bytes > ROCR_BLOCK) {
        *blocks.entry((line.address, line.bytes)).or_default() += 1;
    }
    let mut pooled = std::collections::BTreeSet::new();
    for event in asked {
        // A stream-ordered pool hands a freed block out again without asking anybody.
        if event.kind() == "pool" && !pooled.insert(event.address()) {
            continue;
        }
        let (address, size) = (event.address().expect("an allocation has an address"), event.requested_bytes());
        if size > ROCR_BLOCK {
            *blocks.entry((address, size.next_multiple_of(ROCR_BLOCK))).or_default() -= 1;
        } else {
            let inside = |line: &&&ThunkLine| address >= line.address && address + size <= line.address + line.bytes;
            assert!(given.iter().any(|line| inside(&line)), "the thunk never gave {address:#x}: {event:?}");
        }
    }
    blocks.retain(|_, difference| *difference != 0);
    assert!(blocks.is_empty(), "(address, bytes) -> how many more the thunk has than the trace: {blocks:#x?}");
}
