//! The log of the simulated thunk: what the kernel driver would have seen below the real HIP and HSA.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::trace::{Event, assert_alternate};

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

    fn holds(&self, address: u64) -> bool {
        (self.address..self.address + self.bytes).contains(&address)
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

/// Device memory that the thunk gave during a run, in bytes, by what HSA's rows in the trace say it was for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explained {
    /// What HSA's rows asked for.
    pub asked: u64,
    /// Blocks of one request each, rounded up to 2 MiB.
    pub own_blocks: u64,
    /// Blocks of 2 MiB that small requests share.
    pub shared_blocks: u64,
    /// Code objects.
    pub code: u64,
    /// Buffers of queues: of those that somebody asked for, and of ROCr's own.
    pub queues: u64,
}

/// Asserts that each block of device memory that the thunk gave is explained by the rows of the HSA layer, and each of
/// these rows by a block.
///
/// There is nothing between ROCr and the thunk that a recorder could see, so ROCr's own ways stay: it rounds (see
/// [`assert_thunk_agrees`]), it uploads code when an executable is loaded, and each of its compute queues has a buffer.
pub fn assert_hsa_explains(thunk: &[ThunkLine], events: &[Event]) -> Explained {
    let of_hsa = |event: &&Event| event.layer() == "hsa" && !event.failed();
    let rows: Vec<&Event> =
        events.iter().filter(of_hsa).filter(|event| event.event() == "alloc" && event.kind() == "device").collect();
    let memory = events.iter().filter(of_hsa).filter(|event| ["alloc", "free"].contains(&event.event()));
    let memory = memory.filter(|event| event.kind() != "queue" && event.address().is_some());
    assert_alternate(memory, |event| event.event() == "alloc");
    let calls_of = |name: &str| events.iter().filter(of_hsa).filter(|event| event.api().starts_with(name)).count();
    let mut explained = Explained { asked: rows.iter().map(|row| row.requested_bytes()).sum(), ..Explained::default() };
    let (mut own_blocks, mut code_objects, mut queue_buffers) = (Vec::new(), 0, 0);
    for line in thunk.iter().filter(|line| line.op == "alloc" && line.heap == "vram" && line.status == "ok") {
        match line.used_for.as_str() {
            "data" if line.bytes == ROCR_BLOCK => {
                let shares = |row: &&&Event| row.address().is_some_and(|address| line.holds(address));
                assert!(rows.iter().any(|row| shares(&row)), "no row of HSA lies in {line:x?}");
                explained.shared_blocks += line.bytes;
            }
            "data" if line.bytes % ROCR_BLOCK == 0 => own_blocks.push((line.address, line.bytes)),
            "data" => (explained.code, code_objects) = (explained.code + line.bytes, code_objects + 1),
            "queue" => (explained.queues, queue_buffers) = (explained.queues + line.bytes, queue_buffers + 1),
            _ => panic!("nothing explains {line:x?}"),
        }
    }
    let large = rows.iter().filter(|row| row.requested_bytes() > ROCR_BLOCK);
    let mut asked: Vec<(u64, u64)> = large
        .map(|row| (row.address().expect("a block"), row.requested_bytes().next_multiple_of(ROCR_BLOCK)))
        .collect();
    own_blocks.sort_unstable();
    asked.sort_unstable();
    assert_eq!(asked, own_blocks, "large requests and the blocks of one request each");
    explained.own_blocks = own_blocks.iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(code_objects, calls_of("hsa_executable_load"), "one piece of code per load");
    let queues = thunk.iter().filter(|line| line.op == "queue_create" && line.used_for == "aql").count();
    assert_eq!(queue_buffers, queues, "one buffer per compute queue");
    // The one for its own copies and fills, made when it is first wanted.
    let of_rocr = queues - calls_of("hsa_queue_create");
    assert!(of_rocr <= calls_of("hsa_shut_down").max(1), "{of_rocr} queues of ROCr itself");
    explained
}
