//! Calls that were to make memory reachable and failed, in words.

use serde::Serialize;

use crate::passes::oom::Status;
use crate::replay::Replay;

/// Calls that were to open memory of another process, or to map memory, and failed for another reason than want of memory: the
/// first of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnreachedMemory {
    /// Such calls.
    pub count: u64,
    /// When the first was made.
    pub at_ns: u64,
    /// Its function.
    pub api: String,
    /// What it returned.
    pub status: Status,
    /// It was to open memory of another process or interface; else to map memory.
    pub is_import: bool,
}

/// What a replay saw; `None` where there was none.
pub fn describe(replay: &Replay) -> Option<UnreachedMemory> {
    let one = replay.unreached?;
    let api = replay.apis.get(one.api);
    Some(UnreachedMemory {
        count: one.count,
        at_ns: replay.clock.at_ns(one.at),
        api: api.name.clone(),
        status: Status { code: one.status, name: api.status_name(one.status) },
        is_import: one.is_import,
    })
}
