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
pub mod plumbing;
mod short;
mod stacks;
#[cfg(test)]
mod tests;

use std::cell::{Cell, OnceCell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;

use gpuoom_trace::metadata::Module;
use rustc_hash::FxHashMap;
use serde::Serialize;

pub use frame::{Frame, FrameKind};
pub use image::Missing;
pub use key::CallSite;
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
    /// By address; those that overlap are as the trace says.
    modules: Vec<Loaded>,
    places: SymbolPlaces,
    /// What is below the directories, where a library is not found by its name.
    index: OnceCell<index::Index>,
    /// What was looked up before.
    known: RefCell<FxHashMap<u64, Rc<[Frame]>>>,
}

struct Loaded {
    module: Module,
    image: OnceCell<Image>,
    /// Whether a function was asked for that has no name.
    lacks_names: Cell<bool>,
}

impl Symbols {
    /// For the libraries of a trace.
    pub fn new(modules: &[Module], places: &SymbolPlaces) -> Self {
        let loaded =
            |module: &Module| Loaded { module: module.clone(), image: OnceCell::new(), lacks_names: Cell::new(false) };
        let mut modules: Vec<Loaded> = modules.iter().map(loaded).collect();
        modules.sort_by_key(|loaded| loaded.module.start);
        Symbols { modules, places: places.clone(), index: OnceCell::new(), known: RefCell::default() }
    }

    /// The library that an address lies in.
    pub fn module_at(&self, address: u64) -> Option<&Module> {
        self.loaded_at(address).map(|loaded| &loaded.module)
    }

    fn loaded_at(&self, address: u64) -> Option<&Loaded> {
        let index = self.modules.partition_point(|loaded| loaded.module.start <= address).checked_sub(1)?;
        self.modules.get(index).filter(|loaded| address < loaded.module.end)
    }

    /// The frames behind a return address: functions that were inlined first, then the one that has the code. There is
    /// always at least one.
    pub fn frames(&self, return_address: u64) -> Rc<[Frame]> {
        if let Some(frames) = self.known.borrow().get(&return_address) {
            return Rc::clone(frames);
        }
        let frames: Rc<[Frame]> = self.look_up(return_address).into();
        self.known.borrow_mut().insert(return_address, Rc::clone(&frames));
        frames
    }

    fn look_up(&self, return_address: u64) -> Vec<Frame> {
        // A call may be the last instruction of a function: what it returns to belongs to the next one.
        let called_from = return_address.saturating_sub(1);
        let Some(loaded) = self.loaded_at(called_from) else { return vec![Frame::native(return_address)] };
        let index = || self.index.get_or_init(|| index::Index::of(&self.places.directories));
        let image = loaded.image.get_or_init(|| find::image_of(&loaded.module, &self.places, index));
        let here = Frame {
            module: Some(file_name(&loaded.module.path).to_owned()),
            offset: Some(return_address - loaded.module.start),
            ..Frame::native(return_address)
        };
        let frames = image.frames(called_from - loaded.module.start, here);
        if frames.last().is_none_or(|frame| frame.function.is_none()) {
            loaded.lacks_names.set(true);
        }
        frames
    }

    /// The libraries that were asked about and could not be named as well as others, with the reason.
    pub fn missing(&self) -> Vec<MissingSymbols> {
        let mut missing: Vec<MissingSymbols> = self
            .modules
            .iter()
            .filter_map(|loaded| {
                let module = &loaded.module;
                let missing = loaded.image.get()?.missing()?;
                // That a library was stripped is no loss where all that was asked for is exported.
                if *missing == Missing::Stripped && !loaded.lacks_names.get() {
                    return None;
                }
                let reason = missing.to_string();
                let build_id = (!module.build_id.is_empty()).then(|| module.build_id.clone());
                Some(MissingSymbols { module: module.path.clone(), build_id, reason })
            })
            .collect();
        missing.sort_by(|one, other| one.module.cmp(&other.module));
        missing
    }
}

/// The last part of a path.
pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
