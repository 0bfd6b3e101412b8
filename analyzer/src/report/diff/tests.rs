//! What people read.

use gpuoom_trace::header::end;
use gpuoom_trace::metadata::{Quantity, Reading, trigger};
use gpuoom_trace::record::{Event, Kind, NO_DEVICE, Record, process};

use super::{Conditions, write_json, write_markdown, write_text};
use crate::compare::{Difference, Threshold, compare};
use crate::report::page::{Look, Page};
use crate::testing::{GIB, MIB, TraceBuilder, profile};

fn call(trace: &mut TraceBuilder, kind: Kind, api: &str, site: u32, address: u64, bytes: u64) {
    let record = trace.record(Event::Alloc, kind, api);
    let granules = bytes.div_ceil(256 * MIB) as u32;
    trace.push(Record { site, address, requested: bytes, padded_granules: granules, ..record }, &[]);
}

fn program(scale: u64) -> TraceBuilder {
    let mut trace = TraceBuilder::default()
        .device(0, "AMD Radeon RX 7900 XTX", 24 * GIB)
        .library("/opt/app/libweights.so.1", 0x10_0000, 1)
        .library("/opt/app/libcache.so.1", 0x20_0000, 2)
        .library("/opt/app/libscratch.so.1", 0x30_0000, 3);
    call(&mut trace, Kind::Device, "hipMalloc", 1, 1 << 36, 8 * GIB);
    call(&mut trace, Kind::Device, "hipMalloc", 2, 2 << 36, GIB * scale);
    call(&mut trace, Kind::HostPinned, "hipHostMalloc", 1, 3 << 36, 64 * MIB);
    trace
}

fn grown() -> Difference {
    let mut base = program(1);
    call(&mut base, Kind::Device, "hipMalloc", 3, 4 << 36, 300 * MIB);
    base.free(2 << 36);
    let mut new = program(2);
    call(&mut new, Kind::Pool, "hipMallocAsync", 3, 4 << 36, 20 * MIB);
    new.refuse(17 * GIB);
    new.after(Event::GpuWork, "hipLaunchKernel", 0, 0);
    compare(&profile(&base), &profile(&new), Threshold::default())
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn text(difference: &Difference, width: usize) -> String {
    let mut page = Page::new(Look::new(width, false));
    write_text(&mut page, difference, &Conditions::default(), 20);
    page.into_text()
}

#[test]
fn growth_as_text() {
    let text = text(&grown(), 80);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn growth_as_markdown() {
    insta::assert_snapshot!(write_markdown(&grown(), &Conditions::default(), 20));
}

#[test]
fn growth_as_json() {
    let mut out = Vec::new();
    let run = |bytes| {
        let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
        trace.alloc(0x1000, bytes);
        profile(&trace)
    };
    write_json(&mut out, &compare(&run(GIB), &run(2 * GIB), Threshold::default()), &Conditions::default()).unwrap();
    insta::assert_snapshot!(String::from_utf8(out).unwrap());
}

#[test]
fn two_equal_runs_are_one_sentence() {
    let same = profile(&program(1));
    let same = compare(&same, &same, Threshold::default());
    insta::assert_snapshot!(format!("{}\n{}", text(&same, 100), write_markdown(&same, &Conditions::default(), 20)));
}

/// A run that was cut short holds less: how each ended stands before what fell.
#[test]
fn how_the_runs_ended_comes_first_where_it_differs() {
    let ended = |scale, how, status| {
        let mut trace = program(scale);
        (trace.header.end_kind, trace.header.end_code) = (how, status);
        profile(&trace)
    };
    let [whole, cut] = [ended(2, end::EXITED, 0), ended(1, end::SIGNALED, libc::SIGSEGV)];
    let said = text(&compare(&whole, &cut, Threshold::default()), 400);
    assert!(said.contains("VERDICT  BASE exited with status 0; NEW was ended by SIGSEGV (11). The peak"), "{said}");
    let alike = [ended(1, end::EXITED, 0), ended(1, end::EXITED, 1)];
    let said = one_line(&text(&compare(&alike[0], &alike[1], Threshold::default()), 400));
    assert!(
        said.contains("NEW exited with status 1. Otherwise the two runs do not differ in what the program asked for: "),
        "{said}"
    );
}

#[test]
fn names_from_a_file_are_no_markup() {
    let mut new =
        TraceBuilder::default().device(0, "<b>|card|@all", 24 * GIB).library("/x/lib|`<img>.so", 0x10_0000, 1);
    call(&mut new, Kind::Device, "hipMalloc", 1, 1 << 36, GIB);
    let base = profile(&TraceBuilder::default());
    let markdown = write_markdown(&compare(&base, &profile(&new), Threshold::default()), &Conditions::default(), 20);
    assert!(!markdown.contains("<b>") && !markdown.contains("@all"), "{markdown}");
    let row = markdown.lines().find(|line| line.starts_with("| +") && line.contains("hipMalloc in")).unwrap();
    assert!(row.contains("`hipMalloc in lib¦'<img>.so`"), "{row}");
}

#[test]
fn a_long_list_is_cut_and_says_so() {
    let mut page = Page::new(Look::new(80, false));
    write_text(&mut page, &grown(), &Conditions::default(), 1);
    let text = page.into_text();
    assert!(text.contains("3 more call sites changed"), "{text}");
}

fn with_tensors(scale: u64) -> TraceBuilder {
    let mut trace = program(1);
    let segment = 0x7f00_0000_0000;
    trace.site = 3;
    trace.segment(segment, 4 * GIB * scale);
    trace.tensor(0, segment, GIB * scale);
    trace.site = 2;
    trace.tensor(0, segment + 2 * GIB, GIB);
    trace.free_tensor(segment);
    trace.site = 0;
    trace
}

#[test]
fn tensors_in_all_formats() {
    let [base, new] = [1, 2].map(|scale| profile(&with_tensors(scale)));
    let difference = compare(&base, &new, Threshold::default());
    let (text, markdown) = (text(&difference, 100), write_markdown(&difference, &Conditions::default(), 20));
    let mut json = Vec::new();
    write_json(&mut json, &difference, &Conditions::default()).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let json = serde_json::json!({ "tensors": json["places"][0]["tensors"], "tensor_sites": json["tensor_sites"] });
    insta::assert_snapshot!(format!("{text}\n{markdown}\n{json:#}"));
}

/// One more block of a few bytes is below what counts as a difference, however few there were.
#[test]
fn rows_of_tensors_below_the_threshold_are_not_told() {
    let [base, new] = [1, 2].map(|blocks| {
        let mut trace = program(1);
        trace.segment(0x7f00_0000_0000, 4 * GIB);
        trace.site = 3;
        (0..blocks).for_each(|number| _ = trace.tensor(0, 0x7f00_0000_0000 + number * 512, 512));
        profile(&trace)
    });
    let difference = compare(&base, &new, Threshold::default());
    assert!(difference.tensor_sites.iter().all(|site| !site.is_notable), "{:?}", difference.tensor_sites);
    assert!(compare(&base, &new, Threshold::NONE).tensor_sites.iter().any(|site| site.is_notable));
}

/// A run without the layer is no run without tensors.
#[test]
fn tensors_of_one_run_only_are_no_change() {
    let mut base = with_tensors(1);
    base.header.events_lost = 1;
    for (base, says) in [
        (program(1), "BASE has no blocks of an allocator above the runtime: tensors can't be compared."),
        (base, "records of its blocks are missing"),
    ] {
        let difference = compare(&profile(&base), &profile(&with_tensors(1)), Threshold::default());
        let tensors = difference.places[0].tensors.as_ref().unwrap();
        assert_eq!(tensors.pair(crate::passes::profile::TensorFigure::Tensors), [None, Some(2 * GIB)]);
        let text = text(&difference, 200);
        assert!(text.contains(says) && !text.contains("TENSORS"), "{text}");
        assert!(!text.lines().any(|line| line.contains("in tensors") && line.contains("0 bytes")), "{text}");
    }
}

/// Who asked for a segment first is not whose tensors became more.
#[test]
fn growth_of_tensors_names_lines_and_not_who_asked_for_a_segment() {
    let run = |tensors: u64, segments: u64| {
        let mut trace = TraceBuilder::default()
            .device(0, "card", 16 * GIB)
            .library("/opt/libfirst.so", 0x10_0000, 1)
            .library("/opt/libkeeps.so", 0x20_0000, 2);
        for number in 0..segments {
            trace.site = 1;
            trace.segment((number + 1) << 36, 100 * MIB);
        }
        for number in 0..tensors {
            trace.site = 2;
            trace.tensor(0, (number + 1) << 36, 100 * MIB);
        }
        profile(&trace)
    };
    let verdict = |base, new| super::words::verdict(&compare(&base, &new, Threshold::default()));
    let text = verdict(run(1, 1), run(3, 3));
    assert!(
        text.contains("the call path that changed most: tensors in libkeeps.so") && !text.contains("libfirst"),
        "{text}"
    );
    let text = verdict(run(1, 1), run(1, 3));
    assert!(
        text.contains("libfirst.so (+200 MiB; a segment of PyTorch's counts for the place that needed it"),
        "{text}"
    );
}

/// What the runtime takes is in no call of the program: readings tell it.
#[test]
fn what_was_in_use_is_compared_by_readings() {
    let with = |in_use: u64| {
        let mut trace = program(1);
        let of = |quantity: Quantity, value| Reading { quantity: quantity as u16, device: 0, value };
        let record = trace.record(Event::Reading, Kind::None, "gpuoom_reading");
        let record = Record { device: NO_DEVICE, status: trigger::PERIOD, ..record };
        trace.reading(record, &[of(Quantity::VramTotal, 24 * GIB), of(Quantity::VramUsed, in_use)]);
        profile(&trace)
    };
    let same = text(&compare(&with(10 * GIB), &with(10 * GIB), Threshold::default()), 200);
    assert!(same.contains("do not differ in what the program asked for") && !same.contains("counted in use"), "{same}");
    let more = one_line(&text(&compare(&with(10 * GIB), &with(11 * GIB), Threshold::default()), 200));
    let told = "The most that sysfs counted in use on GPU 0 when it was read, of all processes: 10.00 GiB in BASE, 11.00 GiB in NEW.";
    assert!(more.contains("do not differ in what the program asked for") && more.contains(told), "{more}");
}

/// A run that was refused memory is a shorter one: that comes before its lower peak.
#[test]
fn a_run_that_failed_is_not_praised_for_its_peak() {
    let end = |mut trace: TraceBuilder, status: i32| {
        trace.end(process::EXITS, status);
        trace
    };
    let mut short = TraceBuilder::default().device(0, "AMD Radeon RX 7900 XTX", 24 * GIB);
    short.refuse(64 * MIB);
    let text = text(&compare(&profile(&end(program(1), 0)), &profile(&end(short, 1)), Threshold::default()), 200);
    let [failed, fell] = ["1 more call runs out of memory.", "The peak of GPU 0 fell"].map(|part| text.find(part));
    assert!(failed.is_some() && failed < fell, "{text}");
}
