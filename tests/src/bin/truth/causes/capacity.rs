//! The program needs more than there is, or more than somebody allows it.

use super::{REPEATING, Table, Where, cause};
use crate::case::{Case, GIB, MIB, Sight};
use crate::machine::{APU, Machine, ram_bytes};
use crate::programs::Purpose;
use crate::script::{Kind, Model, Op, PARK, Part, Refusal, alloc, free, raw};

pub(super) const TABLE: Table = &[
    || cause("card too small", 10, too_small).no_async(),
    || cause("card too small: a step larger than all before", 4, larger_step).of(REPEATING).no_async(),
    || cause("request larger than the device", 5, larger_than_device),
    || cause("ceiling of the process", 4, ceiling).no_async(),
    || cause("ceiling of a request", 3, single_ceiling).on(Where::Hip).no_async(),
    || {
        cause("APU: the kernel gives half of the RAM", 3, apu_half)
            .on(Where::Hip)
            .no_async()
            .one_device()
            .seen(Sight::AtFailures)
    },
    || cause("APU: the limit was raised", 2, apu_raised).on(Where::Hip).no_async().one_device().seen(Sight::AtFailures),
    || {
        cause("APU: the runtime sees the carve-out", 2, apu_carve_out)
            .on(Where::Hip)
            .no_async()
            .one_device()
            .seen(Sight::AtFailures)
    },
    || cause("injected: one call", 3, injected).no_async(),
    || cause("injected: a virtual card", 3, virtual_card).no_async().one_device(),
];

/// From here on a card is full of the program's own: the catalogue's lower bound.
const FULL: f64 = 0.75;

/// What is true where the program's own memory fills the card.
pub(super) fn full(case: &mut Case, refusal: &Refusal) {
    case.truth.fails = Some(true);
    let shapes = case.shapes(refusal);
    let share = refusal.held as f64 / case.card_bytes as f64;
    if refusal.bytes > case.card_bytes {
        case.truth.right = vec!["request-exceeds-device"];
        case.truth.also = [shapes, vec!["attention-quadratic"]].concat();
        // Both are true where hardly anything was left for a small request either.
        case.truth.also.extend((share >= FULL).then_some("true-capacity"));
        case.truth.is_decidable = true;
        return;
    }
    case.truth.right = [vec!["true-capacity"], shapes].concat();
    case.truth.is_decidable = share >= FULL;
}

/// A refusal must come: if none does by itself, the program asks for more at its end.
pub(super) fn refused(case: &mut Case, limit_bytes: u64) -> Refusal {
    if let Some(refusal) = case.refusal(limit_bytes) {
        return refusal;
    }
    let device = case.program.device;
    let model = Model::of(&case.ops(), Some(limit_bytes));
    let held = model.held(device);
    let room = limit_bytes - held - model.held_by_others(device);
    let alone = case.usable() - held;
    let wanted = case.rng.within(room + 2 * MIB, alone.min(room + 2 * GIB).max(room + 4 * MIB));
    let last = vec![Op::Part(Part::Setup), Op::Device(device), alloc("more", Kind::Device, wanted)];
    case.after.push(Op::At("finish", last));
    case.refusal(limit_bytes).expect("more than there is")
}

fn too_small(case: &mut Case) {
    case.may_try_again();
    let peak = case.share(1.02, 1.5);
    case.program.fit(peak);
    // Somebody else works on a card that this program does not touch: the one behind its own, or the first one.
    if case.rng.chance(0.3) {
        let mut theirs = case.program.devices;
        match case.program.devices == 1 && case.rng.chance(0.5) {
            true => {
                case.program.move_to_second();
                theirs = 0;
            }
            false => case.program.devices += 1,
        }
        let bytes = case.share(0.2, 0.9);
        let other = vec![Op::Device(theirs), alloc("o", Kind::Device, bytes), raw(PARK)];
        case.before.push(Op::Process("other".into(), other));
    }
    let refusal = refused(case, case.usable());
    full(case, &refusal);
}

/// It ran well for long, and then comes something larger than ever.
fn larger_step(case: &mut Case) {
    case.may_try_again();
    let peak = case.share(0.75, 0.95);
    case.program.fit(peak);
    case.at_least_steps(24);
    let step = case.rng.within(18, case.program.steps.len() as u64 - 1) as usize;
    let before = [case.program.setup.clone(), case.program.steps[..step].concat()].concat();
    let held = Model::of(&before, None).held(0);
    let wanted = case.usable() - held + case.rng.size(32 * MIB, 2 * GIB);
    case.program.add_to_step(step, vec![alloc("large", Kind::Device, wanted), Op::Launch, free("large")], false);
    let refusal = refused(case, case.usable());
    full(case, &refusal);
}

fn larger_than_device(case: &mut Case) {
    let peak = case.share(0.1, 0.8);
    case.program.fit(peak);
    let wanted = (case.card_bytes as f64 * case.rng.between(1.02, 5.0)) as u64 & !0xFFF;
    let wanted = vec![alloc("huge", Kind::Device, wanted), Op::Launch, free("huge")];
    let step = case.rng.within(0, case.program.steps.len() as u64 - 1) as usize;
    match case.rng.chance(0.3) {
        true => case.program.setup.extend(wanted),
        false => case.program.add_to_step(step, wanted, false),
    }
    let refusal = refused(case, case.usable());
    full(case, &refusal);
}

/// A variable says how much of the card the process may have: CUDA's of all that it holds, HIP's of one block (as HIP 6.4.3 does, which
/// calls that the whole card).
fn ceiling(case: &mut Case) {
    let percent = case.rng.within(20, 60);
    let limit = case.card_bytes / 100 * percent;
    if case.platform.is_hip() {
        return heap(case, percent, limit);
    }
    let peak = (limit as f64 * case.rng.between(1.05, 1.4)) as u64;
    case.program.fit(peak.min(case.usable() * 9 / 10));
    case.set("SIM_PROCESS_LIMIT", limit);
    case.set("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", format!("0={}M", limit / MIB));
    let refusal = refused(case, limit);
    let free = case.usable() - refusal.held;
    case.truth.fails = Some(true);
    case.truth.right = vec!["process-fraction-cap"];
    case.truth.also = [case.shapes(&refusal), vec!["phantom-free"]].concat();
    case.truth.is_decidable = is_plenty(free, refusal.bytes);
}

fn heap(case: &mut Case, percent: u64, limit: u64) {
    case.set("SIM_REPORTED_CAPACITY", limit);
    // What HIP 6.4.3 calls free is what the card has free.
    case.set("SIM_OVER_REPORTED", case.card_bytes - limit);
    case.set("GPU_MAX_HEAP_SIZE", percent);
    one_above(case, limit);
}

/// What the catalogue calls free memory that was enough.
pub(super) fn is_plenty(free: u64, request: u64) -> bool {
    free >= request + request / 10 + 64 * MIB
}

/// A variable says how large one request may be.
fn single_ceiling(case: &mut Case) {
    let percent = case.rng.within(20, 60);
    let limit = case.card_bytes / 100 * percent;
    case.set("GPU_SINGLE_ALLOC_PERCENT", percent);
    one_above(case, limit);
}

/// One request is above what a block may have, and would have fitted.
fn one_above(case: &mut Case, limit: u64) {
    let peak = case.share(0.1, 0.3);
    case.program.fit(peak.min(limit));
    case.set("SIM_LARGEST_REQUEST", limit);
    let room = (case.usable() - peak) as f64;
    let wanted = ((room * case.rng.between(0.8, 0.9)) as u64).max(limit + 64 * MIB) & !0xFFF;
    let step = case.rng.within(0, case.program.steps.len() as u64 - 1) as usize;
    case.program.add_to_step(step, vec![alloc("one", Kind::Device, wanted), Op::Launch, free("one")], false);
    case.truth.fails = Some(true);
    case.truth.right = vec!["single-alloc-cap"];
    case.truth.also = vec!["phantom-free"];
    if case.program.purpose == Purpose::Training {
        case.truth.also.extend(["oom-longest-batch", "attention-quadratic"]);
    }
    if case.program.has_varying_temporaries {
        case.truth.also.push("repeated-large-temporaries");
    }
    case.truth.is_decidable = wanted < case.usable() - peak;
}

fn apu(case: &mut Case, limit: u64, carve_out: u64, gtt: u64, total: u64) {
    case.machine = apu_machine(limit, carve_out, gtt, total);
    case.card_bytes = total;
    case.set("SIM_SYSFS_CARD", "");
    let peak = case.share(1.02, 1.3);
    case.program.fit(peak);
    let refusal = refused(case, case.usable());
    full(case, &refusal);
}

fn apu_half(case: &mut Case) {
    let half = ram_bytes(APU) / 2;
    apu(case, half, 512 * MIB, half, half);
    let capacity = std::mem::replace(&mut case.truth.right, vec!["uma-ttm-limit"]);
    case.truth.also.extend(capacity);
    case.truth.also.push("kfd-system-memory-limit");
    case.truth.is_decidable = true;
}

fn apu_raised(case: &mut Case) {
    let most = ram_bytes(APU) / 16 * case.rng.within(11, 14);
    apu(case, most, 512 * MIB, most, most);
    // What the kernel gives is all that the runtime offers: both say the same.
    case.truth.right.push("kfd-system-memory-limit");
}

/// An old kernel: what the firmware set aside is all that the runtime offers.
fn apu_carve_out(case: &mut Case) {
    let half = ram_bytes(APU) / 2;
    let carve_out = case.rng.pick(&[2, 4, 8]) * GIB;
    case.context_bytes = 0;
    apu(case, half, carve_out, half.max(2 * carve_out), carve_out);
    let capacity = std::mem::replace(&mut case.truth.right, vec!["uma-carveout-only"]);
    case.truth.also.extend(capacity);
    case.truth.is_decidable = true;
}

fn apu_machine(limit: u64, carve_out: u64, gtt: u64, bank: u64) -> Machine {
    Machine::apu(limit, carve_out, gtt, bank)
}

/// The recorder was asked to let a call fail. Nothing is wrong with the program or with the card.
fn injected(case: &mut Case) {
    let peak = case.share(0.1, 0.7);
    case.program.fit(peak);
    let mut calls = 0;
    crate::script::each(&mut case.ops(), &mut |op| {
        calls += u64::from(matches!(op, Op::Alloc { .. }));
    });
    let number = case.rng.within(1, calls.max(1));
    case.set("GPUOOM_INJECT", format!("oom@{number}"));
    case.truth.is_healthy = true;
    case.truth.is_decidable = true;
    case.truth.fails = Some(true);
    case.truth.also.push("requested-refusal");
}

/// The recorder was asked to pretend that the card is smaller.
fn virtual_card(case: &mut Case) {
    let peak = case.share(0.3, 0.9);
    case.program.fit(peak);
    let virtual_bytes = (peak as f64 * case.rng.between(0.4, 0.95)) as u64;
    case.set("GPUOOM_CAPACITY", virtual_bytes);
    case.truth.fails = Some(true);
    // Of the card that was asked for, not of the real one.
    case.truth.right = vec!["requested-refusal", "true-capacity", "request-exceeds-device"];
    let refusal = case.refusal(virtual_bytes);
    case.truth.also = refusal.map(|refusal| case.shapes(&refusal)).unwrap_or_default();
    case.truth.also.push("granularity-waste");
    case.truth.is_decidable = true;
}
