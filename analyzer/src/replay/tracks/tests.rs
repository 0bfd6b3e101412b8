//! Tracks seen from the outside: what a trace leaves in them, and that no trace makes them grow or fail.

use gpuoom_trace::metadata::{Quantity, Reading, trigger};
use gpuoom_trace::record::{Event, Kind, NO_DEVICE, Record};
use proptest::prelude::*;

use super::Tracks;
use super::calls::{FIRST, LAST, What};
use super::captures::Captured;
use super::retries::Ending;
use super::series::MAX_TURNS;
use super::unknown::Unknown;
use super::waits::Waited;
use crate::replay::tracks::Limits;
use crate::replay::{Options, Replay};
use crate::testing::{GIB, MIB, TraceBuilder, replay};

fn builder() -> TraceBuilder {
    TraceBuilder::default().device(0, "card", 16 * GIB)
}

fn run(builder: &TraceBuilder) -> Replay {
    replay(builder, Options::default())
}

fn read(trace: &mut TraceBuilder, free_bytes: u64) {
    let record = trace.record(Event::Reading, Kind::None, "gpuoom_reading");
    let record = Record { status: trigger::PERIOD, device: NO_DEVICE, ..record };
    let reading = |quantity, value| Reading { quantity: quantity as u16, device: 0, value };
    trace.reading(record, &[reading(Quantity::RuntimeFree, free_bytes), reading(Quantity::RuntimeTotal, 16 * GIB)]);
}

#[test]
fn bytes_over_time_turn_at_floors_and_peaks() {
    let mut trace = builder();
    for step in 0..3 {
        trace.alloc(0x1000_0000 + step, GIB);
        trace.alloc(0x9000_0000, 2 * GIB);
        trace.free(0x9000_0000);
    }
    let tracks = run(&trace).tracks;
    let device = tracks.device(0).unwrap();
    let bytes: Vec<u64> = device.live.turns().map(|turn| turn.bytes / GIB).collect();
    assert_eq!(bytes, [0, 3, 1, 4, 2, 5, 3]);
    assert!(device.live.turns().filter(|turn| turn.bytes > 0).all(|turn| turn.at > 0));
    assert_eq!(device.first_large_free_at, Some(3_000_000));
    assert_eq!(tracks.calls.count(), 9);
    assert!(tracks.host().is_none());
}

#[test]
fn a_free_that_failed_is_not_gone() {
    let mut trace = builder();
    trace.alloc(0x1000, GIB);
    trace.free(0x1000);
    trace.last_call_failed(1);
    let tracks = run(&trace).tracks;
    assert_eq!(tracks.device(0).unwrap().live.turns().last().unwrap().bytes, GIB);
}

/// What came after a refusal makes no room for the next try when it goes.
#[test]
fn what_comes_and_goes_after_a_refusal_is_not_released() {
    let mut trace = builder();
    trace.alloc(1 << 32, GIB);
    trace.refuse(2 * GIB);
    for _ in 0..5 {
        trace.alloc(7 << 32, GIB);
        trace.free(7 << 32);
    }
    trace.refuse(2 * GIB);
    let in_vain = |trace: &TraceBuilder| {
        let replay = run(trace);
        let retry = replay.tracks.retries.of_failure(0).expect("it was tried again");
        (retry.freed_bytes, retry.freed_in_vain_bytes, retry.releases)
    };
    assert_eq!(in_vain(&trace), (0, 0, 0));
    trace.free(1 << 32);
    trace.refuse(2 * GIB);
    assert_eq!(in_vain(&trace), (GIB, GIB, 1));
}

#[test]
fn an_allocators_retry_is_found_with_what_it_released() {
    let mut trace = builder();
    for at in 1..=4 {
        trace.alloc(at << 32, GIB);
    }
    trace.refuse(2 * GIB);
    trace.free(1 << 32);
    trace.refuse(2 * GIB);
    trace.free(2 << 32);
    trace.free(3 << 32);
    trace.alloc(9 << 32, 2 * GIB);
    let replay = run(&trace);
    let retries: Vec<_> = replay.tracks.retries.listed().iter().collect();
    let [retry] = retries[..] else { panic!("{retries:?}") };
    assert_eq!((retry.failure, retry.last_failure, retry.failed_tries), (0, 1, 2));
    assert_eq!((retry.freed_bytes, retry.freed_blocks, retry.releases), (3 * GIB, 3, 2));
    assert_eq!((retry.ending, replay.tracks.retries.succeeded()), (Ending::Succeeded, 1));
    assert_eq!(replay.tracks.retries.of_failure(1), Some(retry));
}

#[test]
fn what_other_threads_free_is_told_apart() {
    let mut trace = builder();
    trace.alloc(1 << 32, GIB);
    trace.alloc(2 << 32, GIB);
    trace.refuse(2 * GIB);
    let free = trace.record_on(99, Event::Free, Kind::Device, "hipFree");
    trace.push(Record { address: 1 << 32, duration: 0, ..free }, &[]);
    trace.free(2 << 32);
    trace.after(Event::Sync, "hipDeviceSynchronize", 0, 0);
    trace.alloc(9 << 32, 2 * GIB);
    let replay = run(&trace);
    let retry = replay.tracks.retries.of_failure(0).unwrap();
    assert_eq!((retry.freed_bytes, retry.freed_by_others_bytes, retry.freed_by_others_blocks), (GIB, GIB, 1));
    assert_eq!((retry.freed_by_all_bytes(), retry.waits, retry.ending), (2 * GIB, 1, Ending::Succeeded));
    let around = replay.tracks.around.failure(0).unwrap();
    let next = around.next.unwrap();
    let between = next.done.since(&around.done);
    assert_eq!((between.returned_bytes, between.waits, next.succeeded), (2 * GIB, 1, true));
}

#[test]
fn the_recorders_readings_are_no_pause_of_the_program() {
    let mut trace = builder();
    let seq = trace.refuse(2 * GIB);
    trace.now_ns += 2_500_000_000;
    trace.read_at_failure(seq, &[(gpuoom_trace::metadata::Quantity::RuntimeFree as u16, GIB)]);
    trace.alloc(2 << 32, 2 * GIB);
    let replay = run(&trace);
    assert_eq!(replay.tracks.retries.of_failure(0).map(|retry| retry.ending), Some(Ending::Succeeded));
    assert_eq!(replay.failures.listed[0].because, gpuoom_trace::outcome::Because::RetrySucceeded);
}

#[test]
fn what_comes_late_or_is_of_another_size_is_no_retry() {
    for (wait_ns, bytes, ending) in
        [(0, 2 * GIB, Some(Ending::Succeeded)), (2_000_000_000, 2 * GIB, None), (0, GIB, Some(Ending::NotTried))]
    {
        let mut trace = builder();
        trace.alloc(1 << 32, GIB);
        trace.refuse(2 * GIB);
        trace.now_ns += wait_ns;
        trace.free(1 << 32);
        trace.alloc(2 << 32, bytes);
        let retries = run(&trace).tracks.retries;
        assert_eq!(retries.listed().iter().next().map(|retry| retry.ending), ending, "{wait_ns} {bytes}");
        assert_eq!(retries.succeeded(), u64::from(ending == Some(Ending::Succeeded)));
    }
}

#[test]
fn how_long_another_try_may_take_is_an_option() {
    let mut trace = builder();
    trace.alloc(1 << 32, GIB);
    trace.refuse(2 * GIB);
    trace.now_ns += 2_000_000_000;
    trace.free(1 << 32);
    trace.alloc(2 << 32, 2 * GIB);
    let succeeded = |retry_ns| {
        let options = Options { limits: Limits { retry_ns, ..Limits::default() }, ..Options::default() };
        crate::testing::replay(&trace, options).tracks.retries.succeeded()
    };
    assert_eq!([1_000_000_000, 3_000_000_000].map(succeeded), [0, 1]);
}

#[test]
fn sizes_that_hold_most_are_told_at_the_failure() {
    let mut trace = builder();
    for number in 0..10 {
        trace.alloc((number + 1) << 32, if number < 8 { GIB } else { MIB * (number + 1) });
    }
    trace.refuse(9 * GIB);
    trace.alloc(99 << 32, MIB);
    let tracks = run(&trace).tracks;
    let around = tracks.around.failure(0).unwrap();
    let survivors = around.survivors.as_ref().unwrap();
    assert_eq!((survivors.distinct_sizes, survivors.covering_sizes, survivors.blocks), (3, 1, 10));
    assert_eq!(survivors.covering, [(GIB, 8)]);
    assert_eq!(survivors.groups[0].bytes(), 8 * GIB);
    let next = around.next.unwrap();
    assert_eq!((next.requested_bytes, next.succeeded), (MIB, true));
    assert_eq!((around.calls_before, around.live_blocks), (10, 10));
    let before = tracks.calls.before(around.calls_before);
    assert_eq!((before.from, before.calls.len()), (0, 10));
    assert!(before.calls.iter().all(|call| call.what == What::Given));
}

#[test]
fn stream_ordered_frees_count_until_a_wait_or_two_seconds() {
    let gives_back = |wait_ns: u64, plain: bool| {
        let mut trace = builder();
        trace.alloc(7 << 32, MIB);
        for number in 1..=4 {
            trace.alloc_kind(Kind::Pool, "hipMallocAsync", number << 32, GIB);
        }
        for number in 1..=2 {
            trace.free_kind(Kind::Pool, "hipFreeAsync", number << 32);
        }
        if plain {
            trace.free(7 << 32);
        }
        trace.now_ns += wait_ns;
        trace.free_kind(Kind::Pool, "hipFreeAsync", 3 << 32);
        trace.refuse(8 * GIB);
        let tracks = run(&trace).tracks;
        let pool = tracks.device(0).unwrap().pool;
        assert_eq!((pool.given_bytes, pool.returned_bytes, pool.largest_bytes), (4 * GIB, 3 * GIB, GIB));
        let pending = tracks.around.failure(0).unwrap().pending;
        assert!(pending.is_complete);
        pending.bytes
    };
    assert_eq!(gives_back(0, false), 3 * GIB);
    assert_eq!(gives_back(0, true), GIB);
    assert_eq!(gives_back(3_000_000_000, false), GIB);
}

#[test]
fn readings_stand_before_and_after_a_failure() {
    let mut trace = builder();
    trace.alloc(1 << 32, GIB);
    read(&mut trace, 9 * GIB);
    let failure = trace.refuse(10 * GIB);
    trace.read_at_failure(failure, &[(Quantity::RuntimeFree as u16, 8 * GIB)]);
    read(&mut trace, 7 * GIB);
    read(&mut trace, 6 * GIB);
    let tracks = run(&trace).tracks;
    let around = tracks.around.failure(0).unwrap();
    let free = |read: &Option<super::reads::Read>| read.unwrap().least_free_bytes().unwrap() / GIB;
    assert_eq!((free(&around.read_before), free(&around.read_after)), (9, 7));
    assert_eq!(around.read_before.unwrap().held_bytes, GIB);
}

#[test]
fn released_physical_memory_is_set_beside_what_became_free() {
    let mut trace = builder();
    let reserve = trace.record(Event::Reserve, Kind::Reserved, "hipMemAddressReserve");
    trace.push(Record { address: 5 << 32, requested: 4 * GIB, ..reserve }, &[]);
    trace.create_and_map(0x77, 5 << 32, 2 * GIB);
    read(&mut trace, 9 * GIB);
    trace.unmap(5 << 32, 2 * GIB);
    trace.free_kind(Kind::Physical, "hipMemRelease", 0x77);
    read(&mut trace, 9 * GIB + MIB);
    let tracks = run(&trace).tracks;
    let device = tracks.device(0).unwrap();
    let stretches: Vec<_> = device.reads.releases().collect();
    let [stretch] = stretches[..] else { panic!("{stretches:?}") };
    assert_eq!((stretch.vmm_released_bytes, device.vmm_created_bytes), (2 * GIB, 2 * GIB));
    assert_eq!(stretch.expected_and_seen(), Some((i128::from(2 * GIB), i128::from(MIB))));
    assert_eq!(stretch.after.reserved_bytes, 4 * GIB);
}

#[test]
fn marks_have_their_place_among_the_calls() {
    let mut trace = builder();
    trace.alloc(1 << 32, GIB);
    let mark = trace.record(Event::Mark, Kind::None, "gpuoom_mark");
    trace.with_text(Record { device: NO_DEVICE, ..mark }, "step 1");
    trace.alloc(2 << 32, GIB);
    let tracks = run(&trace).tracks;
    let mark = tracks.marks.before(u64::MAX).unwrap();
    assert_eq!((mark.label.as_str(), mark.calls_before), ("step 1", 1));
    assert!(tracks.marks.before(0).is_none());
}

#[test]
fn code_that_hsa_loads_is_counted() {
    let mut trace = builder();
    for api in
        ["hsa_executable_load_agent_code_object", "hsa_executable_load_agent_code_object", "hsa_executable_destroy"]
    {
        let record = trace.record(Event::Module, Kind::Code, api);
        trace.push(Record { address: 0x10, ..record }, &[]);
    }
    let modules = run(&trace).tracks.modules;
    assert_eq!((modules.code.loaded, modules.code.unloaded), (2, 1));
}

/// One call of a function, as the recorder leaves it.
fn call(trace: &mut TraceBuilder, event: Event, kind: Kind, api: &str, address: u64) {
    let record = trace.record(event, kind, api);
    trace.push(Record { address, ..record }, &[]);
}

#[test]
fn modules_above_hsa_count_once_and_failed_unloads_do_not() {
    let mut trace = builder();
    for module in 1..=3 {
        call(&mut trace, Event::Module, Kind::Code, "hipModuleLoadData", module);
    }
    call(&mut trace, Event::Module, Kind::Code, "hipLibraryLoadFromFile", 4);
    let inside = trace.record(Event::Module, Kind::Code, "cuLibraryLoadData");
    trace.push(Record { address: 5, parent_distance: 1, ..inside }, &[]);
    call(&mut trace, Event::Module, Kind::Code, "hipModuleUnload", 1);
    call(&mut trace, Event::Module, Kind::Code, "hipModuleUnload", 9);
    trace.last_call_failed(400);
    let replay = run(&trace);
    let above = replay.tracks.modules.above().unwrap();
    assert_eq!((above.loaded, above.unloaded, above.left()), (4, 1, 3));
    let mut older = trace.clone();
    older.header.minor = 2;
    assert_eq!(run(&older).tracks.modules.above(), Err(Unknown::Modules));
}

/// Of a capture that had become void there is no graph, nor what it would have taken.
#[test]
fn nodes_of_a_void_capture_are_no_memory_of_graphs() {
    let mut trace = builder();
    for (stream, status, bytes) in [(0x51, 0, GIB), (0x52, 901, 2 * GIB)] {
        call(&mut trace, Event::Sync, Kind::None, "hipStreamBeginCapture", stream);
        let node = trace.record(Event::Reserve, Kind::Pool, "hipMallocAsync");
        trace.push(Record { address: stream << 32, requested: bytes, ..node }, &[]);
        let end = trace.record(Event::Sync, Kind::None, "hipStreamEndCapture");
        trace.push(Record { address: stream, status, ..end }, &[]);
    }
    let replay = run(&trace);
    assert_eq!(replay.graph_bytes(), u128::from(GIB));
    let captures = replay.tracks.captures().unwrap();
    assert_eq!((captures.begun, captures.ended), (2, 1));
}

#[test]
fn memory_taken_during_a_capture_is_followed_until_it_is_freed() {
    let mut trace = builder();
    trace.alloc(1 << 32, 8 * GIB);
    call(&mut trace, Event::Sync, Kind::None, "hipStreamBeginCapture", 0x51);
    trace.alloc(5 << 32, 3 * GIB);
    trace.alloc(6 << 32, 2 * GIB);
    let elsewhere = trace.record(Event::Alloc, Kind::Device, "hipMalloc");
    trace.push(Record { thread: 9, address: 7 << 32, requested: GIB, ..elsewhere }, &[]);
    call(&mut trace, Event::Sync, Kind::None, "hipStreamEndCapture", 0x51);
    call(&mut trace, Event::Module, Kind::None, "hipGraphInstantiate", 0x60);
    trace.alloc(8 << 32, MIB);
    trace.free(6 << 32);
    trace.refuse(4 * GIB);
    call(&mut trace, Event::Module, Kind::None, "hipGraphExecDestroy", 0x60);
    let tracks = run(&trace).tracks;
    let captures = tracks.captures().unwrap();
    assert_eq!((captures.begun, captures.ended, captures.taken_bytes), (1, 1, 5 * GIB));
    assert_eq!((captures.instantiated, captures.destroyed), (1, 1));
    let captured = tracks.around.failure(0).unwrap().captured;
    assert_eq!(captured, Some(Captured { live_bytes: 3 * GIB, ended: 1, graphs: 1, is_under_way: false }));
    let mut older = trace.clone();
    older.header.minor = 2;
    let tracks = run(&older).tracks;
    assert_eq!(tracks.captures().err(), Some(Unknown::Captures));
    assert_eq!(tracks.around.failure(0).unwrap().captured, None);
}

#[test]
fn exported_memory_that_is_freed_is_set_beside_what_became_free() {
    let mut trace = builder();
    trace.alloc(1 << 32, 2 * GIB);
    trace.alloc(5 << 32, GIB);
    // A part of the first block, twice; memory that nobody knows; a call that failed.
    for address in [(1 << 32) + 4096, 1 << 32, 77] {
        call(&mut trace, Event::Export, Kind::Device, "hipIpcGetMemHandle", address);
    }
    let failed = trace.record(Event::Export, Kind::Device, "hipIpcGetMemHandle");
    trace.push(Record { address: 5 << 32, status: 1, ..failed }, &[]);
    read(&mut trace, 9 * GIB);
    trace.free(1 << 32);
    trace.free(5 << 32);
    read(&mut trace, 10 * GIB);
    let tracks = run(&trace).tracks;
    let exports = tracks.exports().unwrap();
    assert_eq!((exports.calls, exports.unmatched), (3, 1));
    assert_eq!((exports.exported_bytes, exports.freed_bytes), (2 * GIB, 2 * GIB));
    let stretches: Vec<_> = tracks.device(0).unwrap().reads.export_frees().collect();
    let [stretch] = stretches[..] else { panic!("{stretches:?}") };
    assert_eq!(stretch.exported_freed_bytes, 2 * GIB);
    assert_eq!(stretch.expected_and_seen(), Some((i128::from(3 * GIB), i128::from(GIB))));
    // A pool that others may open as a whole: what comes from it goes back to it.
    call(&mut trace, Event::Reserve, Kind::Pool, "hipMemPoolCreate", 0xA0);
    call(&mut trace, Event::Export, Kind::Pool, "hipMemPoolExportToShareableHandle", 0xA0);
    let from_pool = trace.record(Event::Alloc, Kind::Pool, "hipMallocFromPoolAsync");
    trace.with_numbers(Record { address: 9 << 32, requested: GIB, ..from_pool }, &[0xA0]);
    trace.alloc_kind(Kind::Pool, "hipMallocAsync", 10 << 32, GIB);
    let replay = run(&trace);
    let exports = replay.tracks.exports().unwrap();
    let mut of_pool: Vec<_> = replay.blocks(0).filter(|block| exports.is_of_exported_pool(block)).collect();
    assert_eq!((exports.calls, exports.unmatched, of_pool.pop().map(|block| block.address)), (4, 1, Some(9 << 32)));
    assert!(of_pool.is_empty(), "plain stream-ordered memory is of the device's own pool");
    trace.free_kind(Kind::Pool, "hipFreeAsync", 9 << 32);
    assert_eq!(run(&trace).tracks.exports().unwrap().freed_bytes, 2 * GIB);
    trace.header.minor = 2;
    assert_eq!(run(&trace).tracks.exports().err(), Some(Unknown::IpcExports));
}

#[test]
fn captures_and_trims_are_no_waits() {
    let pending = |api: &str, kind| {
        let mut trace = builder();
        trace.alloc_kind(Kind::Pool, "hipMallocAsync", 1 << 32, GIB);
        trace.free_kind(Kind::Pool, "hipFreeAsync", 1 << 32);
        call(&mut trace, Event::Sync, kind, api, 0x51);
        trace.refuse(8 * GIB);
        run(&trace).tracks.around.failure(0).unwrap().pending.bytes
    };
    assert_eq!(pending("hipStreamBeginCapture", Kind::None), GIB);
    assert_eq!(pending("hipMemPoolTrimTo", Kind::Pool), GIB);
    assert_eq!(pending("hipDeviceSynchronize", Kind::None), 0);
}

#[test]
fn a_wait_of_any_thread_since_the_last_deferred_free_is_told() {
    let waited = |minor: u16, wait: Option<(&str, u8)>| {
        let mut trace = builder();
        trace.header.minor = minor;
        call(&mut trace, Event::Sync, Kind::None, "hipDeviceSynchronize", 0);
        trace.alloc_kind(Kind::Pool, "hipMallocAsync", 1 << 32, GIB);
        trace.free_kind(Kind::Pool, "hipFreeAsync", 1 << 32);
        if let Some((api, device)) = wait {
            let record = trace.record_on(77, Event::Sync, Kind::None, api);
            trace.push(Record { device, address: 0x51, ..record }, &[]);
        }
        trace.refuse(8 * GIB);
        run(&trace).tracks.around.failure(0).unwrap().waited_since_free
    };
    assert_eq!(waited(6, None), Waited::No, "the wait before the free is none for it");
    let Waited::Yes(wait) = waited(6, Some(("hipDeviceSynchronize", 0))) else { panic!("a wait of another thread") };
    assert_eq!((wait.thread, wait.covers(0)), (77, true));
    let Waited::Yes(wait) = waited(6, Some(("hipStreamSynchronize", 0))) else { panic!("a wait for a stream") };
    assert_eq!((wait.covers(0), wait.may_cover(0)), (false, true));
    assert_eq!(waited(6, Some(("hipDeviceSynchronize", 1))), Waited::No, "another device");
    assert_eq!(waited(6, Some(("hipStreamQuery", 0))), Waited::No, "a question is no wait");
    assert_eq!(waited(5, None), Waited::Unknown, "older recorders kept no waits");
}

#[test]
fn a_wait_between_a_failure_and_what_came_next_is_told() {
    let waited = |waits: bool| {
        let mut trace = builder();
        trace.refuse(8 * GIB);
        if waits {
            let record = trace.record_on(77, Event::Sync, Kind::None, "hipDeviceSynchronize");
            trace.push(Record { device: 0, ..record }, &[]);
        }
        trace.alloc(1 << 32, GIB);
        let tracks = run(&trace).tracks;
        let around = tracks.around.failure(0).unwrap();
        (around.waited_since_free, matches!(around.waited_before_next, Waited::Yes(_)), around.waited_before_next)
    };
    assert_eq!(waited(false), (Waited::Unknown, false, Waited::No), "nothing was freed by a stream-ordered call");
    assert!(waited(true).1);
}

fn check_bounds(tracks: &Tracks) {
    for (_, device) in tracks.devices() {
        assert!(device.live.turns().count() <= MAX_TURNS + 1);
    }
    assert!(tracks.calls.first().len() <= FIRST);
    for around in tracks.around.listed().iter() {
        let window = tracks.calls.before(around.calls_before);
        assert!(window.calls.len() <= FIRST && window.from + window.calls.len() as u64 <= around.calls_before);
    }
    assert!(tracks.calls.before(tracks.calls.count()).calls.len() <= FIRST.max(LAST));
}

fn any_record() -> impl Strategy<Value = Record> {
    let numbers = (any::<u8>(), any::<u8>(), 0u8..4, 0u16..6, 0u32..3, -1i32..4);
    let words = (any::<u64>(), 0u64..16, any::<u64>(), 0u32..40);
    (numbers, words).prop_map(|((event, kind_flags, device, api, thread, status), (at, address, requested, call))| {
        Record {
            event: event % 21,
            kind_flags,
            device: if device == 3 { NO_DEVICE } else { device },
            api,
            thread,
            status,
            at,
            address,
            requested,
            call,
            padded_granules: 1,
            ..Record::new(Event::Alloc, Kind::Device)
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_records_make_them_fail_or_grow(records in prop::collection::vec(any_record(), 0..600)) {
        let mut trace = builder();
        for api in ["hipMalloc", "hipFree", "hipMallocAsync", "hipFreeAsync", "hipMemCreate"] {
            trace.api(api);
        }
        for record in records {
            trace.push(record, &[]);
        }
        check_bounds(&run(&trace).tracks);
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn long_traces_stay_bounded(sizes in prop::collection::vec(1u64..GIB, 1..50), failures in 0u64..400) {
        let mut trace = builder();
        for number in 0..10_000u64 {
            let size = sizes[number as usize % sizes.len()];
            let address = |number: u64| (1 + number % 64) << 32;
            if number % 3 == 0 {
                trace.alloc(address(number), size);
            } else if number % 3 == 1 {
                trace.free(address(number * 7));
            } else if number % 30 == 2 && number / 30 < failures {
                trace.refuse(size);
            }
        }
        check_bounds(&run(&trace).tracks);
    }
}
