//! Somebody else holds what the program needs, or what is said to be free can't be had.

use super::capacity::{full, is_plenty, refused};
use super::{Table, Where, cause};
use crate::case::{Case, GIB, HIP_7, MIB, READ_MS, Sight};
use crate::script::{Kind, Op, PARK, alloc, raw};

pub(super) const TABLE: Table = &[
    || cause("another process holds memory", 6, another_process).no_async().one_device(),
    || cause("another process grows", 4, grows_meanwhile).no_async().one_device(),
    || cause("hidden memory of the runtime", 4, hidden).no_async().one_device(),
    || cause("memory without an owner", 3, without_owner).on(Where::Hip).no_async().one_device(),
    || cause("graphics counted as free", 4, graphics).on(Where::Hip).no_async().one_device(),
    || cause("refused for no known reason", 5, unexplained).no_async(),
    || cause("exported memory stays", 3, exported).on(Where::Hip).no_async().one_device().seen(Sight::Full),
];

/// It would fit on an empty card, and does not beside what somebody else holds.
fn fits_only_alone(case: &mut Case, theirs: u64) {
    let usable = case.usable();
    let low = (usable - theirs) as f64 * 1.02;
    let high = (usable as f64 * 0.96).max(low);
    let peak = case.rng.between(low, high) as u64;
    case.program.fit(peak);
}

fn another_process(case: &mut Case) {
    let theirs = case.share(0.15, 0.75);
    fits_only_alone(case, theirs);
    let blocks = case.rng.within(1, 4);
    let mut other: Vec<Op> =
        (0..blocks).map(|number| alloc(format!("o{number}"), Kind::Device, (theirs / blocks) & !0xFFFF)).collect();
    other.push(raw(PARK));
    case.before.push(Op::Process("other".into(), other));
    let refusal = refused(case, case.usable());
    case.truth.fails = Some(true);
    case.truth.right = vec!["other-process-on-gpu"];
    case.truth.also = case.shapes(&refusal);
    case.truth.is_decidable = case.sees_processes();
}

fn grows_meanwhile(case: &mut Case) {
    let theirs = case.share(0.2, 0.6);
    fits_only_alone(case, theirs);
    case.at_least_steps(8);
    let at_first = case.rng.size(8 * MIB, 512 * MIB);
    let mut other = vec![alloc("o0", Kind::Device, at_first), raw(PARK)];
    other.extend([alloc("o1", Kind::Device, theirs.saturating_sub(at_first).max(4096) & !0xFFFF), raw(PARK)]);
    case.before.push(Op::Process("other".into(), other));
    // When the other one grows there must be room for that: behind the setup, before the first large step.
    let room = case.usable() - theirs;
    let setup = crate::script::Model::of(&case.program.setup, None).held(0);
    if setup > room.saturating_sub(GIB / 4) {
        let low = room.saturating_sub(GIB / 4).max(64 * MIB);
        case.program.fit(low);
    }
    case.program.setup.push(Op::Resume("other".into()));
    let refusal = refused(case, case.usable());
    case.truth.fails = Some(true);
    case.truth.right = vec!["other-process-on-gpu"];
    case.truth.also = case.shapes(&refusal);
    case.truth.is_decidable = case.sees_processes();
}

fn hidden(case: &mut Case) {
    let least = (1536 * MIB).max(case.card_bytes / 16);
    let most = case.card_bytes / 4;
    let theirs = case.rng.size(least.min(most), most.max(least));
    fits_only_alone(case, theirs);
    case.context_bytes += theirs;
    let refusal = refused(case, case.usable());
    full(case, &refusal);
    let capacity = std::mem::replace(&mut case.truth.right, vec!["hidden-runtime-memory"]);
    case.truth.also.extend(capacity);
    case.truth.is_decidable = case.sees_processes();
}

/// A process died, and its memory is still in use; nobody lists it.
fn without_owner(case: &mut Case) {
    let theirs = case.share(0.15, 0.6);
    fits_only_alone(case, theirs);
    case.set("SIM_OTHERS", theirs);
    if case.sight != Sight::Blind {
        // No screen hangs on this card.
        case.machine = case.machine.clone().with("sys/class/drm/card1/device/boot_vga", 0);
    }
    let refusal = refused(case, case.usable() - theirs);
    case.truth.fails = Some(true);
    case.truth.right = vec!["zombie-vram"];
    case.truth.also = case.shapes(&refusal);
    case.truth.is_decidable = case.sees_processes();
}

/// HIP does not know what a desktop holds.
fn graphics(case: &mut Case) {
    let theirs = case.rng.size((600 * MIB).max(case.card_bytes / 20), 3 * GIB.max(case.card_bytes / 8));
    fits_only_alone(case, theirs);
    case.set("SIM_OTHERS", theirs);
    case.set("SIM_OVER_REPORTED", theirs);
    let refusal = refused(case, case.usable() - theirs);
    case.truth.fails = Some(true);
    case.truth.right = vec!["free-overreported-graphics"];
    case.truth.also = [case.shapes(&refusal), vec!["phantom-free"]].concat();
    case.truth.is_decidable = case.sees_processes();
}

/// The driver refuses although enough is free, and nothing that anybody can read says why.
fn unexplained(case: &mut Case) {
    let share = case.rng.pick(&[(0.1, 0.42), (0.58, 0.8)]);
    let limit = case.share(share.0, share.1);
    let peak = (limit as f64 * case.rng.between(1.05, 1.4)) as u64;
    case.program.fit(peak.min(case.usable() * 9 / 10));
    case.set("SIM_PROCESS_LIMIT", limit);
    let refusal = refused(case, limit);
    case.truth.fails = Some(true);
    case.truth.right = vec!["phantom-free"];
    case.truth.also = case.shapes(&refusal);
    case.truth.is_decidable = is_plenty(case.usable() - refusal.held, refusal.bytes);
}

/// Buffers were opened to other processes and freed, and the driver keeps them.
fn exported(case: &mut Case) {
    let theirs = case.share(0.2, 0.5);
    fits_only_alone(case, theirs);
    let count = case.rng.within(1, 3);
    let names: Vec<String> = (0..count).map(|number| format!("e{number}")).collect();
    let mut ops = Vec::new();
    for name in &names {
        ops.extend([alloc(name, Kind::Device, theirs / count), raw(format!("export {name}"))]);
    }
    ops.extend([Op::Launch, Op::Sleep(READ_MS)]);
    ops.extend(names.iter().map(crate::script::free));
    ops.push(Op::Sleep(READ_MS));
    case.before.push(Op::At("share", ops));
    case.set("SIM_EXPORTS_STAY", 1);
    case.hip_version = HIP_7;
    let refusal = refused(case, case.usable() - theirs);
    case.truth.fails = Some(true);
    case.truth.right = vec!["ipc-export-pin"];
    case.truth.also =
        [case.shapes(&refusal), vec!["known-bad-version", "hidden-runtime-memory", "true-capacity"]].concat();
    case.truth.is_decidable = true;
}
