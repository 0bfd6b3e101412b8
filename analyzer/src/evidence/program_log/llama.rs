//! llama.cpp's lines, and ggml's.

use super::{ProgramSays, between};
use crate::evidence::torch_message::Printed;
use crate::replay::purpose::Purpose;

/// How far behind a refused buffer a line says what it was for.
const NEAR_LINES: usize = 8;

/// Buffers that were made, by the words before their size.
const BUFFERS: [(&str, Purpose); 3] = [
    (" model buffer size", Purpose::Weights),
    (" KV buffer size", Purpose::KvCache),
    (" compute buffer size", Purpose::Compute),
];

/// What tells, in a line behind a refused buffer, what it was for.
const WHAT_FOR: [(&str, Purpose); 4] = [
    ("for kv cache", Purpose::KvCache),
    ("failed to allocate compute", Purpose::Compute),
    ("error loading model: unable to allocate", Purpose::Weights),
    ("llama_model_load_from_file", Purpose::Weights),
];

/// What the first of these lines says.
pub(super) fn says(lines: &[&str]) -> Option<ProgramSays> {
    let line = lines.first()?;
    projected(line).or_else(|| buffer(line)).or_else(|| refused(line, &lines[1..]))
}

/// `llama_params_fit_impl: projected to use 7168 MiB of device memory vs. 6144 MiB of free device memory`
fn projected(line: &str) -> Option<ProgramSays> {
    let (needed, rest) = between(line, "projected to use ", " MiB of device memory")?;
    let (free, _) = between(rest, "vs. ", " MiB of free device memory")?;
    Some(ProgramSays::Projected { needed: Printed::of(needed, "MiB")?, free: Printed::of(free, "MiB")? })
}

/// `llama_kv_cache:      ROCm0 KV buffer size =  1024.00 MiB`
fn buffer(line: &str) -> Option<ProgramSays> {
    let (words, purpose) = BUFFERS.iter().find(|(words, _)| line.contains(words))?;
    let (before, behind) = line.split_once(words)?;
    let (number, _) = between(behind, "=", "MiB")?;
    let buffer = before.split_whitespace().next_back()?.to_owned();
    Some(ProgramSays::Buffer { buffer, purpose: purpose.name()?, size: Printed::of(number, "MiB")? })
}

/// `alloc_tensor_range: failed to allocate ROCm0 buffer of size 8589934592`
fn refused(line: &str, behind: &[&str]) -> Option<ProgramSays> {
    let (buffer, rest) = between(line, "failed to allocate ", " buffer of size ")?;
    let digits = rest.split(|character: char| !character.is_ascii_digit()).next()?;
    let size_bytes = digits.parse().ok()?;
    // That function makes memory for graphs alone.
    let of_graph = line.contains("ggml_gallocr_reserve_n").then_some(Purpose::Compute);
    let purpose = of_graph.or_else(|| behind.iter().take(NEAR_LINES).find_map(|line| what_for(line)));
    Some(ProgramSays::Refused { buffer: buffer.to_owned(), purpose: purpose.and_then(Purpose::name), size_bytes })
}

fn what_for(line: &str) -> Option<Purpose> {
    WHAT_FOR.iter().find(|(words, _)| line.contains(words)).map(|(_, purpose)| *purpose)
}
