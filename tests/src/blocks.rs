//! What the allocators above the runtime told, held against the totals that they told with it: an account of its own, made from
//! the trace's records without the analyzer.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use gpuoom_trace::payload::{self, Stack, stack_flag};
use gpuoom_trace::reader::TraceFile;
use gpuoom_trace::record::{Event, Record, flag};

/// What was found in a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToldBlocks {
    /// Blocks that were given out, and taken back.
    pub given: u64,
    /// See `given`.
    pub taken: u64,
    /// Out-of-memory errors.
    pub errors: u64,
    /// Events at which the sum of the live blocks is not what the allocator says it has given out.
    pub mismatches: u64,
    /// Blocks that were taken back and had not been given out, or were given out while they lived.
    pub strange: u64,
    /// Blocks whose way there has Python frames.
    pub with_python: u64,
    /// Blocks whose way there has native frames.
    pub with_native: u64,
    /// Distinct call sites of blocks.
    pub sites: usize,
    /// Live blocks at the end, by device and address: size in bytes.
    pub live: HashMap<(u8, u64), u64>,
    /// What the allocator said last: allocated and reserved, by device.
    pub totals: HashMap<u8, (u64, u64)>,
    /// Bytes of the blocks, by the way there: Python lines, innermost first, as `file:function:line`.
    pub by_line: HashMap<String, u64>,
}

/// Reads all records of PyTorch's allocator.
pub fn told_blocks(path: &Path) -> ToldBlocks {
    let mut trace = TraceFile::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut reading = Reading::default();
    let read = trace.for_each_batch(|batch| {
        batch.iter().for_each(|(record, payload)| reading.record(record, payload));
        Ok::<(), std::convert::Infallible>(())
    });
    read.unwrap_or_else(|never| match never {});
    reading.told.sites = reading.sites_used.len();
    reading.told
}

#[derive(Default)]
struct Reading {
    told: ToldBlocks,
    sums: HashMap<u8, u64>,
    stacks: HashMap<u32, Stack>,
    codes: HashMap<u32, String>,
    sites_used: HashSet<u32>,
}

impl Reading {
    fn record(&mut self, record: &Record, payload: &[u8]) {
        match record.event() {
            Some(Event::Site) => {
                if let Some(stack) = Stack::read(payload) {
                    self.stacks.insert(record.site, stack);
                }
            }
            Some(Event::Code) => {
                let name = payload::CodeName::read(payload);
                let file = name.file.rsplit('/').next().unwrap_or_default().to_owned();
                self.codes.insert(record.site, format!("{file}:{}", name.function));
            }
            Some(Event::Block) if record.status == 0 => self.given(record, payload),
            Some(Event::BlockFree) => self.taken(record, payload),
            Some(Event::Block) => {
                self.told.errors += 1;
                self.total(record, payload, 0);
            }
            _ => {}
        }
    }

    fn given(&mut self, record: &Record, payload: &[u8]) {
        let told = &mut self.told;
        told.given += 1;
        self.sites_used.insert(record.site);
        if let Some(stack) = self.stacks.get(&record.site) {
            told.with_python += u64::from(stack.has(stack_flag::PYTHON_SEEN));
            told.with_native += u64::from(!stack.native.is_empty());
            let line = |frame: &payload::PythonFrame| {
                format!("{}:{}", self.codes.get(&frame.code).map_or("?", String::as_str), frame.line)
            };
            let way: Vec<String> = stack.python.iter().map(line).collect();
            *told.by_line.entry(way.join(" < ")).or_default() += record.requested;
        }
        let before = told.live.insert((record.device, record.address), record.requested);
        told.strange += u64::from(before.is_some());
        self.total(record, payload, record.requested);
    }

    fn taken(&mut self, record: &Record, payload: &[u8]) {
        self.told.taken += 1;
        let size = self.told.live.remove(&(record.device, record.address));
        self.told.strange += u64::from(size != Some(record.requested));
        self.total(record, payload, record.requested.wrapping_neg());
    }

    /// Follows the allocator's own totals as FORMAT.md says, and compares them with the sum of the blocks.
    fn total(&mut self, record: &Record, payload: &[u8], change: u64) {
        let sum = self.sums.entry(record.device).or_default();
        *sum = sum.wrapping_add(change);
        let known = self.told.totals.get(&record.device).copied();
        let totals = if record.has(flag::TOTALS) {
            let mut numbers = payload::unpack_numbers(payload);
            numbers.next().zip(numbers.next())
        } else {
            known.map(|(allocated, reserved)| (allocated.wrapping_add(change), reserved))
        };
        match totals {
            Some(totals) => {
                self.told.mismatches += u64::from(totals.0 != *sum);
                self.told.totals.insert(record.device, totals);
            }
            None => self.told.mismatches += 1,
        }
    }
}
