//! What allocators hold at one moment: who asked for their blocks, and what lies unused between those.

use gpuoom_trace::record::Kind;
use rustc_hash::FxHashMap;

use super::Given;
use super::device::State;
use super::segments::Segment;
use crate::replay::purpose::Purpose;

/// A device at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Ticks.
    pub at: u64,
    /// Its allocators.
    pub of: Vec<OfAllocator>,
}

/// Call sites and purposes with the bytes and the number of their blocks.
pub type Rows = Vec<(u32, Purpose, u128, u64)>;

/// One allocator at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfAllocator {
    /// Its number.
    pub allocator: u8,
    /// Sums, and its own word.
    pub state: State,
    /// The memory that its blocks lie in; `None` where some do not lie in what calls gave.
    pub room: Option<Room>,
    /// Its blocks by call site, by the sites' numbers.
    pub rows: Rows,
}

/// The segments that an allocator's blocks lie in, or lay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// All of them, in bytes.
    pub bytes: u128,
    /// What of it is in no block.
    pub unused_bytes: u128,
    /// The longest stretch of that.
    pub largest_unused_bytes: u64,
    /// Stretches.
    pub unused_pieces: u64,
    /// Bytes and number of the segments by kind of memory.
    pub kinds: Vec<(Kind, u128, u64)>,
}

impl OfAllocator {
    pub(super) fn describe(allocator: u8, state: State, blocks: Vec<Given>, segments: Option<Vec<Segment>>) -> Self {
        let mut sites: FxHashMap<(u32, Purpose), (u128, u64)> = FxHashMap::default();
        for given in &blocks {
            let (bytes, number) = sites.entry((given.site, given.purpose)).or_default();
            *bytes += u128::from(given.size_bytes);
            *number += 1;
        }
        let mut rows: Rows =
            sites.into_iter().map(|((site, purpose), (bytes, blocks))| (site, purpose, bytes, blocks)).collect();
        rows.sort_unstable();
        OfAllocator { allocator, state, room: segments.and_then(|segments| Room::of(&segments, blocks)), rows }
    }
}

impl Room {
    /// What these blocks leave unused of these segments, which are in order; `None` where the one does not fit into the other.
    fn of(segments: &[Segment], mut blocks: Vec<Given>) -> Option<Self> {
        blocks.sort_unstable_by_key(|given| (given.address, given.size_bytes));
        let mut blocks = blocks.into_iter().peekable();
        let mut room = Room::default();
        let mut segments = segments.iter().peekable();
        while let Some(first) = segments.next() {
            room.add(first);
            let mut end = first.end;
            // Mapped pieces that lie beside each other are one stretch of addresses.
            while let Some(next) = segments.next_if(|next| goes_on(first, next, end)) {
                room.add(next);
                end = next.end;
            }
            let mut at = first.address;
            while let Some(given) = blocks.next_if(|given| given.address < end) {
                room.unused(given.address.checked_sub(at)?);
                at = given.address.checked_add(given.size_bytes).filter(|past| *past <= end)?;
            }
            room.unused(end - at);
            if segments.peek().is_some_and(|next| next.address < end) {
                return None;
            }
        }
        blocks.peek().is_none().then_some(room)
    }

    fn add(&mut self, segment: &Segment) {
        let bytes = u128::from(segment.bytes());
        self.bytes += bytes;
        match self.kinds.iter_mut().find(|(kind, ..)| *kind == segment.kind) {
            Some((_, sum, number)) => (*sum, *number) = (*sum + bytes, *number + 1),
            None => self.kinds.push((segment.kind, bytes, 1)),
        }
    }

    fn unused(&mut self, bytes: u64) {
        self.unused_bytes += u128::from(bytes);
        self.largest_unused_bytes = self.largest_unused_bytes.max(bytes);
        self.unused_pieces += u64::from(bytes > 0);
    }
}

fn goes_on(first: &Segment, next: &Segment, end: u64) -> bool {
    first.kind == Kind::Physical && next.kind == Kind::Physical && next.address == end
}
