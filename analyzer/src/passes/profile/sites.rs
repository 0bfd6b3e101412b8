//! Names of call sites that are the same in another run, and in another build: never addresses, never line numbers.

use std::path::Path;

use gpuoom_trace::reader::TraceFile;
use rustc_hash::FxHashMap;

use super::SiteName;
use crate::passes::libraries::Libraries;
use crate::replay::Replay;

/// The call sites of one trace.
pub(super) struct Sites<'a> {
    replay: &'a Replay,
    libraries: Libraries<'a>,
    /// File name of the executable: two builds of a program may have different ones.
    executable: String,
    known: FxHashMap<(u16, u32), SiteName>,
}

impl<'a> Sites<'a> {
    /// Of a trace that was replayed.
    pub(super) fn new(trace: &'a TraceFile, replay: &'a Replay) -> Self {
        let executable = file_name(&trace.metadata.process.executable).to_owned();
        Sites { replay, libraries: Libraries::new(trace, replay), executable, known: FxHashMap::default() }
    }

    /// The names of a call of this function from this site.
    pub(super) fn name(&mut self, api: u16, site: u32) -> SiteName {
        if let Some(known) = self.known.get(&(api, site)) {
            return known.clone();
        }
        let by_function = self.replay.apis.get(api).name.clone();
        let name = SiteName { by_stack: None, by_library: self.by_library(&by_function, site), by_function };
        self.known.insert((api, site), name.clone());
        name
    }

    fn by_library(&self, function: &str, site: u32) -> Option<String> {
        let library = self.libraries.of_site(site)?;
        let library = if library == self.executable { "the program" } else { without_version(library) };
        Some(format!("{function} in {library}"))
    }
}

/// The name of a file without its directory.
pub(super) fn file_name(path: &str) -> &str {
    Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or(path)
}

/// A library's name without its version, which changes from build to build: `libtorch.so` for `libtorch.so.2.7`.
fn without_version(library: &str) -> &str {
    match library.find(".so.") {
        Some(at) => &library[..at + 3],
        None => library,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_no_part_of_a_name() {
        for (library, name) in
            [("libtorch.so.2.7", "libtorch.so"), ("libc.so.6", "libc.so"), ("_C.cpython-312.so", "_C.cpython-312.so")]
        {
            assert_eq!(without_version(library), name);
        }
        assert_eq!((file_name("/usr/bin/train"), file_name("")), ("train", ""));
    }
}
