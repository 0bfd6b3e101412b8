//! Pools, virtual memory, counts and addresses.

use super::capacity::refused;
use super::{Table, Where, cause};
use crate::case::{Case, GIB, HIP_6, HIP_7, MIB, READ_MS, Sight};
use crate::script::{Kind, Model, Op, alloc, raw};

pub(super) const TABLE: Table = &[
    || cause("a pool keeps what was freed", 4, retention).no_async().one_device(),
    || cause("freed, and not yet by the runtime", 4, pending).no_async().one_device(),
    || cause("stream-ordered allocation of an old ROCm", 3, old_async).on(Where::Hip).no_async().one_device(),
    || {
        cause("a refused stream-ordered call takes memory", 2, failure_leak)
            .on(Where::Hip)
            .no_async()
            .one_device()
            .seen(Sight::Full)
    },
    || cause("released virtual memory stays", 2, released).on(Where::Hip).no_async().one_device().seen(Sight::Full),
    || cause("descriptors are used up", 3, descriptors).on(Where::Hip).no_async().one_device(),
    || cause("mappings are used up", 1, mappings).on(Where::Hip).no_async().one_device(),
    || cause("a pool of the program's own is in pieces", 3, in_pieces).no_async().one_device(),
    || cause("addresses are used up", 2, addresses).on(Where::Hip).no_async().seen(Sight::AtFailures),
];

/// Stream-ordered memory was freed, and its pool was told to keep it.
fn retention(case: &mut Case) {
    let kept = case.share(0.3, 0.6) & !0x1F_FFFF;
    let low = (case.usable() - kept) as f64 * 1.03;
    let peak = case.rng.between(low, case.usable() as f64 * 0.96) as u64;
    case.program.fit(peak);
    let first = (kept / 3) & !0x1F_FFFF;
    let phase = vec![
        raw("keep 1T"),
        alloc("pa", Kind::Async, first),
        alloc("pb", Kind::Async, kept - first),
        Op::Launch,
        raw("free pa"),
        raw("free pb"),
        Op::Sync,
    ];
    // For the model it stays live: the pool has it.
    case.before.push(Op::At("first_phase", phase));
    case.hip_version = HIP_7;
    let refusal = refused(case, case.usable());
    case.truth.fails = Some(true);
    case.truth.right = vec!["pool-retention"];
    case.truth.also = case.shapes(&refusal);
    case.truth.is_decidable = true;
}

/// The program freed enough; the runtime has not got to it, because nobody waited for the stream.
fn pending(case: &mut Case) {
    let peak = case.share(0.1, 0.25);
    case.program.fit(peak);
    let held = Model::of(&case.program.setup, None).held(0);
    let room = case.usable() - held;
    let first = (room as f64 * case.rng.between(0.4, 0.65)) as u64 & !0x1F_FFFF;
    let second = (room as f64 * case.rng.between(0.62, 0.9)) as u64 & !0x1F_FFFF;
    let recovers = case.rng.chance(0.6);
    let mut ops = vec![alloc("q0", Kind::Async, first), Op::Launch, raw("free q0")];
    if recovers {
        ops.extend(["failures retry", "on_failure", "sync", "end"].map(raw));
    }
    ops.push(raw(format!("async q1 {second}")));
    if recovers {
        ops.extend([raw("failures exit"), Op::Launch, raw("free q1"), Op::Sync]);
    }
    case.program.setup.push(Op::At("exchange", ops));
    case.set("SIM_FREES_WAIT", 1);
    case.hip_version = HIP_7;
    case.truth.fails = Some(true);
    case.truth.right = vec!["async-free-pending"];
    case.truth.also = vec!["cache-greed"];
    case.truth.is_decidable = true;
}

/// On ROCm 6.4 the stream-ordered allocator refuses where the plain one does not.
fn old_async(case: &mut Case) {
    let peak = case.share(0.1, 0.3);
    case.program.fit(peak);
    let limit = case.share(0.2, 0.35);
    case.set("SIM_POOL_LIMIT", limit);
    case.hip_version = HIP_6;
    let count = case.rng.within(4, 9);
    let mut ops: Vec<Op> = (0..count)
        .map(|number| alloc(format!("q{number}"), Kind::Async, limit * (number + 1) / (count * count)))
        .collect();
    let wanted = limit * 6 / 10;
    let follows = case.rng.chance(0.6);
    ops.push(raw("failures go"));
    ops.push(raw(format!("async x {wanted}")));
    if follows {
        ops.push(raw(format!("alloc y {wanted}")));
    }
    ops.push(raw("exit 1"));
    case.program.end = vec![Op::At("exchange", ops)];
    case.truth.fails = Some(true);
    case.truth.right = vec!["mallocasync-oom"];
    case.truth.also = vec!["phantom-free", "known-bad-version"];
    case.truth.is_decidable = follows;
}

/// The call fails, and what it asked for is gone all the same.
fn failure_leak(case: &mut Case) {
    let peak = case.share(0.1, 0.3);
    case.program.fit(peak);
    let lost = case.share(0.3, 0.5);
    case.set("SIM_POOL_LIMIT", GIB / 2);
    case.set("SIM_POOL_LOSES", lost);
    case.hip_version = HIP_6;
    let ops = vec![
        Op::Sleep(READ_MS),
        raw("failures go"),
        raw(format!("async x {lost}")),
        raw("query"),
        Op::Sleep(READ_MS),
        raw("failures exit"),
        raw(format!("alloc y {}", case.usable() - lost)),
    ];
    case.program.end = vec![Op::At("exchange", ops)];
    case.truth.fails = Some(true);
    case.truth.right = vec!["pool-failure-leak", "mallocasync-oom"];
    case.truth.also = vec!["phantom-free", "known-bad-version", "hidden-runtime-memory", "true-capacity"];
    case.truth.is_decidable = true;
}

/// Unmapped and released, and the card does not get it back.
fn released(case: &mut Case) {
    let peak = case.share(0.1, 0.4);
    case.program.fit(peak);
    let kept = case.share(0.3, 0.5) & !0x1F_FFFF;
    let count = case.rng.within(1, 4);
    let mut ops = Vec::new();
    for number in 0..count {
        ops.push(raw(format!("virtual v{number} {}M", kept / count / MIB / 2 * 2)));
    }
    ops.extend([Op::Launch, Op::Sleep(READ_MS)]);
    ops.extend((0..count).map(|number| raw(format!("release v{number}"))));
    ops.push(Op::Sleep(READ_MS));
    let wanted = case.usable() - kept / 2;
    ops.push(raw(format!("alloc more {wanted}")));
    case.program.end = vec![Op::At("exchange", ops)];
    case.set("SIM_HANDLES_STAY", 1);
    case.hip_version = HIP_7;
    case.truth.fails = Some(true);
    case.truth.right = vec!["vmm-release-ineffective"];
    case.truth.also = vec!["hidden-runtime-memory", "true-capacity"];
    // What is asked for must fit once the release has its effect.
    let held = Model::of(&[case.program.setup.clone(), case.program.steps.concat()].concat(), None).held(0);
    case.truth.is_decidable = held + wanted <= case.usable();
}

/// Each handle of virtual memory takes a descriptor.
fn descriptors(case: &mut Case) {
    let peak = case.share(0.1, 0.5);
    case.program.fit(peak);
    let limit = case.rng.pick(&[64, 96, 128, 256]);
    case.set("SIM_HANDLE_FILES", 1);
    case.hip_version = HIP_7;
    case.before.push(raw(format!("files {limit}")));
    let size = case.rng.pick(&[2, 2, 4, 8]);
    let mut ops = Vec::new();
    for number in 0..limit {
        ops.push(raw(format!("virtual v{number} {size}M")));
    }
    case.program.end = vec![Op::At("grow", ops)];
    case.truth.fails = Some(true);
    case.truth.right = vec!["vmm-fd-exhaustion"];
    case.truth.also = vec!["phantom-free"];
    case.truth.is_decidable = true;
}

/// The kernel allows a process so many mappings.
fn mappings(case: &mut Case) {
    let peak = case.share(0.1, 0.5);
    case.program.fit(peak);
    let size = case.rng.pick(&[2, 4]);
    case.set("SIM_REAL_MAPPINGS", 1);
    case.before.push(raw("mappings 600"));
    case.program.end = vec![Op::At("grow", vec![raw(format!("push {size}M 700"))])];
    case.truth.fails = Some(true);
    case.truth.right = vec!["map-count-exhaustion"];
    case.truth.also = vec!["phantom-free"];
    case.truth.is_decidable = case.card_bytes >= 16 * GIB;
}

/// A driver whose address space was made small on purpose.
fn addresses(case: &mut Case) {
    let peak = case.share(0.1, 0.5);
    case.program.fit(peak);
    let space = case.rng.pick(&[64, 128, 256]);
    case.machine = case.machine.clone().with("sys/module/amdgpu/parameters/vm_size", space);
    case.set("SIM_RESERVED_LIMIT", format!("{space}G"));
    let taken = space - case.rng.within(1, space / 16);
    let ops = vec![raw("failures go"), raw(format!("reserve {taken}G")), raw("reserve 32G"), raw("exit 1")];
    case.program.end = vec![Op::At("grow", ops)];
    // A reservation is of addresses: no memory was refused.
    case.truth.fails = None;
    case.truth.right = vec!["gpu-va-limit"];
    case.truth.is_decidable = true;
}

/// An arena of the program has given out blocks and got every other one back. What is asked for next is smaller than all that is
/// unused and larger than any gap, and the card has no room for another segment.
fn in_pieces(case: &mut Case) {
    let peak = case.share(0.1, 0.3);
    case.program.fit(peak);
    let held = Model::of(&[case.program.setup.clone(), case.program.steps.concat()].concat(), None).held(0);
    let room = case.usable() - held;
    let (segments, blocks) = (case.rng.within(2, 8), case.rng.within(6, 16));
    let block = (room * 95 / 100 / segments / blocks) & !0xFFFF;
    let size = block * blocks;
    let mut ops = Vec::new();
    for segment in 0..segments {
        ops.push(alloc(format!("arena{segment}"), Kind::Device, size));
        ops.extend((0..blocks).map(|number| raw(format!("give arena{segment} {} {block}", number * block))));
    }
    ops.push(Op::Launch);
    for segment in 0..segments {
        let back = (0..blocks).filter(|number| number % 2 == 0);
        ops.extend(back.map(|number| raw(format!("take arena{segment} {}", number * block))));
    }
    let unused = segments * blocks.div_ceil(2) * block;
    let least = (room - segments * size).max(block) + 4 * MIB;
    let wanted = case.rng.within(least, (unused / 2).max(least));
    ops.push(alloc("segment", Kind::Device, wanted & !0xFFF));
    case.program.end = vec![Op::At("arena", ops)];
    case.truth.fails = Some(true);
    case.truth.right = vec!["caching-fragmentation"];
    // What a pool gives out is in no call and in no reading.
    case.truth.is_decidable = false;
}
