//! What stands below the allocator: a card with a limit, or the recorded run itself.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use super::policy::SMALL_SEGMENT;

/// What a call of the allocator to the driver is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallKind {
    /// A segment is taken.
    Alloc,
    /// A segment is given back.
    Free,
    /// Memory is mapped into an expandable segment.
    Map,
    /// It is unmapped.
    Unmap,
}

impl CallKind {
    /// Whether memory is given back.
    pub fn gives_back(self) -> bool {
        matches!(self, CallKind::Free | CallKind::Unmap)
    }
}

/// A call of the allocator to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Call {
    /// What it is about.
    pub kind: CallKind,
    /// First address.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// Stream.
    pub stream: u64,
}

/// What the allocator asks.
pub trait Driver {
    /// A new segment; `None` where memory is out. `reserved` is what the allocator has.
    fn segment(&mut self, bytes: u64, stream: u64, reserved: u64) -> Option<u64>;
    /// Memory for a stretch of an expandable segment.
    fn map(&mut self, address: u64, bytes: u64, stream: u64, reserved: u64) -> bool;
    /// Addresses for an expandable segment that is mapped in units.
    fn reserve(&mut self, bytes: u64, unit: u64, stream: u64) -> u64;
    /// The addresses are free again.
    fn unreserve(&mut self, address: u64);
    /// Memory that is given back.
    fn give_back(&mut self, call: Call);
}

/// Where a driver sets address space aside: on an H200 (driver 580) each lay above the one before; what `mmap` chooses goes down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reserves {
    /// Above what was set aside before.
    #[default]
    Above,
    /// In the highest gap below it, also where space was given back.
    Below,
}

/// A card with so much memory for the allocator.
#[derive(Clone, Debug)]
pub struct Card {
    usable_bytes: u64,
    next_reserved: u64,
    reserves: Reserves,
    /// Address space that is set aside below what came before, with its length.
    reserved: BTreeMap<u64, u64>,
    segments: BTreeMap<u64, u64>,
}

/// Mappings of the small pool are shorter: they are made for one request.
const MANY_SMALL_SEGMENTS: u64 = 5 * SMALL_SEGMENT;
/// A card that never refuses.
const UNLIMITED_BYTES: u64 = 1 << 56;
/// Addresses of a file are taken up to here; no GPU has more.
const LAST_ADDRESS: u64 = 1 << 57;
/// Where segments begin.
const FIRST_SEGMENT: u64 = 1 << 40;
/// Where expandable segments begin; far above all others.
const FIRST_RESERVED: u64 = 1 << 60;
/// Segments begin at multiples of it.
const SEGMENT_ALIGNMENT: u64 = 2 << 20;

impl Card {
    /// A card.
    pub fn new(usable_bytes: u64) -> Self {
        let (reserves, reserved, segments) = Default::default();
        Card { usable_bytes, next_reserved: FIRST_RESERVED, reserves, reserved, segments }
    }

    /// The same, with address space where that driver puts it: the allocator takes the lowest that has room.
    pub fn reserving(self, reserves: Reserves) -> Self {
        Card { reserves, ..self }
    }

    /// The lowest addresses that are free and long enough: what other drivers choose decides between blocks of the same
    /// size only.
    fn place(&mut self, bytes: u64) -> u64 {
        let mut at = FIRST_SEGMENT;
        for (start, length) in &self.segments {
            if start.saturating_sub(at) >= bytes {
                break;
            }
            at = start.saturating_add(*length).next_multiple_of(SEGMENT_ALIGNMENT);
        }
        self.segments.insert(at, bytes);
        at
    }
}

impl Driver for Card {
    fn segment(&mut self, bytes: u64, _: u64, reserved: u64) -> Option<u64> {
        (reserved.saturating_add(bytes) <= self.usable_bytes).then(|| self.place(bytes))
    }

    fn map(&mut self, _: u64, bytes: u64, _: u64, reserved: u64) -> bool {
        reserved.saturating_add(bytes) <= self.usable_bytes
    }

    fn reserve(&mut self, bytes: u64, _: u64, _: u64) -> u64 {
        let size_bytes = bytes.saturating_add(SEGMENT_ALIGNMENT);
        match self.reserves {
            Reserves::Above => {
                let address = self.next_reserved;
                self.next_reserved = address.saturating_add(size_bytes);
                address
            }
            Reserves::Below => {
                let mut end = FIRST_RESERVED;
                for (start, length) in self.reserved.iter().rev() {
                    if end.saturating_sub(start.saturating_add(*length)) >= size_bytes {
                        break;
                    }
                    end = *start;
                }
                let address = end.saturating_sub(size_bytes);
                self.reserved.insert(address, size_bytes);
                address
            }
        }
    }

    fn unreserve(&mut self, address: u64) {
        self.reserved.remove(&address);
    }

    fn give_back(&mut self, call: Call) {
        if call.kind == CallKind::Free {
            self.segments.remove(&call.address);
        }
    }
}

/// How far the model does what was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Match {
    /// Calls that were recorded.
    pub recorded: u64,
    /// Of them those that the model made too, at the same place in the order, with the same size and stream, and where
    /// something is given back the same address.
    pub matched: u64,
    /// Calls of the model that were not recorded.
    pub extra: u64,
    /// The first call (counted from 1) that differs.
    pub first_difference: Option<u64>,
}

/// The recorded run as a driver: it gives what was given, and refuses where the next thing that happened was that memory
/// was given back.
#[derive(Clone, Debug, Default)]
pub struct Script {
    expected: VecDeque<Call>,
    ends_in_failure: bool,
    spare: Option<Card>,
    /// All mappings that were recorded.
    mappings: Vec<Call>,
    /// How many of them were expected so far.
    mapped: usize,
    /// Address ranges of expandable segments.
    reserved: Vec<(u64, u64)>,
    /// The last of them that was recorded.
    last_reserved: Option<u64>,
    /// Where the second of them lay.
    pub reserves: Option<Reserves>,
    /// The comparison so far.
    pub compared: Match,
}

impl Script {
    /// A run with these mappings.
    pub fn new(mappings: Vec<Call>) -> Self {
        let mappings = mappings.into_iter().filter(|call| call.address < LAST_ADDRESS).collect();
        Script { mappings, ..Script::default() }
    }

    /// The calls that were recorded within the next step, and whether it ran out of memory.
    pub fn expect(&mut self, calls: impl IntoIterator<Item = Call>, ends_in_failure: bool) {
        self.expected.extend(calls);
        self.ends_in_failure = ends_in_failure;
    }

    /// The step is over: calls that the model did not make are differences.
    pub fn step_is_over(&mut self) {
        for _ in 0..self.expected.len() {
            self.differs();
            self.compared.recorded += 1;
        }
        self.expected.clear();
    }

    fn differs(&mut self) {
        let number = self.compared.recorded + 1;
        self.compared.first_difference.get_or_insert(number);
    }

    fn pop(&mut self, same: bool) -> Option<Call> {
        let call = self.expected.pop_front()?;
        if same {
            self.compared.matched += 1;
        } else {
            self.differs();
        }
        self.compared.recorded += 1;
        Some(call)
    }

    fn refuses(&self) -> bool {
        self.expected.front().map_or(self.ends_in_failure, |call| call.kind.gives_back())
    }

    fn spare(&mut self) -> &mut Card {
        self.spare.get_or_insert_with(|| Card::new(UNLIMITED_BYTES))
    }

    fn extra(&mut self) -> &mut Card {
        self.differs();
        self.compared.extra += 1;
        self.spare()
    }
}

impl Driver for Script {
    fn segment(&mut self, bytes: u64, stream: u64, reserved: u64) -> Option<u64> {
        if self.refuses() {
            return None;
        }
        let next = self.expected.front().copied();
        match next {
            Some(call) if call.kind == CallKind::Alloc => {
                self.pop(call.bytes == bytes && call.stream == stream);
                // A segment of another size must not run into others.
                if call.bytes == bytes && call.address < LAST_ADDRESS {
                    Some(call.address)
                } else {
                    self.spare().segment(bytes, stream, reserved)
                }
            }
            _ => self.extra().segment(bytes, stream, 0),
        }
    }

    fn map(&mut self, address: u64, bytes: u64, stream: u64, _: u64) -> bool {
        if self.refuses() {
            return false;
        }
        match self.expected.front().copied() {
            Some(call) if call.kind == CallKind::Map => {
                self.mapped += 1;
                self.pop((call.address, call.bytes, call.stream) == (address, bytes, stream));
            }
            _ => {
                self.extra();
            }
        }
        true
    }

    /// Where the recorded segment began: at the first mapping to come that is in no known one. It may come late, because
    /// the first attempt to map was refused.
    fn reserve(&mut self, bytes: u64, unit: u64, stream: u64) -> u64 {
        let known = &self.reserved;
        let is_new = |call: &&Call| {
            let fits = call.bytes.is_multiple_of(unit) && (unit != SMALL_SEGMENT || call.bytes < MANY_SMALL_SEGMENTS);
            let inside = known.iter().any(|(start, length)| (*start..*start + *length).contains(&call.address));
            fits && call.stream == stream && !inside
        };
        let address = match self.mappings.iter().skip(self.mapped).find(is_new) {
            Some(call) => {
                let address = call.address;
                if let Some(last) = self.last_reserved.replace(address) {
                    self.reserves.get_or_insert(if address < last { Reserves::Below } else { Reserves::Above });
                }
                address
            }
            None => self.spare().reserve(bytes, unit, stream),
        };
        self.reserved.push((address, bytes));
        address
    }

    fn unreserve(&mut self, address: u64) {
        self.reserved.retain(|(start, _)| *start != address);
    }

    fn give_back(&mut self, call: Call) {
        if self.expected.front() == Some(&call) {
            self.pop(true);
            return;
        }
        match self.expected.iter().position(|expected| *expected == call) {
            // Out of order: it is not counted as the same.
            Some(at) => {
                self.expected.remove(at);
                self.differs();
                self.compared.recorded += 1;
            }
            None => {
                self.extra().give_back(call);
            }
        }
    }
}
