//! The files below the directories that a user names, by build id: a library may have another name there than in the trace,
//! as in a bundle, whose private names are replaced.

use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;

use super::elf::Elf;

/// Files that are looked at.
const MOST_FILES: usize = 20_000;
/// Directories below each other.
const DEEPEST: usize = 8;

/// Files by build id.
#[derive(Debug, Default)]
pub(super) struct Index(FxHashMap<String, Vec<PathBuf>>);

impl Index {
    /// Looks through directories, in the order given.
    pub(super) fn of(directories: &[PathBuf]) -> Self {
        let (mut index, mut left) = (Index::default(), MOST_FILES);
        directories.iter().filter(|given| given.is_dir()).for_each(|given| index.add(given, DEEPEST, &mut left));
        index
    }

    fn add(&mut self, directory: &Path, deep: usize, left: &mut usize) {
        // In order, so that of two files with one build id it is always the same that counts.
        let mut entries: Vec<_> = std::fs::read_dir(directory).into_iter().flatten().flatten().take(*left).collect();
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            if *left == 0 {
                return;
            }
            *left -= 1;
            let path = entry.path();
            // A link to a directory may lead round in a circle.
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && deep > 0 => self.add(&path, deep - 1, left),
                Ok(kind) if kind.is_dir() => {}
                _ => {
                    let build_id = Elf::open(&path).ok().map(|elf| elf.build_id).filter(|id| !id.is_empty());
                    if let Some(build_id) = build_id {
                        self.0.entry(build_id.to_ascii_lowercase()).or_default().push(path);
                    }
                }
            }
        }
    }

    /// The files of a build.
    pub(super) fn files(&self, build_id: &str) -> &[PathBuf] {
        self.0.get(&build_id.to_ascii_lowercase()).map_or(&[], Vec::as_slice)
    }
}
