//! What allocators hold at one moment: who asked for their blocks, and what lies unused between those.

use gpuoom_trace::record::Kind;
use rustc_hash::FxHashMap;

use super::device::State;
use super::segments::Segment;
use super::{Given, NameNumber};
use crate::replay::purpose::Purpose;

/// A device at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Ticks.
    pub at: u64,
    /// Its allocators.
    pub of: Vec<OfAllocator>,
    /// How old blocks are, by the sites' numbers; empty where nobody asks for it.
    pub ages: Vec<Age>,
}

/// How old the blocks of a call site are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age {
    /// Number of the site.
    pub site: u32,
    /// Bytes of its blocks.
    pub bytes: u64,
    /// Ordinal of the record with which a quarter of these bytes had come: less than a quarter is older.
    pub quarter_entered: u64,
    /// Ordinal of the record with which one in [`FEW_OF`] of these blocks had come.
    pub few_entered: u64,
}

/// Of so many blocks one is a few.
const FEW_OF: usize = 32;

impl Moment {
    /// How old the blocks of a call site are.
    pub fn age(&self, site: u32) -> Option<&Age> {
        self.ages.binary_search_by_key(&site, |age| age.site).ok().map(|place| &self.ages[place])
    }
}

/// The ages of blocks by call site.
pub(super) fn ages<'a>(blocks: impl Iterator<Item = &'a Given>) -> Vec<Age> {
    let mut came: Vec<(u32, u64, u64)> = blocks.map(|given| (given.site, given.entered, given.size_bytes)).collect();
    came.sort_unstable();
    let of_site = |came: &[(u32, u64, u64)]| {
        let bytes = came.iter().fold(0, |sum: u64, (.., bytes)| sum.saturating_add(*bytes));
        let mut so_far: u64 = 0;
        let reaches_quarter = |(.., block_bytes): &&(u32, u64, u64)| {
            so_far = so_far.saturating_add(*block_bytes);
            so_far >= bytes.div_ceil(4)
        };
        let quarter_entered = came.iter().find(reaches_quarter).map_or(0, |(_, entered, _)| *entered);
        let few_entered = came[came.len() / FEW_OF].1;
        Age { site: came[0].0, bytes, quarter_entered, few_entered }
    };
    came.chunk_by(|one, other| one.0 == other.0).map(of_site).collect()
}

/// Blocks of one call site that are for one thing and have one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// Call site, 0 where it is not known.
    pub site: u32,
    /// What they are for.
    pub purpose: Purpose,
    /// What their pool calls them.
    pub name: NameNumber,
    /// Their bytes.
    pub bytes: u128,
    /// Their number.
    pub blocks: u64,
    /// Ordinal (in the replay) of the record of the earliest.
    pub first: u64,
    /// The number of that one among all blocks of PyTorch's that came by this site, 0 where it is not known.
    pub first_nth: u32,
}

/// All blocks of an allocator, by the sites' numbers.
pub type Rows = Vec<Row>;

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
    /// What of it is whole segments, which could be given back.
    pub whole_unused_bytes: u128,
    /// Bytes and number of the segments by kind of memory.
    pub kinds: Vec<(Kind, u128, u64)>,
}

impl OfAllocator {
    pub(super) fn describe(allocator: u8, state: State, blocks: Vec<Given>, segments: Option<Vec<Segment>>) -> Self {
        let rows = rows(blocks.iter());
        OfAllocator { allocator, state, room: segments.and_then(|segments| Room::of(&segments, blocks)), rows }
    }
}

/// Blocks by call site, by the sites' numbers.
pub(super) fn rows<'a>(blocks: impl Iterator<Item = &'a Given>) -> Rows {
    let mut sites: FxHashMap<(u32, Purpose, NameNumber), Row> = FxHashMap::default();
    for Given { site, purpose, name, entered, nth, size_bytes, .. } in blocks.copied() {
        let first = Row { site, purpose, name, bytes: 0, blocks: 0, first: entered, first_nth: nth };
        let row = sites.entry((site, purpose, name)).or_insert(first);
        row.bytes += u128::from(size_bytes);
        row.blocks += 1;
        if entered < row.first {
            (row.first, row.first_nth) = (entered, nth);
        }
    }
    let mut rows: Rows = sites.into_values().collect();
    rows.sort_unstable();
    rows
}

/// What is seen on the way through segments, by address.
pub(super) enum Seen<'a> {
    /// A segment; whether it goes on where the last one ended.
    Segment(&'a Segment, bool),
    /// A block in it.
    Block(&'a Given),
    /// Memory that is in no block: its length, which may be 0.
    Unused(u64),
}

/// Goes through segments, which are in order, and these blocks in them; `None` where the one does not fit into the other.
pub(super) fn walk(segments: &[Segment], mut blocks: Vec<Given>, mut see: impl FnMut(Seen<'_>)) -> Option<()> {
    blocks.sort_unstable_by_key(|given| (given.address, given.size_bytes));
    let mut blocks = blocks.iter().peekable();
    let mut segments = segments.iter().peekable();
    while let Some(first) = segments.next() {
        see(Seen::Segment(first, false));
        let mut end = first.end;
        // Mapped pieces that lie beside each other are one stretch of addresses.
        while let Some(next) = segments.next_if(|next| goes_on(first, next, end)) {
            see(Seen::Segment(next, true));
            end = next.end;
        }
        let mut at = first.address;
        while let Some(given) = blocks.next_if(|given| given.address < end) {
            see(Seen::Unused(given.address.checked_sub(at)?));
            see(Seen::Block(given));
            at = given.address.checked_add(given.size_bytes).filter(|past| *past <= end)?;
        }
        see(Seen::Unused(end - at));
        if segments.peek().is_some_and(|next| next.address < end) {
            return None;
        }
    }
    blocks.peek().is_none().then_some(())
}

impl Room {
    /// What these blocks leave unused of these segments, which are in order; `None` where the one does not fit into the other.
    fn of(segments: &[Segment], blocks: Vec<Given>) -> Option<Self> {
        let mut room = Room::default();
        // What of the stretch at hand is unused, until a block is seen in it.
        let (mut whole, mut is_in_use) = (0, false);
        walk(segments, blocks, |seen| match seen {
            Seen::Segment(segment, _) => {
                room.whole_unused_bytes += std::mem::take(&mut whole);
                is_in_use = false;
                room.add(segment);
            }
            Seen::Block(_) => (whole, is_in_use) = (0, true),
            Seen::Unused(bytes) => {
                room.unused(bytes);
                whole = if is_in_use { 0 } else { u128::from(bytes) };
            }
        })?;
        room.whole_unused_bytes += whole;
        Some(room)
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
