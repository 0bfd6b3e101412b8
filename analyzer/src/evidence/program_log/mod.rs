//! What llama.cpp and vLLM write of memory into their own logs.
//!
//! Sources: llama.cpp common/fit.cpp and src/llama.cpp (`*_params_fit_impl`), src/llama-kv-cache.cpp, src/llama-context.cpp, src/llama-model.cpp, and
//! ggml/src/ggml-alloc.c (`alloc_tensor_range`, `ggml_gallocr_reserve_n`); vLLM vllm/v1/worker and vllm/v1/core/kv_cache_utils.py.

mod llama;
#[cfg(test)]
mod tests;
mod vllm;

use serde::Serialize;

use super::torch_message::Printed;
use crate::replay::purpose::Purpose;

/// Most lines that are kept of one log.
const MOST: usize = 1000;
/// Longest part of a line that is kept.
const MOST_CHARACTERS: usize = 300;

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "says", rename_all = "snake_case")]
pub enum ProgramSays {
    /// llama.cpp, before it loads: what it will take of the devices, and what was free there.
    Projected {
        /// What it will take.
        needed: Printed,
        /// What was free.
        free: Printed,
    },
    /// llama.cpp made a buffer.
    Buffer {
        /// The buffer's name, as `ROCm0`.
        buffer: String,
        /// `weights`, `kv-cache` or `compute`.
        purpose: &'static str,
        /// Its size.
        size: Printed,
    },
    /// ggml was refused a buffer.
    Refused {
        /// The buffer's name, as `ROCm0`.
        buffer: String,
        /// `weights`, `kv-cache` or `compute`; null where the lines behind it do not say.
        purpose: Option<&'static str>,
        /// What it asked for.
        size_bytes: u64,
    },
    /// vLLM ended because less was free than its share of the card.
    LessFreeThanItsShare {
        /// What was free.
        free: Printed,
        /// What the card has.
        total: Printed,
        /// Its share, as it was set.
        share: String,
        /// What that is.
        wanted: Printed,
    },
    /// vLLM ended because its share of the card leaves nothing for the KV cache.
    NoRoomForTheCache,
    /// vLLM ended because its share of the card leaves too little KV cache for one request of the longest sort.
    CacheTooSmall {
        /// What one request needs.
        needed: Printed,
        /// What there is.
        available: Printed,
    },
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProgramLine {
    /// Its number, from 1.
    pub line: u64,
    /// What it says.
    #[serde(flatten)]
    pub says: ProgramSays,
    /// The line, as far as it is kept.
    pub text: String,
}

impl ProgramLine {
    /// What a buffer of this size was for that ggml was refused, where the log says it.
    pub fn refused_for(&self, bytes: u64) -> Option<Purpose> {
        let ProgramSays::Refused { purpose, size_bytes, .. } = &self.says else { return None };
        let purpose = purpose.filter(|_| *size_bytes == bytes)?;
        [Purpose::Weights, Purpose::KvCache, Purpose::Compute].into_iter().find(|known| known.name() == Some(purpose))
    }

    /// Whether vLLM says that its share of the card made it end.
    pub fn is_a_share_that_ended_it(&self) -> bool {
        use ProgramSays::{CacheTooSmall, LessFreeThanItsShare, NoRoomForTheCache};
        matches!(self.says, LessFreeThanItsShare { .. } | NoRoomForTheCache | CacheTooSmall { .. })
    }
}

/// All such lines of a log. Of those that say the same the last one is kept: servers try again.
pub fn find_all(log: &str) -> Vec<ProgramLine> {
    let lines: Vec<&str> = log.lines().collect();
    let says = |place: usize| llama::says(&lines[place..]).or_else(|| vllm::says(lines[place]));
    let line = |place: usize| {
        let text = lines[place].trim().chars().take(MOST_CHARACTERS).collect();
        Some(ProgramLine { line: place as u64 + 1, says: says(place)?, text })
    };
    let mut found: Vec<ProgramLine> = Vec::new();
    for new in (0..lines.len()).filter_map(line).take(MOST) {
        found.retain(|known| known.says != new.says);
        found.push(new);
    }
    found
}

/// What stands in a text between two others; the rest behind them.
fn between<'a>(text: &'a str, before: &str, behind: &str) -> Option<(&'a str, &'a str)> {
    text.split_once(before)?.1.split_once(behind)
}
