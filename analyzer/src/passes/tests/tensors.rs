use gpuoom_trace::metadata::Module;
use gpuoom_trace::payload::PythonFrame;
use gpuoom_trace::record::{Event, Kind};

use crate::passes::tensors::{TensorMoment, Tensors};
use crate::testing::{GIB, MIB, TraceBuilder, json, summary};

const SEGMENT: u64 = 0x7f00_0000_0000;

/// A training program: three lines of Python, of which one is reached by two ways.
fn program() -> TraceBuilder {
    let mut trace = TraceBuilder::new(MIB).device(0, "Card", 16 * GIB);
    trace.code(1, "/home/me/train.py", "train_step").code(2, "/home/me/model.py", "forward").code(
        3,
        "/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py",
        "forward",
    );
    let line = |code: u32, line: u32| PythonFrame { code, line };
    trace.stack(1, &[0x10], &[line(1, 38)]);
    trace.stack(2, &[0x20], &[line(3, 125), line(2, 7), line(1, 30)]);
    trace.stack(3, &[0x20], &[line(3, 125), line(2, 7), line(1, 31)]);
    trace.stack(4, &[0x20], &[line(2, 9), line(1, 31)]);
    trace
}

fn tensors(trace: &TraceBuilder) -> Option<Tensors> {
    summary(trace).facts.devices[0].tensors.clone()
}

fn moment<'a>(tensors: &'a Tensors, name: &str) -> &'a TensorMoment {
    tensors.moment(name).unwrap_or_else(|| panic!("{name}"))
}

fn sum(moment: &TensorMoment) -> u64 {
    moment.allocated_by.rows.iter().map(|row| row.bytes).sum()
}

#[test]
fn rows_are_lines_of_the_program_and_add_up() {
    let mut trace = program();
    trace.segment(SEGMENT, 64 * MIB);
    for (site, number) in [(1, 0), (2, 1), (3, 2), (3, 3), (4, 4), (0, 5)] {
        trace.site = site;
        trace.tensor(0, SEGMENT + number * 8 * MIB, 4 * MIB);
    }
    trace.site = 0;
    trace.refuse(16 * GIB);
    trace.free_tensor(SEGMENT);
    let tensors = tensors(&trace).unwrap();
    assert_eq!((tensors.framework.as_str(), tensors.events, tensors.mismatches), ("pytorch", 7, 0));
    assert_eq!(tensors.moments.iter().map(|moment| moment.at.as_str()).collect::<Vec<_>>(), ["oom:1", "peak", "end"]);
    let at = moment(&tensors, "oom:1");
    let rows: Vec<(&str, u64, u64)> =
        at.allocated_by.rows.iter().map(|row| (row.label.as_str(), row.bytes / MIB, row.blocks)).collect();
    let lines = [("forward (model.py:7)", 12, 3), ("train_step (train.py:38)", 4, 1), ("forward (model.py:9)", 4, 1)];
    assert_eq!(rows, [&lines[..], &[("others", 4, 1)]].concat());
    assert!(at.allocated_by.rows[0].key.as_deref().unwrap().contains("model.py!forward"));
    assert_eq!(at.allocated_by.rows[0].stack.len(), 4);
    assert_eq!((at.allocated_bytes, at.reserved_bytes, at.unused_bytes), (24 * MIB, Some(64 * MIB), Some(40 * MIB)));
    assert_eq!((at.largest_unused_bytes, at.unused_pieces), (Some(20 * MIB), Some(6)));
    assert_eq!(moment(&tensors, "end").allocated_bytes, 20 * MIB);
    assert_eq!(tensors.with_python_share.map(|share| (share * 6.0).round()), Some(5.0));
    tensors.moments.iter().for_each(|moment| assert_eq!(sum(moment), moment.allocated_bytes));
    assert_eq!(json(&summary(&trace))["devices"][0]["tensors"]["moments"][0]["at"], "oom:1");
}

/// PyTorch gives its cache back before it tries again, so its own word at the error is less than at the refusal.
#[test]
fn what_is_held_at_an_error_is_what_is_held_after_the_cache_was_given_back() {
    let mut trace = program();
    trace.segment(SEGMENT, 64 * MIB);
    trace.segment(SEGMENT + 4 * GIB, 32 * MIB);
    trace.site = 1;
    trace.tensor(0, SEGMENT, 40 * MIB);
    trace.tensor(0, SEGMENT + 4 * GIB, 32 * MIB);
    trace.free_tensor(SEGMENT + 4 * GIB);
    trace.refuse(16 * GIB);
    trace.free(SEGMENT + 4 * GIB);
    trace.refuse(16 * GIB);
    trace.reserved(0, 64 * MIB).no_tensor(0, 16 * GIB);
    let tensors = tensors(&trace).unwrap();
    let at = moment(&tensors, "oom:1");
    assert_eq!((at.allocated_bytes, at.reserved_bytes, at.unused_bytes), (40 * MIB, Some(64 * MIB), Some(24 * MIB)));
    assert_eq!((at.largest_unused_bytes, at.unused_pieces), (Some(24 * MIB), Some(1)));
}

#[test]
fn more_places_than_are_listed_are_one_row() {
    let mut trace = program();
    for site in 100..160 {
        trace.stack(site, &[0x1000 + u64::from(site)], &[PythonFrame { code: 1, line: site }]);
    }
    trace.segment(SEGMENT, 64 * MIB);
    for site in 100..160 {
        trace.site = site;
        trace.tensor(0, SEGMENT + u64::from(site - 100) * MIB, u64::from(site) * 512);
    }
    let tensors = tensors(&trace).unwrap();
    let end = moment(&tensors, "end");
    assert_eq!((end.allocated_by.rows.len(), sum(end)), (21, end.allocated_bytes));
    assert_eq!((end.allocated_by.rows[20].label.as_str(), end.allocated_by.rows[20].blocks), ("others", 40));
}

#[test]
fn nothing_is_guessed_where_words_and_sums_differ() {
    let mut trace = program();
    trace.segment(SEGMENT, 64 * MIB);
    trace.tensor(0, SEGMENT, 4 * MIB);
    let end = |trace: &TraceBuilder| {
        let all = tensors(trace).unwrap();
        let end = moment(&all, "end");
        (end.reserved_bytes, end.unused_bytes, end.largest_unused_bytes, end.unused_pieces)
    };
    assert_eq!(end(&trace), (Some(64 * MIB), Some(60 * MIB), Some(60 * MIB), Some(1)));
    // It holds memory that no call showed.
    let mut more = trace.clone();
    more.reserved(0, 80 * MIB).tensor(0, SEGMENT + 8 * MIB, MIB);
    assert_eq!(end(&more), (Some(80 * MIB), Some(75 * MIB), None, None));
    // Its word of its blocks is another than their sum.
    let mut other = trace.clone();
    other.hostile_tensor(false, 0, SEGMENT + 8 * MIB, MIB, Some([9 * MIB, 64 * MIB]));
    assert_eq!(end(&other), (Some(64 * MIB), None, None, None));
    assert_eq!(tensors(&other).unwrap().mismatches, 1);
    // Events were lost: what follows from the last record may be wrong.
    let mut lost = trace.clone();
    lost.tensor(0, SEGMENT + 8 * MIB, MIB);
    assert_eq!(end(&lost).1, Some(59 * MIB));
    lost.header.events_lost = 1;
    assert_eq!(end(&lost), (None, None, None, None));
    // Nobody said anything before.
    let mut silent = program();
    silent.alloc(SEGMENT, 64 * MIB);
    silent.hostile_tensor(false, 0, SEGMENT, MIB, None);
    assert_eq!(end(&silent), (None, None, None, None));
}

#[test]
fn a_pool_holds_what_its_blocks_lie_in() {
    let mut trace = program();
    trace.segment(SEGMENT, 64 * MIB);
    trace.alloc(SEGMENT + GIB, 16 * MIB);
    trace.tensor(0, SEGMENT, 32 * MIB);
    trace.pool_alloc("kv", "layer 0", SEGMENT + GIB, 4 * MIB);
    let all = tensors(&trace).unwrap();
    assert_eq!((all.framework.as_str(), all.others.len()), ("pytorch", 1));
    let end = moment(&all.others[0], "end");
    assert_eq!(
        (all.others[0].framework.as_str(), end.reserved_bytes, end.unused_bytes),
        ("kv", Some(16 * MIB), Some(12 * MIB))
    );
    trace.header.events_lost = 1;
    assert_eq!(moment(&tensors(&trace).unwrap().others[0], "end").reserved_bytes, None);
}

#[test]
fn blocks_of_a_pool_are_told_apart_by_their_names() {
    let mut trace = program();
    trace.alloc(SEGMENT, 64 * MIB);
    for (site, name, number) in [(1, "layer 0", 0), (1, "layer 1", 1), (1, "layer 1", 2), (0, "stray", 3), (0, "", 4)] {
        trace.site = site;
        trace.pool_alloc("kv", name, SEGMENT + number * 8 * MIB, (8 - number) * MIB);
    }
    let all = tensors(&trace).unwrap();
    let end = moment(&all, "end");
    let row =
        |row: &crate::passes::tensors::TensorRow| (row.name.clone(), row.label.clone(), row.bytes / MIB, row.blocks);
    let named = |name: &str| Some(name.to_owned());
    let line = || "train_step (train.py:38)".to_owned();
    let rows: Vec<_> = end.allocated_by.rows.iter().map(row).collect();
    let stray = (named("stray"), "stray".to_owned(), 5, 1);
    let others = (None, "others".to_owned(), 4, 1);
    assert_eq!(rows, [(named("layer 1"), line(), 13, 2), (named("layer 0"), line(), 8, 1), stray, others]);
    assert_eq!(sum(end), end.allocated_bytes);
}

#[test]
fn a_pool_that_contradicts_itself_is_told_and_not_counted() {
    let mut trace = program();
    trace.alloc(SEGMENT, 64 * MIB);
    trace.alloc(SEGMENT + GIB, 64 * MIB);
    trace.pool_alloc("good", "", SEGMENT + GIB, MIB);
    trace.pool_alloc("kv", "", SEGMENT, 32 * MIB);
    trace.pool_alloc("kv", "", SEGMENT + 16 * MIB, 32 * MIB);
    let all = tensors(&trace).unwrap();
    assert_eq!((all.framework.as_str(), all.others.len()), ("good", 0));
    let json = json(&summary(&trace));
    let pool = &json["pools"][1];
    assert_eq!(
        (pool["pool"].as_str(), pool["counted"].as_bool(), pool["overlapping"].as_u64()),
        (Some("kv"), Some(false), Some(1))
    );
    assert_eq!(json["pools"][0]["counted"].as_bool(), Some(true));
    // Alone it leaves the device without tensors.
    let mut alone = program();
    alone.alloc(SEGMENT, 64 * MIB);
    alone.pool_free("kv", SEGMENT);
    alone.pool_alloc("kv", "", SEGMENT, MIB);
    assert_eq!(tensors(&alone), None);
}

#[test]
fn no_python_is_no_share() {
    let mut trace = TraceBuilder::new(MIB).device(0, "Card", 16 * GIB);
    assert_eq!(tensors(&trace.clone()), None);
    trace.segment(SEGMENT, 64 * MIB);
    trace.tensor(0, SEGMENT, 4 * MIB);
    assert_eq!(tensors(&trace).unwrap().with_python_share, None);
    trace.modules.push(Module {
        path: "/usr/lib/libpython3.12.so.1.0".into(),
        build_id: String::new(),
        start: 0x10_0000,
        end: 0x20_0000,
        vendor: false,
    });
    assert_eq!(tensors(&trace).unwrap().with_python_share, Some(0.0));
}

#[test]
fn a_label_has_its_moment() {
    let mut trace = program();
    trace.segment(SEGMENT, 64 * MIB);
    trace.tensor(0, SEGMENT, 4 * MIB);
    for step in 0..200 {
        let mark = trace.record(Event::Mark, Kind::None, "gpuoom_mark");
        trace.with_text(mark, &format!("step {step}"));
    }
    let all = tensors(&trace).unwrap();
    let marks: Vec<&TensorMoment> = all.moments.iter().filter(|moment| moment.at.starts_with("mark:")).collect();
    assert!(marks.len() <= crate::replay::blocks::MOST_MARKS && marks.len() > 32, "{}", marks.len());
    assert_eq!((marks[0].at.as_str(), marks[0].allocated_bytes), ("mark:step 0", 4 * MIB));
}

/// A whole way begins with what its thread runs; one that is cut may be another thread's, too.
#[test]
fn a_phase_may_be_known_by_a_threads_name_alone() {
    let rows = phases_of(program().library("/venv/torch/lib/libtorch_cpu.so", 0x9000_0000, 90));
    assert_eq!(rows, [(None, 5, 0), (Some("backward"), 1, 1)]);
    // Without PyTorch anybody may call a thread so.
    assert_eq!(phases_of(program()), []);
}

/// Phases of blocks that three threads made: by name, and of those MiB how many, by the thread's name how many.
fn phases_of(mut trace: TraceBuilder) -> Vec<(Option<&'static str>, u64, u64)> {
    use gpuoom_trace::payload::stack_flag::NATIVE_WHOLE;
    trace.segment(SEGMENT, 64 * MIB);
    trace.thread_name("pt_autograd_0");
    trace.stack_with(NATIVE_WHOLE, 5, &[0x30, 0x40], &[]).stack_with(0, 6, &[0x30, 0x50], &[]);
    trace.thread_name("worker");
    trace.stack_with(NATIVE_WHOLE, 7, &[0x60], &[]);
    for (site, number) in [(5, 0), (6, 1), (7, 2)] {
        trace.site = site;
        trace.tensor(0, SEGMENT + number * 8 * MIB, (number + 1) * MIB);
    }
    let tensors = tensors(&trace).unwrap();
    let phases = &moment(&tensors, "end").allocated_by.phases;
    phases.iter().map(|row| (row.phase, row.bytes / MIB, row.by_thread_bytes / MIB)).collect()
}
