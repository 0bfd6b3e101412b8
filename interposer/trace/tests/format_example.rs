//! The tables and the worked example of `FORMAT.md`, held against the code that they describe.
//!
//! When one of these tests fails after a change of the format, `cargo test -p gpuoom-trace --test format_example --
//! --nocapture` prints the bytes that the example must show.
#![cfg(not(loom))]

use std::mem::{offset_of, size_of};
use std::sync::atomic::Ordering;

use gpuoom_trace::chunk::{CHUNK_HEADER_BYTES, CHUNK_MAGIC, ChunkHeader, ChunkMaker, kind as chunk_kind};
use gpuoom_trace::columns::{Batch, MAX_CHUNK_SLOTS, MAX_ENCODED_BYTES};
use gpuoom_trace::header::{
    ClockPoint, HEADER_BYTES, Header, IN_FLIGHT, IN_FLIGHT_ENTRIES, InFlight, Live, MAGIC, clock_source, end,
};
use gpuoom_trace::meaning::{Codes, Does, Ends, Family, says};
use gpuoom_trace::metadata::{
    self, ApiMeaning, ApiMeanings, ApiRow, ApiTable, Bypass, DeviceFacts, MAX_METADATA_BYTES, MachineFacts, Module,
    Modules, ProcessFacts, Quantity, Reading, StatusCodes, probe_skipped, trigger,
};
use gpuoom_trace::payload::{MAX_NATIVE_FRAMES, MAX_PYTHON_FRAMES, MAX_TEXT_BYTES, stack_flag};
use gpuoom_trace::reader::{CallUnderWay, TraceFile};
use gpuoom_trace::record::{
    EXTENSION_BYTES, Event, GRANULES_SATURATED, Granule, Kind, Layer, MAX_PAYLOAD_BYTES, MAX_SLOTS, NO_DEVICE,
    PARENT_FAR, Record, SLOT_BYTES, flag, injected, mark, message, process,
};
use gpuoom_trace::ring::{Ring, Slot, SlotWords};

const FORMAT: &str = include_str!("../FORMAT.md");

/// The lines behind the comment that names a table or a block, from the first that is not empty to the next empty one.
fn lines_after(marker: &str) -> impl Iterator<Item = &'static str> + use<> {
    let marker = format!("<!-- {marker} -->\n");
    let (_, after) = FORMAT.split_once(&marker).unwrap_or_else(|| panic!("FORMAT.md has no {marker}"));
    assert!(!after.contains(&marker), "FORMAT.md has {marker} twice");
    after.trim_start().lines().take_while(|line| !line.is_empty())
}

/// The cells of a table's rows, without the back quotes.
fn table(name: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| {
        let inner = line.trim().trim_start_matches('|').trim_end_matches('|');
        inner.split('|').map(|cell| cell.trim().replace('`', "")).collect()
    };
    let rows: Vec<_> = lines_after(&format!("table: {name}")).skip(2).map(cells).collect();
    assert!(!rows.is_empty(), "the table of {name} is empty");
    rows
}

/// A number as the document writes it: decimal, or hexadecimal behind `0x`.
fn number(text: &str) -> u64 {
    let parsed = text.strip_prefix("0x").map_or_else(|| text.parse().ok(), |hex| u64::from_str_radix(hex, 16).ok());
    parsed.unwrap_or_else(|| panic!("not a number: {text}"))
}

/// Size of a field, from a function that reaches it.
fn field_bytes<S, F>(_: impl Fn(&S) -> &F) -> usize {
    size_of::<F>()
}

/// Asserts that the rows of a byte table lie behind each other without a gap, and that those of public fields are where
/// the compiler puts the fields.
fn assert_tiles(name: &str, bytes: usize, fields: &[(&str, usize, usize)]) {
    let mut end = 0;
    let mut named = 0;
    for row in table(name) {
        let (offset, size, field) = (number(&row[0]) as usize, number(&row[1]) as usize, row[2].as_str());
        assert_eq!(offset, end, "{name}.{field} does not begin where the row before ends");
        end = offset + size;
        if let Some((_, true_offset, true_size)) = fields.iter().find(|(known, ..)| *known == field) {
            assert_eq!((offset, size), (*true_offset, *true_size), "{name}.{field}");
            named += 1;
        } else {
            assert_eq!(field, "reserved", "{name} has no public field {field}");
        }
    }
    assert_eq!(end, bytes, "bytes of {name}");
    assert_eq!(named, fields.len(), "fields of {name}");
}

macro_rules! assert_byte_table {
    ($name:ident: $($field:ident),+ $(,)?) => {
        assert_tiles(stringify!($name), size_of::<$name>(), &[
            $((stringify!($field), offset_of!($name, $field), field_bytes(|whole: &$name| &whole.$field))),+
        ])
    };
}

#[test]
fn byte_tables_are_the_structures() {
    assert_byte_table!(
        Header: magic, major, minor, header_bytes, ring_offset, ring_slots, chunks_offset, granularity_bytes, pid,
        clock_source, in_flight_offset, in_flight_entries, clock_last_index, clock_first, clock_last, ticks_per_second,
        end_kind, end_code, closed, trouble, head, tail, chunks_end, events_lost, torn,
    );
    assert_byte_table!(ClockPoint: ticks, monotonic_ns, wall_ns);
    assert_byte_table!(InFlight: state, at, requested, device);
    assert_byte_table!(
        Record: commit, at, duration, thread, api, event, kind_flags, device, slots, parent_distance, status, call,
        padded_granules, site, address, requested,
    );
    assert_byte_table!(
        ChunkHeader: magic, kind, version, stored_bytes, raw_bytes, first_seq, next_seq, records, checksum,
    );
}

/// Asserts that a table begins with exactly these numbers and words.
fn assert_numbers(name: &str, expected: &[(u64, &str)]) {
    let rows: Vec<_> = table(name).into_iter().map(|row| (number(&row[0]), row[1].clone())).collect();
    let expected: Vec<_> = expected.iter().map(|(number, word)| (*number, (*word).to_owned())).collect();
    assert_eq!(rows, expected, "{name}");
}

macro_rules! assert_constants {
    ($module:ident { $($constant:ident),+ $(,)? }) => {
        assert_numbers(stringify!($module), &[$(($module::$constant as u64, stringify!($constant))),+])
    };
}

#[test]
fn numbers_are_those_of_the_code() {
    assert_numbers("Event", &Event::ALL.iter().map(|event| (*event as u64, event.name())).collect::<Vec<_>>());
    assert_numbers("Kind", &Kind::ALL.iter().map(|kind| (*kind as u64, kind.name())).collect::<Vec<_>>());
    assert_numbers("Layer", &Layer::ALL.iter().map(|layer| (*layer as u64, layer.name())).collect::<Vec<_>>());
    assert_numbers("Codes", &Codes::ALL.iter().map(|value| (*value as u64, value.name())).collect::<Vec<_>>());
    assert_numbers("Family", &Family::ALL.iter().map(|value| (*value as u64, value.name())).collect::<Vec<_>>());
    assert_numbers("Ends", &Ends::ALL.iter().map(|value| (*value as u64, value.name())).collect::<Vec<_>>());
    assert_numbers("Does", &Does::ALL.iter().map(|value| (*value as u64, value.name())).collect::<Vec<_>>());
    assert_constants!(flag { FROM_RUNTIME, CORRECTION, FAILED_POINTER, ERROR_TEXT, SAME_VARIABLE, TOTALS, INJECTED });
    assert_constants!(mark { LABEL, PUSH, POP, START, STOP });
    assert_constants!(message { EXCEPTION, ABORT, LOG });
    assert_constants!(injected { CAPACITY, CALL, SIZE, CHANCE, SITE });
    assert_constants!(stack_flag { NATIVE_WHOLE, NATIVE_CUT, PYTHON_SEEN, PYTHON_CUT, NATIVE_GUESSED });
    assert_constants!(process { BEGAN, EXITS, SIGNALS });
    assert_constants!(end { UNKNOWN, EXITED, SIGNALED });
    assert_constants!(clock_source { CYCLES, MONOTONIC });
    assert_constants!(chunk_kind { EVENTS, PROCESS, APIS, MODULES, DEVICE, BYPASSES, MACHINE, MEANINGS });
    assert_constants!(says { SETS_UP, LIBRARY_HANDLE, RETAINS_PRIMARY });
    assert_constants!(trigger { START, PERIOD, FAILURE, PROGRAM });
    assert_constants!(probe_skipped { RUNTIME_UNVERIFIED, CAPTURE, TIMEOUT, NO_THREAD, NOT_ASKED, POOLS });
    assert_constants!(Quantity {
        RuntimeTotal,
        RuntimeFree,
        VramTotal,
        VramUsed,
        VisibleVramTotal,
        VisibleVramUsed,
        GttTotal,
        GttUsed,
        KfdProcessVram,
        ResidentMemory,
        CgroupUsed,
        CgroupLimit,
        OpenDescriptors,
        DescriptorLimit,
        MemoryMaps,
        MemoryMapLimit,
        LargestAllocatable,
        ProbeSkipped,
        HostTotal,
        HostAvailable,
        KfdOthersVram,
        GraphicsVram,
        NvmlTotal,
        NvmlUsed,
        NvmlReserved,
        NvmlProcess,
        KfdAvailable,
        NvmlOthers,
        AddressSpace,
        AddressSpaceLimit,
    });
}

#[test]
fn limits_are_those_of_the_code() {
    assert_numbers(
        "limits",
        &[
            (HEADER_BYTES as u64, "HEADER_BYTES"),
            (IN_FLIGHT_ENTRIES as u64, "IN_FLIGHT_ENTRIES"),
            (SLOT_BYTES as u64, "SLOT_BYTES"),
            (EXTENSION_BYTES as u64, "EXTENSION_BYTES"),
            (MAX_SLOTS as u64, "MAX_SLOTS"),
            (MAX_NATIVE_FRAMES as u64, "MAX_NATIVE_FRAMES"),
            (MAX_PYTHON_FRAMES as u64, "MAX_PYTHON_FRAMES"),
            (MAX_PAYLOAD_BYTES as u64, "MAX_PAYLOAD_BYTES"),
            (MAX_TEXT_BYTES as u64, "MAX_TEXT_BYTES"),
            (u64::from(NO_DEVICE), "NO_DEVICE"),
            (u64::from(PARENT_FAR), "PARENT_FAR"),
            (u64::from(GRANULES_SATURATED), "GRANULES_SATURATED"),
            (CHUNK_HEADER_BYTES as u64, "CHUNK_HEADER_BYTES"),
            (MAX_CHUNK_SLOTS as u64, "MAX_CHUNK_SLOTS"),
            (MAX_ENCODED_BYTES as u64, "MAX_ENCODED_BYTES"),
            (MAX_METADATA_BYTES, "MAX_METADATA_BYTES"),
        ],
    );
}

/// A value of a metadata field, encoded by hand as the document says.
enum Value {
    U8(u8),
    U16(u16),
    U32(u32),
    I32(i32),
    U64(u64),
    Bool(bool),
    Text(&'static str),
    List(Vec<Value>),
    Tuple(Vec<Value>),
}

impl Value {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Value::U8(value) => out.push(*value),
            Value::U16(value) => out.extend(value.to_le_bytes()),
            Value::U32(value) => out.extend(value.to_le_bytes()),
            Value::I32(value) => out.extend(value.to_le_bytes()),
            Value::U64(value) => out.extend(value.to_le_bytes()),
            Value::Bool(value) => out.push(u8::from(*value)),
            Value::Text(text) => {
                out.extend((text.len() as u64).to_le_bytes());
                out.extend(text.as_bytes());
            }
            Value::List(values) => {
                out.extend((values.len() as u64).to_le_bytes());
                values.iter().for_each(|value| value.encode(out));
            }
            Value::Tuple(values) => values.iter().for_each(|value| value.encode(out)),
        }
    }

    fn type_name(&self) -> String {
        let first = |values: &[Value]| values.first().map_or_else(String::new, Value::type_name);
        match self {
            Value::U8(_) => "u8".into(),
            Value::U16(_) => "u16".into(),
            Value::U32(_) => "u32".into(),
            Value::I32(_) => "i32".into(),
            Value::U64(_) => "u64".into(),
            Value::Bool(_) => "bool".into(),
            Value::Text(_) => "text".into(),
            Value::List(values) => format!("list of {}", first(values)),
            Value::Tuple(values) => {
                format!("({})", values.iter().map(Value::type_name).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// Encodes the values in the order of the document's table of that block.
fn encode_as_documented(block: &str, mut values: Vec<(&str, Value)>) -> Vec<u8> {
    let mut out = Vec::new();
    for row in table(block) {
        let at = values.iter().position(|(name, _)| *name == row[0]);
        let (name, value) = values.swap_remove(at.unwrap_or_else(|| panic!("{block} has no field {}", row[0])));
        assert_eq!(row[1], value.type_name(), "type of {block}.{name}");
        value.encode(&mut out);
    }
    assert!(values.is_empty(), "{block} lacks {} fields", values.len());
    out
}

#[test]
fn metadata_fields_lie_in_the_documented_order() {
    let facts = ProcessFacts {
        pid: 1,
        parent_pid: 2,
        rank: 3,
        executable: "/a".into(),
        command_line: vec!["b".into(), "cc".into()],
        environment: vec![("D".into(), "e".into())],
        hostname: "f".into(),
        kernel: "g".into(),
        recorder_version: "h".into(),
        notes: vec!["i".into()],
    };
    let documented = encode_as_documented(
        "ProcessFacts",
        vec![
            ("pid", Value::U32(1)),
            ("parent_pid", Value::U32(2)),
            ("rank", Value::U32(3)),
            ("executable", Value::Text("/a")),
            ("command_line", Value::List(vec![Value::Text("b"), Value::Text("cc")])),
            ("environment", Value::List(vec![Value::Tuple(vec![Value::Text("D"), Value::Text("e")])])),
            ("hostname", Value::Text("f")),
            ("kernel", Value::Text("g")),
            ("recorder_version", Value::Text("h")),
            ("notes", Value::List(vec![Value::Text("i")])),
        ],
    );
    assert_eq!(metadata::encode(&facts), documented);

    let row = encode_as_documented("ApiRow", vec![("name", Value::Text("hipMalloc")), ("layer", Value::U8(2))]);
    assert_eq!(metadata::encode(&ApiRow { name: "hipMalloc".into(), layer: 2 }), row);

    let meaning = ApiMeaning { kind: 1, codes: 2, family: 3, ends: 4, does: 5, flags: 6 };
    let fields = ["kind", "codes", "family", "ends", "does", "flags"];
    let documented = encode_as_documented("ApiMeaning", fields.into_iter().zip((1..7).map(Value::U8)).collect());
    assert_eq!(metadata::encode(&meaning), documented);
    let status = StatusCodes { codes: 7, interface: "a".into(), out_of_memory: vec![-1, 9] };
    let numbers = || Value::List(vec![Value::I32(-1), Value::I32(9)]);
    let documented = encode_as_documented(
        "StatusCodes",
        vec![("codes", Value::U8(7)), ("interface", Value::Text("a")), ("out_of_memory", numbers())],
    );
    assert_eq!(metadata::encode(&status), documented);
    let documented = encode_as_documented(
        "ApiMeanings",
        vec![
            ("rows", Value::List(vec![Value::Tuple((1..7).map(Value::U8).collect())])),
            ("statuses", Value::List(vec![Value::Tuple(vec![Value::U8(7), Value::Text("a"), numbers()])])),
        ],
    );
    assert_eq!(metadata::encode(&ApiMeanings { rows: vec![meaning], statuses: vec![status] }), documented);

    let module = Module { path: "/lib".into(), build_id: "ab".into(), start: 0x1000, end: 0x2000, vendor: true };
    let documented = encode_as_documented(
        "Module",
        vec![
            ("path", Value::Text("/lib")),
            ("build_id", Value::Text("ab")),
            ("start", Value::U64(0x1000)),
            ("end", Value::U64(0x2000)),
            ("vendor", Value::Bool(true)),
        ],
    );
    assert_eq!(metadata::encode(&module), documented);
    let list = [&1u64.to_le_bytes()[..], &documented].concat();
    assert_eq!(metadata::encode(&Modules { modules: vec![module] }), list, "a block that is a list");

    let device = DeviceFacts {
        index: 1,
        name: "card".into(),
        runtime: "hip".into(),
        runtime_version: 60_443_483,
        driver_version: -1,
        total_bytes: 1 << 34,
        pci_bus_id: "0000:03:00.0".into(),
    };
    let documented = encode_as_documented(
        "DeviceFacts",
        vec![
            ("index", Value::U8(1)),
            ("name", Value::Text("card")),
            ("runtime", Value::Text("hip")),
            ("runtime_version", Value::I32(60_443_483)),
            ("driver_version", Value::I32(-1)),
            ("total_bytes", Value::U64(1 << 34)),
            ("pci_bus_id", Value::Text("0000:03:00.0")),
        ],
    );
    assert_eq!(metadata::encode(&device), documented);

    let machine = MachineFacts {
        files: vec![("/proc/meminfo".into(), "MemTotal: 1 kB\n".into())],
        unreadable: vec!["/sys/x".into()],
        cut: true,
    };
    let file = vec![Value::Text("/proc/meminfo"), Value::Text("MemTotal: 1 kB\n")];
    let documented = encode_as_documented(
        "MachineFacts",
        vec![
            ("files", Value::List(vec![Value::Tuple(file)])),
            ("unreadable", Value::List(vec![Value::Text("/sys/x")])),
            ("cut", Value::Bool(true)),
        ],
    );
    assert_eq!(metadata::encode(&machine), documented);

    let bypass = Bypass { caller: "/a".into(), function: "hipMalloc".into(), target: "/b".into(), functions: 3 };
    let documented = encode_as_documented(
        "Bypass",
        vec![
            ("caller", Value::Text("/a")),
            ("function", Value::Text("hipMalloc")),
            ("target", Value::Text("/b")),
            ("functions", Value::U32(3)),
        ],
    );
    assert_eq!(metadata::encode(&bypass), documented);

    let reading = Reading { quantity: 17, device: 0, value: 5 };
    let documented = encode_as_documented(
        "Reading",
        vec![("quantity", Value::U16(17)), ("device", Value::U8(0)), ("value", Value::U64(5))],
    );
    assert_eq!(metadata::encode(&reading), documented);
}

/// The file of the worked example, and where its parts lie.
struct Example {
    file: Vec<u8>,
    apis_at: usize,
    events_at: usize,
}

const RING_SLOTS: u64 = 8;
const GRANULARITY_BYTES: u64 = 256 << 20;
const THREAD: u32 = 4242;
const MALLOC: u16 = 0;
const FREE: u16 = 1;

#[repr(C, align(4096))]
#[derive(Clone, Copy)]
struct Page([u8; 4096]);

fn calls() -> [Record; 3] {
    let common = Record { thread: THREAD, device: 0, ..Record::new(Event::Alloc, Kind::Device) };
    let allocation = |requested| Record {
        api: MALLOC,
        requested,
        padded_granules: Granule::new(GRANULARITY_BYTES).count(requested),
        ..common
    };
    [
        Record { at: 3_000_090_000, duration: 12_000, call: 1, address: 0x7F2C_4000_0000, ..allocation((1 << 30) + 1) },
        Record { at: 3_000_960_000, api: FREE, event: Event::Free as u8, call: 2, address: 0x7F2C_4000_0000, ..common },
        Record { at: 3_001_200_000, duration: 90_000, call: 3, status: 2, ..allocation(64 << 30) },
    ]
}

/// Makes the file as the recorder does: header, ring, a drained chunk, and a record that is still in the ring when the
/// process is killed inside its next call.
fn build() -> Example {
    let mut header = Header::new(RING_SLOTS, GRANULARITY_BYTES, THREAD);
    header.clock_source = clock_source::CYCLES;
    header.clock_first =
        ClockPoint { ticks: 3_000_000_000, monotonic_ns: 1_000_000_000, wall_ns: 1_767_225_600_000_000_000 };
    header.ticks_per_second = 2_999_000_000;
    let mapped_bytes = header.chunks_offset as usize;
    let pages = vec![Page([0; 4096]); mapped_bytes.div_ceil(4096)].into_boxed_slice();
    let base = Box::leak(pages).as_mut_ptr().cast::<u8>();
    // SAFETY: leaked pages that nothing else points to, large enough for header, table and ring, and aligned for each.
    let (live, slots) = unsafe {
        base.cast::<Header>().write(header);
        let slots = base.add(header.ring_offset as usize).cast::<Slot>();
        (Live::new(base.cast()), std::slice::from_raw_parts(slots, RING_SLOTS as usize))
    };
    let ring = Ring::new(slots, live.head(), live.tail()).expect("eight is a power of two");
    ring.initialise();

    let mut maker = ChunkMaker::default();
    let mut chunks = Vec::new();
    let mut append = |chunk: &[u8]| {
        assert!(!chunk.is_empty());
        let at = live.chunks_end().fetch_add(chunk.len() as u64, Ordering::Release);
        chunks.extend_from_slice(chunk);
        at as usize
    };
    let rows = ["hipMalloc", "hipFree"].map(|name| ApiRow { name: name.into(), layer: Layer::Runtime as u8 });
    let apis_at = append(maker.metadata(chunk_kind::APIS, &ApiTable { rows: rows.into() }));

    let [first, second, third] = calls();
    ring.publish(&first).expect("room");
    ring.publish(&second).expect("room");
    let mut out = [SlotWords::default(); 8];
    let taken = ring.take(&mut out, false);
    let events_at = append(maker.events(&out[..taken.slots], &taken, Granule::new(GRANULARITY_BYTES)));
    live.set_clock(ClockPoint {
        ticks: 3_030_000_000,
        monotonic_ns: 1_010_000_000,
        wall_ns: 1_767_225_600_010_000_000,
    });
    ring.give_back(&taken);
    ring.publish(&third).expect("room");
    let under_way = InFlight {
        state: u64::from(THREAD) | u64::from(MALLOC) << 32 | IN_FLIGHT,
        at: 3_001_800_000,
        requested: 32 << 30,
        ..InFlight::default()
    };
    // SAFETY: the first entry of the table in the pages above; nothing reads or writes them any more after this.
    let mut file = unsafe {
        base.add(header.in_flight_offset as usize).cast::<InFlight>().write(under_way);
        std::slice::from_raw_parts(base, mapped_bytes).to_vec()
    };
    file.extend_from_slice(&chunks);
    Example { file, apis_at, events_at }
}

fn chunk_at(file: &[u8], at: usize) -> (ChunkHeader, &[u8]) {
    let header: ChunkHeader = bytemuck::pod_read_unaligned(&file[at..at + CHUNK_HEADER_BYTES]);
    let stored = &file[at + CHUNK_HEADER_BYTES..][..header.stored_bytes as usize];
    (header, stored)
}

/// Reads a block of the document: lines of an offset, the bytes there (`00 * 80` for a long stretch of one value) and a
/// note, two or more spaces apart. Returns the first offset and the bytes, which must lie behind each other.
fn documented_bytes(name: &str) -> (usize, Vec<u8>) {
    let lines = lines_after(&format!("bytes: {name}")).skip(1).take_while(|line| !line.starts_with("```"));
    let (mut first, mut bytes) = (None, Vec::new());
    for line in lines {
        let mut parts = line.split("  ").filter(|part| !part.trim().is_empty());
        let (Some(offset), Some(shown), Some(_note)) = (parts.next(), parts.next(), parts.next()) else {
            panic!("{name}: not an offset, bytes and a note: {line}");
        };
        let offset = number(offset.trim()) as usize;
        let first = *first.get_or_insert(offset);
        assert_eq!(offset, first + bytes.len(), "{name}: the line does not begin where the one before ends: {line}");
        let byte = |text: &str| u8::from_str_radix(text, 16).unwrap_or_else(|_| panic!("{name}: {line}"));
        match shown.split_once('*') {
            Some((value, count)) => {
                let repeated = std::iter::repeat_n(byte(value.trim()), number(count.trim()) as usize);
                bytes.extend(repeated);
            }
            None => bytes.extend(shown.split_whitespace().map(byte)),
        }
    }
    (first.unwrap_or(0), bytes)
}

/// Sixteen bytes a line, without the lines that are all zero.
fn hex(bytes: &[u8]) -> String {
    let lines = bytes.chunks(16).zip((0..).step_by(16)).filter(|(line, _)| line.iter().any(|byte| *byte != 0));
    let show = |line: &[u8]| line.iter().map(|byte| format!(" {byte:02x}")).collect::<String>();
    lines.map(|(line, at)| format!("+{at:#06x} {}", show(line))).collect::<Vec<_>>().join("\n")
}

fn assert_shown(name: &str, at: usize, bytes: &[u8]) {
    println!("{name}, at {at:#06x}:\n{}\n", hex(bytes));
    let (shown_at, shown) = documented_bytes(name);
    assert_eq!(shown_at, at, "{name}: offset");
    assert!(shown == bytes, "{name}: FORMAT.md shows\n{}\nand the code writes\n{}", hex(&shown), hex(bytes));
}

#[test]
fn the_example_is_what_the_code_writes() {
    let Example { file, apis_at, events_at } = build();
    assert_shown("header", 0, &file[..HEADER_BYTES]);
    assert_shown("call under way", HEADER_BYTES, &file[HEADER_BYTES..][..size_of::<InFlight>()]);
    let ring_at = Header::new(RING_SLOTS, GRANULARITY_BYTES, THREAD).ring_offset as usize;
    let words: Vec<u8> = (0..8).flat_map(|slot| file[ring_at + slot * SLOT_BYTES..][..8].to_vec()).collect();
    assert_shown("commit words", 0, &words);
    let slot_at = ring_at + 2 * SLOT_BYTES;
    assert_shown("slot", slot_at, &file[slot_at..slot_at + SLOT_BYTES]);
    assert_shown("functions chunk", apis_at, &file[apis_at..events_at]);
    let (header, stored) = chunk_at(&file, apis_at);
    assert_shown("functions payload", 0, &header.payload(stored).expect("a whole chunk"));
    assert_shown("events chunk", events_at, &file[events_at..]);
    let (header, stored) = chunk_at(&file, events_at);
    assert_shown("events payload", 0, &header.payload(stored).expect("a whole chunk"));
    assert_eq!((file[..8] == MAGIC, header.magic), (true, CHUNK_MAGIC));
}

#[test]
fn the_example_is_read_back() {
    let Example { file, .. } = build();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("example.trace.bin");
    std::fs::write(&path, &file).expect("written");
    let mut trace = TraceFile::open(&path).expect("a trace");
    let mut read = Batch::default();
    let _ = trace.for_each_batch(|batch| {
        read.records.append(&mut batch.records);
        Ok::<_, ()>(())
    });
    let expected = calls().into_iter().zip(1..).map(|(record, commit)| Record { commit, ..record });
    assert_eq!(read.records, expected.collect::<Vec<_>>());
    assert_eq!(trace.damages(), []);
    assert_eq!(trace.metadata.apis.rows[usize::from(FREE)].name, "hipFree");
    let under_way =
        CallUnderWay { thread: THREAD, api: MALLOC, at: 3_001_800_000, requested_bytes: 32 << 30, device: 0 };
    assert_eq!(trace.calls_under_way(), [under_way]);
    assert_eq!(trace.clock().at_ns(3_000_090_000), 30_000);
}
