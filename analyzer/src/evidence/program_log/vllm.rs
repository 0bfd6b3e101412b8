//! vLLM's errors about its share of the card, which it meets without a call that fails.

use super::{ProgramSays, between};
use crate::evidence::torch_message::Printed;

/// What a line says.
pub(super) fn says(line: &str) -> Option<ProgramSays> {
    if line.contains("No available memory for the cache blocks") {
        return Some(ProgramSays::NoRoomForTheCache);
    }
    less_free(line).or_else(|| too_small(line))
}

/// `Free memory on device cuda:0 (19.77/22.05 GiB) on startup is less than desired GPU memory utilization (0.9, 19.84 GiB).`
fn less_free(line: &str) -> Option<ProgramSays> {
    let (device, wanted) =
        line.split_once("Free memory on device")?.1.split_once("is less than desired GPU memory utilization")?;
    let (free, total) = between(device, "(", " GiB)")?.0.split_once('/')?;
    let (share, wanted) = between(wanted, "(", " GiB)")?.0.split_once(", ")?;
    Some(ProgramSays::LessFreeThanItsShare {
        free: Printed::of(free, "GiB")?,
        total: Printed::of(total, "GiB")?,
        share: share.to_owned(),
        wanted: Printed::of(wanted, "GiB")?,
    })
}

/// `... (2.50 GiB KV cache is needed, which is larger than the available KV cache memory (1.20 GiB). ...`
fn too_small(line: &str) -> Option<ProgramSays> {
    let (before, behind) =
        line.split_once(" GiB KV cache is needed, which is larger than the available KV cache memory")?;
    let needed = before.rsplit(|character: char| !character.is_ascii_digit() && character != '.').next()?;
    let (available, _) = between(behind, "(", " GiB)")?;
    Some(ProgramSays::CacheTooSmall { needed: Printed::of(needed, "GiB")?, available: Printed::of(available, "GiB")? })
}
