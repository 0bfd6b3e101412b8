//! Refusals below calls that ask for no memory, in words.

use gpuoom_trace::record::Kind;
use serde::Serialize;

use crate::passes::oom::Status;
use crate::replay::Replay;

/// Calls that failed with a refusal for want of memory inside; the first of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedBelow {
    /// Such calls.
    pub count: u64,
    /// When memory was refused.
    pub at_ns: u64,
    /// Who refused.
    pub api: String,
    /// The refuser's layer.
    pub layer: &'static str,
    /// What it returned.
    pub status: Status,
    /// Bytes asked for; `None` where they are not told.
    pub requested_bytes: Option<u64>,
    /// Kind of memory.
    pub kind: &'static str,
    /// Device, where it is known.
    pub device: Option<u8>,
    /// The call around it, which failed.
    pub inside: String,
    /// What that returned.
    pub inside_status: Status,
}

/// What a replay saw; `None` where there was none.
pub fn describe(replay: &Replay) -> Option<RefusedBelow> {
    let below = &replay.below;
    let one = below.first?;
    let status = |api: u16, code: i32| Status { code, name: replay.apis.get(api).status_name(code) };
    let refusal = one.refusal;
    let is_of_card = !matches!(refusal.kind, Kind::HostPinned | Kind::Registered);
    Some(RefusedBelow {
        count: below.count,
        at_ns: replay.clock.at_ns(refusal.at),
        api: replay.apis.get(refusal.api).name.clone(),
        layer: refusal.layer.name(),
        status: status(refusal.api, refusal.status),
        requested_bytes: Some(refusal.requested_bytes).filter(|bytes| *bytes > 0),
        kind: refusal.kind.name(),
        device: refusal.device.filter(|_| is_of_card),
        inside: replay.apis.get(one.api).name.clone(),
        inside_status: status(one.api, one.status),
    })
}
