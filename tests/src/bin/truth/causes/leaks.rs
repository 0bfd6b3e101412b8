//! Memory that is never given back.

use super::{REPEATING, Table, Where, cause};
use crate::case::{Case, MIB, READ_MS, Sight};
use crate::programs::Purpose;
use crate::script::{Kind, Model, Op, alloc, each, free, raw, write};

pub(super) const TABLE: Table = &[
    || cause("leak: in each step", 6, steady).of(REPEATING).no_async(),
    || cause("leak: in some steps", 4, intermittent).of(REPEATING).no_async(),
    || cause("leak: behind a warm-up", 4, behind_warm_up).of(REPEATING).no_async(),
    || cause("leak: of one thread", 3, one_thread).of(&[Purpose::Service]).no_async(),
    || cause("leak: of different sizes", 3, of_sizes).of(REPEATING).no_async(),
    || cause("leak: modules", 3, modules).on(Where::Hip).of(REPEATING).no_async(),
    || {
        cause("leak: by the runtime, model after model", 2, swaps)
            .on(Where::Hip)
            .of(&[Purpose::Llama])
            .seen(Sight::Full)
            .one_device()
    },
    || cause("growth: a pool that keeps every peak", 2, legacy_pool).of(&[Purpose::Llama]).no_async().one_device(),
    || {
        cause("growth: a cache that is copied into a larger one", 2, growing_cache)
            .of(&[Purpose::Llama])
            .no_async()
            .one_device()
    },
];

/// What stays must come to this much before the catalogue calls it a leak.
const LEAST: u64 = 256 * MIB;

/// Steps that leave something, and how much each leaves.
fn leak(case: &mut Case, steps: &[usize], variation: f64) {
    let room = case.usable() - Model::of(&case.program.ops(), None).highest_peak();
    let fills_card = case.rng.chance(0.5);
    let share = if fills_card { case.rng.between(1.15, 1.6) } else { case.rng.between(0.02, 0.85) };
    let total = (room as f64 * share) as u64;
    let each = (total / steps.len() as u64).max(4096);
    let gives_back = steps.iter().filter(|&&step| gives_back(&case.program.steps[step])).count();
    // Memory that only rises may as well be data that comes in piece by piece.
    let has_cycles = gives_back * 10 >= steps.len() * 9;
    let mut left = 0;
    for (number, &step) in steps.iter().enumerate() {
        let size = if variation > 0.0 { case.rng.about(each, variation) } else { each & !0xFFF };
        left += size;
        case.program.add_to_step(step, vec![alloc(format!("l{number}"), Kind::Device, size)], true);
    }
    let refusal = case.refusal(case.usable());
    case.truth.fails = Some(refusal.is_some());
    case.truth.right = vec!["live-leak"];
    case.truth.is_decidable = left >= LEAST && has_cycles;
    case.truth.also = refusal.map(|refusal| case.shapes(&refusal)).unwrap_or_default();
    case.truth.also.push("true-capacity");
    // A description that is true of such a program whether or not it leaks.
    if case.program.has_varying_temporaries {
        case.truth.also.push("repeated-large-temporaries");
    }
}

/// Whether a step takes memory of the card and gives it back.
fn gives_back(step: &[Op]) -> bool {
    let mut found = false;
    each(&mut step.to_vec(), &mut |op| found |= matches!(op, Op::Free(_)));
    found
}

fn ready(case: &mut Case, steps: usize) -> Vec<usize> {
    let peak = case.share(0.15, 0.6);
    case.program.fit(peak);
    case.at_least_steps(steps);
    (0..case.program.steps.len()).collect()
}

fn steady(case: &mut Case) {
    let steps = ready(case, 16);
    let from = case.rng.within(0, 2) as usize;
    leak(case, &steps[from..], 0.0);
}

fn intermittent(case: &mut Case) {
    let mut steps = ready(case, 36);
    let often = case.rng.between(0.25, 0.6);
    steps.retain(|_| case.rng.chance(often));
    leak(case, &steps, 0.0);
}

/// Caches fill first, and nobody is to take that for the leak.
fn behind_warm_up(case: &mut Case) {
    let steps = ready(case, 36);
    let warm = case.rng.within(3, 8) as usize;
    let size = case.share(0.05, 0.15) / warm as u64;
    for &step in &steps[..warm] {
        let kept = vec![alloc(format!("warm{step}"), Kind::Device, case.rng.about(size, 0.3))];
        case.program.add_to_step(step, vec![Op::At("keep", kept)], true);
    }
    leak(case, &steps[warm + 4..], 0.0);
}

fn one_thread(case: &mut Case) {
    let steps = ready(case, 16);
    let is_of = |case: &Case, step: usize, worker: &str| write(&case.program.steps[step]).contains(worker);
    let workers = ["worker worker-0", "worker worker-1"].into_iter();
    let of_one =
        workers.map(|worker| steps.iter().copied().filter(|&step| is_of(case, step, worker)).collect::<Vec<_>>());
    let steps = of_one.max_by_key(Vec::len).filter(|steps| steps.len() >= 10).unwrap_or(steps);
    leak(case, &steps, 0.0);
}

fn of_sizes(case: &mut Case) {
    let steps = ready(case, 24);
    leak(case, &steps, 0.6);
}

/// Loaded and never unloaded, more and more.
fn modules(case: &mut Case) {
    let steps = ready(case, 20);
    let each = case.rng.within(4, 12);
    for step in steps {
        let unloads = case.rng.within(0, each / 4);
        let ops = vec![Op::Loop(each, vec![raw("module")]), Op::Launch, Op::Loop(unloads, vec![raw("unload")])];
        case.program.add_to_step(step, ops, false);
    }
    case.truth.right = vec!["module-load-unbalanced"];
    case.truth.is_decidable = true;
    case.truth.fails = Some(false);
}

/// Each model is loaded, used and unloaded; the runtime keeps some of it.
fn swaps(case: &mut Case) {
    let cycles = case.rng.within(5, 10);
    let each = case.rng.size(150 * MIB, 400 * MIB);
    let peak = case.usable() / 2;
    case.program.fit(peak);
    let setup = std::mem::take(&mut case.program.setup);
    let names: Vec<String> = live_names(&setup);
    let mut step = setup;
    step.extend([raw("module"), Op::Launch, Op::Sleep(READ_MS)]);
    step.extend(names.iter().map(free));
    step.push(Op::Sleep(READ_MS));
    case.program.steps = vec![step; cycles as usize];
    case.program.end.clear();
    case.set("SIM_HIDDEN_PER_MODULE", each);
    case.truth.right = vec!["model-swap-residual"];
    case.truth.also = vec!["hidden-runtime-memory", "oom-model-load", "kv-cache-prealloc"];
    case.truth.is_decidable = true;
    case.truth.fails = Some(cycles * each + peak > case.usable());
    if cycles * each + peak > case.usable() {
        case.truth.right.push("hidden-runtime-memory");
    }
}

fn live_names(ops: &[Op]) -> Vec<String> {
    let mut names = Vec::new();
    each(&mut ops.to_vec(), &mut |op| {
        if let Op::Alloc { name, .. } = op {
            names.push(name.clone());
        }
    });
    names
}

/// llama.cpp without virtual memory: each buffer a bit larger than the one before it, and none given back.
fn legacy_pool(case: &mut Case) {
    let peak = case.share(0.3, 0.6);
    case.program.fit(peak);
    case.at_least_steps(40);
    case.program.libraries = vec!["libllama.so", "libggml-hip.so"];
    let room = (case.usable() - peak) as f64;
    let growth = case.rng.between(1.02, 1.15);
    let count = 24;
    let sum: f64 = (0..count).map(|number| growth.powi(number)).sum();
    let first = room * case.rng.between(1.05, 1.3) / sum;
    for number in 0..count {
        let size = (first * growth.powi(number)) as u64 & !0xFFF;
        case.program.add_to_step(number as usize + 2, vec![alloc(format!("pool{number}"), Kind::Device, size)], true);
    }
    let refusal = case.refusal(case.usable());
    case.truth.fails = Some(refusal.is_some());
    case.truth.right = vec!["legacy-pool-growth", "live-leak"];
    case.truth.also = vec!["true-capacity"];
    case.truth.is_decidable = refusal.is_some();
}

/// A new and larger cache for each token, a copy, and the old one goes.
fn growing_cache(case: &mut Case) {
    let peak = case.share(0.3, 0.5);
    case.program.fit(peak);
    case.at_least_steps(40);
    let room = case.usable() - peak;
    let steps = case.program.steps.len() as u64;
    let delta = (room / steps / 2).max(4096) & !0xFFF;
    let base = case.share(0.01, 0.05) & !0xFFF;
    for step in 0..steps {
        let name = |step: u64| format!("kv{}", step % 2);
        let mut ops = vec![alloc(name(step), Kind::Device, base + step * delta), Op::Use(name(step))];
        ops.extend((step > 0).then(|| free(name(step + 1))));
        case.program.add_to_step(step as usize, vec![Op::At("grow_cache", ops)], true);
    }
    let refusal = case.refusal(case.usable());
    case.truth.fails = Some(refusal.is_some());
    case.truth.right = vec!["kv-cache-incremental", "live-leak"];
    case.truth.also = vec!["true-capacity"];
    // Without a failure nothing needs an explanation.
    case.truth.is_decidable = refusal.is_some();
}
