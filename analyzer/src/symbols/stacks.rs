//! The way to a call with names.

use std::cell::RefCell;
use std::rc::Rc;

use gpuoom_trace::metadata::Module;
use gpuoom_trace::reader::TraceFile;
use rustc_hash::FxHashMap;

use super::key::CallSite;
use super::packages::Sources;
use super::{Frame, MissingSymbols, Modules, SymbolPlaces, Symbols, file_name};
use crate::replay::Replay;
use crate::replay::places::Place;
use crate::replay::sites::Sites;

/// Call sites whose names are remembered; more are named anew each time.
const MAX_REMEMBERED: usize = 1 << 16;
/// Stacks that are remembered.
const MAX_REMEMBERED_STACKS: usize = 1 << 13;

/// Ways through one call that are set beside each other.
const MOST_WAYS: usize = 1 << 10;
/// What the names of ggml's and llama.cpp's functions have in them.
const GGML: [&str; 2] = ["ggml_", "llama_"];

/// The frames that led to a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// Native frames, innermost first, then those of Python, innermost first.
    pub frames: Vec<Frame>,
    /// Whether native frames are missing at the outer end, or were never looked for.
    pub native_is_cut: bool,
    /// Whether some native frames were inferred from frame pointers, where unwind tables are missing: others may lie between
    /// them.
    pub native_is_inferred: bool,
    /// Whether Python frames are missing at the outer end.
    pub python_is_cut: bool,
}

/// Names for call sites that are still being read.
pub struct Names {
    modules: Modules,
    sources: Sources,
    symbols: Symbols,
    known: RefCell<FxHashMap<u32, Rc<CallSite>>>,
    stacks: RefCell<FxHashMap<u32, Rc<Stack>>>,
}

impl Names {
    /// For a trace.
    pub fn new(trace: &TraceFile, places: &SymbolPlaces) -> Self {
        let modules = Modules::new(&trace.header, &trace.metadata);
        let sources = Sources::of(modules.all());
        Names { modules, sources, symbols: Symbols::new(places), known: RefCell::default(), stacks: RefCell::default() }
    }

    /// The frames that led to a site's call; empty where the site is not known.
    pub fn stack(&self, sites: &Sites, site: u32) -> Stack {
        let Some(way) = sites.way(site) else { return Stack::default() };
        let named = |(address, place): (u64, Place)| {
            let module = self.modules.at(address.saturating_sub(1), place, sites.libraries());
            self.symbols.frames(address, module).to_vec()
        };
        let mut frames: Vec<Frame> = way.native_places().flat_map(named).collect();
        frames.extend(way.python().map(|frame| match sites.code(frame.code) {
            Some(code) => Frame {
                package_path: self.sources.package_path(&code.file).map(str::to_owned),
                ..Frame::python(&code.file, &code.function, frame.line)
            },
            None => Frame::python("", "", frame.line),
        }));
        Stack {
            frames,
            native_is_cut: way.native_is_cut(),
            native_is_inferred: way.native_is_inferred(),
            python_is_cut: way.python_is_cut(),
        }
    }

    /// The same, for those who ask for the same sites again and again.
    pub fn shared_stack(&self, sites: &Sites, site: u32) -> Rc<Stack> {
        if let Some(known) = self.stacks.borrow().get(&site) {
            return Rc::clone(known);
        }
        let fresh = Rc::new(self.stack(sites, site));
        let mut stacks = self.stacks.borrow_mut();
        if !fresh.frames.is_empty() && stacks.len() < MAX_REMEMBERED_STACKS {
            stacks.insert(site, Rc::clone(&fresh));
        }
        fresh
    }

    /// The names of a site; `None` where it is not known.
    pub fn call_site(&self, sites: &Sites, site: u32) -> Option<Rc<CallSite>> {
        if let Some(known) = self.known.borrow().get(&site) {
            return Some(Rc::clone(known));
        }
        let stack = self.stack(sites, site);
        if stack.frames.is_empty() {
            return None;
        }
        let fresh = Rc::new(CallSite::of(&stack.frames));
        let mut known = self.known.borrow_mut();
        if known.len() < MAX_REMEMBERED {
            known.insert(site, Rc::clone(&fresh));
        }
        Some(fresh)
    }

    /// The library that a site's call returns to.
    pub fn module<'a>(&'a self, sites: &'a Sites, site: u32) -> Option<&'a Module> {
        let (address, place) = sites.return_place(site)?;
        self.modules.at(address.saturating_sub(1), place, sites.libraries()).map(|module| &**module)
    }

    /// The libraries that were asked about and lack names.
    pub fn missing(&self) -> Vec<MissingSymbols> {
        self.symbols.missing()
    }
}

/// The call sites of a trace that was replayed, with names. Nothing is looked up before it is asked for.
pub struct Stacks<'a> {
    sites: &'a Sites,
    names: Names,
}

impl<'a> Stacks<'a> {
    /// Of a trace and its replay.
    pub fn new(trace: &TraceFile, replay: &'a Replay, places: &SymbolPlaces) -> Self {
        Stacks { sites: &replay.sites, names: Names::new(trace, places) }
    }

    /// The frames that led to a site's call.
    pub fn of(&self, site: u32) -> Stack {
        self.names.stack(self.sites, site)
    }

    /// The keys of sites that have the same label and the same call of the vendor's function: ways that part only behind it.
    pub fn ways_through(&self, site: u32) -> Vec<String> {
        let innermost = |site: u32| self.sites.way(site).and_then(|way| way.native.first().copied());
        let Some((label, called)) = self.call_site(site).map(|known| known.label.clone()).zip(innermost(site)) else {
            return Vec::new();
        };
        let others = self.sites.numbers().into_iter().filter(|other| innermost(*other) == Some(called));
        let known = others.take(MOST_WAYS).filter_map(|other| self.call_site(other));
        known.filter(|known| known.label == label).map(|known| known.key.clone()).collect()
    }

    /// Whether ggml may be linked into a program, by what is on the ways to its calls: a function of the program is ggml's or
    /// llama.cpp's, or none of them has a name, as in a stripped build.
    pub fn may_have_ggml(&self, executable: &str) -> bool {
        let mut has_names = false;
        for site in self.sites.numbers().into_iter().take(MOST_WAYS) {
            let stack = self.of(site);
            let own = stack.frames.iter().filter(|frame| frame.module.as_deref() == Some(file_name(executable)));
            for function in own.filter_map(|frame| frame.function.as_deref()) {
                if GGML.iter().any(|name| function.contains(name)) {
                    return true;
                }
                has_names = true;
            }
        }
        !has_names
    }

    /// Whether native frames of a site's stack were inferred from frame pointers.
    pub fn is_inferred(&self, site: u32) -> bool {
        self.sites.way(site).is_some_and(|way| way.native_is_inferred())
    }

    /// What tells a site from others, in this run and in others: its key and its label.
    pub fn call_site(&self, site: u32) -> Option<Rc<CallSite>> {
        self.names.call_site(self.sites, site)
    }

    /// A name of a site that other runs and builds of the program have, too; empty where it is not known.
    pub fn key(&self, site: u32) -> String {
        self.call_site(site).map(|known| known.key.clone()).unwrap_or_default()
    }

    /// The library that a site's call returns to.
    pub fn module(&self, site: u32) -> Option<&Module> {
        self.names.module(self.sites, site)
    }

    /// A site for people: the first function outside of allocators, and its library or file.
    pub fn label(&self, site: u32) -> String {
        self.call_site(site).map(|known| known.label.clone()).unwrap_or_default()
    }

    /// The libraries that were asked about and lack names.
    pub fn missing(&self) -> Vec<MissingSymbols> {
        self.names.missing()
    }
}
