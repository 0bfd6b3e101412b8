//! Traces for tests and benchmarks, made with the writer side of the trace crate.

pub mod blocks;
#[cfg(test)]
pub(crate) mod removals;

use std::path::Path;

use gpuoom_trace::chunk::{ChunkMaker, kind as chunk_kind};
use gpuoom_trace::columns::MAX_CHUNK_SLOTS;
use gpuoom_trace::header::{ClockPoint, HEADER_BYTES, Header, IN_FLIGHT, InFlight, clock_source};
use gpuoom_trace::metadata::{
    ApiRow, ApiTable, Bypass, Bypasses, DeviceFacts, MachineFacts, Module, Modules, ProcessFacts, Reading,
    encode_readings, trigger,
};
use gpuoom_trace::payload::{self, PythonFrame, stack_flag};
use gpuoom_trace::record::{
    EXTENSION_BYTES, Event, Granule, Kind, Layer, MAX_PAYLOAD_BYTES, NO_DEVICE, Record, SLOT_BYTES, flag, message,
};
use gpuoom_trace::ring::{EXTENSION, SlotWords, Taken};
use rustc_hash::FxHashMap;

/// One gibibyte.
pub const GIB: u64 = 1 << 30;
/// One mebibyte.
pub const MIB: u64 = 1 << 20;
/// The thread that test programs run on where it does not matter.
pub const THREAD: u32 = 4711;

/// A part of a gibibyte, as people write it.
pub fn gib(amount: f64) -> u64 {
    (amount * GIB as f64) as u64
}

/// A call of one layer, for [`TraceBuilder::alloc_through`] and [`TraceBuilder::free_through`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// Function, which gives the layer.
    pub api: &'static str,
    /// Kind of memory.
    pub kind: Kind,
    /// Pointer or handle.
    pub address: u64,
    /// Bytes asked for.
    pub bytes: u64,
}

/// A call of one layer about device memory.
pub fn at(api: &'static str, address: u64, bytes: u64) -> At {
    At { api, kind: Kind::Device, address, bytes }
}

/// Builds a trace record by record. The clock counts nanoseconds; each call takes 1 µs and begins 1 ms after the last.
#[derive(Clone)]
pub struct TraceBuilder {
    /// The header, to be changed at will.
    pub header: Header,
    /// Facts about the process.
    pub process: ProcessFacts,
    /// The loaded libraries.
    pub modules: Vec<Module>,
    /// Libraries that call past the recorder.
    pub bypasses: Vec<Bypass>,
    /// Files that tell about the machine: path and text.
    pub machine: Vec<(String, String)>,
    /// What a user gives beside this trace.
    pub evidence: crate::evidence::Evidence,
    /// Call site of the next outermost calls.
    pub site: u32,
    /// The next record begins at this moment, in nanoseconds.
    pub now_ns: u64,
    /// Slots of one chunk of events.
    pub slots_per_chunk: usize,
    /// Whether the records stay in the ring (as after a kill) and are not in chunks.
    pub in_ring: bool,
    devices: Vec<DeviceFacts>,
    apis: Vec<ApiRow>,
    records: Vec<(Record, Vec<u8>)>,
    calls: FxHashMap<u32, u32>,
    in_flight: Vec<InFlight>,
    torch: blocks::Torch,
    seq: u64,
}

impl Default for TraceBuilder {
    fn default() -> Self {
        TraceBuilder::new(256 * MIB)
    }
}

impl TraceBuilder {
    /// An empty trace with a granule.
    pub fn new(granularity_bytes: u64) -> Self {
        let mut header = Header::new(1 << 10, granularity_bytes, 4711);
        header.clock_source = clock_source::MONOTONIC;
        // 2026-11-20T14:03:11Z
        header.clock_first = ClockPoint { ticks: 0, monotonic_ns: 0, wall_ns: 1_795_183_391_000_000_000 };
        header.closed = 1;
        let process = ProcessFacts {
            pid: 4711,
            executable: "/usr/bin/llama-cli".into(),
            command_line: ["llama-cli", "-m", "model.gguf", "-ngl", "999"].map(Into::into).into(),
            hostname: "atlas".into(),
            kernel: "6.12.0".into(),
            recorder_version: "0.1.0".into(),
            ..ProcessFacts::default()
        };
        TraceBuilder {
            header,
            process,
            modules: Vec::new(),
            bypasses: Vec::new(),
            machine: Vec::new(),
            evidence: crate::evidence::Evidence::default(),
            site: 0,
            now_ns: 0,
            slots_per_chunk: MAX_CHUNK_SLOTS,
            in_ring: false,
            devices: Vec::new(),
            apis: Vec::new(),
            records: Vec::new(),
            calls: FxHashMap::default(),
            in_flight: Vec::new(),
            torch: blocks::Torch::default(),
            seq: 0,
        }
    }

    /// Adds a library that lies at these addresses, and a call site in it.
    pub fn library(mut self, path: &str, start: u64, site: u32) -> Self {
        let module = Module { path: path.into(), build_id: String::new(), start, end: start + 0x1000, vendor: false };
        self.modules.push(module);
        self.push(Record { site, address: start + 0x10, ..Record::new(Event::Site, Kind::None) }, &[]);
        self
    }

    /// Adds a call site with the way there; [`TraceBuilder::site`] makes the next calls come from it.
    pub fn stack(&mut self, site: u32, native: &[u64], python: &[PythonFrame]) -> &mut Self {
        let flags = stack_flag::NATIVE_WHOLE | if python.is_empty() { 0 } else { stack_flag::PYTHON_SEEN };
        self.stack_with(flags, site, native, python)
    }

    /// The same with these bits of [`stack_flag`].
    pub fn stack_with(&mut self, flags: u8, site: u32, native: &[u64], python: &[PythonFrame]) -> &mut Self {
        let mut out = [0; MAX_PAYLOAD_BYTES];
        let payload = payload::stack(flags, native, python, &mut out).to_vec();
        let address = native.first().copied().unwrap_or(0);
        self.push(Record { site, address, thread: THREAD, ..Record::new(Event::Site, Kind::None) }, &payload);
        self
    }

    /// Names a Python code object.
    pub fn code(&mut self, number: u32, file: &str, function: &str) -> &mut Self {
        let mut out = [0; MAX_PAYLOAD_BYTES];
        let payload = payload::code_name(file.as_bytes(), function.as_bytes(), &mut out).to_vec();
        self.push(Record { site: number, ..Record::new(Event::Code, Kind::None) }, &payload);
        self
    }

    /// Adds a HIP device.
    pub fn device(mut self, index: u8, name: &str, total_bytes: u64) -> Self {
        self.devices.push(DeviceFacts {
            index,
            name: name.into(),
            runtime: "hip".into(),
            runtime_version: 60_443_483,
            total_bytes,
            pci_bus_id: "0000:03:00.0".into(),
            ..DeviceFacts::default()
        });
        self
    }

    /// Makes the last device one of CUDA's.
    pub fn cuda(mut self) -> Self {
        if let Some(device) = self.devices.last_mut() {
            device.runtime = "cuda".into();
            device.runtime_version = 13_020;
        }
        self
    }

    /// Gives the last device another version of its runtime, as that encodes it.
    pub fn runtime_version(mut self, version: i32) -> Self {
        if let Some(device) = self.devices.last_mut() {
            device.runtime_version = version;
        }
        self
    }

    /// Gives the last device another place on the PCI bus; empty where the runtime does not tell.
    pub fn bus_id(mut self, pci_bus_id: &str) -> Self {
        if let Some(device) = self.devices.last_mut() {
            device.pci_bus_id = pci_bus_id.into();
        }
        self
    }

    /// The number of a function, which is added where it is new. Its layer follows from its name.
    pub fn api(&mut self, name: &str) -> u16 {
        if let Some(row) = self.apis.iter().position(|row| row.name == name) {
            return row as u16;
        }
        let layer = match name {
            _ if name.starts_with("_ZN3c10") => Layer::Framework,
            _ if name.starts_with("hsa") => Layer::Hsa,
            _ if ["hip", "cuda", "cublas", "cudnn", "rocblas", "miopen"]
                .iter()
                .any(|start| name.starts_with(start)) =>
            {
                Layer::Runtime
            }
            _ if name.starts_with("cu") => Layer::Driver,
            _ if name.starts_with("__cxa") => Layer::Process,
            _ if blocks::does(name).is_some() => Layer::Framework,
            _ => Layer::Kernel,
        };
        self.apis.push(ApiRow { name: name.into(), layer: layer as u8 });
        (self.apis.len() - 1) as u16
    }

    /// Ordinal of a new call of a thread.
    pub fn call(&mut self, thread: u32) -> u32 {
        let call = self.calls.entry(thread).or_default();
        *call += 1;
        *call
    }

    /// Adds a record with a payload as it stands; sequence number and slots are filled in. Returns its number.
    pub fn push(&mut self, record: Record, payload: &[u8]) -> u64 {
        let slots = 1 + payload.len().div_ceil(EXTENSION_BYTES) as u64;
        let seq = self.seq;
        self.seq += slots;
        self.records.push((Record { commit: seq + 1, slots: slots as u8, ..record }, payload.to_vec()));
        seq
    }

    /// A record of the test thread on device 0 with the usual times, for [`TraceBuilder::push`].
    pub fn record(&mut self, event: Event, kind: Kind, api: &str) -> Record {
        self.record_on(THREAD, event, kind, api)
    }

    /// The same on another thread.
    pub fn record_on(&mut self, thread: u32, event: Event, kind: Kind, api: &str) -> Record {
        self.now_ns += 1_000_000;
        let (at, api, call) = (self.now_ns, self.api(api), self.call(thread));
        Record { at, duration: 1000, thread, api, call, device: 0, ..Record::new(event, kind) }
    }

    fn sized(&self, record: Record, address: u64, requested: u64) -> Record {
        let granules = Granule::new(self.header.granularity_bytes).count(requested);
        Record { address, requested, padded_granules: granules, site: self.site, ..record }
    }

    /// `hipMalloc` that succeeds.
    pub fn alloc(&mut self, address: u64, requested_bytes: u64) -> u64 {
        self.alloc_kind(Kind::Device, "hipMalloc", address, requested_bytes)
    }

    /// An allocation of any kind that succeeds.
    pub fn alloc_kind(&mut self, kind: Kind, api: &str, address: u64, requested_bytes: u64) -> u64 {
        let record = Record { site: self.site, ..self.record(Event::Alloc, kind, api) };
        let record = self.sized(record, address, requested_bytes);
        self.push(record, &[])
    }

    /// An allocation and what it calls below, from the outermost call to the innermost. Like any call that is recorded when
    /// it returns, the innermost comes first. `flags` are those of the outermost.
    pub fn alloc_through(&mut self, flags: u8, layers: &[At]) -> u64 {
        let mut records = self.begin(flags, layers, |kind| match kind {
            Kind::Registered => Event::Pin,
            _ => Event::Alloc,
        });
        let mut last = 0;
        while let Some(record) = records.pop() {
            last = self.push(record, &[]);
        }
        last
    }

    /// A call that holds nothing itself (a module, a queue) with allocations below it, each by itself.
    pub fn set_up_through(&mut self, outer: Record, below: &[At]) -> u64 {
        for layer in below {
            let inner = self.record_on(outer.thread, Event::Alloc, layer.kind, layer.api);
            let inner = Record { parent_distance: (inner.call - outer.call) as u16, ..inner };
            let inner = self.sized(inner, layer.address, layer.bytes);
            self.push(inner, &[]);
        }
        self.push(outer, &[])
    }

    /// A free and what it calls below, from the outermost call to the innermost, which is also their order.
    pub fn free_through(&mut self, flags: u8, layers: &[At]) -> u64 {
        let records = self.begin(flags, layers, |kind| match kind {
            Kind::Registered => Event::Unpin,
            _ => Event::Free,
        });
        let mut last = 0;
        for record in records {
            last = self.push(Record { requested: 0, padded_granules: 0, duration: 0, ..record }, &[]);
        }
        last
    }

    /// Calls inside each other, none of which is recorded yet.
    fn begin(&mut self, flags: u8, layers: &[At], event: impl Fn(Kind) -> Event) -> Vec<Record> {
        let mut records = Vec::new();
        for layer in layers {
            let record = self.record(event(layer.kind), layer.kind, layer.api);
            let record = self.sized(record, layer.address, layer.bytes);
            let outermost = records.is_empty();
            records.push(Record {
                parent_distance: u16::from(!outermost),
                site: if outermost { self.site } else { 0 },
                kind_flags: record.kind_flags | if outermost { flags } else { 0 },
                ..record
            });
        }
        records
    }

    /// `hipMalloc` that runs out of memory.
    pub fn refuse(&mut self, requested_bytes: u64) -> u64 {
        self.refuse_on(THREAD, requested_bytes)
    }

    /// The same of physical memory, a piece of a segment that grows.
    pub fn refuse_piece(&mut self, requested_bytes: u64) -> u64 {
        let record = self.record(Event::Alloc, Kind::Physical, "hipMemCreate");
        let record = Record { status: 2, site: self.site, ..self.sized(record, 0, requested_bytes) };
        self.push(record, &[])
    }

    /// The same on another thread.
    pub fn refuse_on(&mut self, thread: u32, requested_bytes: u64) -> u64 {
        let record = self.record_on(thread, Event::Alloc, Kind::Device, "hipMalloc");
        let record = Record { status: 2, site: self.site, ..self.sized(record, 0, requested_bytes) };
        self.push(record, &[])
    }

    /// `hipFree`.
    pub fn free(&mut self, address: u64) -> u64 {
        self.free_kind(Kind::Device, "hipFree", address)
    }

    /// A free of any kind.
    pub fn free_kind(&mut self, kind: Kind, api: &str, address: u64) -> u64 {
        let record = self.record(Event::Free, kind, api);
        self.push(Record { address, duration: 0, ..record }, &[])
    }

    /// The correction that says that the last call failed.
    pub fn last_call_failed(&mut self, status: i32) -> u64 {
        let Some((last, _)) = self.records.last() else { return 0 };
        let record = Record { status, kind_flags: last.kind_flags | flag::CORRECTION, ..*last };
        self.push(record, &[])
    }

    /// A record with further numbers, such as the handle of a mapping.
    pub fn with_numbers(&mut self, record: Record, numbers: &[u64]) -> u64 {
        let mut room = [0; MAX_PAYLOAD_BYTES];
        let payload = payload::numbers(numbers, &mut room).to_vec();
        self.push(record, &payload)
    }

    /// A record with a text.
    pub fn with_text(&mut self, record: Record, text: &str) -> u64 {
        let mut room = [0; MAX_PAYLOAD_BYTES];
        let payload = payload::pack(text.as_bytes(), &mut room).to_vec();
        self.push(record, &payload)
    }

    /// Physical memory, its mapping, in that order.
    pub fn create_and_map(&mut self, handle: u64, address: u64, size_bytes: u64) {
        self.alloc_kind(Kind::Physical, "hipMemCreate", handle, size_bytes);
        self.map(handle, address, size_bytes);
    }

    /// A mapping of physical memory.
    pub fn map(&mut self, handle: u64, address: u64, size_bytes: u64) {
        let record = self.record(Event::Map, Kind::Physical, "hipMemMap");
        self.with_numbers(Record { address, requested: size_bytes, ..record }, &[handle, 0]);
    }

    /// An unmapping.
    pub fn unmap(&mut self, address: u64, size_bytes: u64) {
        let record = self.record(Event::Unmap, Kind::Physical, "hipMemUnmap");
        self.push(Record { address, requested: size_bytes, duration: 0, ..record }, &[]);
    }

    /// A call that matters after a failure: an error query, GPU work, a synchronisation.
    pub fn after(&mut self, event: Event, api: &str, status: i32, flags: u8) -> u64 {
        let record = self.record(event, Kind::None, api);
        self.push(Record { status, kind_flags: flags, ..record }, &[])
    }

    /// GPU work that was given the null of the failure with this sequence number, whose variable still held it.
    pub fn used_null_of(&mut self, api: &str, seq: u64) -> u64 {
        self.used_pointer(api, &[0, 1, seq + 1, 1, 0])
    }

    /// GPU work that was given what a failed call left in its variable, with what the record says of it.
    pub fn used_pointer(&mut self, api: &str, numbers: &[u64]) -> u64 {
        let record = self.record(Event::GpuWork, Kind::None, api);
        let record = Record { kind_flags: flag::FAILED_POINTER, address: numbers[0], ..record };
        let mut out = [0; MAX_PAYLOAD_BYTES];
        self.push(record, payload::numbers(numbers, &mut out))
    }

    /// Readings because of a failure.
    pub fn read_at_failure(&mut self, seq: u64, readings: &[(u16, u64)]) -> u64 {
        let readings: Vec<Reading> = readings
            .iter()
            .map(|(quantity, value)| Reading { quantity: *quantity, device: 0, value: *value })
            .collect();
        let record = self.record(Event::Reading, Kind::None, "gpuoom_reading");
        let record = Record { address: seq, status: trigger::FAILURE, device: NO_DEVICE, ..record };
        self.reading(record, &readings)
    }

    /// A record of readings.
    pub fn reading(&mut self, record: Record, readings: &[Reading]) -> u64 {
        let mut bytes = [0; MAX_PAYLOAD_BYTES];
        let used = encode_readings(readings, &mut bytes);
        let mut room = [0; MAX_PAYLOAD_BYTES];
        let payload = payload::pack(&bytes[..used], &mut room).to_vec();
        self.push(record, &payload)
    }

    /// The process ends in a way that [`gpuoom_trace::record::process`] numbers.
    pub fn end(&mut self, how: u64, status: i32) -> u64 {
        let record = self.record(Event::Process, Kind::None, "gpuoom_process");
        self.push(Record { address: how, status, device: NO_DEVICE, duration: 0, ..record }, &[])
    }

    /// The recording begins, in a process that was forked from this one.
    pub fn began_in_child_of(&mut self, parent: u32) {
        let record = self.record(Event::Process, Kind::None, "gpuoom_process");
        let began = Record { requested: parent.into(), device: NO_DEVICE, duration: 0, ..record };
        self.push(Record { address: gpuoom_trace::record::process::BEGAN, ..began }, &[]);
    }

    /// A call that does not return before the trace ends.
    pub fn under_way(&mut self, api: &str, requested: u64) {
        let api = u64::from(self.api(api));
        let state = IN_FLIGHT | u64::from(THREAD) | api << 32;
        let mut entry = InFlight::default();
        (entry.state, entry.at, entry.requested) = (state, self.now_ns, requested);
        self.in_flight.push(entry);
    }

    /// The records so far.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().map(|(record, _)| record)
    }

    /// The file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut header = self.header;
        header.head = self.seq;
        header.tail = if self.in_ring { 0 } else { self.seq };
        let mut maker = ChunkMaker::default();
        let mut chunks = maker.metadata(chunk_kind::PROCESS, &self.process).to_vec();
        chunks.extend_from_slice(maker.metadata(chunk_kind::APIS, &ApiTable { rows: self.apis.clone() }));
        // Before 1.6 functions had no meanings, and blocks are later.
        if self.apis.iter().any(|row| blocks::does(&row.name).is_some()) {
            chunks.extend_from_slice(maker.metadata(chunk_kind::MEANINGS, &blocks::meanings(&self.apis)));
        }
        if !self.modules.is_empty() {
            let modules = Modules { modules: self.modules.clone() };
            chunks.extend_from_slice(maker.metadata(chunk_kind::MODULES, &modules));
        }
        if !self.machine.is_empty() {
            let machine = MachineFacts { files: self.machine.clone(), ..MachineFacts::default() };
            chunks.extend_from_slice(maker.metadata(chunk_kind::MACHINE, &machine));
        }
        if !self.bypasses.is_empty() {
            let bypasses = Bypasses { bypasses: self.bypasses.clone() };
            chunks.extend_from_slice(maker.metadata(chunk_kind::BYPASSES, &bypasses));
        }
        for device in &self.devices {
            chunks.extend_from_slice(maker.metadata(chunk_kind::DEVICE, device));
        }
        if !self.in_ring {
            self.chunk_events(&mut maker, &mut chunks);
        }
        header.chunks_end = header.chunks_offset + chunks.len() as u64;
        let mut file = bytemuck::bytes_of(&header).to_vec();
        self.in_flight.iter().for_each(|entry| file.extend_from_slice(bytemuck::bytes_of(entry)));
        file.resize(header.chunks_offset as usize, 0);
        if self.in_ring {
            let slots: Vec<SlotWords> =
                self.records.iter().flat_map(|(record, payload)| slots_of(record, payload)).collect();
            let ring = &mut file[HEADER_BYTES.max(header.ring_offset as usize)..];
            for (to, from) in ring.chunks_exact_mut(SLOT_BYTES).zip(&slots) {
                to.copy_from_slice(bytemuck::bytes_of(from));
            }
        }
        file.extend_from_slice(&chunks);
        file
    }

    fn chunk_events(&self, maker: &mut ChunkMaker, chunks: &mut Vec<u8>) {
        let granule = Granule::new(self.header.granularity_bytes);
        let mut slots = Vec::new();
        let mut first = 0;
        for (number, (record, payload)) in self.records.iter().enumerate() {
            slots.extend(slots_of(record, payload));
            let last = number + 1 == self.records.len();
            if last || slots.len() + 32 > self.slots_per_chunk {
                chunks.extend_from_slice(event_chunk(maker, &slots, first, granule));
                first += slots.len() as u64;
                slots.clear();
            }
        }
    }

    /// Writes the file.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        std::fs::write(path, self.bytes())
    }

    // Errors of an allocator above the runtime.

    /// PyTorch's allocator gives a block out, with what it has given out and reserved.
    pub fn tensor_on(&mut self, thread: u32, address: u64, bytes: u64, totals: [u64; 2]) -> u64 {
        let record = self.record_on(thread, Event::Block, Kind::Tensor, blocks::TENSOR);
        let record = Record { duration: 0, kind_flags: record.kind_flags | flag::TOTALS, ..record };
        self.with_numbers(Record { address, requested: bytes, ..record }, &totals)
    }

    /// PyTorch's allocator raises an error: it wanted so many bytes, and has given out and reserved so many.
    pub fn framework_error(&mut self, thread: u32, bytes: u64, totals: [u64; 2]) -> u64 {
        let record = self.record_on(thread, Event::Block, Kind::Tensor, blocks::NO_TENSOR);
        let record = Record { duration: 0, status: 1, kind_flags: record.kind_flags | flag::TOTALS, ..record };
        self.with_numbers(Record { requested: bytes, site: self.site, ..record }, &totals)
    }

    /// A C++ exception with this object, and what it says where somebody asked it.
    pub fn throws(&mut self, thread: u32, object: u64, text: Option<&str>) -> u64 {
        let record = self.record_on(thread, Event::Exception, Kind::None, "__cxa_throw");
        let seq = self.with_text(Record { address: object, duration: 0, ..record }, "N3c1016OutOfMemoryErrorE");
        if let Some(text) = text {
            self.message(thread, object, text);
        }
        seq
    }

    /// What a program logs (`from` is [`message::LOG`]) or aborts with after the failure with this record.
    pub fn says(&mut self, thread: u32, from: i32, failure: u64, text: &str) -> u64 {
        let record = self.record_on(thread, Event::Message, Kind::None, "ggml_log_internal");
        self.with_text(Record { address: failure + 1, status: from, duration: 0, ..record }, text)
    }

    /// What a thrown object says.
    pub fn message(&mut self, thread: u32, object: u64, text: &str) -> u64 {
        let record = self.record_on(thread, Event::Message, Kind::None, "gpuoom_message");
        self.with_text(Record { address: object, status: message::EXCEPTION, duration: 0, ..record }, text)
    }
}

/// A chunk of slots that begin at a sequence number.
pub fn event_chunk<'a>(maker: &'a mut ChunkMaker, slots: &[SlotWords], first_seq: u64, granule: Granule) -> &'a [u8] {
    let mut taken = Taken::default();
    taken.slots = slots.len();
    taken.from = first_seq;
    taken.until = first_seq + slots.len() as u64;
    maker.events(slots, &taken, granule)
}

/// The slots of a record, as the ring holds them.
pub fn slots_of(record: &Record, payload: &[u8]) -> Vec<SlotWords> {
    let mut slots: Vec<SlotWords> = vec![bytemuck::cast(*record)];
    for (number, bytes) in payload.chunks(EXTENSION_BYTES).enumerate() {
        let mut words: SlotWords = [0; SLOT_BYTES / 8];
        bytemuck::bytes_of_mut(&mut words)[8..8 + bytes.len()].copy_from_slice(bytes);
        words[0] = (record.commit + 1 + number as u64) | EXTENSION;
        slots.push(words);
    }
    slots
}

/// Opens a trace that was built, through a file that is gone when this returns.
#[cfg(test)]
pub(crate) fn open(builder: &TraceBuilder) -> gpuoom_trace::reader::TraceFile {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.bin");
    builder.write(&path).unwrap();
    gpuoom_trace::reader::TraceFile::open(&path).unwrap()
}

/// Replays a trace that was built.
#[cfg(test)]
pub(crate) fn replay(builder: &TraceBuilder, options: crate::replay::Options) -> crate::replay::Replay {
    let mut trace = open(builder);
    let mut replay = crate::replay::Replay::new(&trace, options);
    crate::intake::read_through(&mut trace, |_| {}, |batch| replay.batch(batch));
    replay.finish();
    replay
}

/// Sums a trace that was built up.
#[cfg(test)]
pub(crate) fn summary(builder: &TraceBuilder) -> crate::conclusion::Summary {
    summary_with(builder, &builder.evidence)
}

/// The same, with evidence beside it.
#[cfg(test)]
pub(crate) fn summary_with(builder: &TraceBuilder, evidence: &crate::evidence::Evidence) -> crate::conclusion::Summary {
    let mut trace = open(builder);
    let mut replay = crate::replay::Replay::new(&trace, evidence.thresholds.replay_options());
    crate::intake::read_through(&mut trace, |_| {}, |batch| replay.batch(batch));
    replay.finish();
    let mut summary = crate::conclusion::sum_up(&trace, &replay, evidence);
    summary.facts.trace.path = "trace.bin".into();
    summary
}

/// A report as JSON: all of it, to compare.
#[cfg(test)]
pub(crate) fn json(summary: &crate::conclusion::Summary) -> serde_json::Value {
    let mut text = Vec::new();
    crate::report::json::write_one(&mut text, summary).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// The profile of a trace that was built.
#[cfg(test)]
pub(crate) fn profile(builder: &TraceBuilder) -> crate::passes::profile::Profile {
    let mut trace = open(builder);
    let mut replay = crate::replay::Replay::new(&trace, crate::replay::Options::default());
    replay.accounts.keep_tallies();
    crate::intake::read_through(&mut trace, |_| {}, |batch| replay.batch(batch));
    replay.finish();
    let mut profile =
        crate::passes::profile::profile(&trace, &replay, &crate::symbols::SymbolPlaces::default(), &Default::default());
    profile.run.path = "trace.bin".into();
    profile
}

/// What a trace that was built brings to a job.
#[cfg(test)]
pub(crate) fn member(builder: &TraceBuilder) -> crate::job::Member {
    let mut trace = open(builder);
    let mut replay = crate::replay::Replay::new(&trace, crate::replay::Options::default());
    replay.timeline = Some(crate::replay::timeline::Timeline::default());
    crate::intake::read_through(&mut trace, |_| {}, |batch| replay.batch(batch));
    replay.finish();
    let mut summary = crate::conclusion::sum_up(&trace, &replay, &crate::evidence::Evidence::default());
    summary.facts.trace.path = format!("{}-{}.bin", builder.process.hostname, builder.process.pid);
    crate::job::Member::new(&trace, &replay, summary)
}
