//! Holds the floors of the recorder: what lies lower imports nothing from above.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The folders from the ground up. `ARCHITECTURE.md` says what each is for.
const FLOORS: [&str; 12] = [
    "base",
    "table",
    "link",
    "record",
    "stack",
    "call",
    "devices",
    "readings",
    "faults",
    "watch",
    "hooks",
    "lifecycle",
];

fn floor(folder: &str) -> Option<usize> {
    FLOORS.iter().position(|name| *name == folder)
}

/// All files of Rust below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let is_rust = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "rs");
    files.into_iter().filter(is_rust).chain(folders.iter().flat_map(|folder| self::files(folder))).collect()
}

/// The folders that a file names: in `use crate::{a, b::c}`, in `crate::a::b` and in a macro's `$crate::a`.
fn named(text: &str) -> Vec<String> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code: String = code.map(|line| format!("{line}\n")).collect();
    let mut found = Vec::new();
    for (_, rest) in code.match_indices("crate::").map(|(at, part)| code.split_at(at + part.len())) {
        match rest.strip_prefix('{') {
            None => found.push(word(rest)),
            Some(list) => {
                let mut depth = 0;
                let mut begins = true;
                for (at, letter) in list.char_indices() {
                    match letter {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => begins = true,
                        _ if begins && !letter.is_whitespace() => {
                            found.push(word(&list[at..]));
                            begins = false;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    found
}

fn word(text: &str) -> String {
    text.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect()
}

#[test]
fn nothing_imports_from_a_higher_floor() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut imports: BTreeMap<&str, usize> = BTreeMap::new();
    for (own, folder) in FLOORS.iter().enumerate() {
        for file in files(&source.join(folder)) {
            let text = std::fs::read_to_string(&file).expect("a file");
            // Tests may look up.
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            for name in named(code) {
                let Some(other) = floor(&name) else { panic!("{}: {name} is on no floor", file.display()) };
                assert!(other <= own, "{} is on the floor {folder} and imports from {name}", file.display());
                *imports.entry(folder).or_default() += usize::from(other < own);
            }
        }
    }
    assert!(FLOORS[1..].iter().skip(1).all(|folder| imports[folder] > 0), "imports are not found: {imports:?}");
}

#[test]
fn every_folder_has_a_floor() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for entry in std::fs::read_dir(source).expect("the sources").map(|entry| entry.expect("an entry").path()) {
        let name = entry.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(floor(&name).is_some() || ["lib.rs", "layers.rs"].contains(&name.as_str()), "{name} is on no floor");
    }
}

#[test]
fn imports_are_found_in_all_their_forms() {
    let text = "use crate::{record::{Recorder, sites}, a, b};\n// crate::c::x\n let x = crate::d::e(); $crate::f::g!()\nuse crate::h;";
    assert_eq!(named(text), ["record", "a", "b", "d", "f", "h"]);
}
