//! A stretch of a log without what a log adds to a message: line prefixes, line ends, blanks. A message that a terminal or
//! a logger has wrapped, wherever it did, then reads the same as one that nobody touched.

/// Longest stretch of a log that one message can take, with prefixes.
const MOST_BYTES: usize = 8192;
/// Most lines of it.
const MOST_LINES: usize = 48;
/// Longest prefix of a line.
const MOST_PREFIX_BYTES: usize = 200;

/// Text without blanks, with the offset in the log of each byte.
#[derive(Debug, Default)]
pub(super) struct Window {
    pub(super) text: String,
    offsets: Vec<usize>,
}

impl Window {
    /// Reads on from `begin`. `line` is where its line begins: what stands between is the prefix that the following lines
    /// are expected to have as well.
    pub(super) fn read(log: &str, line: usize, begin: usize) -> Window {
        let mut window = Window::default();
        let prefix = prefix_of(&log[line..begin]);
        let mut at = begin;
        for number in 0..MOST_LINES {
            if at >= log.len() || at - begin >= MOST_BYTES {
                break;
            }
            let end = log[at..].find('\n').map_or(log.len(), |length| at + length + 1);
            match (number, behind_prefix(&log[at..end], prefix)) {
                (0, _) => window.push(log, at, end.min(cut(log, begin + MOST_BYTES))),
                (_, Some(skipped)) => window.push(log, at + skipped, end.min(cut(log, begin + MOST_BYTES))),
                // A line of another process, between two of this one.
                (_, None) => {}
            }
            at = end;
        }
        window
    }

    fn push(&mut self, log: &str, from: usize, to: usize) {
        let mut escaped = false;
        for (offset, character) in log.get(from..to).unwrap_or_default().char_indices() {
            // In a JSON log a line end is two characters.
            if escaped && character == 'n' {
                self.text.pop();
                self.offsets.pop();
            } else if !character.is_whitespace() {
                self.text.push(character);
                self.offsets.extend(std::iter::repeat_n(from + offset, character.len_utf8()));
            }
            escaped = character == '\\' && !escaped;
        }
    }

    /// The offset in the log of a byte of the text.
    pub(super) fn offset(&self, at: usize) -> usize {
        self.offsets.get(at).copied().unwrap_or_default()
    }
}

/// The nearest end of a character at or before `at`.
fn cut(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// What stands before a message in its line, without the name of the exception.
fn prefix_of(before: &str) -> &str {
    let before = before.trim_end_matches(['"', '\'', '(']);
    let prefix = match before.trim_end().strip_suffix("Error:") {
        Some(name) => name.trim_end_matches(|character: char| !character.is_whitespace()),
        None => before,
    };
    // A line that says much of its own before the message has no prefix that others would have.
    if prefix.len() > MOST_PREFIX_BYTES { "" } else { prefix }
}

/// Characters with each run of digits as one `0`: times and counters differ from line to line.
fn shape(text: &str) -> impl Iterator<Item = (usize, char)> {
    let mut in_digits = false;
    text.char_indices().filter_map(move |(at, character)| {
        let digit = character.is_ascii_digit();
        let again = digit && in_digits;
        in_digits = digit;
        (!again).then_some((at, if digit { '0' } else { character }))
    })
}

/// How many bytes of a line are the same prefix; 0 where it has none; `None` where another process wrote the line.
fn behind_prefix(line: &str, prefix: &str) -> Option<usize> {
    let mut of_line = shape(line);
    let same = shape(prefix.trim_end()).all(|(_, character)| of_line.next().is_some_and(|(_, own)| own == character));
    let length =
        if same && !prefix.trim_end().is_empty() { of_line.next().map_or(line.len(), |(at, _)| at) } else { 0 };
    let head = &line[..cut(line, length.max(MOST_PREFIX_BYTES))];
    match (who(prefix), who(head)) {
        (Some(one), Some(other)) if one != other => None,
        _ => Some(length),
    }
}

/// The number behind `rank` or `pid=`: which process a line comes from.
fn who(text: &str) -> Option<&str> {
    let digits = |at: usize| {
        let text = &text[at..];
        let length = text.bytes().take_while(u8::is_ascii_digit).count();
        (length > 0).then(|| &text[..length])
    };
    ["[rank", "pid="].iter().find_map(|word| text.find(word).and_then(|at| digits(at + word.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(log: &str, word: &str) -> String {
        let begin = log.find(word).unwrap();
        let line = log[..begin].rfind('\n').map_or(0, |at| at + 1);
        Window::read(log, line, begin).text
    }

    #[test]
    fn prefixes_are_left_out_and_wrapped_words_grow_together() {
        for log in [
            "CUDA out of memory. Tried to allocate 3.99 GiB.\nGPU 0 has",
            "[rank0]: torch.OutOfMemoryError: CUDA out of mem\n[rank0]: ory. Tried to allocate 3.9\n[rank0]: 9 GiB. GPU 0 has",
            "2025-01-01T09:59:59.1Z RuntimeError: CUDA out of memory. Tried to\n2025-01-01T10:00:00.12Z allocate 3.99 GiB. GPU 0 has",
            "[rank0]: CUDA out of memory. Tried to\n[rank1]: something else\n[rank0]: allocate 3.99 GiB. GPU 0 has",
            "{\"log\":\"CUDA out of memory. Tried to\\nallocate 3.99 GiB. GPU 0 has",
        ] {
            assert_eq!(read(log, "CUDA"), "CUDAoutofmemory.Triedtoallocate3.99GiB.GPU0has", "{log}");
        }
    }

    #[test]
    fn a_window_is_bounded_and_ends_between_characters() {
        let log = "é".repeat(100_000);
        let window = Window::read(&log, 0, 0);
        assert!(window.text.len() <= MOST_BYTES, "{}", window.text.len());
        assert_eq!(window.offsets.len(), window.text.len());
    }
}
