//! The phases of call sites: what blocks came in, of those that live and those that are gone.

use std::cell::RefCell;

use rustc_hash::FxHashMap;

use super::{Phase, Where};
use crate::symbols::Stacks;

/// Call sites whose phases are looked up. Those behind them count as sites that no function names a phase of.
const MOST_SITES: usize = 1 << 14;

/// Phases of a trace's call sites, each looked up once.
pub struct OfSites<'a> {
    stacks: &'a Stacks<'a>,
    known: RefCell<FxHashMap<u32, Option<Phase>>>,
}

impl<'a> OfSites<'a> {
    /// By the ways to the sites.
    pub fn new(stacks: &'a Stacks<'a>) -> Self {
        OfSites { stacks, known: RefCell::default() }
    }

    /// The ways to the sites.
    pub fn stacks(&self) -> &'a Stacks<'a> {
        self.stacks
    }

    /// The phase that functions on the way to a site name.
    pub fn phase(&self, site: u32) -> Option<Phase> {
        if let Some(known) = self.known.borrow().get(&site) {
            return *known;
        }
        self.is_open().then(|| {
            let phase = Where::of(&self.stacks.of(site).frames, false).map(|at| at.phase);
            self.known.borrow_mut().insert(site, phase);
            phase
        })?
    }

    /// Whether more can be looked up, so that a site without a phase is one that no function names a phase of.
    pub fn is_open(&self) -> bool {
        self.known.borrow().len() < MOST_SITES
    }
}
