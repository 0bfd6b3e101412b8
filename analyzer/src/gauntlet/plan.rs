//! From a recorded run to the calls that are to fail.

use std::path::Path;

use gpuoom_trace::columns::Batch;
use gpuoom_trace::reader::{ReadError, TraceFile};
use gpuoom_trace::record::{Event, Layer, Record};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use crate::intake::read_through;
use crate::replay::{Options, Replay};
use crate::symbols::key::{CallSite, label};
use crate::symbols::plumbing::{is_interpreter, is_plumbing};
use crate::symbols::{Frame, FrameKind, Stacks, SymbolPlaces};

/// Places that are remembered of one trace: as many as a trace can number.
const MAX_PLACES: usize = 1 << 17;

/// A place that allocates, and its first call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Place {
    /// For people: the function that asked, and where it is. Of a program in Python its own line.
    pub name: String,
    /// What that line of Python called, which is how several calls from one line are told apart; null where the program's own
    /// code is native.
    pub operator: Option<String>,
    /// The functions on the way to the call, as `diff` and `check` name call sites; empty where nothing tells.
    pub key: String,
    /// The program's functions in the language of `name`, from the one that is named on outwards, written like the key.
    #[serde(skip)]
    pub callers: String,
    /// File of the program or library, without its directory.
    pub file: String,
    /// Return address, counted from the file's first loaded byte.
    pub offset: u64,
    /// Which call from there is the first that came this way, counted from 1.
    pub nth: u64,
    /// The function that allocates.
    pub api: String,
    /// Bytes that the first call asked for.
    pub requested_bytes: u64,
    /// Calls that came this way.
    pub calls: u64,
}

impl Place {
    /// What `GPUOOM_INJECT` is to hold so that this call fails.
    pub fn rule(&self) -> String {
        format!("oom@{}+{:#x}#{}", self.file, self.offset, self.nth)
    }
}

/// The calls that are to fail, in the order in which the program first makes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The places.
    pub places: Vec<Place>,
    /// Calls whose place lies in no file: code that was made at run time, or a library that is gone.
    pub calls_without_file: u64,
    known: FxHashSet<(String, u64, u64)>,
}

/// Allocation calls of one trace, by site.
#[derive(Default)]
struct Calls {
    /// Number of the site, and its first call.
    first: Vec<(u32, u16, u64)>,
    by_site: FxHashMap<u32, u64>,
    /// Sites in the order of all calls: how many calls came before from the same address is counted when the addresses are
    /// known.
    order: Vec<u32>,
}

impl Calls {
    fn batch(&mut self, batch: &Batch, is_counted: impl Fn(&Record) -> bool) {
        for (record, _) in batch.iter().filter(|(record, _)| is_counted(record)) {
            self.order.push(record.site);
            let calls = self.by_site.entry(record.site).or_default();
            *calls += 1;
            if *calls == 1 && self.first.len() < MAX_PLACES {
                self.first.push((record.site, record.api, record.requested));
            }
        }
    }
}

impl Plan {
    /// Adds what one process of the run allocated.
    ///
    /// # Errors
    /// When the trace can't be read at all.
    pub fn add(&mut self, path: &Path) -> Result<(), ReadError> {
        let mut trace = TraceFile::open(path)?;
        let mut replay = Replay::new(&trace, Options::default());
        let kernel: Vec<bool> = trace.metadata.apis.rows.iter().map(|row| row.layer == Layer::Kernel as u8).collect();
        let counts = |record: &Record| {
            matches!(record.event(), Some(Event::Alloc | Event::Pin))
                && record.is_programs_own()
                && !kernel.get(usize::from(record.api)).copied().unwrap_or(false)
        };
        let mut calls = Calls::default();
        read_through(
            &mut trace,
            |_| (),
            |batch| {
                calls.batch(batch, counts);
                replay.batch(batch)
            },
        );
        let stacks = Stacks::new(&trace, &replay, &SymbolPlaces::here(&[]));
        self.take(&calls, &replay, &stacks);
        Ok(())
    }

    fn take(&mut self, calls: &Calls, replay: &Replay, stacks: &Stacks<'_>) {
        let address = |site: u32| replay.sites.address(site).unwrap_or(0);
        // The first call of each site among the calls from its address.
        let (mut from_address, mut nth) = (FxHashMap::<u64, u64>::default(), FxHashMap::<u32, u64>::default());
        for site in &calls.order {
            let count = from_address.entry(address(*site)).or_default();
            *count += 1;
            nth.entry(*site).or_insert(*count);
        }
        for (site, api, requested_bytes) in &calls.first {
            let count = calls.by_site.get(site).copied().unwrap_or(0);
            let address = address(*site);
            let Some(module) = stacks.module(*site) else {
                self.calls_without_file += count;
                continue;
            };
            let file = module.path.rsplit('/').next().unwrap_or(&module.path).to_owned();
            let (offset, nth) = (address - module.start, nth.get(site).copied().unwrap_or(1));
            // A worker comes to the same places as its brothers.
            if self.known.insert((file.clone(), offset, nth)) {
                let api = replay.apis.get(*api).name.clone();
                let requested_bytes = *requested_bytes;
                let names = Names::of(stacks, *site, &file, offset);
                let Names { name, operator, key, callers } = names;
                let calls = count;
                self.places.push(Place {
                    name,
                    operator,
                    key,
                    callers,
                    file,
                    offset,
                    nth,
                    api,
                    requested_bytes,
                    calls,
                });
            }
        }
    }
}

/// What a place is called.
struct Names {
    name: String,
    operator: Option<String>,
    key: String,
    callers: String,
}

impl Names {
    /// The function that asked and its line, and what it called if it is Python's; where no symbols tell, the file and the
    /// offset.
    fn of(stacks: &Stacks<'_>, site: u32, file: &str, offset: u64) -> Self {
        let key = stacks.key(site);
        let Some(known) = stacks.call_site(site).filter(|known| known.who.short().is_some()) else {
            return Names { name: format!("{file}+{offset:#x}"), operator: None, callers: key.clone(), key };
        };
        let name = match known.who.line {
            Some(line) => format!("{} line {line}", known.label),
            None => format!("{} at {file}+{offset:#x}", known.label),
        };
        if known.who.kind == FrameKind::Native {
            return Names { name, operator: None, callers: key.clone(), key };
        }
        let (python, native): (Vec<Frame>, Vec<Frame>) =
            stacks.of(site).frames.into_iter().partition(|frame| frame.kind == FrameKind::Python);
        Names { name, operator: operator(&native), key, callers: CallSite::of(&python).key }
    }
}

/// The native function that Python called: the first one outside of allocators and dispatchers, else the one that made the call.
fn operator(native: &[Frame]) -> Option<String> {
    let native = || native.iter().filter(|frame| frame.function.is_some());
    let before_python = native().take_while(|frame| !is_interpreter(frame)).find(|frame| !is_plumbing(frame));
    before_python.or_else(|| native().find(|frame| !is_interpreter(frame))).map(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_names_file_offset_and_call() {
        let place = |nth| Place {
            name: String::new(),
            operator: None,
            key: String::new(),
            callers: String::new(),
            file: "libc10.so".into(),
            offset: 0x4f2,
            nth,
            api: "cudaMalloc".into(),
            requested_bytes: 1,
            calls: 2,
        };
        assert_eq!(place(1).rule(), "oom@libc10.so+0x4f2#1");
        assert_eq!(place(3).rule(), "oom@libc10.so+0x4f2#3");
    }

    #[test]
    fn a_line_of_python_called_the_first_function_outside_of_allocators() {
        let native = |module: &str, function: &str| Frame {
            module: Some(module.into()),
            function: Some(function.into()),
            ..Frame::native(1)
        };
        let frames = [
            native("libc10_hip.so", "c10::hip::HIPCachingAllocator::Native::raw_alloc(unsigned long)"),
            native("libtorch_hip.so", "at::native::cudnn_convolution(at::Tensor const&)"),
            native("python3.12", "_PyEval_EvalFrameDefault"),
            native("launcher", "main"),
        ];
        assert_eq!(operator(&frames).as_deref(), Some("at::native::cudnn_convolution (libtorch_hip.so)"));
        let direct = [native("libamdhip64.so.6", "hipMalloc"), native("python3.12", "_PyEval_EvalFrameDefault")];
        assert_eq!(operator(&direct).as_deref(), Some("hipMalloc (libamdhip64.so.6)"), "nothing else stands between");
    }
}
