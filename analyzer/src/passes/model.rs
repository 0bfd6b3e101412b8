//! A model as somebody described it, and what follows from that, beside what the trace shows.

use gpuoom_trace::record::NO_DEVICE;
use serde::Serialize;

use crate::evidence::Evidence;
use crate::evidence::model::ModelFacts;
use crate::replay::Replay;
use crate::replay::tracks::calls::{Call, What};
use crate::thresholds::{Thresholds, share};

/// Bytes that the facts make, and the request of the trace that comes nearest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Predicted {
    /// What the facts make.
    pub bytes: u64,
    /// Bytes of the request on a device that is nearest, given or refused; null where nothing was asked for.
    pub nearest_bytes: Option<u64>,
    /// Whether that is the same within the tolerance (`model-share`).
    pub is_near: bool,
    /// Whether that request was refused.
    pub was_refused: bool,
}

/// A model that was described.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GivenModel {
    /// Where the facts come from, the last one first where they contradict each other.
    pub from: Vec<String>,
    /// The facts.
    pub facts: ModelFacts,
    /// The cache for the whole context; null where facts are missing.
    pub kv_cache: Option<Predicted>,
    /// The weights on the device; null where nobody said how large they are.
    pub weights: Option<Predicted>,
    /// Weights, gradients and optimizer state of a training, in bytes; null where facts are missing.
    pub training_bytes: Option<u64>,
    /// Most that the program held on one device, in bytes.
    pub peak_bytes: u64,
}

/// Describes the model; none where nothing was said of it.
pub fn describe(replay: &Replay, evidence: &Evidence) -> Option<GivenModel> {
    let facts = evidence.model.clone()?;
    let predicted = |bytes| predict(replay, &evidence.thresholds, bytes);
    let peaks = replay.accounts.devices().map(|(_, account)| account.peak.held.requested_bytes);
    Some(GivenModel {
        from: evidence.model_from.clone(),
        kv_cache: facts.kv_bytes().map(predicted),
        weights: facts.weights_bytes.map(predicted),
        training_bytes: facts.training_bytes(),
        peak_bytes: u64::try_from(peaks.max().unwrap_or(0)).unwrap_or(u64::MAX),
        facts,
    })
}

fn predict(replay: &Replay, thresholds: &Thresholds, bytes: u64) -> Predicted {
    let calls = &replay.tracks.calls;
    let last = calls.before(calls.count()).calls;
    let asked = |call: &&Call| call.what != What::Returned && call.device != NO_DEVICE;
    let nearest = calls.first().iter().chain(&last).filter(asked).min_by_key(|call| call.bytes.abs_diff(bytes));
    Predicted {
        bytes,
        nearest_bytes: nearest.map(|call| call.bytes),
        is_near: nearest.is_some_and(|call| share(call.bytes.abs_diff(bytes), bytes) <= thresholds.model_share),
        was_refused: nearest.is_some_and(|call| call.what == What::Refused),
    }
}
