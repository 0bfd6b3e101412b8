//! What a failed call's memory was for, and whether a model was loaded or computed with.

use crate::passes::phase::{Phase, Where};
use crate::passes::shape::paths;
use crate::replay::Replay;
use crate::replay::block::Side;
use crate::replay::failures::Oom;
use crate::replay::purpose::{Purpose, loads_or_computes};
use crate::symbols::Frame;

/// The phase that the functions of a framework say which the thread was in.
pub(super) fn phase_by_scopes(replay: &Replay, oom: &Oom) -> Option<Where> {
    let (loads, row) = loads_or_computes(&oom.scopes, &replay.apis)?;
    let phase = if loads { Phase::Load } else { Phase::Forward };
    Some(Where::inside(phase, &replay.apis.get(row).name))
}

/// What the memory of a failed call was for, and by which function that is known: one that the trace says it came inside, or else one
/// on the way to it.
pub(super) fn of(replay: &Replay, oom: &Oom, stack: &[Frame]) -> (Purpose, Option<String>) {
    let of_device = Side::of(oom.kind) == Side::Device && !oom.unknown_size;
    match oom.purpose_by {
        Some(row) => (oom.purpose, Some(replay.apis.get(row).name.clone())),
        None => match paths::purpose(stack).filter(|_| of_device) {
            Some((purpose, by)) => (purpose, Some(by)),
            None => (Purpose::Unknown, None),
        },
    }
}
