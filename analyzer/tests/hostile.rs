//! Files that lie: whatever the bytes, the tool reports or refuses, and neither panics nor eats the machine.

use std::ops::ControlFlow;
use std::path::Path;

use gpuoom_analyze::compare::{Threshold, compare};
use gpuoom_analyze::conclusion::{Summary, sum_up};
use gpuoom_analyze::evidence::Evidence;
use gpuoom_analyze::intake::read_through;
use gpuoom_analyze::job::{Member, assemble};
use gpuoom_analyze::passes::ledger::DeviceLedger;
use gpuoom_analyze::passes::map::{Moment, draw};
use gpuoom_analyze::passes::profile::profile;
use gpuoom_analyze::passes::rows::Rows;
use gpuoom_analyze::passes::segments::of_device;
use gpuoom_analyze::replay::timeline::Timeline;
use gpuoom_analyze::replay::{Options, Replay};
use gpuoom_analyze::report::map::{ADDRESS_LEGEND, Document, MODEL_LEGEND, SCHEMA, write_text};
use gpuoom_analyze::report::page::{Look, Page};
use gpuoom_analyze::report::{events, json, text};
use gpuoom_analyze::symbols::SymbolPlaces;
use gpuoom_analyze::testing::{GIB, MIB, TraceBuilder};
use gpuoom_analyze::thresholds::Thresholds;
use gpuoom_analyze::whatif::torch::policy::Policy;
use gpuoom_analyze::whatif::torch::told::Histories;
use gpuoom_analyze::whatif::torch::{KnownCard, TorchQuestion, ask_told};
use gpuoom_trace::columns::Batch;
use gpuoom_trace::metadata::{Quantity, Reading};
use gpuoom_trace::payload::PythonFrame;
use gpuoom_trace::reader::{ReadError, TraceFile};
use gpuoom_trace::record::{Event, Kind, NO_DEVICE, Record, process};
use proptest::prelude::*;

/// Does everything that the commands do with a file. `None` where the file was refused.
fn use_it(path: &Path, granularity_bytes: Option<u64>) -> Option<Summary> {
    let mut trace = match TraceFile::open(path) {
        Ok(trace) => trace,
        Err(ReadError::Io { error, .. }) => panic!("the test's own file can't be read: {error}"),
        Err(_) => return None,
    };
    let mut replay = Replay::new(&trace, Options { granularity_bytes, ..Options::default() });
    replay.timeline = Some(Timeline::default());
    read_through(&mut trace, |_| {}, |batch| replay.batch(batch));
    replay.finish();
    let evidence = Evidence { symbols: SymbolPlaces::here(&[]), ..Evidence::default() };
    let summary = sum_up(&trace, &replay, &evidence);
    let [maps, now] = [Moment::Peak, Moment::Now].map(|moment| {
        let mut maps = draw(&replay, moment, None);
        for device in &mut maps {
            device.allocators = of_device(&replay, device.device.unwrap_or(NO_DEVICE), moment, true);
        }
        maps
    });
    let look = Look::new(80, true);
    json::write_one(&mut std::io::sink(), &summary).unwrap();
    text::write(&summary, &maps, look);
    let member = Member::new(&trace, &replay, summary.clone());
    let (job, summaries) = assemble(vec![member.clone(), member], Vec::new());
    json::write_job(&mut std::io::sink(), &job, &summaries).unwrap();
    text::write_job(&job, &summaries, look);
    for maps in [&maps, &now] {
        let mut page = Page::new(look);
        let document = Document {
            schema: SCHEMA,
            trace: String::new(),
            moment: "peak".into(),
            address_space_is: ADDRESS_LEGEND,
            model_is: MODEL_LEGEND,
            devices: maps,
        };
        write_text(&mut page, &document);
        serde_json::to_string(&document).unwrap();
    }
    list_events(path);
    ask_the_allocator(&mut trace, &replay);
    let profile = profile(&trace, &replay, &SymbolPlaces::default(), &Thresholds::default());
    assert!(compare(&profile, &profile, Threshold::default()).is_equal);
    Some(summary)
}

fn ask_the_allocator(trace: &mut TraceFile, replay: &Replay) {
    let policy = Policy::default();
    let mut histories = Histories::new(replay, &policy);
    let work = |batch: &Batch| {
        histories.batch(batch);
        ControlFlow::Continue(())
    };
    read_through(trace, |_| {}, work);
    let policies = vec![Policy::parse("expandable_segments:True").unwrap()];
    let question = TorchQuestion { policies, ..TorchQuestion::default() };
    ask_told(&histories.finish(), &policy, &question, |_| KnownCard::default());
}

fn list_events(path: &Path) {
    let Ok(mut trace) = TraceFile::open(path) else { return };
    let mut rows = Rows::new(&trace, &SymbolPlaces::here(&[]), true);
    let mut sink = |row| {
        let out = &mut std::io::sink();
        events::write_json(out, &row).unwrap();
        events::write_csv(out, &row).unwrap();
        events::write_text(out, &row, Some(Look::new(80, false))).unwrap();
        ControlFlow::Continue(())
    };
    read_through(&mut trace, |_| {}, |batch| rows.batch(batch, &mut sink));
    let _ = rows.finish(&mut sink);
}

/// A trace with something of everything.
fn rich(in_ring: bool) -> TraceBuilder {
    let mut trace = TraceBuilder::default()
        .device(0, "card", 16 * GIB)
        .library("/usr/bin/cat", 0x10_0000, 1)
        .library("/x.so", 0x20_0000, 2);
    trace.in_ring = in_ring;
    trace.code(1, "/a/train.py", "Model.forward").code(2, "", "");
    let python =
        [PythonFrame { code: 1, line: 41 }, PythonFrame { code: 7, line: 0 }, PythonFrame { code: 2, line: 1 }];
    trace.stack(3, &[0x10_0020, 0x20_0030, 0, u64::MAX], &python);
    trace.site = 3;
    for number in 0..20u64 {
        trace.alloc(0x7f00_0000_0000 + number * GIB, 300 * MIB + number);
    }
    trace.free(0x7f00_0000_0000);
    trace.free(0x7f00_4000_0000);
    trace.last_call_failed(1);
    trace.create_and_map(9, 0x7e00_0000_0000, 64 * MIB);
    trace.unmap(0x7e00_0000_0000, 64 * MIB);
    trace.alloc_kind(Kind::HostPinned, "hipHostMalloc", 0x5000, MIB);
    let seq = trace.refuse(20 * GIB);
    trace.read_at_failure(seq, &[(Quantity::RuntimeFree as u16, 3 * GIB), (Quantity::RuntimeTotal as u16, 16 * GIB)]);
    let mark = trace.record(Event::Mark, Kind::None, "gpuoom_mark");
    trace.with_text(mark, "epoch 1");
    trace.after(Event::GpuWork, "hipLaunchKernel", 0, 0);
    trace.under_way("hipMalloc", GIB);
    trace.end(process::EXITS, 1);
    trace
}

#[test]
fn one_wrong_byte_anywhere() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.bin");
    for in_ring in [false, true] {
        let good = rich(in_ring).bytes();
        let chunks = good.len() - 4096;
        // Every byte of the header's fields, and a sample of the rest that falls into all parts of a chunk.
        let offsets = (0..560).chain((600..chunks).step_by(1777)).chain((chunks..good.len()).step_by(7));
        for offset in offsets.filter(|offset| *offset < good.len()) {
            let mut bytes = good.clone();
            bytes[offset] ^= [0x01, 0x80, 0xFF][offset % 3];
            std::fs::write(&path, &bytes).unwrap();
            use_it(&path, None);
        }
    }
}

#[test]
fn cut_anywhere() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.bin");
    for in_ring in [false, true] {
        let good = rich(in_ring).bytes();
        for length in (0..good.len()).step_by(1777).chain((good.len() - 300..good.len()).step_by(3)) {
            std::fs::write(&path, &good[..length]).unwrap();
            let summary = use_it(&path, None);
            assert!(summary.is_none() || length >= 4096);
            if let Some(summary) = summary {
                assert!(!summary.facts.damages.is_empty(), "cut at {length} of {} and nothing was noticed", good.len());
            }
        }
    }
}

#[test]
fn other_files_are_refused_by_name_and_offset() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.bin");
    for bytes in [&b""[..], b"\x7fELF", b"gpuoom", b"gpuoom\x1A\n", &[0; 8192]] {
        std::fs::write(&path, bytes).unwrap();
        let error = TraceFile::open(&path).unwrap_err().to_string();
        assert!(error.contains("trace.bin: offset"), "{error}");
    }
}

fn any_event() -> impl Strategy<Value = u8> {
    prop_oneof![8 => 1u8..=18, 1 => any::<u8>()]
}

/// Numbers that sit on edges more often than chance has it.
fn edgy() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0u64..8,
        2 => any::<u64>(),
        1 => Just(u64::MAX),
        1 => Just(u64::MAX - 4095),
        2 => (0u64..64).prop_map(|shift| 1 << shift),
    ]
}

prop_compose! {
    fn any_record()(
        (event, kind_flags, device, thread) in (any_event(), any::<u8>(), prop_oneof![0u8..2, any::<u8>()], 0u32..3),
        (api, call, parent_distance, status) in (0u16..14, 0u32..40, prop_oneof![3 => Just(0u16), 1 => 0u16..5, 1 => any::<u16>()], prop_oneof![3 => Just(0), 2 => Just(2), 1 => any::<i32>()]),
        (address, requested, padded_granules) in (edgy(), edgy(), prop_oneof![0u32..9, any::<u32>()]),
        (at, duration, site) in (edgy(), any::<u32>(), 0u32..3),
    ) -> Record {
        Record { event, kind_flags, device, thread, api, call, parent_distance, status, address, requested, padded_granules, at, duration, site, ..Record::default() }
    }
}

prop_compose! {
    fn any_payload()(kind in 0u8..4, bytes in prop::collection::vec(any::<u8>(), 0..150), numbers in prop::collection::vec(edgy(), 0..4)) -> Vec<u8> {
        match kind {
            0 => Vec::new(),
            1 => bytes,
            2 => {
                let mut room = [0; gpuoom_trace::record::MAX_PAYLOAD_BYTES];
                gpuoom_trace::payload::numbers(&numbers, &mut room).to_vec()
            }
            _ => {
                let readings: Vec<Reading> = numbers.iter().map(|value| Reading { quantity: *value as u16 % 29, device: 0, value: *value }).collect();
                let mut encoded = [0; 600];
                let used = gpuoom_trace::metadata::encode_readings(&readings, &mut encoded);
                let mut room = [0; gpuoom_trace::record::MAX_PAYLOAD_BYTES];
                gpuoom_trace::payload::pack(&encoded[..used], &mut room).to_vec()
            }
        }
    }
}

/// Functions of all layers and families, those that set something up and those that reset among them.
const APIS: [&str; 13] = [
    "hipMalloc",
    "hipDeviceReset",
    "hsa_amd_memory_lock",
    "ioctl",
    "cuMemAlloc_v2",
    "hsa_amd_memory_pool_allocate",
    "AMDKFD_IOC_ALLOC_MEMORY_OF_GPU",
    "DRM_IOCTL_AMDGPU_GEM_CREATE",
    "NV_ESC_RM_ALLOC",
    "hipMemCreate",
    "hsa_amd_vmem_handle_create",
    "rocblas_create_handle",
    "hipMallocAsync",
];

/// Rows, remainder and free memory add up to the total, as far as 64 bits hold them.
fn closes(ledger: &DeviceLedger) -> bool {
    let (Some(total), Some(free), Some(rest)) = (ledger.total_bytes, ledger.free_bytes, ledger.unattributed_bytes)
    else {
        return true;
    };
    let rows = ledger.rows.iter().map(|row| u128::from(row.bytes)).sum::<u128>();
    let over = u128::from(ledger.overattributed_bytes.unwrap_or(0));
    let saturated = rows > u128::from(u64::MAX);
    saturated || rows + u128::from(rest) + u128::from(free) == u128::from(total) + over
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// Well-formed chunks of absurd records: sums saturate, nothing overflows, the model stays small.
    #[test]
    fn absurd_records(
        records in prop::collection::vec((any_record(), any_payload()), 0..120),
        granularity_shift in 0u32..=50,
        total in edgy(),
        (ticks, monotonic_ns, rate, in_ring, source) in (edgy(), edgy(), edgy(), any::<bool>(), 0u32..4),
        granularity in prop_oneof![Just(None), edgy().prop_map(|bytes| Some(bytes.max(1)))],
    ) {
        let mut trace = TraceBuilder::new(1 << granularity_shift).device(0, "card", total).device(200, "", total);
        for name in APIS {
            trace.api(name);
        }
        for (record, payload) in records {
            trace.push(record, &payload);
        }
        trace.in_ring = in_ring && trace.records().count() < 200;
        trace.header.clock_source = source;
        trace.header.clock_last[0] = gpuoom_trace::header::ClockPoint { ticks, monotonic_ns, wall_ns: 0 };
        trace.header.ticks_per_second = rate;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace.bin");
        trace.write(&path).unwrap();
        let summary = use_it(&path, granularity);
        prop_assert!(summary.is_some());
        let summary = summary.unwrap();
        prop_assert!(summary.facts.ledger.iter().all(closes), "{:#?}", summary.facts.ledger);
        for device in &summary.facts.devices {
            prop_assert!(device.account.peak.requested_bytes >= device.account.end.requested_bytes);
        }
    }
}

/// Blocks of allocators above the runtime, as no allocator tells of them.
#[test]
fn blocks_that_lie_move_no_account() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.bin");
    let mut trace = TraceBuilder::new(MIB).device(0, "Card", 16 * GIB);
    trace.alloc(0x1000, GIB);
    trace.create_and_map(7, u64::MAX - MIB, GIB);
    let plain = trace.clone();
    let numbers = [0, 1, 0x1000, GIB, u64::MAX / 2, u64::MAX - 1, u64::MAX];
    for (round, device) in [0u8, 1, 0x7f, 0xff].into_iter().enumerate() {
        for (place, address) in numbers.into_iter().enumerate() {
            for bytes in numbers {
                let totals = (place % 2 == 0).then_some([bytes, address]);
                trace.hostile_tensor(round == 2, device, address, bytes, totals);
                trace.pool_alloc("\u{1b}[2J", "x", address, bytes);
                trace.no_tensor(device, bytes);
            }
            trace.pool_free("other", address);
            trace.refuse(GIB);
            let mark = trace.record(Event::Mark, Kind::None, "gpuoom_mark");
            trace.with_text(mark, "mark");
            let cut = trace.record(Event::Block, Kind::Tensor, "gpuoom_pool_alloc");
            trace.push(Record { address, ..cut }, &[0xff; 56]);
        }
    }
    for number in 0..200 {
        trace.pool_alloc(&format!("pool {number}"), "", number, 1);
    }
    trace.write(&path).unwrap();
    let summary = use_it(&path, None).unwrap();
    let tensors = summary.facts.devices[0].tensors.as_ref().unwrap();
    for one in std::iter::once(tensors).chain(&tensors.others) {
        for moment in &one.moments {
            let sum = moment.allocated_by.rows.iter().fold(0u64, |sum, row| sum.checked_add(row.bytes).unwrap());
            assert_eq!(sum, moment.allocated_bytes);
        }
    }
    plain.write(&path).unwrap();
    let plain = use_it(&path, None).unwrap();
    assert_eq!(plain.facts.devices[0].account.peak, summary.facts.devices[0].account.peak);
    assert_eq!(plain.facts.devices[0].account.end, summary.facts.devices[0].account.end);
}
