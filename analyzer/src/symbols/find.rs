//! The files that tell about a library: itself, and the one with its debug information.

use std::path::{Component, Path, PathBuf};

use gpuoom_trace::metadata::Module;

use super::dwarf::DebugInformation;
use super::elf::{Elf, ElfError, Supplement};
use super::image::{Image, Missing};
use super::index::Index;
use super::{SymbolPlaces, file_name};

/// Where distributions put debug files.
const DEBUG_ROOT: &str = "/usr/lib/debug";

/// What the files about a library tell. Each is opened and judged by its build id. `index` has the files below the user's
/// directories; it is asked for only where the names of files lead nowhere.
pub(super) fn image_of<'a>(module: &Module, places: &SymbolPlaces, index: impl Fn() -> &'a Index) -> Image {
    if module.build_id.is_empty() {
        return Image::unknown(Missing::NoBuildId);
    }
    let mut search = Search { build_id: &module.build_id, refused: None };
    let is_given = !places.directories.is_empty();
    let indexed = || (if is_given { index().files(&module.build_id) } else { &[] }).iter().cloned();
    let mut own_places = own_places(module, places).into_iter();
    let named = own_places.by_ref().find_map(|path| search.accept(&path));
    let own = named.or_else(|| indexed().find_map(|path| search.accept(&path)));
    let debug = match own.as_ref().is_some_and(Elf::has_debug_information) {
        true => None,
        // What is installed is often stripped, and what was built lies elsewhere.
        false => {
            let named = own_places.chain(debug_places(module, own.as_ref(), places));
            search.best(named.chain(std::iter::once_with(indexed).flatten()))
        }
    };
    let Some(best) = debug.as_ref().or(own.as_ref()) else {
        return Image::unknown(search.refused.unwrap_or(Missing::NoFile));
    };
    let mut missing = None;
    let mut functions = own.as_ref().and_then(|elf| elf.functions().ok()).unwrap_or_default();
    if !functions.is_whole()
        && let Some(whole) = debug.as_ref().and_then(|elf| elf.functions().ok()).filter(|whole| !whole.is_empty())
    {
        functions = whole;
    }
    let debug_information = best.has_debug_information().then(|| {
        let supplement = best.supplement.as_ref().and_then(|wanted| supplement_of(wanted, best, places));
        DebugInformation::read(best, supplement.as_ref())
    });
    let debug_information =
        debug_information.and_then(|read| read.map_err(|error| missing = Some(unusable(&best.path, &error))).ok());
    if missing.is_none() && debug_information.is_none() && !functions.is_whole() {
        missing = Some(Missing::Stripped);
    }
    let first_address = own.as_ref().unwrap_or(best).first_address;
    Image { first_address, functions, debug_information, missing }
}

struct Search<'a> {
    build_id: &'a str,
    /// Why the first file that was there is not the one.
    refused: Option<Missing>,
}

impl Search<'_> {
    /// A file, if it is there and of the recorded build.
    fn accept(&mut self, path: &Path) -> Option<Elf> {
        let refused = match Elf::open(path) {
            Ok(elf) if elf.build_id.eq_ignore_ascii_case(self.build_id) => return Some(elf),
            Ok(elf) => Missing::OtherBuild { path: path.to_owned(), build_id: elf.build_id },
            Err(ElfError::NotThere) => return None,
            Err(error) => unusable(path, &error),
        };
        self.refused.get_or_insert(refused);
        None
    }

    /// The first one with debug information, else the first one with a table of symbols.
    fn best(&mut self, paths: impl Iterator<Item = PathBuf>) -> Option<Elf> {
        let mut named = None;
        for path in paths {
            match self.accept(&path) {
                Some(elf) if elf.has_debug_information() => return Some(elf),
                Some(elf) if elf.has_symbols && named.is_none() => named = Some(elf),
                _ => {}
            }
        }
        named
    }
}

fn unusable(path: &Path, error: &ElfError) -> Missing {
    Missing::Unusable { path: path.to_owned(), reason: error.to_string() }
}

/// Where the library itself may be.
fn own_places(module: &Module, places: &SymbolPlaces) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for given in &places.directories {
        if !given.is_dir() {
            paths.push(given.clone());
            continue;
        }
        paths.extend(below(given, &module.path));
        paths.push(given.join(file_name(&module.path)));
        paths.extend(by_build_id(given, &module.build_id, ""));
    }
    if places.this_machine {
        paths.extend(absolute(&module.path).map(Path::to_owned));
    }
    paths
}

/// Where a file with its debug information may be.
fn debug_places(module: &Module, own: Option<&Elf>, places: &SymbolPlaces) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    let link = own.and_then(|elf| elf.debug_link.as_deref()).filter(|name| !name.contains('/') && !name.is_empty());
    let with_suffix = format!("{}.debug", file_name(&module.path));
    for given in places.directories.iter().filter(|given| given.is_dir()) {
        // The directory may be the root of another machine's files.
        let root = below(given, DEBUG_ROOT);
        let roots = [Some(given.as_path()), root.as_deref()].into_iter().flatten();
        paths.extend(roots.filter_map(|root| by_build_id(root, &module.build_id, ".debug")));
        paths.extend(link.map(|name| given.join(name)));
        paths.push(given.join(&with_suffix));
        paths.extend(below(given, &format!("{}.debug", module.path)));
    }
    // Wherever the library itself was found.
    let beside = link.zip(own.and_then(|elf| elf.path.parent()));
    paths.extend(beside.into_iter().flat_map(|(name, dir)| [dir.join(name), dir.join(".debug").join(name)]));
    if places.this_machine {
        paths.extend(by_build_id(Path::new(DEBUG_ROOT), &module.build_id, ".debug"));
        paths.extend(beside.and_then(|(name, dir)| below(Path::new(DEBUG_ROOT), &dir.join(name).to_string_lossy())));
    }
    paths
}

/// `DIR/.build-id/xx/rest`.
fn by_build_id(directory: &Path, build_id: &str, suffix: &str) -> Option<PathBuf> {
    let is_hex = build_id.len() > 2 && build_id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let (first, rest) = build_id.split_at_checked(2).filter(|_| is_hex)?;
    Some(directory.join(".build-id").join(first).join(format!("{rest}{suffix}")))
}

fn absolute(path: &str) -> Option<&Path> {
    Some(Path::new(path)).filter(|path| path.is_absolute())
}

/// A recorded path below a directory; `None` for one that would lead out of it.
fn below(directory: &Path, path: &str) -> Option<PathBuf> {
    let parts: Option<PathBuf> = Path::new(path)
        .components()
        .filter(|part| *part != Component::RootDir)
        .map(|part| match part {
            Component::Normal(name) => Some(name),
            _ => None,
        })
        .collect();
    Some(directory.join(parts?))
}

/// The file that debug information refers to (`dwz`): several packages share it.
fn supplement_of(wanted: &Supplement, elf: &Elf, places: &SymbolPlaces) -> Option<Elf> {
    let mut paths = Vec::new();
    for given in places.directories.iter().filter(|given| given.is_dir()) {
        paths.extend(by_build_id(given, &wanted.build_id, ".debug"));
        paths.push(given.join(file_name(&wanted.path)));
    }
    if places.this_machine {
        paths.extend(by_build_id(Path::new(DEBUG_ROOT), &wanted.build_id, ".debug"));
        paths.extend(elf.path.parent().map(|directory| directory.join(&wanted.path)));
    }
    let mut search = Search { build_id: &wanted.build_id, refused: None };
    paths.into_iter().find_map(|path| search.accept(&path))
}
