//! Which library made a call: call sites and where the libraries lie.

use gpuoom_trace::reader::TraceFile;

use crate::replay::Replay;
use crate::replay::places::Place;
use crate::symbols::Modules;
use crate::symbols::plumbing::is_trampoline_library;

/// Files of the runtimes themselves, by the beginning of their names.
const RUNTIMES: [&str; 6] = ["libamdhip64", "libhsa-runtime64", "libhsakmt", "libcuda.so", "libcudart", "libdrm"];

/// The loaded libraries of a trace.
pub struct Libraries<'a> {
    modules: Modules,
    trace: &'a TraceFile,
    replay: &'a Replay,
}

impl<'a> Libraries<'a> {
    /// Of a trace and its replay, which knows the call sites.
    pub fn new(trace: &'a TraceFile, replay: &'a Replay) -> Self {
        let modules = Modules::new(&trace.header, &trace.metadata);
        Libraries { modules, trace, replay }
    }

    /// The runtime that counts a device: `hip`, `cuda`.
    pub fn runtime_of(&self, device: u8) -> Option<&'a str> {
        let facts = self.trace.metadata.devices.iter().find(|facts| facts.index == device);
        facts.map(|facts| facts.runtime.as_str())
    }

    /// The file name of the library that a call site lies in; `None` where it is not known. What calls on behalf of another (libffi,
    /// for ctypes) gives way to the next library on the way that is known.
    pub fn of_site(&self, site: u32) -> Option<&str> {
        let (address, place) = self.replay.sites.return_place(site)?;
        let called = self.at(address, place)?;
        if !is_trampoline_library(called) {
            return Some(called);
        }
        let way = self.replay.sites.way(site)?;
        let mut behind = way.native_places().filter_map(|(address, place)| self.at(address.saturating_sub(1), place));
        Some(behind.find(|library| !is_trampoline_library(library)).unwrap_or(called))
    }

    fn at(&self, address: u64, place: Place) -> Option<&str> {
        let module = self.modules.at(address, place, self.replay.sites.libraries())?;
        Some(module.path.rsplit('/').next().unwrap_or(&module.path))
    }
}

/// Whether a library is a vendor's runtime, and not one that uses it.
pub fn is_runtime(library: &str) -> bool {
    RUNTIMES.iter().any(|name| library.starts_with(name))
}
