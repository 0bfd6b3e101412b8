//! What lives where a step of the program ends, by call site: what each line of the program keeps from step to step.
//!
//! Nobody tells what a step is, so several cuts are made at once: at the program's labels, behind backward passes of PyTorch, and at
//! floors of what lives. Which of them counts is for those to say who judge (`passes/tensor_growth`). An event costs the same
//! however many steps there were: each call site has what it holds now, and what it held at the floor that may be the next end of
//! a step. Of each sort of ends few are kept, evenly chosen, and of all together so many rows.

mod floors;
mod kept;
#[cfg(test)]
mod tests;

use gpuoom_trace::payload::CodeName;
use rustc_hash::FxHashMap;

use super::Given;
use crate::replay::sites::Sites;
use floors::{Floors, Moves};
pub use kept::{Kept, SiteLevel, Step};

/// Call sites that are followed on a device; what comes by more counts as of a place that is not known.
const MOST_SITES: usize = 1 << 14;
/// Blocks before a backward pass whose sites are kept: a loss takes few behind the model's.
const RECENT: usize = 32;
/// Numbers of sites that are looked up without a search: recorders count from 1.
const MOST_NEAR: usize = 1 << 16;
/// Sorts of labels that are followed; labels differ in sort where they differ in more than numbers.
const MOST_LABELS: usize = 8;
/// Cycles with great swings above which smaller ones behind a load do not matter.
const FEW_CYCLES: u64 = 2;
/// Cycles that are a phase of their own.
const LEAST_CYCLES: u64 = 5;
/// The function of PyTorch that runs a step's backward pass, and makes the first gradient of it. Not `grad` beside it: by that a program
/// asks for gradients inside a step, as meta-learning and penalties do, several times in each.
const BACKWARD: (&str, &str) = ("torch/autograd/__init__.py", "backward");
/// The function that runs the engine. Versions of PyTorch without it run it in `backward` itself.
const ENGINE: (&str, &str) = ("torch/autograd/graph.py", "_engine_run_backward");
/// The class of PyTorch by which a function that was written in Python runs backwards: what it computes again, as activation
/// checkpointing does, ends no pass.
const INSIDE: &str = "BackwardCFunction.";

/// What a call site holds. The numbers are small, so that a site is one line of the cache: nearly each event has another site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Level {
    bytes: u64,
    blocks: u32,
    /// Blocks that it was ever given.
    given: u32,
}

/// Where the Python code lies that leads to a call site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Way {
    /// Nobody looked.
    #[default]
    NotKnown,
    /// In the functions that begin a backward pass.
    Backward,
    /// The same, where they make the first gradient of one, and not in what that runs.
    Begins,
    Elsewhere,
}

/// A call site that is followed.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    site: u32,
    way: Way,
    /// Whether frames of Python were looked for.
    python: bool,
    now: Level,
    /// What it held at the floor with this number; what it holds now, where it has not changed since.
    at_floor: [Level; 2],
    floor: [u32; 2],
}

impl Slot {
    fn at(&self, which: usize, floor: u32) -> Level {
        if self.floor[which] == floor { self.at_floor[which] } else { self.now }
    }
}

/// A label without its numbers, and the ends of steps that such labels name.
#[derive(Clone, Debug)]
pub struct Labelled {
    /// The first such label.
    pub first: String,
    /// The last such label.
    pub last: String,
    /// What lived there.
    pub kept: Kept,
}

/// The thread that runs backward passes, and where it is.
#[derive(Clone, Copy, Debug, Default)]
struct InBackward {
    thread: u32,
    is_inside: bool,
    site: u32,
}

/// The call sites of the last blocks that were given out, and of those before the last backward pass began: its forward pass is among
/// them.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    sites: [u32; RECENT],
    next: usize,
    before_backward: [u32; RECENT],
}

impl Recent {
    #[inline]
    fn push(&mut self, site: u32) {
        self.sites[self.next % RECENT] = site;
        self.next = self.next.wrapping_add(1);
    }

    fn last(&self) -> u32 {
        self.sites[self.next.wrapping_sub(1) % RECENT]
    }

    /// Puts those of now in order, the last one first.
    #[cold]
    fn begin_backward(&mut self) {
        for (place, site) in self.before_backward.iter_mut().enumerate() {
            *site = self.sites[self.next.wrapping_sub(place + 1) % RECENT];
        }
    }
}

/// The steps of one device, by each way to cut them.
#[derive(Clone, Debug)]
pub struct Steps {
    slots: Vec<Slot>,
    /// The place of each site that is followed, by the site's number; 0 of those that are not.
    near: Vec<u16>,
    /// The same of sites with large numbers.
    by_site: FxHashMap<u32, u16>,
    bytes: u64,
    given_bytes: u64,
    last_given_at: u64,
    bytes_at_last_given: u64,
    /// Ordinal of the record of the last block that was given out.
    last_entered: u64,
    /// Floors between great swings, and between smaller ones behind the last of these.
    floors: [Floors; 2],
    /// Smaller ones before the last great swing.
    before: Kept,
    backward: Kept,
    in_backward: InBackward,
    recent: Recent,
    labelled: Vec<Labelled>,
}

impl Default for Steps {
    fn default() -> Self {
        Steps {
            // The first one is for what comes from a place that is not known.
            slots: vec![Slot::default()],
            near: Vec::new(),
            by_site: FxHashMap::default(),
            bytes: 0,
            given_bytes: 0,
            last_given_at: 0,
            bytes_at_last_given: 0,
            last_entered: 0,
            floors: Default::default(),
            before: Kept::default(),
            backward: Kept::default(),
            in_backward: InBackward::default(),
            recent: Recent::default(),
            labelled: Vec::new(),
        }
    }
}

impl Steps {
    /// The number by which a call site is followed.
    #[inline]
    pub(super) fn slot(&mut self, site: u32, sites: &Sites) -> u16 {
        match self.near.get(site as usize) {
            Some(slot) if *slot != 0 => *slot,
            _ => self.far_slot(site, sites),
        }
    }

    /// That of a site with a large number, or of a new one.
    fn far_slot(&mut self, site: u32, sites: &Sites) -> u16 {
        match self.by_site.get(&site) {
            Some(slot) => *slot,
            None => self.new_slot(site, sites),
        }
    }

    #[cold]
    fn new_slot(&mut self, site: u32, sites: &Sites) -> u16 {
        if site == 0 || self.slots.len() >= MOST_SITES {
            return 0;
        }
        let slot = self.slots.len() as u16;
        let python = sites.looked_for_python(site);
        self.slots.push(Slot { site, way: way(site, sites), python, ..Slot::default() });
        if (site as usize) < MOST_NEAR {
            self.near.resize(self.near.len().max(site as usize + 1), 0);
            self.near[site as usize] = slot;
        } else {
            self.by_site.insert(site, slot);
        }
        slot
    }

    /// Whether frames of Python were looked for on the way to a call site that is followed.
    #[inline]
    pub(super) fn looked_for_python(&self, given: &Given, sites: &Sites) -> bool {
        match given.slot {
            0 => sites.looked_for_python(given.site),
            slot => self.slots[usize::from(slot)].python,
        }
    }

    /// A block is given out.
    #[inline]
    pub(super) fn given(&mut self, given: &Given, thread: u32, at: u64, rows_left: &mut usize) {
        let slot = usize::from(given.slot);
        match self.slots[slot].way {
            Way::NotKnown => {}
            way @ (Way::Backward | Way::Begins) => {
                // Its first gradient again, with other blocks behind the one before: the next pass over the same graph.
                let is_again = (self.in_backward.thread, self.in_backward.site) == (thread, given.site);
                if way == Way::Begins && self.in_backward.is_inside && is_again && self.recent.last() != given.site {
                    self.leaves_backward(at, rows_left);
                }
                if !self.in_backward.is_inside {
                    self.recent.begin_backward();
                }
                self.in_backward = InBackward { thread, is_inside: true, site: given.site };
            }
            Way::Elsewhere if self.in_backward.is_inside && self.in_backward.thread == thread => {
                self.leaves_backward(at, rows_left);
            }
            Way::Elsewhere => {}
        }
        self.recent.push(given.site);
        let now = &mut self.changes(slot).now;
        now.bytes = now.bytes.saturating_add(given.size_bytes);
        (now.blocks, now.given) = (now.blocks.saturating_add(1), now.given.saturating_add(1));
        self.bytes = self.bytes.saturating_add(given.size_bytes);
        self.given_bytes = self.given_bytes.saturating_add(given.size_bytes);
        (self.last_given_at, self.last_entered, self.bytes_at_last_given) = (at, given.entered, self.bytes);
        self.follow(at, rows_left);
    }

    /// A block is taken back.
    #[inline]
    pub(super) fn taken(&mut self, given: &Given, at: u64, rows_left: &mut usize) {
        let now = &mut self.changes(usize::from(given.slot)).now;
        now.bytes = now.bytes.saturating_sub(given.size_bytes);
        now.blocks = now.blocks.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(given.size_bytes);
        self.follow(at, rows_left);
    }

    /// Keeps what a call site held at the floors that may be ends of steps, before that changes.
    #[inline]
    fn changes(&mut self, slot: usize) -> &mut Slot {
        let slot = &mut self.slots[slot];
        for (which, floors) in self.floors.iter().enumerate() {
            if slot.floor[which] != floors.number {
                (slot.at_floor[which], slot.floor[which]) = (slot.now, floors.number);
            }
        }
        slot
    }

    #[inline]
    fn follow(&mut self, at: u64, rows_left: &mut usize) {
        let bytes = self.bytes;
        match self.floors[0].follow(bytes, self.given_bytes, at) {
            Moves::On => {}
            Moves::Falls if self.floors[0].great() <= FEW_CYCLES => self.begin_behind(at, rows_left),
            Moves::Falls => {}
            Moves::Confirmed => self.keep_floor(0, rows_left),
        }
        if self.floors[0].great() <= FEW_CYCLES
            && self.floors[1].follow(bytes, self.given_bytes, at) == Moves::Confirmed
        {
            self.keep_floor(1, rows_left);
        }
    }

    /// A great swing ends: smaller ones count from here on. Those before it stay as long as it may be the end of the program.
    #[cold]
    fn begin_behind(&mut self, at: u64, rows_left: &mut usize) {
        if self.floors[1].kept().count() >= LEAST_CYCLES {
            self.before.clear(rows_left);
            self.before = self.floors[1].take_kept();
        }
        self.floors[1].begin(self.bytes, self.given_bytes, at, rows_left);
    }

    /// What lived at the last floor, which was the end of a step.
    #[cold]
    fn keep_floor(&mut self, which: usize, rows_left: &mut usize) {
        let floors = &mut self.floors[which];
        if !floors.counts_next(rows_left) {
            return;
        }
        let number = floors.number;
        let rows = rows(self.slots.iter().map(|slot| (slot.site, slot.at(which, number))));
        self.floors[which].keep(rows, self.last_entered, rows_left);
    }

    #[cold]
    fn leaves_backward(&mut self, at: u64, rows_left: &mut usize) {
        self.in_backward.is_inside = false;
        if self.backward.wants_next(at) {
            let step = self.now(at);
            self.backward.push(step, rows_left);
        }
    }

    /// A label of the program.
    #[cold]
    pub(super) fn marked(&mut self, label: &str, at: u64, rows_left: &mut usize) {
        let known = self.labelled.iter().position(|known| is_same_sort(&known.first, label));
        let place = match known {
            Some(place) => place,
            None if self.labelled.len() < MOST_LABELS => {
                let kept = Kept::default();
                self.labelled.push(Labelled { first: label.to_owned(), last: String::new(), kept });
                self.labelled.len() - 1
            }
            None => return,
        };
        label.clone_into(&mut self.labelled[place].last);
        if self.labelled[place].kept.wants_next(at) {
            let step = self.now(at);
            self.labelled[place].kept.push(step, rows_left);
        }
    }

    fn now(&self, at: u64) -> Step {
        Step {
            number: 0,
            at,
            bytes: self.bytes,
            given_bytes: self.given_bytes,
            entered: self.last_entered,
            fell_bytes: 0,
            rows: rows(self.slots.iter().map(|slot| (slot.site, slot.now))),
        }
    }

    /// When the last block was given out, in ticks, and what blocks held then, in bytes.
    pub fn last_given(&self) -> (u64, u64) {
        (self.last_given_at, self.bytes_at_last_given)
    }

    /// Ends of steps at labels, by the labels' sort.
    pub fn labelled(&self) -> &[Labelled] {
        &self.labelled
    }

    /// Call sites of the last blocks before the last backward pass began, the last one first; 0 where one is not known.
    pub fn before_backward(&self) -> &[u32] {
        &self.recent.before_backward
    }

    /// Ends of backward passes, and a call site in one of them.
    pub fn backward(&self) -> (&Kept, u32) {
        (&self.backward, self.in_backward.site)
    }

    /// Floors between great swings, where smaller ones behind them count as the steps.
    pub fn great_floors(&self) -> &Kept {
        self.floors[0].kept()
    }

    /// Floors: those between great swings, or where there are at most two of them (a load that was thrown away) those behind.
    pub fn floors(&self) -> &Kept {
        let [main, behind] = &self.floors;
        let is_enough = |kept: &&Kept| kept.count() >= LEAST_CYCLES;
        // What falls where a program ends falls deeper than any of its steps. Nothing rises behind it, so they are all there still.
        let is_of_the_end = main.kept().count() > FEW_CYCLES;
        match Some(behind.kept()).filter(is_enough) {
            _ if main.great() > FEW_CYCLES => main.kept(),
            Some(behind) => behind,
            None if is_of_the_end => main.kept(),
            None => Some(&self.before).filter(is_enough).unwrap_or(main.kept()),
        }
    }
}

/// The call sites that hold anything, by their numbers.
fn rows(levels: impl Iterator<Item = (u32, Level)>) -> Vec<SiteLevel> {
    let held = levels.filter(|(_, level)| level.blocks > 0);
    let row = |(site, Level { bytes, blocks, given })| SiteLevel {
        site,
        bytes,
        blocks: u64::from(blocks),
        given: u64::from(given),
    };
    let mut rows: Vec<SiteLevel> = held.map(row).collect();
    rows.sort_unstable_by_key(|row| row.site);
    rows
}

fn way(site: u32, sites: &Sites) -> Way {
    let Some(way) = sites.way(site).filter(|_| sites.looked_for_python(site)) else { return Way::NotKnown };
    let codes: Vec<&CodeName> = way.python().filter_map(|frame| sites.code(frame.code)).collect();
    let has =
        |file: &str, function: &str| codes.iter().any(|code| code.file.ends_with(file) && code.function == function);
    match has(BACKWARD.0, BACKWARD.1) {
        // Threads that run no Python, such as PyTorch's backward ones.
        _ if codes.is_empty() => Way::NotKnown,
        // What is computed again inside a backward pass is a part of it.
        _ if codes.iter().any(|code| code.function.contains(INSIDE)) => Way::Backward,
        true if has(ENGINE.0, ENGINE.1) => Way::Backward,
        true => Way::Begins,
        false => Way::Elsewhere,
    }
}

/// Whether two labels differ in their numbers alone.
fn is_same_sort(one: &str, other: &str) -> bool {
    let letters = |label: &str| label.chars().filter(|letter| !letter.is_ascii_digit()).collect::<Vec<_>>();
    one == other || letters(one) == letters(other)
}
