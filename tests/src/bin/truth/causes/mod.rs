//! What is done to a program that has nothing wrong, and what is true of it afterwards. Written from what goes wrong in real
//! programs and from the catalogue's text; how the analyzer decides is not known here.

mod capacity;
mod errors;
mod free_memory;
mod healthy;
mod host;
mod leaks;
mod pools;

use crate::case::{Case, Needs, Sight};
use crate::programs::{PURPOSES, Purpose};

/// A cause, or a healthy habit that looks like one.
pub(crate) struct Cause {
    pub(crate) name: &'static str,
    /// How often it comes, against the others.
    pub(crate) weight: u64,
    pub(crate) where_from: Where,
    pub(crate) purposes: &'static [Purpose],
    pub(crate) needs: Needs,
    pub(crate) inject: fn(&mut Case),
}

/// On what it can happen.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Where {
    Anywhere,
    Hip,
}

/// All of them.
pub(crate) fn all() -> Vec<Cause> {
    let tables =
        [healthy::TABLE, leaks::TABLE, capacity::TABLE, free_memory::TABLE, pools::TABLE, host::TABLE, errors::TABLE];
    tables.into_iter().flatten().map(|make| make()).collect()
}

const ANY: &[Purpose] = &PURPOSES;
/// Programs that do the same thing many times.
const REPEATING: &[Purpose] =
    &[Purpose::Service, Purpose::Training, Purpose::Llama, Purpose::Stencil, Purpose::Batch, Purpose::Plugins];

/// A cause that can happen anywhere, to any program, seen by anybody.
const fn cause(name: &'static str, weight: u64, inject: fn(&mut Case)) -> Cause {
    let needs = Needs { sight: None, one_device: false, no_async: false };
    Cause { name, weight, where_from: Where::Anywhere, purposes: ANY, needs, inject }
}

impl Cause {
    const fn on(mut self, place: Where) -> Self {
        self.where_from = place;
        self
    }

    const fn of(mut self, purposes: &'static [Purpose]) -> Self {
        self.purposes = purposes;
        self
    }

    const fn one_device(mut self) -> Self {
        self.needs.one_device = true;
        self
    }

    const fn no_async(mut self) -> Self {
        self.needs.no_async = true;
        self
    }

    const fn seen(mut self, sight: Sight) -> Self {
        self.needs.sight = Some(sight);
        self
    }
}

type Table = &'static [fn() -> Cause];
