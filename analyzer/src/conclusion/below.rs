//! What was refused below a call that asks for no memory, as a sentence.

use crate::passes::below::RefusedBelow;
use crate::passes::oom::Status;
use crate::passes::unreached::UnreachedMemory;
use crate::words::{clean, gpu, grouped, moment, size};

/// Refusals inside calls that ask for no memory: whether that is why anything else went wrong, nobody told.
pub(super) fn sentence(below: &RefusedBelow) -> String {
    let name = |status: &Status| status.name.map_or_else(|| format!("status {}", status.code), str::to_owned);
    let asked = below.requested_bytes.map_or("memory".to_owned(), size);
    let where_at = match below.device {
        Some(device) => format!(" on {}", gpu(Some(device))),
        None => String::new(),
    };
    let what_for = if matches!(below.kind, "host-pinned" | "registered") { " of pinned host memory" } else { "" };
    let ended = match below.inside_status.code {
        0 => "which says that it succeeded, and gave no memory".to_owned(),
        _ => format!("which failed, too ({})", name(&below.inside_status)),
    };
    let all = match below.count {
        1 => String::new(),
        count => {
            format!(" (the first of {} calls, of whatever function, that had memory refused inside)", grouped(count))
        }
    };
    format!(
        "At {} {} refused {asked}{what_for}{where_at} ({}, {}) inside {}, {ended}{all}. What the program made of that is \
         not known.",
        moment(below.at_ns),
        refuser(below.layer),
        clean(&below.api),
        name(&below.status),
        clean(&below.inside),
    )
}

/// Calls that were to make memory reachable and failed.
pub(super) fn unreached(unreached: &UnreachedMemory) -> String {
    let status = unreached.status.name.map_or_else(|| format!("status {}", unreached.status.code), str::to_owned);
    let what_for = if unreached.is_import { "to open memory of another process or interface" } else { "to map memory" };
    let all = match unreached.count {
        1 => String::new(),
        count => format!(" ({} such calls, this is the first)", grouped(count)),
    };
    format!(
        "At {} {} failed ({status}), which was {what_for}{all}. What the program made of that is not known.",
        moment(unreached.at_ns),
        clean(&unreached.api),
    )
}

/// A layer, as one that refuses.
fn refuser(layer: &str) -> &str {
    match layer {
        "kernel" => "the kernel's driver",
        "hsa" => "HSA",
        "driver" => "the CUDA driver",
        "runtime" => "the runtime",
        other => other,
    }
}
