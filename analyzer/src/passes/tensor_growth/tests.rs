use gpuoom_trace::payload::PythonFrame;
use gpuoom_trace::record::{Event, Kind, NO_DEVICE, Record};

use crate::judgement::check::Confidence;
use crate::passes::tensor_growth::{Cut, TensorGrowth};
use crate::passes::trend::Course;
use crate::testing::{GIB, MIB, TraceBuilder, json, summary};
use crate::thresholds::Thresholds;

const SEGMENT: u64 = 0x7f00_0000_0000;
const KEPT: u64 = SEGMENT + 4 * GIB;

fn program() -> TraceBuilder {
    let mut trace = TraceBuilder::new(MIB).device(0, "Card", 64 * GIB);
    trace.code(1, "/home/me/train.py", "train_step").code(2, "/home/me/model.py", "forward");
    let line = |code: u32, line: u32| PythonFrame { code, line };
    trace.stack(1, &[0x10], &[line(1, 38)]);
    trace.stack(2, &[0x20], &[line(2, 7), line(1, 30)]);
    trace.stack(3, &[0x30], &[line(1, 38)]);
    trace.segment(SEGMENT, 60 * GIB);
    trace
}

fn mark(trace: &mut TraceBuilder, label: &str) {
    let mark = trace.record(Event::Mark, Kind::None, "gpuoom_mark");
    trace.with_text(Record { device: NO_DEVICE, ..mark }, label);
}

fn from(trace: &mut TraceBuilder, site: u32, address: u64, bytes: u64) {
    trace.site = site;
    trace.tensor(0, address, bytes);
    trace.site = 0;
}

fn growth(trace: &TraceBuilder) -> Option<TensorGrowth> {
    summary(trace).facts.tensor_growth.first().cloned()
}

/// So many steps with labels; each keeps 80 MiB, by two ways to one line, and gives a temporary of a third place.
fn labelled(steps: u64) -> TraceBuilder {
    let mut trace = program();
    for step in 0..steps {
        mark(&mut trace, &format!("step {step}"));
        from(&mut trace, 2, SEGMENT, GIB);
        from(&mut trace, 1 + 2 * u32::from(step % 2 == 1), KEPT + step * 80 * MIB, 80 * MIB);
        trace.free_tensor(SEGMENT);
    }
    trace
}

#[test]
fn a_line_that_keeps_tensors_is_named_with_its_numbers() {
    let growth = growth(&labelled(48)).unwrap();
    assert_eq!((growth.by, growth.course, growth.significant), (Cut::Marks, Course::Rises, true));
    assert_eq!((growth.steps, growth.total_bytes), (47, 45 * 80 * MIB as i64), "the first with a block is left out");
    assert_eq!((growth.per_step.bytes, growth.floors.len()), ((80 * MIB) as f64, 46));
    let [line] = &growth.lines[..] else { panic!("{:?}", growth.lines) };
    assert_eq!((line.label.as_str(), line.blocks, line.freed_blocks), ("train_step (train.py:38)", 47, 0));
    assert_eq!((line.bytes, line.per_step.bytes), (47 * 80 * MIB, (80 * MIB) as f64));
    insta::assert_snapshot!(line.told("tensors", "step"));
}

/// More than are kept: the numbers are those of all.
#[test]
fn a_long_run_has_the_same_rate() {
    let growth = growth(&labelled(700)).unwrap();
    assert_eq!((growth.per_step.bytes, growth.significant), ((80 * MIB) as f64, true));
    assert!(growth.steps > 680 && growth.floors.len() <= 64, "{}", growth.steps);
}

/// Steps that nobody looked at keep what the others kept: what they kept does not pile up behind the last one.
#[test]
fn what_steps_kept_that_nobody_looked_at_piles_up_nowhere() {
    for steps in [700, 701, 723, 760] {
        let mut trace = program();
        for step in 0..steps {
            mark(&mut trace, &format!("step {step}"));
            from(&mut trace, 2, SEGMENT, 16 * MIB);
            from(&mut trace, 1, KEPT + step * 80 * MIB, 80 * MIB);
            trace.free_tensor(SEGMENT);
        }
        trace.refuse(20 * GIB);
        trace.no_tensor(0, 20 * GIB);
        let summary = summary(&trace);
        let said = serde_json::to_string(&summary.conclusion.findings).unwrap();
        assert!(!said.contains("live that came since the last label"), "{steps}: {said}");
    }
}

#[test]
fn names_in_json_are_those_of_the_contract() {
    let json = json(&summary(&labelled(20)));
    let growth = &json["tensor_growth"][0];
    for name in [
        "device",
        "framework",
        "significant",
        "course",
        "by",
        "steps",
        "stretch",
        "floors",
        "total_bytes",
        "per_step",
        "lines",
    ] {
        assert!(!growth[name].is_null(), "{name}: {growth}");
    }
    assert_eq!((&growth["by"], &growth["lines"][0]["freed_blocks"]), (&"marks".into(), &0.into()));
}

/// Where an allocator's own sum is another one, some blocks are not known, and nothing is said of them.
#[test]
fn what_is_not_of_one_mind_says_nothing() {
    let mut trace = labelled(30);
    trace.hostile_tensor(false, 0, SEGMENT + GIB, MIB, Some([1, 60 * GIB]));
    assert_eq!(growth(&trace), None);
    assert_eq!(growth(&program()), None, "no steps");
}

/// A pool has no totals: where records are missing, nobody knows all of its blocks.
#[test]
fn a_pool_says_nothing_where_records_are_missing() {
    let pool = |lost: u64| {
        let mut trace = program();
        for step in 0..30 {
            mark(&mut trace, "step");
            trace.pool_alloc("arena", "kept", KEPT + step * 80 * MIB, 80 * MIB);
        }
        trace.header.events_lost = lost;
        growth(&trace)
    };
    assert_eq!(pool(0).map(|growth| (growth.significant, growth.framework)), Some((true, Some("arena".to_owned()))));
    assert_eq!(pool(1), None);
}

#[test]
fn labels_of_a_load_and_labels_that_stop_are_no_steps() {
    let mut trace = program();
    for layer in 0..20 {
        mark(&mut trace, &format!("load layer {layer}"));
        from(&mut trace, 1, KEPT + layer * 80 * MIB, 80 * MIB);
    }
    assert_eq!(growth(&trace), None);
    let mut trace = labelled(20);
    for _ in 0..20 {
        from(&mut trace, 2, SEGMENT, GIB);
        trace.free_tensor(SEGMENT);
    }
    let growth = growth(&trace).unwrap();
    assert_eq!((growth.by, growth.significant), (Cut::Cycles, false), "{growth:?}");
}

/// A cache that is concatenated anew each time: as many tensors as before, each time larger.
#[test]
fn a_line_whose_tensors_become_larger_is_named_as_that() {
    let mut trace = program();
    for step in 0..30 {
        mark(&mut trace, "step");
        let [old, new] = [step % 2, (step + 1) % 2].map(|place| KEPT + place * 16 * GIB);
        from(&mut trace, 1, new, (step + 1) * 100 * MIB);
        if step > 0 {
            trace.free_tensor(old);
        }
    }
    let growth = growth(&trace).unwrap();
    assert!(growth.significant && growth.lines.is_empty(), "{growth:?}");
    let [line] = &growth.larger[..] else { panic!("{growth:?}") };
    assert_eq!((line.label.as_str(), line.blocks), ("train_step (train.py:38)", 1));
    insta::assert_snapshot!(line.told("tensors", "23 backward passes"));
}

#[test]
fn blocks_of_a_place_that_come_and_go_are_counted() {
    let mut trace = program();
    for step in 0..30 {
        mark(&mut trace, "step");
        from(&mut trace, 1, SEGMENT, GIB);
        from(&mut trace, 1, KEPT + step * 80 * MIB, 80 * MIB);
        trace.free_tensor(SEGMENT);
    }
    let growth = growth(&trace).unwrap();
    assert_eq!(growth.lines[0].freed_blocks, 27, "{:?}", growth.lines);
}

/// A dict by users of whom there are more and more: at each step a random one gets a new tensor in place of the old one.
fn of_users(steps: u64) -> TraceBuilder {
    let mut trace = program();
    let mut live = std::collections::BTreeMap::new();
    for step in 0..steps {
        mark(&mut trace, &format!("step {step}"));
        let user = (step.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % (1 + step / 2);
        let address = KEPT + step * 32 * MIB;
        from(&mut trace, 1, address, 32 * MIB);
        if let Some(old) = live.insert(user, address) {
            trace.free_tensor(old);
        }
    }
    trace
}

#[test]
fn a_line_whose_older_tensors_are_replaced_while_there_are_more_and_more_is_named() {
    let growth = growth(&of_users(400)).unwrap();
    assert!(growth.significant && growth.lines.is_empty(), "{growth:?}");
    let [line] = &growth.turning[..] else { panic!("{growth:?}") };
    assert!(line.label == "train_step (train.py:38)" && line.freed_blocks > line.blocks, "{line:?}");
}

/// A program cleans up in its own order, and a traceback keeps the last ones.
#[test]
fn a_line_is_named_whose_tensors_are_nearly_all_gone_at_the_end() {
    let mut trace = labelled(48);
    (0..46).for_each(|step| _ = trace.free_tensor(KEPT + step * 80 * MIB));
    let growth = growth(&trace).unwrap();
    assert_eq!((growth.course, growth.significant, growth.lines.len()), (Course::Rises, true, 1), "{growth:?}");
}

/// What is put together behind the last step takes its time: what goes then goes because the program ends all the same.
#[test]
fn what_goes_behind_the_last_block_of_all_was_not_given_back() {
    let mut trace = labelled(48);
    trace.now_ns += 1_000_000_000;
    from(&mut trace, 3, SEGMENT, GIB);
    (0..48).for_each(|step| _ = trace.free_tensor(KEPT + step * 80 * MIB));
    let growth = growth(&trace).unwrap();
    assert_eq!((growth.course, growth.significant), (Course::Rises, true), "{growth:?}");
}

/// Whether a finding of a leak asks for something, and the growth.
fn asks(trace: &TraceBuilder, what: &str) -> (bool, TensorGrowth) {
    let summary = summary(trace);
    let found = summary.conclusion.findings.iter().find(|finding| finding.id == "live-leak").expect("a rise");
    let asks = found.missing.iter().any(|reading| reading.contains(what));
    assert!(!asks || found.confidence == Confidence::Possible, "{found:?}");
    (asks, summary.facts.tensor_growth[0].clone())
}

/// A round of results was given back, and the next is longer.
#[test]
fn what_was_all_given_back_before_may_be_given_back_again() {
    let of_rounds = |first: u64| {
        let mut trace = program();
        for step in 0..first + 120 {
            mark(&mut trace, &format!("step {step}"));
            from(&mut trace, 2, SEGMENT, GIB);
            from(&mut trace, 1, KEPT + step * 80 * MIB, 80 * MIB);
            trace.free_tensor(SEGMENT);
            if step + 1 == first {
                (0..first).for_each(|step| _ = trace.free_tensor(KEPT + step * 80 * MIB));
            }
        }
        let (asks, growth) = asks(&trace, "is given back at last");
        (asks, growth.lines[0].all_gone_blocks > 0)
    };
    assert_eq!([of_rounds(0), of_rounds(16)], [(false, false), (true, true)]);
}

/// Modules that are made on the card, more and more of them: a model may be meant to grow.
#[test]
fn modules_that_are_made_may_be_a_model_that_grows() {
    let mut trace = labelled(48);
    trace.code(3, "/usr/lib/python3/dist-packages/torch/nn/modules/linear.py", "Linear.__init__");
    let made = |code| [PythonFrame { code, line: 108 }, PythonFrame { code: 1, line: 38 }];
    let asks = |trace: &TraceBuilder| asks(trace, "a model that grows");
    assert!(!asks(&trace).0);
    trace.stack(1, &[0x10], &made(3));
    trace.stack(3, &[0x30], &made(3));
    let (asks, growth) = asks(&trace);
    assert!(asks && growth.is_of_modules(&Thresholds::default()), "{growth:?}");
}

/// Pass after pass over one forward pass: nothing but the first gradient comes by a line of Python between them.
#[test]
fn backward_passes_that_follow_each_other_are_steps() {
    let mut trace = program();
    let folder = "/usr/lib/python3/dist-packages/torch/autograd";
    trace.code(3, &format!("{folder}/__init__.py"), "_make_grads").code(
        4,
        &format!("{folder}/__init__.py"),
        "backward",
    );
    let line = |code| PythonFrame { code, line: 9 };
    trace.stack(4, &[0x40], &[line(3), line(4), line(1)]);
    trace.stack(5, &[0x50], &[]);
    for pass in 0..40 {
        from(&mut trace, 4, SEGMENT, MIB);
        from(&mut trace, 5, KEPT + pass * 80 * MIB, 80 * MIB);
        trace.free_tensor(SEGMENT);
    }
    let growth = growth(&trace).unwrap();
    assert_eq!((growth.by, growth.significant, growth.steps), (Cut::BackwardPasses, true, 39), "{growth:?}");
    // Two losses of one pass have a first gradient each.
    let mut trace = program();
    trace.code(3, &format!("{folder}/__init__.py"), "_make_grads").code(
        4,
        &format!("{folder}/__init__.py"),
        "backward",
    );
    trace.stack(4, &[0x40], &[line(3), line(4), line(1)]);
    for pass in 0..40 {
        from(&mut trace, 4, SEGMENT, MIB);
        from(&mut trace, 4, SEGMENT + MIB, MIB);
        from(&mut trace, 2, KEPT + pass * 80 * MIB, 80 * MIB);
        (0..2).for_each(|loss| _ = trace.free_tensor(SEGMENT + loss * MIB));
    }
    let growth = summary(&trace).facts.tensor_growth[0].clone();
    assert_eq!((growth.by, growth.steps), (Cut::BackwardPasses, 40), "{growth:?}");
}

/// Rounds that were given back say little of one that holds more than any of them ever did.
#[test]
fn a_rise_beyond_all_rounds_before_is_known() {
    let grown = |kept: u64| {
        let mut trace = program();
        let place = |number: u64| KEPT + number * 80 * MIB;
        for (round, steps) in [20, 20, 20, kept].into_iter().enumerate() {
            for step in 0..steps {
                mark(&mut trace, "request");
                from(&mut trace, 1, place(step), 20 * MIB);
            }
            if round < 3 {
                (0..steps).for_each(|step| _ = trace.free_tensor(place(step)));
            }
        }
        growth(&trace).unwrap()
    };
    let thresholds = Thresholds::default();
    let beyond = grown(120);
    assert_eq!((beyond.course, beyond.is_beyond_its_rounds(&thresholds)), (Course::GivenBack, true), "{beyond:?}");
    assert!(!grown(20).is_beyond_its_rounds(&thresholds));
}
