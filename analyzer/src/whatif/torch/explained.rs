//! How much of what was recorded the model explains, and that nothing is said of more.

use super::policy::{Policy, Ties};
use super::steps::{History, Sizes, read};
use super::{KnownCard, TorchAnswer, TorchQuestion, answer};
use crate::evidence::torch_snapshot::Snapshot;

/// The history by the rules of the version that does it best: the snapshot does not say which it was.
pub(super) fn best_explained(
    snapshot: &Snapshot,
    device: usize,
    policy: &Policy,
    card_bytes: u64,
    sizes: Sizes,
) -> (Policy, History) {
    let by = |ties: Ties| {
        let policy = Policy { ties, ..policy.clone() };
        let history = read(snapshot, device, &policy, card_bytes, sizes);
        (policy, history)
    };
    let newest = by(Ties::Segment);
    if newest.1.compared.first_difference.is_none() && newest.1.first_misplaced.is_none() {
        return newest;
    }
    let older = by(Ties::Address);
    // Of a trace nothing counts that comes behind the first difference.
    let agreed = |history: &History| history.agreed_steps.filter(|_| sizes == Sizes::OfBlocks).unwrap_or(usize::MAX);
    let good = |history: &History| (agreed(history), history.compared.matched, history.placed);
    if good(&older.1) > good(&newest.1) { older } else { newest }
}

/// The answers up to where the recorded settings have another outcome on the recorded card than the run had: a model that does not
/// have the recorded failure can say nothing of what other settings make of it.
pub(super) fn as_far_as_explained(
    device: u32,
    explained: &mut (Policy, History),
    question: &TorchQuestion,
    card: KnownCard,
) -> TorchAnswer {
    let whole = answer(device, explained, question, card);
    let recorded = whole.policies.iter().find(|policy| policy.is_recorded);
    let Some(number) = recorded.and_then(|policy| policy.first_change) else { return whole };
    let stop = explained.1.keep_before(number);
    TorchAnswer { stops_because: Some(stop), ..answer(device, explained, question, card) }
}
