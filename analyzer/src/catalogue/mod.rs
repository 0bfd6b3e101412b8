//! The diagnosis catalogue: why memory runs out, what proves it, what refutes it, what to do. It is data, one file per
//! chapter, built in; [`entry`] says what an entry holds.

pub mod claims;
pub mod entry;
pub mod need;
pub mod numbers;
pub mod only;
pub mod search;

#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use entry::Entry;

/// What an entry without a rule of its own means by its confidence.
pub const DEFAULT_CONFIDENCE: &str = "proven when everything that must hold holds and nothing refutes it; probable when one \
                                      reading is missing, or a label alone names what it is about; possible when only the shape \
                                      fits";

/// Letter, title and data of each chapter.
const FILES: [(char, &str, &str); 10] = [
    ('A', "capacity and request shape", include_str!("data/a_capacity.toml")),
    ('B', "fragmentation", include_str!("data/b_fragmentation.toml")),
    ('C', "free memory reported, allocation refused", include_str!("data/c_phantom_free.toml")),
    ('D', "pools and virtual-memory allocation", include_str!("data/d_pools.toml")),
    ('E', "leaks and lifetimes", include_str!("data/e_leaks.toml")),
    ('F', "errors", include_str!("data/f_errors.toml")),
    ('G', "platform limits", include_str!("data/g_platform.toml")),
    ('H', "training and inference shapes", include_str!("data/h_shapes.toml")),
    ('I', "host memory", include_str!("data/i_host.toml")),
    ('J', "hardware", include_str!("data/j_hardware.toml")),
];

/// Entries of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct Chapter {
    /// A to J.
    pub letter: char,
    /// What its entries have in common.
    pub title: &'static str,
    /// In the order of the data.
    pub entries: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    entry: Vec<Entry>,
}

/// All chapters.
pub fn chapters() -> &'static [Chapter] {
    static CHAPTERS: OnceLock<Vec<Chapter>> = OnceLock::new();
    CHAPTERS.get_or_init(|| FILES.iter().map(|&(letter, title, data)| read(letter, title, data)).collect())
}

/// Reads a chapter. The data is built in, and a test reads all of it.
fn read(letter: char, title: &'static str, data: &str) -> Chapter {
    let file: File = toml::from_str(data).unwrap_or_else(|error| panic!("chapter {letter}: {error}"));
    let mut entries = file.entry;
    for entry in entries.iter_mut().filter(|entry| entry.confidence.is_empty()) {
        entry.confidence = DEFAULT_CONFIDENCE.to_owned();
    }
    Chapter { letter, title, entries }
}

/// All entries, in the order of the chapters.
pub fn entries() -> impl Iterator<Item = &'static Entry> {
    chapters().iter().flat_map(|chapter| &chapter.entries)
}

/// The entry with this id.
pub fn find(id: &str) -> Option<&'static Entry> {
    entries().find(|entry| entry.id == id)
}

/// The chapter in which an entry stands.
pub fn chapter_of(entry: &Entry) -> Option<&'static Chapter> {
    chapters().iter().find(|chapter| chapter.entries.iter().any(|other| other.id == entry.id))
}

/// Ids that somebody who typed `id` may have meant, the nearest first, at most three.
pub fn nearest(id: &str) -> Vec<&'static str> {
    let mut ranked: Vec<(usize, &str)> = entries()
        .map(|entry| match !id.is_empty() && entry.id.contains(id) {
            true => (0, entry.id.as_str()),
            false => (distance(id, &entry.id), entry.id.as_str()),
        })
        .collect();
    ranked.sort();
    ranked.into_iter().take(3).map(|(_, id)| id).collect()
}

/// Levenshtein distance. What is longer than any id is cut: an argument may have any length.
pub(crate) fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=left.len()).collect();
    for (above, other) in right.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = above + 1;
        for (column, &own) in left.iter().enumerate() {
            let replaced = diagonal + usize::from(own != other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[left.len()]
}
