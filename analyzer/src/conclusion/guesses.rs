//! What is only guessed from sizes and times is not told where something surer explains the same.

use super::finding::Finding;
use crate::judgement::check::Confidence;
use crate::judgement::role::Role;

/// Drops guesses about failures that something at least probable explains, and about a device or run where something at least
/// probable is known to be wrong there.
pub(super) fn drop_explained(found: &mut Vec<Finding>) {
    let explains =
        |finding: &&Finding| finding.role.explains() && finding.confidence >= Confidence::Probable && !finding.is_guess;
    let surer: Vec<(Role, Option<u8>, Vec<u64>)> =
        found.iter().filter(explains).map(|finding| (finding.role, finding.device, finding.ooms.clone())).collect();
    found.retain_mut(|finding| {
        if !finding.is_guess || finding.confidence > Confidence::Possible {
            return true;
        }
        // When a failure came does not say why: only a cause takes the place of a cause.
        let takes_its_place = |role: Role| finding.role == Role::Shape || role == Role::Cause;
        let mut others = surer.iter().filter(|(role, ..)| takes_its_place(*role));
        if finding.ooms.is_empty() {
            return !others.any(|(_, device, _)| *device == finding.device || device.is_none());
        }
        let explained: Vec<u64> = others.flat_map(|(_, _, ooms)| ooms.clone()).collect();
        finding.ooms.retain(|oom| !explained.contains(oom));
        !finding.ooms.is_empty()
    });
}
