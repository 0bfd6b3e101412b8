//! From a return address to names: which function, file and line, in which library. The files that tell are on this
//! machine or in a directory that the user names; they are strangers' files like a trace, and only one that carries the
//! recorded build id is believed.

#[cfg(test)]
pub(crate) mod compiled;
mod demangle;
mod dwarf;
mod elf;
mod find;
mod frame;
mod functions;
mod image;
mod index;
pub mod key;
mod modules;
pub mod own;
mod packages;
pub mod plumbing;
mod short;
mod stacks;
#[cfg(test)]
mod tests;

use std::cell::{Cell, OnceCell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use gpuoom_trace::metadata::Module;
use rustc_hash::FxHashMap;
use serde::Serialize;

pub use frame::{Frame, FrameKind};
pub use image::Missing;
pub use key::CallSite;
pub use modules::Modules;
pub use packages::Sources;
pub use short::short;
pub use stacks::{Names, Stack, Stacks};

use image::Image;

/// Where files with symbols are looked for. The default is nowhere: then only the modules of a trace have names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SymbolPlaces {
    /// Whether the paths of the trace and the debug files of this machine are tried.
    pub this_machine: bool,
    /// Directories or files that the user names.
    pub directories: Vec<PathBuf>,
}

impl SymbolPlaces {
    /// This machine, after the directories that the user names.
    pub fn here(directories: &[PathBuf]) -> Self {
        SymbolPlaces { this_machine: true, directories: directories.to_vec() }
    }
}

/// The name of a function as its author wrote it, without its arguments.
pub(crate) fn function_name(raw: &str) -> String {
    let name = demangle::demangle(raw);
    name.split('(').next().map_or(name.clone(), str::to_owned)
}

/// A library of the trace for which something is missing, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MissingSymbols {
    /// Path in the trace.
    pub module: String,
    /// Its build id in the trace; null where it has none.
    pub build_id: Option<String>,
    /// What is missing, and why.
    pub reason: String,
}

/// Names for the addresses of one trace. Nothing is opened before an address in it is asked for.
pub struct Symbols {
    places: SymbolPlaces,
    /// What is below the directories, where a library is not found by its name.
    index: OnceCell<index::Index>,
    /// Libraries that were asked about, by where they stand in memory.
    loaded: RefCell<FxHashMap<*const Module, Rc<Loaded>>>,
    /// What was looked up before.
    known: RefCell<KnownFrames>,
}

/// Frames by return address and library.
type KnownFrames = FxHashMap<(u64, *const Module), Rc<[Frame]>>;

struct Loaded {
    module: Arc<Module>,
    image: Image,
    /// Whether a function was asked for that has no name.
    lacks_names: Cell<bool>,
}

impl Symbols {
    /// Names by files that lie in these places.
    pub fn new(places: &SymbolPlaces) -> Self {
        let (loaded, known) = Default::default();
        Symbols { places: places.clone(), index: OnceCell::new(), loaded, known }
    }

    /// The frames behind a return address in a library: functions that were inlined first, then the one that has the code.
    /// There is always at least one.
    pub fn frames(&self, return_address: u64, module: Option<&Arc<Module>>) -> Rc<[Frame]> {
        let key = (return_address, module.map_or(std::ptr::null(), Arc::as_ptr));
        if let Some(frames) = self.known.borrow().get(&key) {
            return Rc::clone(frames);
        }
        let frames: Rc<[Frame]> = match module {
            Some(module) => self.look_up(return_address, module),
            None => vec![Frame::native(return_address)],
        }
        .into();
        self.known.borrow_mut().insert(key, Rc::clone(&frames));
        frames
    }

    fn look_up(&self, return_address: u64, module: &Arc<Module>) -> Vec<Frame> {
        let loaded = self.loaded(module);
        let here = Frame {
            module: Some(file_name(&module.path).to_owned()),
            offset: Some(return_address.saturating_sub(module.start)),
            ..Frame::native(return_address)
        };
        // A call may be the last instruction of a function: what it returns to belongs to the next one.
        let called_from = return_address.saturating_sub(1);
        let frames = loaded.image.frames(called_from.saturating_sub(module.start), here);
        if frames.last().is_none_or(|frame| frame.function.is_none()) {
            loaded.lacks_names.set(true);
        }
        frames
    }

    /// The library with what its files tell. It is kept, so that no other comes to its place in memory.
    fn loaded(&self, module: &Arc<Module>) -> Rc<Loaded> {
        let mut loaded = self.loaded.borrow_mut();
        let fresh = || {
            let index = || self.index.get_or_init(|| index::Index::of(&self.places.directories));
            let image = find::image_of(module, &self.places, index);
            Rc::new(Loaded { module: Arc::clone(module), image, lacks_names: Cell::new(false) })
        };
        Rc::clone(loaded.entry(Arc::as_ptr(module)).or_insert_with(fresh))
    }

    /// The libraries that were asked about and could not be named as well as others, with the reason.
    pub fn missing(&self) -> Vec<MissingSymbols> {
        let loaded = self.loaded.borrow();
        let mut missing: Vec<MissingSymbols> = loaded
            .values()
            .filter_map(|loaded| {
                let module = &loaded.module;
                let missing = loaded.image.missing()?;
                // That a library was stripped is no loss where all that was asked for is exported.
                if *missing == Missing::Stripped && !loaded.lacks_names.get() {
                    return None;
                }
                let reason = missing.to_string();
                let build_id = (!module.build_id.is_empty()).then(|| module.build_id.clone());
                Some(MissingSymbols { module: module.path.clone(), build_id, reason })
            })
            .collect();
        let key = |missing: &MissingSymbols| (missing.module.clone(), missing.build_id.clone());
        missing.sort_by_key(key);
        // The same library may have been at several places.
        missing.dedup();
        missing
    }
}

/// The last part of a path.
pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
