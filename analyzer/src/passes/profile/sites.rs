//! Names of call sites that are the same in another run, and in another build: never addresses, never line numbers.

use std::path::Path;

use gpuoom_trace::reader::TraceFile;
use rustc_hash::FxHashMap;

use super::SiteName;
use crate::passes::libraries::Libraries;
use crate::replay::Replay;
use crate::symbols::key::library;
use crate::symbols::{CallSite, FrameKind, Stacks, SymbolPlaces};

/// The call sites of one trace.
pub(super) struct Sites<'a> {
    replay: &'a Replay,
    libraries: Libraries<'a>,
    stacks: Stacks<'a>,
    /// File name of the executable: two builds of a program may have different ones.
    executable: String,
    known: FxHashMap<(u16, u32), SiteName>,
}

impl<'a> Sites<'a> {
    /// Of a trace that was replayed.
    pub(super) fn new(trace: &'a TraceFile, replay: &'a Replay, places: &SymbolPlaces) -> Self {
        Sites {
            replay,
            libraries: Libraries::new(trace, replay),
            stacks: Stacks::new(trace, replay, places),
            executable: file_name(&trace.metadata.process.executable).to_owned(),
            known: FxHashMap::default(),
        }
    }

    /// The names of a call of this function from this site.
    pub(super) fn name(&mut self, api: u16, site: u32) -> SiteName {
        if let Some(known) = self.known.get(&(api, site)) {
            return known.clone();
        }
        let name = self.name_of(&self.replay.apis.get(api).name, site);
        self.known.insert((api, site), name.clone());
        name
    }

    /// The ways to all calls.
    pub(super) fn stacks(&self) -> &Stacks<'a> {
        &self.stacks
    }

    /// The names of what was given to this site, by its own name.
    pub(super) fn name_of(&self, what: &str, site: u32) -> SiteName {
        SiteName {
            by_stack: self.by_stack(what, site),
            by_caller: self.by_caller(what, site),
            by_library: self.by_library(what, site),
            by_function: what.to_owned(),
        }
    }

    fn by_stack(&self, function: &str, site: u32) -> Option<String> {
        let way = self.replay.sites.way(site)?;
        let has_stack = way.native.len() > 1 || way.python().next().is_some();
        let key = has_stack.then(|| self.stacks.key(site)).filter(|key| !key.is_empty())?;
        Some(format!("{function} < {key}"))
    }

    /// Only where the caller has a name: a library says no more than the next name does.
    fn by_caller(&self, function: &str, site: u32) -> Option<String> {
        let frames = self.stacks.of(site).frames;
        let caller = frames.iter().find(|frame| frame.kind == FrameKind::Native && !frame.inlined)?;
        caller.function.as_ref()?;
        Some(format!("{function} < {}", CallSite::of(std::slice::from_ref(caller)).key))
    }

    fn by_library(&self, function: &str, site: u32) -> Option<String> {
        let name = self.libraries.of_site(site)?;
        Some(match name == self.executable {
            true => format!("{function} in the program"),
            false => format!("{function} in {}", library(name)),
        })
    }
}

/// The name of a file without its directory.
pub(super) fn file_name(path: &str) -> &str {
    Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_part_of_a_path_is_a_name() {
        assert_eq!((file_name("/usr/bin/train"), file_name("train"), file_name("")), ("train", "train", ""));
    }
}
