//! Paths and names of files. What belongs to the system, to a vendor or to a framework stays readable; of the rest, the ending
//! stays, and each part gets a number.

use super::Redactor;
use super::log::Sort;
use super::words::{DIRECTORIES, ENDINGS, LIBRARIES, PACKAGES, PROGRAMS, SYSTEM, TELLING, VERSIONED};

impl Redactor {
    /// A path, absolute or not.
    pub(super) fn path(&mut self, place: &str, path: &str) -> String {
        if self.keep.paths || path.is_empty() {
            return self.names(place, path);
        }
        let parts: Vec<&str> = path.split('/').collect();
        if is_system(&parts) {
            return self.names(place, path);
        }
        let (mut done, mut begin) = (Vec::new(), 0);
        if let Some((behind, home)) = self.names.home_of(&parts) {
            begin = behind;
            done = match self.keep.user {
                true => parts[..behind].iter().map(|part| (*part).to_owned()).collect(),
                false => vec![home],
            };
            self.log.note_many(Sort::User, place, u64::from(!self.keep.user));
        } else if parts[0] == "~" {
            (begin, done) = (1, vec!["~".to_owned()]);
        }
        let public = public_from(&parts).unwrap_or(parts.len()).max(begin);
        let last = parts.len() - 1;
        for (index, part) in parts.iter().enumerate().skip(begin) {
            done.push(match index {
                _ if index >= public => (*part).to_owned(),
                _ if index == last => self.file_name(place, part),
                _ => self.directory(place, part),
            });
        }
        self.names(place, &done.join("/"))
    }

    /// A list of paths with colons between them, as in `LD_LIBRARY_PATH`.
    pub(super) fn path_list(&mut self, place: &str, list: &str) -> String {
        let paths: Vec<String> = list.split(':').map(|path| self.path(place, path)).collect();
        paths.join(":")
    }

    fn directory(&mut self, place: &str, name: &str) -> String {
        if DIRECTORIES.contains(&name) || is_versioned(name) || is_stand_in(name) {
            return name.to_owned();
        }
        self.numbered(place, "", name, "")
    }

    /// The last part of a path.
    pub(super) fn file_name(&mut self, place: &str, name: &str) -> String {
        if self.keep.paths
            || DIRECTORIES.contains(&name)
            || is_versioned(name)
            || is_public_file(name)
            || is_stand_in(name)
        {
            return name.to_owned();
        }
        let telling = TELLING.iter().find(|begin| name.starts_with(**begin)).copied().unwrap_or_default();
        if is_stand_in(&name[telling.len()..]) {
            return name.to_owned();
        }
        let ending = ending(name);
        let stem = &name[telling.len().min(name.len() - ending.len())..name.len() - ending.len()];
        let telling = &name[..name.len() - ending.len() - stem.len()];
        match stem.is_empty() {
            true => name.to_owned(),
            false => self.numbered(place, telling, stem, ending),
        }
    }

    fn numbered(&mut self, place: &str, before: &str, name: &str, behind: &str) -> String {
        self.log.note(Sort::Path, place);
        format!("{before}<{}>{behind}", self.parts.of(name))
    }
}

/// Whether this is what stands for a name already, so that what is redacted twice stays the same.
fn is_stand_in(name: &str) -> bool {
    let Some(rest) = name.strip_prefix('<') else { return false };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let Some(behind) = rest[digits..].strip_prefix('>') else { return false };
    digits > 0 && (behind.is_empty() || (ending(behind) == behind))
}

fn is_system(parts: &[&str]) -> bool {
    let ["", parts @ ..] = parts else { return false };
    let same = |part: &str, known: &str| part == known || is_version_of(part, known);
    let begins =
        |known: &[&str]| known.len() <= parts.len() && known.iter().zip(parts).all(|(known, part)| same(part, known));
    SYSTEM.iter().any(|known| begins(known)) && !parts.contains(&"..")
}

/// From which part on a path is public: a package of a framework, or PyTorch's own directory.
pub(super) fn public_from(parts: &[&str]) -> Option<usize> {
    let is_place = |part: &&str| matches!(*part, "site-packages" | "dist-packages" | "node_modules");
    let package = |at: &usize| parts.get(at + 1).is_some_and(|name| is_package(name));
    let installed = (0..parts.len()).rev().filter(|at| is_place(&parts[*at])).find(package).map(|at| at + 1);
    let own = |at: &usize| parts[*at] == "torch" && matches!(parts.get(at + 1), Some(&("lib" | "version.py")));
    let own = (0..parts.len()).find(own).filter(|at| parts.len() <= at + 3);
    let own = own.filter(|at| parts.get(at + 2).is_none_or(|file| is_public_file(file)));
    installed.or(own)
}

fn is_package(name: &str) -> bool {
    let is = |name: &str| PACKAGES.contains(&name);
    is(name) || name.strip_suffix(".py").is_some_and(is) || {
        let dist = name.strip_suffix(".dist-info").or_else(|| name.strip_suffix(".egg-info"));
        dist.and_then(|name| name.split_once('-')).is_some_and(|(name, version)| is(name) && is_version(version))
    }
}

fn is_version(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || b".+-_".contains(&byte))
}

fn is_version_of(name: &str, known: &str) -> bool {
    VERSIONED.contains(&known) && name.strip_prefix(known).is_some_and(is_version)
}

fn is_versioned(name: &str) -> bool {
    VERSIONED.iter().any(|known| is_version_of(name, known))
}

/// Whether a file's name is that of a public library or program.
fn is_public_file(name: &str) -> bool {
    let behind_begins = |begin: &&str, allowed: fn(char) -> bool| {
        name.strip_prefix(*begin).is_some_and(|rest| rest.chars().all(allowed))
    };
    let is_library = || {
        let stem = name.split(".so").next().unwrap_or(name);
        let begins = |begin: &&str| {
            let rest = stem.strip_prefix(*begin);
            // `libcudart-d0da41ae`, `libpython3.11`, `libggml-cpu-haswell`.
            rest.is_some_and(|rest| {
                !rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && rest.len() <= 24
            })
        };
        name.contains(".so")
            && is_version(name.split_once(".so").map_or("", |(_, rest)| rest))
            && LIBRARIES.iter().any(begins)
    };
    let is_program = || PROGRAMS.iter().any(|begin| behind_begins(begin, |c| c.is_ascii_digit() || c == '.'));
    is_library() || is_program() || name == "version.py" || name.starts_with("linux-vdso")
}

/// The ending of a file's name that says what it is, with its dot; of a library with its version.
pub(super) fn ending(name: &str) -> &str {
    if let Some(at) = name.find(".so").filter(|at| is_version(&name[at + 3..])) {
        return &name[at..];
    }
    match name.rsplit_once('.') {
        Some((_, ending)) if ENDINGS.contains(&ending.to_ascii_lowercase().as_str()) => {
            &name[name.len() - ending.len() - 1..]
        }
        _ => "",
    }
}

/// Whether a word looks like a path or the name of a file.
pub(super) fn is_path_like(word: &str) -> bool {
    let bytes = word.as_bytes();
    word.starts_with('/') || word.starts_with("~/") || word.starts_with("./") || word.starts_with("../") || {
        let ending = ending(word);
        !ending.is_empty() && bytes.len() > ending.len() && !word.starts_with('-')
    }
}
