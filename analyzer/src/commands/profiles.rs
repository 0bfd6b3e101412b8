//! Traces become profiles, for the commands that compare and check.

use anyhow::bail;
use gpuoom_trace::reader::TraceFile;

use super::output::complain;
use crate::diagnosis::thresholds::Thresholds;
use crate::intake::read_through;
use crate::passes::profile::{Profile, THRESHOLDS, profile};
use crate::replay::Replay;
use crate::symbols::SymbolPlaces;

/// Replays a trace to its end. What could not be read of it is said.
pub(super) fn read_profile(mut trace: TraceFile, symbols: &SymbolPlaces, thresholds: &Thresholds) -> Profile {
    let mut replay = Replay::new(&trace, thresholds.replay_options());
    replay.accounts.keep_tallies();
    read_through(&mut trace, |_| {}, |batch| replay.batch(batch));
    replay.finish();
    for damage in trace.damages() {
        complain(&format!("{}: offset {}: {}", trace.path().display(), damage.offset, damage.reason));
    }
    profile(&trace, &replay, symbols, thresholds)
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
