//! Sentences that a reader can take at their word: which failure a section is of, what a time leaves out, what a remainder holds, and
//! what is to be done where nothing is sure.

use gpuoom_trace::metadata::{Module, Quantity, probe_skipped};
use gpuoom_trace::payload::PythonFrame;
use gpuoom_trace::record::{Event, Kind, NO_DEVICE, Record, flag, process};

use crate::report::page::Look;
use crate::testing::{GIB, MIB, THREAD, TraceBuilder, json, summary};

/// The page on one line.
fn page(trace: &TraceBuilder) -> String {
    let text = super::write(&summary(trace), &[], Look::new(4000, false));
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn free(trace: &mut TraceBuilder, failure: u64, bytes: u64) {
    trace.read_at_failure(failure, &[(Quantity::RuntimeTotal as u16, 24 * GIB), (Quantity::RuntimeFree as u16, bytes)]);
}

/// A full card that refuses `requests`, with what was free then; each time the program says so.
fn refused(requests: &[(u64, u64)]) -> TraceBuilder {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    for number in 0..23 {
        trace.alloc(0x10_0000_0000 + number * 2 * GIB, GIB);
    }
    for (bytes, was_free) in requests {
        let failure = trace.refuse(*bytes);
        free(&mut trace, failure, *was_free);
        trace.after(Event::ErrorQuery, "hipGetErrorString", 2, flag::ERROR_TEXT);
    }
    trace.end(process::EXITS, 1);
    trace
}

/// What the sections say is of one failure, and which one stands in the verdict.
#[test]
fn all_sections_are_of_the_failure_that_decides() {
    let trace = refused(&[(2 * GIB, 512 * MIB), (3 * GIB, 512 * MIB), (5 * GIB, 256 * MIB)]);
    let text = page(&trace);
    assert!(text.contains("VERDICT Of 3 failures #3 decides, at "), "{text}");
    assert!(text.contains("GPU 0 refused 5.00 GiB"), "{text}");
    assert!(text.contains("WHY of failure #3, which decides, before others"), "{text}");
    assert!(text.contains("of #3: the program's own blocks hold") && text.contains("5.00 GiB was asked for"), "{text}");
    assert!(text.contains("WHO HOLDS GPU 0 at failure #3"), "{text}");
    let json = json(&summary(&trace));
    assert_eq!((&json["verdict"]["oom"], &json["diagnoses"][0]["evidence_of"]), (&3.into(), &3.into()));
    assert_eq!(json["ledger"][0]["moment"], "oom:3");
}

/// A surer diagnosis of another failure stands behind what is about the one that decides.
#[test]
fn what_is_about_other_failures_only_comes_later() {
    let trace = refused(&[(30 * GIB, 512 * MIB), (2 * GIB, 512 * MIB)]);
    let json = json(&summary(&trace));
    assert_eq!(json["verdict"]["oom"], 2);
    let is_of_it = |finding: &serde_json::Value| finding["ooms"].as_array().unwrap().contains(&2.into());
    let causes: Vec<_> =
        json["diagnoses"].as_array().unwrap().iter().filter(|finding| finding["role"] == "cause").collect();
    assert!(causes.len() > 1 && causes.iter().any(|finding| !is_of_it(finding)), "{causes:?}");
    assert!(causes.is_sorted_by_key(|finding| !is_of_it(finding)), "{causes:?}");
    let of_first = json["ooms"][0]["cause"].clone();
    assert!(of_first.is_string(), "each failure keeps the surest cause of its own");
}

/// What is wrong on another device than the one that refused says on which.
#[test]
fn a_finding_of_another_device_names_it() {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB).device(1, "card", 24 * GIB);
    for number in 0..200 {
        let record = trace.record(Event::Alloc, Kind::Device, "hipMalloc");
        let block = |address, bytes| Record { address, device: 1, requested: bytes, padded_granules: 1, ..record };
        trace.push(block(0x20_0000_0000 + number * GIB, 64 * MIB), &[]);
        trace.push(block(0x10_0000_0000, 128 * MIB), &[]);
        trace.after(Event::GpuWork, "hipLaunchKernel", 0, 0);
        let record = trace.record(Event::Free, Kind::Device, "hipFree");
        trace.push(Record { address: 0x10_0000_0000, device: 1, ..record }, &[]);
    }
    trace.alloc(0x1_0000_0000, 14 * GIB);
    let failure = trace.refuse(14 * GIB);
    free(&mut trace, failure, 10 * GIB);
    let text = page(&trace);
    assert!(text.contains("than after earlier ones (GPU 1)"), "{text}");
    assert!(!text.contains("(GPU 0)"), "{text}");
}

/// What nobody measured at the last attempt may have been measured at the first, when other memory was free.
#[test]
fn what_was_measured_at_an_earlier_attempt_is_told_as_of_then() {
    use Quantity::{LargestAllocatable, ProbeSkipped, RuntimeFree};
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB).cuda();
    let refuse = |trace: &mut TraceBuilder, readings: [(Quantity, u64); 2]| {
        let record = trace.record(Event::Alloc, Kind::Device, "cudaMalloc");
        let failure = trace.push(Record { status: 2, requested: 4 * GIB, ..record }, &[]);
        trace.read_at_failure(failure, &readings.map(|(quantity, value)| (quantity as u16, value)));
    };
    refuse(&mut trace, [(RuntimeFree, 2 * GIB), (LargestAllocatable, GIB)]);
    refuse(&mut trace, [(RuntimeFree, 3 * GIB), (ProbeSkipped, probe_skipped::NOT_ASKED)]);
    trace.framework_error(THREAD, 4 * GIB, [22 * GIB, 22 * GIB]);
    let text = page(&trace);
    let told = "largest allocatable block below the request: 1.00 GiB at the attempt of ";
    assert!(text.contains(told) && text.contains("s (measured); not measured at the last one"), "{text}");
    assert!(!text.contains("only the first failure"), "{text}");
}

#[test]
fn one_failure_needs_no_number() {
    let text = page(&refused(&[(2 * GIB, 512 * MIB)]));
    assert!(text.contains("VERDICT GPU 0 refused") && text.contains("WHY the most telling first"), "{text}");
}

/// Times are the program's own; where the recorder's readings lie between, that is said.
#[test]
fn times_say_whether_the_readings_count() {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.alloc(0x10_0000_0000, GIB);
    let failure = trace.refuse(30 * GIB);
    free(&mut trace, failure, 23 * GIB);
    trace.after(Event::GpuWork, "hipLaunchKernel", 0, 0);
    trace.end(process::EXITS, 0);
    let held_up = summary(&trace).facts.ooms[0].held_up_ns;
    assert!(held_up > 0);
    let text = page(&trace);
    let held_up = crate::words::span(held_up);
    assert!(text.contains(&format!("(not counted: {held_up} of the recorder's own readings)")), "{text}");
    assert!(text.contains("later (the recorder's own readings not counted), before it asked"), "{text}");
    assert!(text.contains(&format!("({held_up} of it readings), exit 0")), "{text}");
    let mut unread = TraceBuilder::default().device(0, "card", 24 * GIB);
    unread.refuse(30 * GIB);
    unread.after(Event::GpuWork, "hipLaunchKernel", 0, 0);
    assert!(!page(&unread).contains("readings not counted") && !page(&unread).contains("not counted:"));
}

/// What was to make memory reachable and failed is told, whatever the reason was.
#[test]
fn memory_that_could_not_be_opened_or_mapped_is_said() {
    let with = |event: Event, kind: Kind, api: &str, status: i32| {
        let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
        trace.alloc(0x10_0000_0000, GIB);
        for _ in 0..2 {
            let record = trace.record(event, kind, api);
            trace.push(Record { status, ..record }, &[]);
        }
        page(&trace)
    };
    let opened = with(Event::Import, Kind::Imported, "hipIpcOpenMemHandle", 1);
    let told = "hipIpcOpenMemHandle failed (hipErrorInvalidValue), which was to open memory of another process or interface (2 such calls, this is the first)";
    assert!(opened.contains(told), "{opened}");
    let mapped = with(Event::Map, Kind::Physical, "hipMemMap", 1);
    assert!(
        mapped.contains("hipMemMap failed (hipErrorInvalidValue), which was to map memory (2 such calls"),
        "{mapped}"
    );
    let went_well = with(Event::Map, Kind::Physical, "hipMemMap", 0);
    assert!(!went_well.contains("which was to map memory"), "{went_well}");
}

/// A process that dies in its exit handlers has called exit all the same.
#[test]
fn an_end_behind_exit_that_was_not_recorded_is_said() {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.alloc(0x10_0000_0000, GIB);
    trace.end(process::EXITS, 3);
    let whole = page(&trace);
    assert!(whole.contains(", exit 3"), "{whole}");
    trace.header.closed = 0;
    let cut = page(&trace);
    assert!(cut.contains(", exit(3) called, end not recorded"), "{cut}");
}

/// The readings at a later failure of the thread are none of the program's time either.
#[test]
fn the_readings_of_later_failures_do_not_count() {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.alloc(0x10_0000_0000, GIB);
    for bytes in [30 * GIB, 20 * GIB] {
        let failure = trace.refuse(bytes);
        trace.now_ns += 5_000_000_000;
        free(&mut trace, failure, 19 * GIB);
    }
    trace.end(process::EXITS, 1);
    let ooms = summary(&trace).facts.ooms;
    let took_ns = ooms.iter().map(|oom| oom.held_up_ns).sum::<u64>();
    assert!(took_ns > 10_000_000_000, "{took_ns}");
    let ended = ooms[0].evidence.iter().find(|evidence| evidence.event == "process").unwrap();
    assert_eq!(ooms[0].held_up_until(ended.at_ns), took_ns);
    assert!(ooms[0].later_ns(ended.at_ns) < 1_000_000_000, "{}", ooms[0].later_ns(ended.at_ns));
    assert_eq!(ooms[1].held_up_until(ended.at_ns), ooms[1].held_up_ns);
}

/// Calls told that it went back to a pool: that is in no row, and in calls.
#[test]
fn what_pools_may_keep_is_told_beside_the_remainder() {
    let with = |pooled: u64| {
        let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
        trace.alloc(0x10_0000_0000, GIB);
        (0..pooled).for_each(|block| {
            _ = trace.alloc_kind(Kind::Pool, "hipMallocAsync", 0x100_0000_0000 + block * 2 * GIB, GIB)
        });
        (0..pooled)
            .for_each(|block| _ = trace.free_kind(Kind::Pool, "hipFreeAsync", 0x100_0000_0000 + block * 2 * GIB));
        let failure = trace.refuse(20 * GIB);
        free(&mut trace, failure, 13 * GIB);
        trace
    };
    let text = page(&with(8));
    assert!(text.contains("unattributed (the remainder: in none of these rows)"), "{text}");
    let said = "up to 8.00 GiB of the remainder may be what pools keep: calls gave 8.00 GiB back to them before";
    assert!(text.contains(said), "{text}");
    assert_eq!(json(&summary(&with(8)))["ledger"][0]["returned_to_pools_bytes"], 8 * GIB);
    let text = page(&with(0));
    // Free memory alone was read: rounding may be in it.
    assert!(text.contains("(the remainder: in none of these rows)") && !text.contains("what pools keep:"), "{text}");
}

/// Where the driver counts some of the remainder for this process, a reading tells of it.
#[test]
fn what_the_driver_counts_is_in_a_reading() {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.alloc(0x10_0000_0000, GIB);
    let failure = trace.refuse(30 * GIB);
    trace.read_at_failure(
        failure,
        &[
            (Quantity::RuntimeTotal as u16, 24 * GIB),
            (Quantity::RuntimeFree as u16, 20 * GIB),
            (Quantity::KfdProcessVram as u16, 3 * GIB),
        ],
    );
    let text = page(&trace);
    assert!(text.contains("2.00 GiB of the remainder are this process's by the driver"), "{text}");
    assert!(!text.contains("in no call and no reading"), "{text}");
}

/// What is beyond all that the driver counts for this process, nobody tells.
#[test]
fn a_remainder_that_is_not_this_processs_is_in_no_reading() {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.alloc(0x10_0000_0000, GIB);
    let failure = trace.refuse(30 * GIB);
    trace.read_at_failure(
        failure,
        &[
            (Quantity::RuntimeTotal as u16, 24 * GIB),
            (Quantity::RuntimeFree as u16, 20 * GIB),
            (Quantity::KfdProcessVram as u16, GIB),
        ],
    );
    let text = page(&trace);
    assert!(text.contains("(the remainder: in no call and no reading)"), "{text}");
}

/// Managed memory has no place in the model: its pages may lie in RAM.
#[test]
fn managed_memory_needs_no_room_in_the_model() {
    let mut trace = TraceBuilder::default().device(0, "card", 8 * GIB);
    trace.alloc_kind(Kind::Managed, "hipMallocManaged", 0x10_0000_0000, 20 * GIB);
    let failure = trace.refuse(30 * GIB);
    free(&mut trace, failure, 8 * GIB);
    let text = page(&trace);
    assert!(text.contains("modelled with"), "{text}");
    assert!(!text.contains("have no room in the model"), "{text}");
}

/// PyTorch's allocator rounds by itself: granules that nobody asked for are told where all is wanted.
#[test]
fn the_model_of_granules_is_not_told_of_pytorchs_segments() {
    let told = |granules: Option<&str>, full: bool| {
        let mut trace = TraceBuilder::default().device(0, "card", 8 * GIB);
        trace.process.environment.extend(granules.map(|size| ("GPUOOM_GRANULARITY".to_owned(), size.to_owned())));
        trace.segment(0x10_0000_0000, 4 * GIB);
        trace.tensor(0, 0x10_0000_0000, GIB);
        let failure = trace.refuse(6 * GIB);
        free(&mut trace, failure, 4 * GIB);
        let text = super::write(&summary(&trace), &[], Look::new(4000, false).full(full));
        [text.contains("modelled with"), text.contains("  modelled ")]
    };
    assert_eq!(told(None, false), [false; 2]);
    assert_eq!(told(None, true), [true; 2]);
    assert_eq!(told(Some("256M"), false), [true; 2], "somebody asked for it");
}

/// A leak that is only possible: what would tell is said, and no cause is claimed.
#[test]
fn what_is_only_possible_has_a_next_step() {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    for step in 0..40 {
        trace.alloc(0x100_0000_0000 + step * GIB, 20 * MIB);
        trace.alloc(0x20_0000_0000, 4 * GIB);
        trace.free(0x20_0000_0000);
    }
    let text = page(&trace);
    assert!(text.contains("live-leak, possible"), "{text}");
    assert!(text.contains("WHAT TO DO no cause is sure enough to act on; what would tell ? to be sure: "), "{text}");
    let json = json(&summary(&trace));
    assert!(json["verdict"]["cause"].is_null() && !json["would_settle"].as_array().unwrap().is_empty());
}

fn module(path: &str, start: u64) -> Module {
    Module { path: path.into(), build_id: String::new(), start, end: start + 0x10_0000, vendor: false }
}

/// ctypes calls through libffi, which wants no memory: who asked is Python, or its function where that is known.
#[test]
fn a_trampoline_is_not_named_as_who_asked() {
    let with = |python: &[PythonFrame]| {
        let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
        trace.modules.push(module("/usr/lib/libffi.so.8", 0x1000_0000));
        trace
            .modules
            .push(module("/usr/lib/python3.12/lib-dynload/_ctypes.cpython-312-x86_64-linux-gnu.so", 0x2000_0000));
        trace.modules.push(module("/usr/bin/python3.12", 0x3000_0000));
        trace.code(1, "/home/me/train.py", "load");
        trace.stack(1, &[0x1000_0100, 0x1000_0200, 0x2000_0100, 0x3000_0100, 0x3000_0200], python);
        trace.site = 1;
        trace.alloc(0x10_0000_0000, 20 * GIB);
        let failure = trace.refuse(8 * GIB);
        free(&mut trace, failure, 3 * GIB);
        trace
    };
    let native = with(&[]);
    let text = page(&native);
    assert!(
        text.contains("(hipMalloc, python3.12)") && !text.contains("libffi") && !text.contains("_ctypes"),
        "{text}"
    );
    assert!(text.contains("asked by (3 frames that only pass it on)"), "{text}");
    assert_eq!(json(&summary(&native))["ledger"][0]["rows"][0]["library"], "python3.12");
    let text = page(&with(&[PythonFrame { code: 1, line: 7 }]));
    assert!(text.contains("load (train.py:7)") && !text.contains("libffi"), "{text}");
}

/// Nobody looks for a reason in the allocator: its frames are one line, and with lines of Python few native ones follow.
#[test]
fn the_frames_of_pytorchs_allocator_are_one_line() {
    let with = |python: &[PythonFrame]| {
        let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
        trace.modules.push(module("/env/torch/lib/libc10_cuda.so", 0x1000_0000));
        trace.modules.push(module("/env/torch/lib/libtorch_cpu.so", 0x2000_0000));
        trace.code(1, "/home/me/train.py", "train");
        let native: Vec<u64> =
            (1..=2).map(|n| 0x1000_0000 + n * 16).chain((1..=8).map(|n| 0x2000_0000 + n * 16)).collect();
        trace.stack(1, &native, python);
        trace.site = 1;
        trace.alloc(0x10_0000_0000, 20 * GIB);
        let failure = trace.refuse(8 * GIB);
        free(&mut trace, failure, 3 * GIB);
        page(&trace)
    };
    let lines = |text: &str| text.matches("libtorch_cpu.so+").count();
    let (native, python) = (with(&[]), with(&[PythonFrame { code: 1, line: 7 }]));
    for text in [&native, &python] {
        assert!(
            text.contains("asked by (2 frames of PyTorch's allocator)") && !text.contains("libc10_cuda.so+"),
            "{text}"
        );
    }
    assert!(python.find("in Python train").unwrap() < python.find("asked by").unwrap(), "{python}");
    assert_eq!((lines(&native), lines(&python)), (7, 3), "{native}{python}");
}

/// What the program held and asked for is more than the card: that is certain, and what follows from it is told without a cause.
#[test]
fn what_is_certain_has_its_advice_without_a_cause() {
    let of = |request: u64| {
        let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
        trace.alloc(0x10_0000_0000, 10 * GIB);
        let failure = trace.refuse(request);
        free(&mut trace, failure, 13 * GIB);
        (page(&trace), json(&summary(&trace)))
    };
    let (text, value) = of(16 * GIB);
    assert!(text.contains("What the program held and asked for is 2.00 GiB more than the whole card"), "{text}");
    assert!(
        text.contains("WHAT TO DO whatever the cause; and what would tell it - whatever the cause: ask for less"),
        "{text}"
    );
    assert_eq!(value["verdict"]["too_much_bytes"], 2 * GIB);
    let (text, value) = of(14 * GIB - MIB);
    assert!(!text.contains("whatever the cause") && value["verdict"]["too_much_bytes"].is_null(), "{text}");
}

/// Of managed memory alone nobody knows how much lay on the card: that is not said to be nothing.
#[test]
fn managed_memory_alone_is_not_nothing_on_the_card() {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.alloc_kind(Kind::Managed, "hipMallocManaged", 0x100_0000_0000, 8 * GIB);
    let failure = trace.refuse(25 * GIB);
    free(&mut trace, failure, 23 * GIB);
    let text = page(&trace);
    let held = "The program's own blocks held 8.00 GiB, which may lie on the card (24.00 GiB) or in RAM";
    assert!(text.contains(held) && !text.contains("held 0 bytes"), "{text}");
}

/// What sysfs has in use of the only card leaves no room there for the rest of it.
#[test]
fn managed_memory_that_surely_lay_in_ram_is_told() {
    let of = |used_bytes: u64, cards: u8| {
        let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
        for card in 1..cards {
            trace = trace.device(card, "card", 24 * GIB);
        }
        trace.alloc_kind(Kind::Managed, "hipMallocManaged", 0x100_0000_0000, 8 * GIB);
        let refused = trace.record(Event::Alloc, Kind::Managed, "hipMallocManaged");
        let failure = trace.push(Record { status: 2, requested: 25 * GIB, ..refused }, &[]);
        trace.read_at_failure(
            failure,
            &[(Quantity::VramTotal as u16, 24 * GIB), (Quantity::VramUsed as u16, used_bytes)],
        );
        page(&trace)
    };
    let text = of(0, 1);
    assert!(text.contains("blocks held 8.00 GiB, all of it in RAM (sysfs had none of the card in use)"), "{text}");
    let text = of(3 * GIB, 1);
    assert!(text.contains("all of which may lie in RAM (at least 5.00 GiB did: the card had no more in use"), "{text}");
    assert!(text.contains("8.00 GiB, which may lie on the card"), "{text}");
    let text = of(0, 2);
    assert!(text.contains("may lie in RAM") && !text.contains("did: the card"), "it may lie on the other: {text}");
}

/// What asks again for the same is one story, and its null may be any of theirs.
#[test]
fn a_null_behind_attempts_is_said_of_all_of_them() {
    let of = |failures: usize| {
        let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
        trace.site = 7;
        let mut last = trace.refuse(25 * GIB);
        for _ in 1..failures {
            let again = trace.record(Event::Alloc, Kind::Device, "hipMalloc");
            let again = Record { status: 2, requested: 25 * GIB, site: 7, ..again };
            last = trace.push(Record { kind_flags: again.kind_flags | flag::SAME_VARIABLE, ..again }, &[]);
        }
        trace.used_null_of("hipMemcpy", last);
        page(&trace)
    };
    let beside =
        "held one at that moment, and nothing else had failed but what may be attempts to make up for the same";
    let twice = of(2);
    assert!(
        twice.contains("After 2 refused requests, which may be attempts to make up for the first, a GPU call"),
        "{twice}"
    );
    assert!(twice.contains(beside), "{twice}");
    let once = of(1);
    assert!(!once.contains("attempts") && once.contains("and nothing else had failed"), "{once}");
}

/// Managed memory stands by itself wherever what was held is told.
#[test]
fn managed_memory_is_told_apart_at_a_failure() {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.alloc(0x10_0000_0000, 10 * GIB);
    trace.alloc_kind(Kind::Managed, "hipMallocManaged", 0x100_0000_0000, 8 * GIB);
    let failure = trace.refuse(16 * GIB);
    free(&mut trace, failure, 8 * GIB);
    let text = page(&trace);
    let held = "held then: 10.00 GiB asked, beside 8.00 GiB that may lie in RAM; 2 blocks in all";
    assert!(text.contains(held), "{text}");
}

/// A null that several calls left has no name, and memory of which all may lie in RAM is not "0 bytes".
#[test]
fn a_null_of_several_calls_is_told_of_all_of_them() {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.alloc_kind(Kind::Managed, "hipMallocManaged", 0x10_0000_0000, 7 * GIB);
    trace.refuse(20 * GIB);
    trace.refuse(21 * GIB);
    trace.used_pointer("hipMemset", &[0, 2]);
    let text = page(&trace);
    assert!(text.contains("hipMemset was given a null pointer"), "{text}");
    assert!(text.contains("as 2 failed calls had left one, this one among them"), "{text}");
    assert!(!text.contains("as this call had left one"), "{text}");
    assert!(text.contains("held then: 7.00 GiB asked, in 1 block, all of which may lie in RAM"), "{text}");
}

/// Width times height is more than 64 bits hold: what was asked for is not the number where the sum ends.
#[test]
fn a_product_that_does_not_fit_is_not_told_as_a_size() {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.refuse(u64::MAX);
    let text = page(&trace);
    assert!(text.contains("refused 16.00 EiB or more"), "{text}");
    assert!(text.contains("-1 where it is read as a signed number, or a product that does not fit 64 bits"), "{text}");
}

/// What a program pins of its own is no memory that it got.
#[test]
fn a_register_gives_no_memory() {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.refuse(2 * GIB);
    let pins = trace.record(Event::Pin, Kind::Registered, "hipHostRegister");
    trace.push(Record { requested: 2 * GIB, address: 0x7000_0000_0000, device: NO_DEVICE, ..pins }, &[]);
    let text = page(&trace);
    assert!(text.contains("recovered: hipHostRegister pinned 2.00 GiB of the program's own"), "{text}");
}

/// Who asked for a segment of PyTorch's is not who keeps what lies in it.
#[test]
fn growth_of_segments_says_whom_it_names() {
    let grows = |of_torch: bool| {
        let mut trace = TraceBuilder::default().device(0, "card", 64 * GIB).library("/opt/app/libask.so", 0x1000, 7);
        trace.site = 7;
        for step in 0..40 {
            let mark = trace.record(Event::Mark, Kind::None, "gpuoom_mark");
            trace.with_text(mark, &format!("step {step}"));
            let segment = (step + 1) << 36;
            if of_torch {
                trace.segment(segment, 32 * MIB);
                trace.tensor(0, segment, 20 * MIB);
            } else {
                trace.alloc(segment, 32 * MIB);
            }
        }
        page(&trace)
    };
    let said = "a segment of PyTorch's counts for the place that needed it first; whose tensors grow stands below";
    let text = grows(true);
    assert!(text.contains("GROWTH") && text.contains(said), "{text}");
    assert!(!grows(false).contains(said));
}

/// Who has no hooks may have refused something that nobody recorded.
#[test]
fn nothing_is_said_to_have_failed_only_of_what_is_recorded() {
    let of = |library: &str| {
        let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB).library(library, 0x1000, 7);
        trace.alloc(0x10_0000_0000, GIB);
        trace.end(process::EXITS, 0);
        page(&trace)
    };
    let text = of("/usr/lib/libamdocl64.so.2.1");
    assert!(text.contains("No recorded allocation failed; those of OpenCL itself are not recorded."), "{text}");
    assert!(text.contains("what OpenCL refuses by itself is in no record"), "{text}");
    let text = of("/usr/lib/libapp.so");
    assert!(text.contains("No allocation failed.") && !text.contains("by itself is in no record"), "{text}");
}
