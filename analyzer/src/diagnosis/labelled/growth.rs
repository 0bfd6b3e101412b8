//! `check growth_per_mark` and the report say the same of one trace.

use super::{Scene, all, summed_up};
use crate::compare::{Threshold, compare};
use crate::passes::growth::Growth;
use crate::passes::profile::{Place, Profile};
use crate::passes::rise::By;
use crate::passes::shape::programs::Program;
use crate::passes::trend::Course;
use crate::policy::{Sides, Verdict, judge, parse_expression};
use crate::testing::{self, GIB, MIB, TraceBuilder};

/// What `check` says of "what is held at the labels does not rise", by device.
fn by_check(scene: &Scene) -> Vec<(u8, Verdict)> {
    let profile = testing::profile(&scene.trace);
    let nothing = Profile {
        run: profile.run.clone(),
        places: Vec::new(),
        sites: Vec::new(),
        tensors: Vec::new(),
        block_growth: Vec::new(),
        label_growth: Vec::new(),
    };
    let difference = compare(&nothing, &profile, Threshold::NONE);
    let devices = profile.places.iter().filter_map(|place| match place.place {
        Place::Gpu(device) => Some(device),
        _ => None,
    });
    let sides = Sides { difference: &difference, new: &profile, base: None };
    let of = |device: u8| {
        let rule = parse_expression(&format!("growth_per_mark[device={device}] <= 0")).expect("a statement");
        (device, judge(&rule, &sides)[0].verdict)
    };
    devices.map(of).collect()
}

fn by_report(growth: Option<&Growth>) -> Verdict {
    match growth.filter(|growth| growth.by == By::Marks) {
        Some(growth) if growth.course.rises() => Verdict::False,
        // It goes up as it went before it came down.
        Some(growth) if growth.course == Course::GivenBack && !growth.given_back_at_the_end => Verdict::NotJudged,
        Some(_) => Verdict::True,
        None => Verdict::NotJudged,
    }
}

/// Programs with labels: so many steps, of which each keeps what the function says.
fn labelled_steps(labels: &[&str], kept: fn(u64) -> u64) -> Scene {
    Scene { trace: labelled_program(labels, kept).trace }
}

fn labelled_program(labels: &[&str], kept: fn(u64) -> u64) -> Program {
    let mut program = Program::new();
    program.load();
    for step in 0..40 {
        program.step(200 * MIB);
        if kept(step) > 0 {
            program.keep(kept(step));
        }
        for (number, label) in labels.iter().enumerate() {
            let more = program.give(number as u64 * GIB + MIB);
            program.mark(label);
            program.take(&[more]);
        }
    }
    program
}

/// A cache that fills over twenty steps, is cleared, and fills again when the run ends.
fn cleared_and_rising() -> Scene {
    let mut program = Program::new();
    program.load();
    for turn in 0..2 {
        let mut cached = Vec::new();
        for _ in 0..20 {
            program.step(200 * MIB);
            cached.push(program.give(30 * MIB));
            program.mark("step");
        }
        if turn == 0 {
            program.take(&cached);
        }
    }
    Scene { trace: program.trace }
}

/// A label that comes once, as where a program ends, has no other to be compared with.
#[test]
fn a_lone_last_label_hides_no_rise() {
    let rise = |trace: &TraceBuilder| summed_up(&Scene { trace: trace.clone() }).facts.growth[0].clone();
    let mut program = labelled_program(&["step"], |_| 10 * MIB);
    let before = rise(&program.trace);
    assert!(before.significant && before.total_bytes > 0, "{before:?}");
    program.mark("done");
    let behind = rise(&program.trace);
    assert_eq!((behind.significant, behind.total_bytes), (true, before.total_bytes));
}

#[test]
fn check_and_report_say_the_same_of_growth() {
    let kept: [fn(u64) -> u64; 5] = [
        |_| 4 * MIB,
        |step| if step < 25 { 20 * MIB } else { 0 },
        |step| if step == 20 { GIB } else { 0 },
        |step| if step % 3 == 0 { 30 * MIB } else { 0 },
        |_| 0,
    ];
    let own = kept
        .iter()
        .flat_map(|kept| [labelled_steps(&["step"], *kept), labelled_steps(&["forward", "backward"], *kept)]);
    let mut judged = Vec::new();
    for scene in all().map(|labelled| (labelled.scene)()).chain(own) {
        let summary = summed_up(&scene);
        for (device, check) in by_check(&scene) {
            let growth = summary.facts.growth.iter().find(|growth| growth.device == Some(device));
            assert_eq!(check, by_report(growth), "device {device}: {growth:?}");
            judged.push(check);
        }
    }
    assert_eq!(by_check(&super::leaks::drained(true)), [(0, Verdict::True)]);
    assert_eq!(by_check(&cleared_and_rising()), [(0, Verdict::NotJudged)]);
    for verdict in [Verdict::True, Verdict::False, Verdict::NotJudged] {
        assert!(judged.iter().filter(|judged| **judged == verdict).count() >= 4, "{verdict:?} hardly comes");
    }
}
