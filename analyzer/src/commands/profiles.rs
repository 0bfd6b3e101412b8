//! Traces become profiles, for the commands that compare and check.

use anyhow::bail;
use gpuoom_trace::reader::TraceFile;

use super::output::complain;
use crate::conclusion::sum_up;
use crate::evidence::Evidence;
use crate::intake::read_through;
use crate::job::Member;
use crate::passes::profile::{Profile, THRESHOLDS, profile};
use crate::replay::Replay;
use crate::replay::timeline::Timeline;
use crate::symbols::SymbolPlaces;
use crate::thresholds::Thresholds;

/// Replays a trace to its end. What could not be read of it is said.
pub(super) fn read_profile(trace: TraceFile, symbols: &SymbolPlaces, thresholds: &Thresholds) -> Profile {
    read(trace, symbols, thresholds, None, |_, _| ()).0
}

/// The same, and what the trace brings to a job.
pub(super) fn read_member(trace: TraceFile, symbols: &SymbolPlaces, thresholds: &Thresholds) -> (Profile, Member) {
    let evidence = Evidence { thresholds: *thresholds, ..Evidence::default() };
    read(trace, symbols, thresholds, Some(Timeline::default()), |trace, replay| {
        Member::new(trace, replay, sum_up(trace, replay, &evidence))
    })
}

fn read<T>(
    mut trace: TraceFile,
    symbols: &SymbolPlaces,
    thresholds: &Thresholds,
    timeline: Option<Timeline>,
    and: impl FnOnce(&TraceFile, &Replay) -> T,
) -> (Profile, T) {
    let mut replay = Replay::new(&trace, thresholds.replay_options());
    replay.timeline = timeline;
    replay.accounts.keep_tallies();
    read_through(&mut trace, |_| {}, |batch| replay.batch(batch));
    replay.finish();
    for damage in trace.damages() {
        complain(&format!("{}: offset {}: {}", trace.path().display(), damage.offset, damage.reason));
    }
    let more = and(&trace, &replay);
    (profile(&trace, &replay, symbols, thresholds), more)
}

/// The defaults, changed as options say; only what a profile depends on can be set.
pub(super) fn thresholds<'a>(texts: impl Iterator<Item = &'a String>) -> anyhow::Result<Thresholds> {
    let mut thresholds = Thresholds::default();
    for text in texts {
        thresholds.set(text)?;
    }
    let other = thresholds.changes().into_iter().find(|change| !THRESHOLDS.contains(&change.name.as_str()));
    match other {
        Some(other) => bail!(
            "{}: runs are not compared by it; only report and doctor decide by it. Here count {}",
            other.name,
            THRESHOLDS.join(", ")
        ),
        None => Ok(thresholds),
    }
}
