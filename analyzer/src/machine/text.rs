//! Reading small kernel texts: one number, one word, `key value` lines.

use std::collections::BTreeMap;
use std::ops::Bound;

/// Files that are looked at, bytes of each, and things of one sort: a trace may claim any number of them, and lists are
/// compared with each other. The recorder keeps fewer.
const MAX_FILES: usize = 4096;
const MAX_TEXT: usize = 64 << 10;
pub(super) const MAX_THINGS: usize = 1024;
/// Characters that are kept of a text that is shown.
const MAX_SHOWN: usize = 200;

/// The files of a machine.
pub(super) struct Files<'a> {
    by_path: BTreeMap<&'a str, &'a str>,
}

impl<'a> Files<'a> {
    pub(super) fn new(files: &'a [(String, String)]) -> Self {
        let files = files.iter().take(MAX_FILES).map(|(path, text)| (path.as_str(), beginning(text)));
        Files { by_path: files.collect() }
    }

    /// A file's text, empty where it is not there.
    pub(super) fn text(&self, path: &str) -> &'a str {
        self.by_path.get(path).copied().unwrap_or_default()
    }

    /// A file's first line.
    pub(super) fn line(&self, path: &str) -> Option<String> {
        first_line(self.by_path.get(path)?)
    }

    /// The number that a file holds, in bytes or whatever it counts.
    pub(super) fn number(&self, path: &str) -> Option<u64> {
        number(self.by_path.get(path)?.trim())
    }

    /// The files below a directory, by path.
    pub(super) fn below(&self, directory: &str) -> Vec<(&'a str, &'a str)> {
        let prefix = format!("{directory}/");
        let files = self.by_path.range::<str, _>((Bound::Included(&*prefix), Bound::Unbounded));
        files.map(|(path, text)| (*path, *text)).take_while(|(path, _)| path.starts_with(&prefix)).collect()
    }

    /// The names behind a directory and a name's beginning that end in a number: `card` finds 0 and 1, in order.
    pub(super) fn numbers_below(&self, directory: &str, prefix: &str) -> Vec<u64> {
        let skipped = directory.len() + 1;
        let names = self.below(directory).into_iter().filter_map(|(path, _)| path.get(skipped..)?.split('/').next());
        let mut numbers: Vec<u64> = names.filter_map(|name| name.strip_prefix(prefix)?.parse().ok()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.truncate(MAX_THINGS);
        numbers
    }
}

/// What is read of a text.
fn beginning(text: &str) -> &str {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// A text's first line, shortened; `None` for an empty one.
pub(super) fn first_line(text: &str) -> Option<String> {
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.chars().take(MAX_SHOWN).collect())
}

/// A decimal number, or a hexadecimal one behind `0x`.
pub(super) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The value of a line `key value`.
pub(super) fn value_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix([' ', '\t', ':', '=']).map(str::trim))
}

/// The number of a line `key value`.
pub(super) fn number_of(text: &str, key: &str) -> Option<u64> {
    number(value_of(text, key)?)
}
