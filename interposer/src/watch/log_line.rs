//! A line that ggml or llama.cpp logs: `ggml_log_internal(level, format, ...)` and `llama_log_internal`.
//!
//! Only a line that says that there is no memory is kept. Its level does not tell which one that is: the numbers of errors, warnings
//! and debugging changed twice in 2024 (the second time by llama.cpp's pull request 10124), and no call says which ones hold.

use super::printf::{Line, Variadic};

/// Lines that are kept for one failure.
pub(super) const MOST_LINES: u8 = 8;
/// The numbers that have ever been those of errors or warnings.
const LEVELS: std::ops::RangeInclusive<u32> = 2..=4;
/// What such a line speaks of, and what it says of it; both as they stand in lines of 2023 to 2026.
const MATTERS: [&[u8]; 2] = [b"memory", b"alloc"];
const HAPPENED: [&[u8]; 6] = [b"fail", b"unable", b"out of", b"could not", b"not enough", b"insufficient"];

/// Writes the line, without its end, and returns its length; 0: it is none of those.
pub(super) fn text(arguments: Variadic<'_>, out: &mut [u8]) -> usize {
    let [level, format, ..] = *arguments.integers;
    if !LEVELS.contains(&(level as u32)) {
        return 0;
    }
    let mut line = Line::new(out);
    line.push_format(format, Variadic { integers_taken: 2, ..arguments });
    let length = line.length;
    let said = out[..length].trim_ascii_end();
    if has_one_of(said, &MATTERS) && has_one_of(said, &HAPPENED) { said.len() } else { 0 }
}

fn has_one_of(text: &[u8], words: &[&[u8]]) -> bool {
    words.iter().any(|word| text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(level: u64, format: &std::ffi::CStr) -> String {
        let integers = [level, format.as_ptr() as u64, 0, 0, 0, 0];
        let vectors = [[0; 2]; 8];
        let arguments =
            Variadic { integers: &integers, integers_taken: 0, vectors: &vectors, vectors_taken: 0, on_stack: 0 };
        let mut out = [0; 200];
        let length = text(arguments, &mut out);
        String::from_utf8_lossy(&out[..length]).into_owned()
    }

    #[test]
    fn a_line_about_missing_memory_is_kept() {
        assert_eq!(said(4, c"CUDA error: out of memory\n"), "CUDA error: out of memory");
        let no_room = c"graph_reserve: failed to allocate compute buffers\n";
        assert_eq!(said(3, no_room), "graph_reserve: failed to allocate compute buffers");
        assert_eq!(said(2, c"Unable to Allocate"), "Unable to Allocate");
    }

    #[test]
    fn other_lines_are_not() {
        for line in [c"model buffer size = 4 MiB\n", c"failed to open a file\n", c"using device memory\n", c"\n", c""] {
            assert_eq!(said(4, line), "");
        }
        for level in [0, 1, 5, u64::from(u32::MAX)] {
            assert_eq!(said(level, c"out of memory"), "", "a level that was never one of errors");
        }
    }
}
