//! What programs do with a refused call.

use super::{Table, cause};
use crate::case::{Case, MIB};
use crate::script::{Kind, Model, Op, alloc, raw};

pub(super) const TABLE: Table = &[
    || cause("a failure is ignored, and its pointer used", 4, ignored).no_async(),
    || cause("a failure is ignored, and work goes on", 3, work_goes_on).no_async(),
];

/// The card is full, the next call is refused, and nobody looks.
fn refused_unseen(case: &mut Case) {
    let peak = case.share(0.3, 0.7);
    case.program.fit(peak);
    let held = Model::of(&case.ops(), None).held(0);
    let usable = case.usable();
    let filler = (usable as f64 * case.rng.between(0.85, 0.97)) as u64 - held.min(usable * 8 / 10);
    let exceeds = case.rng.chance(0.3);
    let wanted = match exceeds {
        true => case.card_bytes + case.rng.size(MIB, case.card_bytes),
        false => case.rng.size(usable / 5, usable / 2),
    };
    let fill = vec![Op::Device(0), alloc("fill", Kind::Device, filler & !0xFFFF), Op::Copy("fill".into())];
    case.after.push(Op::At("fill", fill));
    case.after.extend([raw("failures go"), Op::At("grow", vec![raw(format!("alloc boom {wanted}"))])]);
    let base = if exceeds { "request-exceeds-device" } else { "true-capacity" };
    case.truth.fails = Some(true);
    case.truth.right = vec!["dropped-oom-return", base];
    case.truth.also = vec!["true-capacity"];
    case.truth.is_decidable = true;
}

fn ignored(case: &mut Case) {
    refused_unseen(case);
    case.after.extend([Op::Copy("boom".into()), Op::Launch, Op::Sync]);
}

fn work_goes_on(case: &mut Case) {
    refused_unseen(case);
    case.after.extend([Op::Launch, Op::Launch, Op::Sync]);
}
