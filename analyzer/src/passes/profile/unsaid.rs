//! What the cycles of a run do not say of what it holds where it ends.

use gpuoom_trace::outcome::Outcome;

use super::Place;
use crate::passes::growth::{Growth, cycles_of};
use crate::passes::rise::By;
use crate::replay::Replay;
use crate::replay::failures::Oom;
use crate::thresholds::Thresholds;
use crate::words::size;

/// Why level cycles do not show that nothing grows; `None` where they do, or where they rise.
pub(super) fn unsaid(replay: &Replay, place: Place, growth: &Growth, thresholds: &Thresholds) -> Option<String> {
    let Place::Gpu(device) = place else { return None };
    if growth.course.rises() || growth.by != By::Cycles {
        return None;
    }
    let beyond = cycles_of(replay.tracks.device(device)?, thresholds).beyond_bytes();
    if beyond >= thresholds.leak_total_bytes {
        return Some(format!(
            "what came behind the last cycle of memory is {} more than any cycle took: the cycles say nothing of it",
            size(beyond)
        ));
    }
    is_behind_a_failure(replay, device, growth).then(|| {
        "the cycles by which growth is judged came after memory had run out: what grew before they do not show"
            .to_owned()
    })
}

/// Whether the last stretch, by which growth is judged, came after a failure that nothing made up for.
fn is_behind_a_failure(replay: &Replay, device: u8, growth: &Growth) -> bool {
    // Of very many floors only some are kept, evenly chosen.
    let every = growth.cycles.div_ceil(growth.floors.len().max(1)).max(1);
    let kept = growth.stretch.div_ceil(every).min(growth.floors.len());
    let Some(first) = growth.floors.get(growth.floors.len() - kept) else { return false };
    // A failure of an unknown device may be of this one.
    let is_before =
        |oom: &Oom| oom.device.is_none_or(|known| known == device) && replay.clock.at_ns(oom.at) < first.at_ns;
    replay.failures.listed.iter().any(|oom| is_before(oom) && oom.outcome != Outcome::Recovered)
}
