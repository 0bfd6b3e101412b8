//! Shapes of whole runs: leaks, plateaus, swaps, growth.

use super::*;

/// A training that keeps so many bytes of each step, up to a step.
fn keeps(steps: u64, kept_bytes: u64, until: u64) -> Program {
    let mut program = Program::new();
    program.load();
    for step in 0..steps {
        program.trace.site = 7;
        if step < until {
            program.give(kept_bytes);
        }
        program.trace.site = 0;
        program.step(200 * MIB);
    }
    program
}

#[test]
fn a_leak_is_told_from_a_plateau() {
    let leaks = keeps(30, 20 * MIB, 30);
    // Nobody but the recorder says what a step is.
    assert_eq!(leaks.run(leak), Judgement::Found(Confidence::Possible));
    assert_eq!(leaks.run(run::plateau), Judgement::None);
    let flat = keeps(40, 20 * MIB, 15);
    assert_eq!(flat.run(leak), Judgement::None);
    assert_eq!(flat.run(run::plateau), Judgement::Found(Confidence::Proven));
    let healthy = keeps(40, MIB, 2);
    assert_eq!((healthy.run(leak), healthy.run(run::plateau)), (Judgement::None, Judgement::None));
}

#[test]
fn a_cache_whose_parts_double_one_after_the_other_is_no_leak() {
    let mut program = Program::new();
    program.trace.site = 7;
    let old: Vec<u64> = (0..24).map(|_| program.give(32 * MIB)).collect();
    for part in old {
        program.trace.site = 0;
        program.step(200 * MIB);
        program.trace.site = 7;
        program.give(64 * MIB);
        program.take(&[part]);
    }
    assert!(matches!(program.run(leak), Judgement::Excluded { .. }), "{:?}", program.run(leak));
}

/// Sessions of different sizes that come and go, and 8 MiB of each request that nobody gives back.
#[test]
fn a_leak_beside_sessions_that_come_and_go_is_not_ruled_out() {
    let mut program = Program::new();
    program.trace.site = 7;
    let mut sessions: Vec<u64> = (0..20).map(|slot| program.give((40 + 13 * slot % 90) * MIB)).collect();
    for request in 0..60u64 {
        program.trace.site = 7;
        let slot = (request * 7 % 20) as usize;
        program.take(&[sessions[slot]]);
        sessions[slot] = program.give((40 + 37 * request % 90) * MIB);
        program.trace.site = 9;
        program.give(8 * MIB);
        program.trace.site = 0;
        program.step(200 * MIB);
    }
    assert_eq!(program.run(leak), Judgement::Found(Confidence::Possible));
}

/// Every third block of a place stays, and the others come back some steps later.
#[test]
fn a_leak_among_blocks_that_come_back_later_is_not_ruled_out() {
    let mut program = Program::new();
    let mut open = std::collections::VecDeque::new();
    for step in 0..60 {
        program.trace.site = 7;
        let block = program.give(32 * MIB);
        if step % 3 != 0 {
            open.push_back(block);
        }
        if open.len() > 4 {
            let oldest = open.pop_front().unwrap();
            program.take(&[oldest]);
        }
        program.trace.site = 0;
        program.step(200 * MIB);
    }
    assert_eq!(program.run(leak), Judgement::Found(Confidence::Possible));
}

#[test]
fn what_the_end_of_a_run_gives_back_refutes_no_leak() {
    let mut program = Program::new();
    let states: Vec<u64> = (0..11).map(|_| program.give(100 * MIB)).collect();
    program.keep(4 * GIB);
    for _ in 0..16 {
        program.step(200 * MIB);
        program.keep(100 * MIB);
    }
    program.take(&states);
    assert_eq!(program.run(leak), Judgement::Found(Confidence::Possible));
}

#[test]
fn models_that_are_swapped_and_leave_something_behind() {
    let swaps = |own_bytes: u64, hidden_bytes: u64| {
        let mut program = Program::new();
        for swap in 1..=5 {
            let model: Vec<u64> = (0..4).map(|_| program.give(GIB)).collect();
            program.read(4 * GIB + swap * (own_bytes + hidden_bytes));
            program.take(&model);
            if own_bytes > 0 {
                program.give(own_bytes);
            }
            program.read(swap * (own_bytes + hidden_bytes) + GIB);
            program.trace.now_ns += 1_000_000;
        }
        program.give(3 * GIB);
        program
    };
    assert_eq!(swaps(0, 200 * MIB).run(swap), Judgement::Found(Confidence::Possible));
    assert_eq!(swaps(150 * MIB, 0).run(swap), Judgement::Found(Confidence::Possible));
    assert_eq!(swaps(0, 0).run(swap), Judgement::None);
}

/// The first reading comes before the process holds anything, and KFD does not list it yet.
#[test]
fn whose_memory_rises_at_the_floors_is_asked_at_the_floors() {
    let swaps = |by_process: bool, from: u64| {
        let mut program = Program::new();
        program.read(GIB);
        for swap in 1..=5 {
            let model: Vec<u64> = (0..4).map(|_| program.give(GIB)).collect();
            program.take(&model);
            program.read_as(swap * 200 * MIB + GIB, by_process && swap >= from);
            program.trace.now_ns += 1_000_000;
        }
        program.give(3 * GIB);
        program.run(|run, check| run::model_swap(run, Some("each loads a model".to_owned()), check))
    };
    assert_eq!(swaps(true, 1), Judgement::Found(Confidence::Probable));
    assert_eq!(swaps(false, 1), Judgement::Found(Confidence::Possible));
    // Where one floor was read otherwise, all are compared by what all processes use.
    assert_eq!(swaps(true, 2), Judgement::Found(Confidence::Possible));
}

#[test]
fn a_reading_that_came_before_the_fall_is_none_of_the_floor() {
    let mut program = Program::new();
    for swap in 1..=5 {
        let model: Vec<u64> = (0..4).map(|_| program.give(GIB)).collect();
        program.read(GIB);
        program.read(5 * GIB);
        program.take(&model);
        // The last floor has no reading of its own.
        if swap < 5 {
            program.read(GIB);
        }
        program.trace.now_ns += 1_000_000;
    }
    program.give(3 * GIB);
    assert_eq!(program.run(swap), Judgement::None);
}

#[test]
fn growth_says_when_memory_runs_out_and_how_sure_that_is() {
    let program = keeps(30, 20 * MIB, 30);
    let replay = program.replay();
    let growth = growth::of_devices(&replay, &Thresholds::default());
    let [growth] = &growth[..] else { panic!("{growth:?}") };
    assert!(growth.significant && growth.course == Course::Rises && !growth.few_points);
    assert_eq!((growth.cycles, growth.total_bytes), (30, 29 * 20 * MIB as i64));
    assert!((growth.per_cycle.bytes - (20 * MIB) as f64).abs() < 1.0);
    let runs_out = growth.runs_out.unwrap();
    // 16 GiB, less the parameters, 30 blocks, and the height of a step.
    let parameters: u64 = PARAMETERS.iter().sum();
    let height = parameters * MIB + 8 * 200 * MIB + 28 * MIB;
    assert_eq!(runs_out.room_bytes, 16 * GIB - parameters * MIB - 600 * MIB - height);
    assert!(!runs_out.room_was_read);
    assert!((runs_out.in_cycles - runs_out.room_bytes as f64 / (20 * MIB) as f64).abs() < 0.01);
    assert!(runs_out.soonest_ns <= runs_out.in_ns && runs_out.in_ns <= runs_out.latest_ns.unwrap());
    let suspect = &growth.suspects[0];
    assert_eq!((suspect.api.as_str(), suspect.block_bytes, suspect.blocks), ("hipMalloc", 20 * MIB, 30));
    assert_eq!(suspect.bytes_per_cycle, 20 * MIB);
}

#[test]
fn what_makes_a_leak_is_set_by_thresholds() {
    let replay = keeps(30, 20 * MIB, 30).replay();
    let significant =
        |setting: &str| growth::of_devices(&replay, &thresholds(&[setting])).first().map(|growth| growth.significant);
    assert_eq!(significant("leak-total=256M"), Some(true));
    assert_eq!(significant("leak-total=10G"), Some(false));
    assert_eq!(significant("leak-cycles=31"), None, "too few to lay a line through");
}

/// A queue and a cache whose blocks have one size: each block that goes makes room for one of its own path.
#[test]
fn blocks_that_stay_are_counted_by_their_own_path() {
    let mut program = Program::new();
    let mut queue = std::collections::VecDeque::new();
    for step in 0..120 {
        let work = program.give(GIB);
        program.trace.site = 1;
        queue.push_back(program.give(64 * MIB));
        if queue.len() > 40 {
            let oldest = queue.pop_front().expect("it is full");
            program.take(&[oldest]);
        }
        program.trace.site = 2;
        if step % 10 == 9 {
            program.keep(64 * MIB);
        }
        program.trace.site = 0;
        program.take(&[work]);
    }
    let (replay, thresholds) = (program.replay(), Thresholds::default());
    let (device, track) = replay.tracks.devices().next().expect("it was used");
    let rise = growth::rise_of(&replay, device, &growth::cycles_of(track, &thresholds), &thresholds);
    let kept = rise.and_then(|rise| rise.kept).expect("the calls are kept");
    assert_eq!((kept.steps, kept.blocks, kept.path.blocks), (59, 6, 6), "{kept:?}");
    assert_eq!((kept.bytes, kept.path.bytes), (384 * MIB, 384 * MIB));
}

#[test]
fn what_is_held_behind_the_last_step_is_no_room() {
    let room = |more: bool| {
        let mut program = keeps(12, 40 * MIB, 12);
        program.read(4 * GIB);
        if more {
            program.give(8 * GIB);
        }
        let growth = growth::of_devices(&program.replay(), &Thresholds::default());
        let runs_out = growth[0].runs_out.unwrap();
        assert!(runs_out.room_read_at_ns.is_some_and(|at_ns| at_ns > 0), "{runs_out:?}");
        runs_out.room_bytes
    };
    assert!(room(false) > 8 * GIB && room(true) < 6 * GIB, "{} and {}", room(false), room(true));
}

#[test]
fn what_is_read_bounds_the_room() {
    let mut program = keeps(12, 40 * MIB, 12);
    program.read(15 * GIB);
    let growth = growth::of_devices(&program.replay(), &Thresholds::default());
    let runs_out = growth[0].runs_out.unwrap();
    assert!(runs_out.room_was_read && runs_out.room_bytes < GIB, "{runs_out:?}");
}

#[test]
fn the_end_of_a_run_is_no_floor_and_healthy_runs_do_not_grow() {
    let mut program = Program::new();
    let model = program.load();
    (0..30).for_each(|_| program.step(200 * MIB));
    program.take(&model);
    let growth = growth::of_devices(&program.replay(), &Thresholds::default());
    // The last step's fall goes on into the end.
    assert_eq!((growth.len(), growth[0].cycles, growth[0].significant), (1, 29, false));
    assert_eq!((growth[0].total_bytes, growth[0].runs_out), (0, None));
}

#[test]
fn segments_of_an_allocator_do_not_prove_a_training() {
    let mut program = Program::new();
    (0..12).for_each(|_| program.keep(20 * MIB));
    program.trace.refuse(16 * GIB);
    let shapes = program.shapes();
    assert!(shapes.iter().all(|(_, confidence)| *confidence == Confidence::Possible), "{shapes:?}");
}

/// The labels end, the run goes on, and memory rises from cycle to cycle: what the labels say of it is over.
#[test]
fn labels_that_end_early_say_nothing_of_what_comes_then() {
    let mut program = Program::new();
    for step in 0..10 {
        program.mark(&format!("step {step}"));
        let blocks: Vec<u64> = (0..4).map(|_| program.give(300 * MIB)).collect();
        program.take(&blocks);
    }
    for _ in 0..40 {
        let temporary = program.give(900 * MIB);
        program.keep(150 * MIB);
        program.take(&[temporary]);
    }
    let replay = program.replay();
    let runs = DeviceRun::all(&replay, &Thresholds::default());
    let rise = runs[0].rise.as_ref().expect("there are steps");
    assert!(rise.is_significant() && rise.by == crate::passes::rise::By::Cycles, "{rise:?}");
}
