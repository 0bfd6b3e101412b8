//! The host's memory.

use super::{REPEATING, Table, Where, cause};
use crate::case::{Case, GIB, MIB, Sight};
use crate::machine::{CARD, ram_bytes};
use crate::script::{Kind, alloc};

pub(super) const TABLE: Table = &[
    || cause("pinned memory runs out", 4, pinned).of(REPEATING).no_async(),
    || {
        cause("the kernel's limit of system memory", 3, kernel_limit)
            .on(Where::Hip)
            .of(REPEATING)
            .no_async()
            .seen(Sight::AtFailures)
    },
];

/// Pins a block in each step, and keeps it.
fn pins(case: &mut Case, limit: u64) {
    let peak = case.share(0.1, 0.9);
    case.program.fit(peak);
    case.at_least_steps(10);
    let kind = case.rng.pick(&[Kind::Host, Kind::Host, Kind::Register]);
    let steps = case.program.steps.len() as u64;
    let each = (limit as f64 * case.rng.between(1.2, 2.0)) as u64 / steps;
    for step in 0..steps {
        let size = case.rng.about(each, 0.2);
        case.program.add_to_step(step as usize, vec![alloc(format!("pin{step}"), kind, size)], true);
    }
    case.set("SIM_PINNED_LIMIT", limit);
    case.truth.fails = Some(true);
    case.truth.is_decidable = true;
}

fn pinned(case: &mut Case) {
    let limit = case.rng.size(256 * MIB, 8 * GIB);
    pins(case, limit);
    case.truth.right = vec!["pinned-host-exhaustion"];
}

fn kernel_limit(case: &mut Case) {
    let limit = ram_bytes(CARD) / 16 * case.rng.within(4, 10);
    case.machine = case.machine.clone().with("sys/module/ttm/parameters/pages_limit", limit / 4096);
    pins(case, limit);
    case.truth.right = vec!["kfd-system-memory-limit", "pinned-host-exhaustion"];
}
