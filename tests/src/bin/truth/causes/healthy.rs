//! Habits of programs that have nothing wrong, and that a careless eye takes for trouble.

use super::{REPEATING, Table, Where, cause};
use crate::case::{Case, MIB};
use crate::script::{Kind, Model, Op, PARK, alloc, each, free, raw, write};

pub(super) const TABLE: Table = &[
    || cause("healthy: plain", 8, plain),
    || cause("healthy: growth that stops", 4, growth_stops).of(REPEATING),
    || cause("healthy: one step up", 3, step_up).of(REPEATING),
    || cause("healthy: up and down again", 3, sawtooth).of(REPEATING),
    || cause("healthy: large temporaries", 3, peaks).of(REPEATING),
    || cause("healthy: buffers in turns", 3, alternating).of(REPEATING),
    || cause("healthy: noise", 2, noise).of(REPEATING),
    || cause("healthy: asks for too much and takes less", 3, probing).no_async(),
    || cause("healthy: smaller workspace", 3, smaller_workspace).of(REPEATING).no_async(),
    || cause("healthy: empties a cache and tries again", 3, retry).of(REPEATING).no_async(),
    || cause("healthy: another thread makes room", 3, another_thread_frees).of(REPEATING).no_async().one_device(),
    || cause("healthy: others have a part", 3, others).no_async(),
    || cause("healthy: card nearly full", 3, nearly_full).no_async(),
    || cause("healthy: threads at once", 3, threads),
    || cause("healthy: error of its own", 2, own_error),
    || cause("healthy: modules come and go", 2, modules).on(Where::Hip).of(REPEATING),
    || cause("healthy: many at the start", 2, many_at_start),
];

/// Room for everything, as a habit needs it.
fn healthy(case: &mut Case, low: f64, high: f64) {
    let peak = case.share(low, high);
    case.program.fit(peak);
    case.truth.is_healthy = true;
    case.truth.is_decidable = true;
    case.truth.fails = Some(false);
}

/// What is true of a program's way of working, and explains a refused call without being trouble.
fn describe(case: &mut Case) {
    if case.program.has_varying_temporaries {
        case.truth.also.push("repeated-large-temporaries");
    }
}

fn plain(case: &mut Case) {
    healthy(case, 0.1, 0.93);
    if case.rng.chance(0.15) {
        each(&mut case.program.setup, &mut |op| {
            if let Op::Alloc { kind: kind @ Kind::Device, .. } = op {
                *kind = Kind::Managed;
            }
        });
    }
}

/// Caches that fill, warm-up: a block of each of some steps stays, then no more.
fn growth_stops(case: &mut Case) {
    healthy(case, 0.2, 0.55);
    case.at_least_steps(20);
    let steps = case.program.steps.len() as u64;
    let (first, count) = (case.rng.within(0, 3), case.rng.within(3, steps / 2 - 3));
    let total = case.share(0.05, 0.35);
    let each = (total / count).max(4096);
    let slows_down = case.rng.chance(0.4);
    for number in 0..count {
        let size = if slows_down { each * 2 * (count - number) / (count + 1) } else { case.rng.about(each, 0.3) };
        let kept = vec![alloc(format!("g{number}"), Kind::Device, size.max(4096))];
        case.program.add_to_step((first + number) as usize, vec![Op::At("keep", kept)], true);
    }
    case.truth.also.push("reserved-plateau");
}

fn step_up(case: &mut Case) {
    healthy(case, 0.2, 0.6);
    case.at_least_steps(12);
    let step = case.rng.within(2, case.program.steps.len() as u64 - 3) as usize;
    let size = case.share(0.02, 0.3);
    case.program.add_to_step(step, vec![alloc("up", Kind::Device, size), Op::Copy("up".into())], true);
}

/// What is kept is given back all at once, again and again: a queue that is flushed, a collector of garbage.
fn sawtooth(case: &mut Case) {
    healthy(case, 0.2, 0.5);
    case.at_least_steps(24);
    let teeth = case.rng.within(4, 8) as usize;
    let size = case.share(0.1, 0.4) / teeth as u64;
    for step in 0..case.program.steps.len() {
        let name = |number: usize| format!("q{number}");
        let place = step % teeth;
        let mut ops = vec![alloc(name(place), Kind::Device, case.rng.about(size, 0.2))];
        if place == teeth - 1 {
            ops.extend((0..teeth).map(|number| free(name(number))));
        }
        case.program.add_to_step(step, vec![Op::At("queue", ops)], true);
    }
}

fn peaks(case: &mut Case) {
    healthy(case, 0.15, 0.45);
    case.at_least_steps(12);
    let size = case.share(0.3, 0.5);
    for _ in 0..case.rng.within(1, 4) {
        let step = case.rng.within(1, case.program.steps.len() as u64 - 1) as usize;
        let name = format!("big{step}");
        let bytes = case.rng.about(size, 0.05);
        let ops = vec![alloc(&*name, Kind::Device, bytes), Op::Launch, free(&*name)];
        if !write(&case.program.steps[step]).contains("big") {
            case.program.add_to_step(step, ops, true);
        }
    }
}

/// The new one is made before the old one goes.
fn alternating(case: &mut Case) {
    healthy(case, 0.2, 0.5);
    case.at_least_steps(12);
    let size = case.share(0.01, 0.15);
    let variation = case.rng.pick(&[0.0, 0.0, 0.3]);
    for step in 0..case.program.steps.len() {
        let name = |step: usize| format!("turn{}", step % 2);
        let mut ops = vec![alloc(name(step), Kind::Device, case.rng.about(size, variation)), Op::Launch];
        ops.extend((step > 0).then(|| free(name(step + 1))));
        case.program.add_to_step(step, vec![Op::At("swap", ops)], true);
    }
}

/// A block of the program is made anew in each step, as large as its data: it has no direction.
fn noise(case: &mut Case) {
    healthy(case, 0.2, 0.6);
    case.at_least_steps(20);
    let size = case.share(0.02, 0.2);
    for step in 0..case.program.steps.len() {
        let mut ops: Vec<Op> = (step > 0).then(|| free("state")).into_iter().collect();
        ops.push(alloc("state", Kind::Device, case.rng.about(size, 0.5)));
        case.program.add_to_step(step, vec![Op::At("renew", ops)], true);
    }
}

/// Finds out how much it can have: asks for less after each refusal.
fn probing(case: &mut Case) {
    healthy(case, 0.1, 0.4);
    let fits = case.share(0.1, 0.45);
    let factor = case.rng.between(1.2, 2.0);
    let mut sizes = vec![(case.usable() as f64 * case.rng.between(1.02, 1.15)) as u64];
    while sizes.len() < case.rng.within(1, 5) as usize {
        sizes.push((sizes[sizes.len() - 1] as f64 * factor) as u64);
    }
    let mut ops = vec![raw("failures go")];
    for (number, size) in sizes.iter().rev().enumerate() {
        ops.push(alloc(format!("try{number}"), Kind::Device, size & !0xFFFF));
        if case.rng.chance(0.4) {
            ops.push(raw("query"));
        }
    }
    ops.extend([alloc("had", Kind::Device, fits & !0xFFFF), raw("failures exit")]);
    if case.rng.chance(0.4) {
        ops.push(free("had"));
    }
    case.before.extend([Op::At("find_out", ops)]);
    case.truth.fails = Some(true);
    case.truth.also.push("request-exceeds-device");
}

/// A library wants a large workspace, is refused, and takes a slower way with a smaller one.
fn smaller_workspace(case: &mut Case) {
    healthy(case, 0.4, 0.8);
    let room = case.usable() - Model::of(&case.program.ops(), None).highest_peak();
    let steps = case.program.steps.len() as u64;
    // More than is left beside what the program has from its beginning on: whenever it asks, it is refused.
    let floor = Model::of(&case.program.setup, None).held(0);
    let wanted = (case.usable() - floor + case.rng.size(64 * MIB, 4 << 30)) & !0xFFFF;
    let first = case.rng.within(0, steps / 2);
    for step in first..(first + case.rng.within(1, 3)).min(steps) {
        let mut ops = vec![raw("failures go"), alloc(format!("want{step}"), Kind::Device, wanted)];
        if case.rng.chance(0.5) {
            ops.push(raw("query"));
        }
        let smaller = (room / case.rng.within(2, 8)).max(4096);
        ops.extend([raw("failures exit"), alloc("less", Kind::Device, smaller), Op::Launch, free("less")]);
        case.program.add_to_step(step as usize, vec![Op::At("workspace", ops)], true);
    }
    case.truth.fails = Some(true);
    case.truth.also.push(if wanted > case.card_bytes { "request-exceeds-device" } else { "true-capacity" });
    describe(case);
}

/// A cache of its own makes room when a call is refused.
fn retry(case: &mut Case) {
    healthy(case, 0.25, 0.5);
    let cache = case.share(0.25, 0.4);
    case.at_least_steps(6);
    let step = case.rng.within(1, case.program.steps.len() as u64 - 2) as usize;
    let held = Model::of(&case.program.ops(), None).highest_peak() + cache;
    let wanted = (case.usable() - held) + cache / 3;
    case.before.push(Op::At("fill_cache", vec![alloc("cache", Kind::Device, cache)]));
    let on_failure = ["failures retry", "on_failure", "sync", "free cache", "end"].map(raw);
    let mut ops: Vec<Op> = on_failure.into();
    // Not known to the model: it fits once the cache is gone.
    ops.extend([raw(format!("alloc wide {wanted}")), raw("failures exit"), Op::Launch, raw("free wide")]);
    case.program.add_to_step(step, vec![Op::At("wide", ops)], true);
    // At the end of a step less may be live than at its peak: then the call is not refused.
    case.truth.fails = None;
    case.truth.also.push("cache-greed");
    describe(case);
}

/// Somebody else has a part of the card, and there is room for both.
fn others(case: &mut Case) {
    healthy(case, 0.1, 0.45);
    let theirs = case.share(0.1, 0.45);
    case.before.push(Op::Process("other".into(), vec![alloc("o", Kind::Device, theirs), raw(PARK)]));
    if case.rng.chance(0.4) {
        let step = case.rng.within(0, case.program.steps.len() as u64 - 1) as usize;
        case.program.steps[step].insert(0, Op::Resume("other".into()));
    }
}

fn nearly_full(case: &mut Case) {
    healthy(case, 0.96, 0.99);
}

/// Threads of its own that take and give at the same time.
fn threads(case: &mut Case) {
    healthy(case, 0.1, 0.4);
    let count = case.rng.within(2, 6);
    let room = case.share(0.2, 0.45) / count;
    for number in 0..count {
        let mut body = vec![alloc("own", Kind::Device, room / 3)];
        for _ in 0..case.rng.within(2, 12) {
            let size = case.rng.size(room / 64, room / 2);
            body.extend([alloc("t", Kind::Device, size), Op::Launch, free("t")]);
        }
        if case.rng.chance(0.5) {
            body.push(free("own"));
        }
        case.after.push(Op::Start(format!("pool-{number}"), vec![Op::At("job", body)]));
    }
    case.after.push(Op::Join);
}

fn own_error(case: &mut Case) {
    healthy(case, 0.1, 0.9);
    let end = case.rng.pick(&["exit 1", "exit 3", "abort"]);
    case.after.push(raw(end));
}

fn modules(case: &mut Case) {
    healthy(case, 0.1, 0.9);
    if case.rng.chance(0.5) {
        let count = case.rng.within(5, 90);
        case.before.push(Op::Loop(count, vec![raw("module")]));
        return;
    }
    for step in 0..case.program.steps.len() {
        let count = case.rng.within(1, 4);
        let ops = vec![Op::Loop(count, vec![raw("module")]), Op::Launch, Op::Loop(count, vec![raw("unload")])];
        case.program.add_to_step(step, ops, false);
    }
}

/// Thousands of small blocks, once.
fn many_at_start(case: &mut Case) {
    healthy(case, 0.1, 0.6);
    let count = case.rng.within(100, 1500);
    let size = (case.share(0.05, 0.25) / count / MIB).clamp(2, 64);
    // On the stack of the player, which the model does not know: it is room that is there.
    case.before.push(Op::At("tables", vec![raw(format!("push {size}M {count}"))]));
}

/// The card is full, a call is refused, another thread gives back much of it, and the next try succeeds. Whatever call it was.
fn another_thread_frees(case: &mut Case) {
    healthy(case, 0.2, 0.4);
    let held = Model::of(&case.program.setup, None).held(0);
    let big = ((case.usable() - held) * 8 / 10) & !0x1F_FFFF;
    let wanted = case.rng.within(big / 2, big * 9 / 10) & !0x1F_FFFF;
    let kind = case.rng.pick(&["alloc", "async"]);
    let mut ops = vec![Op::Worker("holder".into(), vec![Op::At("hold", vec![alloc("big", Kind::Device, big)])])];
    ops.extend(["failures retry", "on_failure", "worker holder", "free big", "end", "end"].map(raw));
    ops.extend([raw(format!("{kind} wide {wanted}")), raw("failures exit"), Op::Launch, raw("free wide"), Op::Sync]);
    case.program.setup.push(Op::At("hand_over", ops));
    case.truth.fails = Some(true);
    case.truth.also.extend(["cache-greed", "true-capacity"]);
    describe(case);
}
