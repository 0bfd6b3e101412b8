//! Traces become profiles, for the commands that compare and check.

use gpuoom_trace::reader::TraceFile;

use super::output::complain;
use crate::intake::read_through;
use crate::passes::profile::{Profile, profile};
use crate::replay::{Options, Replay};
use crate::symbols::SymbolPlaces;

/// Replays a trace to its end. What could not be read of it is said.
pub(super) fn read_profile(mut trace: TraceFile, symbols: &SymbolPlaces) -> Profile {
    let mut replay = Replay::new(&trace, Options::default());
    replay.accounts.keep_tallies();
    read_through(&mut trace, |_| {}, |batch| replay.batch(batch));
    replay.finish();
    for damage in trace.damages() {
        complain(&format!("{}: offset {}: {}", trace.path().display(), damage.offset, damage.reason));
    }
    profile(&trace, &replay, symbols)
}
