//! Records as rows of a list of events, each with the sequence number of its enclosing call.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::rc::Rc;

use gpuoom_trace::clock::Clock;
use gpuoom_trace::columns::Batch;
use gpuoom_trace::metadata::{self, Quantity, Reading, trigger};
use gpuoom_trace::payload;
use gpuoom_trace::reader::TraceFile;
use gpuoom_trace::record::{Event, Granule, Kind, Record, flag, mark, process};
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::passes::given::GivenByHsa;
use crate::passes::numbered::Numbers;
use crate::passes::oom::{Status, layer_name};
use crate::replay::apis::{Apis, Does, Ends};
use crate::replay::purpose::Purpose;
use crate::replay::sites::Sites;
use crate::symbols::{Names, Stack, SymbolPlaces};

/// Rows that may wait for the record of their enclosing call.
const MAX_WAITING: usize = 1 << 16;
/// Calls of a thread that may enclose later ones.
const MAX_OPEN: usize = 64;

/// One event as it is listed. Fields that do not apply are empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EventRow {
    /// Sequence number.
    pub seq: u64,
    /// When the call began.
    pub at_ns: u64,
    /// How long it took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ns: Option<u64>,
    /// Kernel thread id.
    pub thread: u32,
    /// What happened.
    pub event: &'static str,
    /// Function, as the report calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<String>,
    /// Layer of the function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer: Option<&'static str>,
    /// Device index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<u8>,
    /// Kind of memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    /// Pointer or handle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Bytes asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_bytes: Option<u64>,
    /// The same, padded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub padded_bytes: Option<u64>,
    /// What the call returned, or what an error query asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// Sequence number of the enclosing call.
    pub parent: Option<u64>,
    /// Number of the out-of-memory return, counted from 1: what `oom:N` means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom: Option<u64>,
    /// Handle and offset of a mapping, pool of an allocation, what else a request to a driver says.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub numbers: Vec<u64>,
    /// Of a label that is the beginning or end of a range: `push`, `pop`, `start`, `stop`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<&'static str>,
    /// Label, exception type, what began or ended, a pool and the name of its block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Numbers that were read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub readings: Vec<ReadingRow>,
    /// Number of the call site, where one was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<u32>,
    /// The function that made the call, and its library; the library and an offset where it has no name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// The way to the call, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "frames")]
    pub stack: Option<Rc<Stack>>,
    /// Whether frames of it are missing at its outer end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack_is_cut: Option<bool>,
    /// Whether native frames of it were inferred from frame pointers, where unwind tables are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack_is_inferred: Option<bool>,
    /// What else is marked: `from_runtime`, `correction`, `failed_pointer`, `error_text`, `same_variable`, `totals`, `injected`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<&'static str>,
}

fn frames<S: serde::Serializer>(stack: &Option<Rc<Stack>>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(stack.iter().flat_map(|stack| &stack.frames))
}

/// One number that was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReadingRow {
    /// What was read.
    pub quantity: &'static str,
    /// Device index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<u8>,
    /// Bytes, or a count.
    pub value: u64,
}

/// Makes rows and puts them in order; a row waits until its enclosing call is known.
pub struct Rows {
    apis: Apis,
    clock: Clock,
    granule: Granule,
    waiting: VecDeque<(EventRow, Option<(u32, u32)>)>,
    /// Rows that have left `waiting` at its front.
    left: u64,
    /// Rows that wait for a call of a thread: their numbers, counted from the first row of all.
    unresolved: FxHashMap<u32, Vec<(u32, u64)>>,
    /// Calls of each thread that were recorded and may enclose later ones.
    open: FxHashMap<u32, Vec<(u32, u64)>>,
    ooms: u64,
    /// The numbers of failures, where they are not those of the refusals in their order.
    numbers: Option<Numbers>,
    sites: Sites,
    names: Names,
    given: GivenByHsa,
    with_stacks: bool,
}

impl Rows {
    /// For the records of a trace, with names of functions from these places. `with_stacks`: rows have the whole way to
    /// their calls.
    pub fn new(trace: &TraceFile, places: &SymbolPlaces, with_stacks: bool) -> Self {
        Rows {
            apis: Apis::new(&trace.metadata.apis, &trace.metadata.meanings),
            clock: trace.clock(),
            granule: trace.granule(),
            waiting: VecDeque::new(),
            left: 0,
            unresolved: FxHashMap::default(),
            open: FxHashMap::default(),
            ooms: 0,
            numbers: None,
            sites: Sites::default(),
            names: Names::new(trace, places),
            given: GivenByHsa::default(),
            with_stacks,
        }
    }

    /// With numbers of failures that were found before.
    pub fn numbered(self, numbers: Option<Numbers>) -> Self {
        Rows { numbers, ..self }
    }

    /// The number of the failure that this record tells of.
    fn number(&mut self, record: &Record) -> Option<u64> {
        if let Some(numbers) = &self.numbers {
            return numbers.get(&record.seq()).copied();
        }
        self.apis.get(record.api).is_own_out_of_memory(record).then(|| {
            self.ooms += 1;
            self.ooms
        })
    }

    /// What the note in a record says about later ones.
    fn note(&mut self, record: &Record, payload: &[u8]) {
        match record.event() {
            Some(Event::Site) => self.sites.introduce(record, payload),
            Some(Event::Code) => self.sites.name_code(record, payload),
            Some(Event::Library) => self.sites.note_library(record, payload),
            _ => {}
        }
    }

    /// Says where a call came from.
    fn add_site(&self, row: &mut EventRow, site: u32) {
        row.site = Some(site);
        // An allocator's blocks are all told by the same function of its own.
        let is_block = row.kind == Some(Kind::Tensor.name());
        row.caller = self.names.call_site(&self.sites, site).map(|known| match is_block {
            true => known.label_with_line().unwrap_or_else(|| known.label.clone()),
            false => known.caller.clone(),
        });
        if self.with_stacks {
            let stack = self.names.shared_stack(&self.sites, site);
            row.stack_is_cut = Some(stack.native_is_cut || stack.python_is_cut);
            row.stack_is_inferred = Some(stack.native_is_inferred);
            row.stack = Some(stack);
        }
    }

    /// Takes a batch and hands every row that is whole to `sink`.
    pub fn batch(&mut self, batch: &Batch, mut sink: impl FnMut(EventRow) -> ControlFlow<()>) -> ControlFlow<()> {
        for (record, payload) in batch.iter() {
            if record.is_note() {
                self.note(record, payload);
                continue;
            }
            self.take(record, payload);
            while let Some((_, None)) = self.waiting.front() {
                self.leave(&mut sink)?;
            }
            while self.waiting.len() > MAX_WAITING {
                self.leave(&mut sink)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Hands out what still waits: the enclosing calls never returned.
    pub fn finish(&mut self, mut sink: impl FnMut(EventRow) -> ControlFlow<()>) -> ControlFlow<()> {
        while !self.waiting.is_empty() {
            self.leave(&mut sink)?;
        }
        ControlFlow::Continue(())
    }

    fn leave(&mut self, sink: &mut impl FnMut(EventRow) -> ControlFlow<()>) -> ControlFlow<()> {
        match self.waiting.pop_front() {
            Some((row, _)) => {
                self.left += 1;
                sink(row)
            }
            None => ControlFlow::Continue(()),
        }
    }

    fn take(&mut self, record: &Record, payload: &[u8]) {
        let mut row = self.row(record, payload);
        row.oom = self.number(record);
        if matches!(record.event(), Some(Event::Block | Event::BlockFree | Event::BlockUse | Event::Message)) {
            // It is told at a moment: no call encloses it, and it ends none.
            self.waiting.push_back((row, None));
            return;
        }
        let number = self.left + self.waiting.len() as u64;
        self.resolve(record);
        let open = self.open.entry(record.thread).or_default();
        let mut waits_for = None;
        match record.parent_call() {
            None => open.clear(),
            Some(parent) => {
                while open.last().is_some_and(|(call, _)| *call != parent && call.wrapping_sub(parent) as i32 > 0) {
                    open.pop();
                }
                match open.last() {
                    Some((call, seq)) if *call == parent => row.parent = Some(*seq),
                    _ => waits_for = Some((record.thread, parent)),
                }
            }
        }
        if open.len() < MAX_OPEN {
            open.push((record.call, record.seq()));
        }
        if let Some((thread, parent)) = waits_for {
            self.unresolved.entry(thread).or_default().push((parent, number));
        }
        self.waiting.push_back((row, waits_for));
    }

    /// A call was recorded: rows that wait for it have their answer, and rows that wait for an earlier one never will.
    fn resolve(&mut self, record: &Record) {
        if self.unresolved.is_empty() {
            return;
        }
        let Some(mut waiting) = self.unresolved.remove(&record.thread) else { return };
        let outermost = record.parent_distance == 0;
        let left = self.left;
        let rows = &mut self.waiting;
        waiting.retain(|(parent, number)| {
            let found = *parent == record.call;
            let index = number.checked_sub(left).and_then(|index| usize::try_from(index).ok());
            let Some((row, waits_for)) = index.and_then(|index| rows.get_mut(index)) else { return false };
            if found {
                row.parent = Some(record.seq());
            }
            if found || outermost {
                *waits_for = None;
            }
            !(found || outermost)
        });
        if !waiting.is_empty() {
            self.unresolved.insert(record.thread, waiting);
        }
    }

    fn row(&mut self, record: &Record, payload: &[u8]) -> EventRow {
        use Event::{
            Alloc, Block, BlockFree, BlockUse, Export, Free, Import, Map, Module, Pin, Reserve, Sync, Unmap, Unpin,
        };
        let event = record.event();
        let api = self.apis.get(record.api);
        let is_told = matches!(event, Some(Block | BlockFree | BlockUse));
        let about_memory =
            is_told || matches!(event, Some(Alloc | Free | Map | Unmap | Reserve | Pin | Unpin | Import | Export));
        let gives_back = matches!(event, Some(Free | Unmap | Unpin | BlockFree));
        let corrects = record.has(flag::CORRECTION);
        let has_size = matches!(event, Some(Alloc | Map | Unmap | Reserve | Pin | Import | Block))
            || (matches!(event, Some(Export | BlockFree)) && record.requested > 0);
        let is_call = !matches!(
            event,
            Some(Event::Mark | Event::Process | Event::Reading | Event::Exception | Event::Message) | None
        );
        // What only matters after a failure is recorded before its call: how that ended is not known.
        let is_over = about_memory || record.duration != 0 || corrects;
        let ends = api.does.ends_something();
        // A handle, or the object that a stream of orders is for; before its call, the first argument may be anything.
        let has_handle = matches!(event, Some(Module | Sync)) && record.address != 0 && (is_over || ends);
        let asked_about = event == Some(Event::ErrorQuery) && record.has(flag::ERROR_TEXT);
        let has_status = match is_told {
            true => record.status != 0 && event != Some(BlockUse),
            false => is_call && (is_over && (!gives_back || corrects) || asked_about),
        };
        let (kind, device) = self.given.see(record, api.layer);
        let mut row = EventRow {
            seq: record.seq(),
            at_ns: self.clock.at_ns(record.at),
            duration_ns: (is_call && is_over && !gives_back && !is_told)
                .then(|| self.clock.duration_ns(u64::from(record.duration))),
            thread: record.thread,
            event: event.map_or("unknown", |event| event_name(event, api.ends != Ends::Nothing)),
            api: is_call.then(|| api.readable_name()),
            layer: layer_name(api.layer).filter(|_| is_call),
            device,
            kind: kind.filter(|_| about_memory).map(Kind::name),
            // A refusal on request has its reason there.
            address: (has_handle || (about_memory && (record.address != 0 || gives_back)))
                .then_some(record.address)
                .filter(|_| !record.has(flag::INJECTED))
                .map(|address| format!("{address:#x}")),
            requested_bytes: has_size.then_some(record.requested),
            padded_bytes: matches!(event, Some(Alloc | Pin)).then(|| record.padded_bytes(self.granule)),
            status: has_status.then(|| Status { code: record.status, name: api.status_name(record.status) }),
            marks: marks(record),
            ..EventRow::default()
        };
        match api.does {
            Does::TellsOfBuffer if is_told => add_buffer(&mut row, record, payload),
            _ => add_payload(&mut row, record, payload),
        }
        if record.site != 0 {
            self.add_site(&mut row, record.site);
        }
        row
    }
}

/// The word of the contract. It has none for the choice of a device, which is order and no work, like a wait; a reset, or
/// the end of a context, gives back all that it holds.
fn event_name(event: Event, gives_back_all: bool) -> &'static str {
    match event {
        Event::Device if gives_back_all => Event::Free.name(),
        Event::Device => Event::Sync.name(),
        // Nor has it one for an export: what was there becomes visible to others.
        Event::Export => Event::Map.name(),
        // Nor for what a block is for: it is told of a block that is there.
        Event::BlockUse => Event::Mark.name(),
        // A layer of its own says what gave the block.
        Event::Block => Event::Alloc.name(),
        Event::BlockFree => Event::Free.name(),
        event => event.name(),
    }
}

fn marks(record: &Record) -> Vec<&'static str> {
    let bit_6 = match record.event() {
        Some(Event::ErrorQuery) => "error_text",
        Some(Event::Alloc | Event::Pin) => "same_variable",
        Some(Event::Block | Event::BlockFree) => "totals",
        _ => "failed_pointer",
    };
    let all = [
        (flag::FROM_RUNTIME, "from_runtime"),
        (flag::CORRECTION, "correction"),
        (flag::FAILED_POINTER, bit_6),
        (flag::INJECTED, "injected"),
    ];
    all.into_iter().filter(|(flag, _)| record.has(*flag)).map(|(_, name)| name).collect()
}

/// A buffer of ggml: where its memory begins and how many calls gave it, or what it is for.
fn add_buffer(row: &mut EventRow, record: &Record, payload: &[u8]) {
    row.numbers = payload::unpack_numbers(payload).collect();
    if record.event() == Some(Event::BlockUse) {
        row.text = Purpose::told(record.status).and_then(Purpose::name).map(str::to_owned);
    }
}

fn add_payload(row: &mut EventRow, record: &Record, payload: &[u8]) {
    match record.event() {
        Some(Event::Mark) => {
            row.range = range(record.status);
            // The end of a range has no text, and a numbered one has a number.
            row.text = (!matches!(record.status, mark::POP | mark::STOP)).then(|| payload::text(payload));
            if matches!(record.status, mark::START | mark::STOP) {
                row.numbers = vec![record.address];
            }
        }
        Some(Event::Exception | Event::Message) => row.text = Some(payload::text(payload)),
        Some(Event::Block | Event::BlockFree) if record.has(flag::TOTALS) => {
            row.numbers = payload::unpack_numbers(payload).collect();
        }
        Some(Event::Block | Event::BlockFree) if !payload.is_empty() => {
            let text = payload::text(payload);
            row.text = Some(match text.split_once('\0') {
                Some((pool, "")) => pool.to_owned(),
                Some((pool, name)) => format!("{pool}: {name}"),
                None => text,
            });
        }
        Some(Event::Process) => {
            row.text = Some(match record.address {
                process::BEGAN if record.requested > 0 => format!("began, forked from process {}", record.requested),
                process::BEGAN => "began".to_owned(),
                process::EXITS => "exits".to_owned(),
                process::SIGNALS => "ends itself by a signal".to_owned(),
                _ => "unknown".to_owned(),
            });
            if record.address != process::BEGAN {
                row.status = Some(Status { code: record.status, name: None });
            }
        }
        Some(Event::Reading) => {
            row.text = Some(trigger_name(record.status).to_owned());
            let readings: Vec<Reading> = metadata::decode(payload::unpack(payload)).unwrap_or_default();
            row.readings = readings.iter().map(reading_row).collect();
        }
        Some(
            Event::Alloc
            | Event::Pin
            | Event::Free
            | Event::Map
            | Event::Reserve
            | Event::Import
            | Event::Module
            | Event::Sync,
        ) if !payload.is_empty() => row.numbers = payload::unpack_numbers(payload).collect(),
        _ => {}
    }
}

fn range(status: i32) -> Option<&'static str> {
    match status {
        mark::PUSH => Some("push"),
        mark::POP => Some("pop"),
        mark::START => Some("start"),
        mark::STOP => Some("stop"),
        _ => None,
    }
}

fn trigger_name(number: i32) -> &'static str {
    match number {
        trigger::START => "start",
        trigger::PERIOD => "period",
        trigger::FAILURE => "failure",
        trigger::PROGRAM => "program",
        _ => "unknown",
    }
}

fn reading_row(reading: &Reading) -> ReadingRow {
    let device = (reading.device != gpuoom_trace::record::NO_DEVICE).then_some(reading.device);
    ReadingRow { quantity: quantity_name(reading.quantity), device, value: reading.value }
}

fn quantity_name(number: u16) -> &'static str {
    use Quantity::*;
    let names = [
        (RuntimeTotal, "runtime_total_bytes"),
        (RuntimeFree, "runtime_free_bytes"),
        (VramTotal, "vram_total_bytes"),
        (VramUsed, "vram_used_bytes"),
        (VisibleVramTotal, "visible_vram_total_bytes"),
        (VisibleVramUsed, "visible_vram_used_bytes"),
        (GttTotal, "gtt_total_bytes"),
        (GttUsed, "gtt_used_bytes"),
        (KfdProcessVram, "kfd_process_vram_bytes"),
        (ResidentMemory, "resident_bytes"),
        (CgroupUsed, "cgroup_used_bytes"),
        (CgroupLimit, "cgroup_limit_bytes"),
        (OpenDescriptors, "open_descriptors"),
        (DescriptorLimit, "descriptor_limit"),
        (MemoryMaps, "memory_maps"),
        (MemoryMapLimit, "memory_map_limit"),
        (LargestAllocatable, "largest_allocatable_bytes"),
        (ProbeSkipped, "probe_skipped"),
        (HostTotal, "host_total_bytes"),
        (HostAvailable, "host_available_bytes"),
        (KfdOthersVram, "kfd_others_vram_bytes"),
        (GraphicsVram, "graphics_vram_bytes"),
        (NvmlTotal, "nvml_total_bytes"),
        (NvmlUsed, "nvml_used_bytes"),
        (NvmlReserved, "nvml_reserved_bytes"),
        (NvmlProcess, "nvml_process_bytes"),
        (KfdAvailable, "kfd_available_bytes"),
        (NvmlOthers, "nvml_others_bytes"),
        (AddressSpace, "address_space_bytes"),
        (AddressSpaceLimit, "address_space_limit_bytes"),
    ];
    names.iter().find(|(quantity, _)| *quantity as u16 == number).map_or("unknown", |(_, name)| name)
}
