//! What is only guessed from sizes and times is not told where something surer explains the same.

use super::finding::Finding;
use crate::judgement::check::Confidence;

/// Drops guesses about failures that something at least probable explains, and about a device or run where something at least
/// probable is known to be wrong there.
pub(super) fn drop_explained(found: &mut Vec<Finding>) {
    let explains =
        |finding: &&Finding| finding.role.explains() && finding.confidence >= Confidence::Probable && !finding.is_guess;
    let surer: Vec<(Option<u8>, Vec<u64>)> =
        found.iter().filter(explains).map(|finding| (finding.device, finding.ooms.clone())).collect();
    let explained = |oom: &u64| surer.iter().any(|(_, ooms)| ooms.contains(oom));
    found.retain_mut(|finding| {
        if !finding.is_guess || finding.confidence > Confidence::Possible {
            return true;
        }
        if finding.ooms.is_empty() {
            return !surer.iter().any(|(device, _)| *device == finding.device || device.is_none());
        }
        finding.ooms.retain(|oom| !explained(oom));
        !finding.ooms.is_empty()
    });
}
