//! The account of one device, or of the host: counts, bytes, the peak and what lived then.

use gpuoom_trace::record::{Kind, Layer};

use super::arena::{Arena, NO_PLACE};
use super::block::{Block, Mapping};
use super::blocks::Height;
use super::held::Held;
use super::lower::book::LowerBlock;
use super::spacing::AddressSpacing;
use super::tally::Tally;

/// Layers that can be asked for memory; the last stands for "not known".
const LAYERS: usize = Layer::ALL.len();
/// Kinds of memory that count as device memory.
const KINDS: [Kind; 5] = [Kind::Device, Kind::Managed, Kind::Array, Kind::Physical, Kind::Pool];

/// What a device's account holds, by the layer that was asked and the kind of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    rows: [[Held; KINDS.len()]; LAYERS],
}

impl Holdings {
    #[inline]
    fn cell(&mut self, layer: Layer, kind: Kind) -> Option<&mut Held> {
        let column = match kind {
            Kind::Device => 0,
            Kind::Managed => 1,
            Kind::Array => 2,
            Kind::Physical => 3,
            Kind::Pool => 4,
            _ => return None,
        };
        self.rows.get_mut(layer as usize)?.get_mut(column)
    }

    /// What blocks of one kind hold, at whichever layer they were asked for, in bytes.
    pub fn bytes_of(&self, kind: Kind) -> u128 {
        let of_kind = self.rows().filter(|(_, other, _)| *other == kind);
        of_kind.fold(0, |sum: u128, (_, _, held)| sum.saturating_add(held.requested_bytes))
    }

    /// The rows that hold something.
    pub fn rows(&self) -> impl Iterator<Item = (Layer, Kind, Held)> {
        let layers = Layer::ALL.iter().zip(&self.rows);
        let all = layers.flat_map(|(layer, row)| KINDS.iter().zip(row).map(move |(kind, held)| (*layer, *kind, *held)));
        all.filter(|(_, _, held)| held.blocks > 0)
    }
}

/// The moment when most was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// Ordinal of the record that reached it.
    pub position: u64,
    /// Its ticks.
    pub at: u64,
    /// What was held then.
    pub held: Held,
    /// Of it managed memory, whose pages may lie in RAM.
    pub managed: Held,
}

/// Counts of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Calls that gave memory.
    pub allocations: u64,
    /// Calls that gave memory back.
    pub frees: u64,
    /// Calls that were refused memory.
    pub failures: u64,
    /// Calls that succeeded and gave nothing (zero bytes asked).
    pub empty_allocations: u64,
    /// Blocks whose address was given out again although no free was seen.
    pub replaced: u64,
    /// Pins of host memory that was registered already. HIP answers success, counts one registration, and one call ends it.
    pub registered_again: u64,
    /// Blocks that a device reset took away.
    pub reset: u64,
}

/// The most that was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Most {
    /// Most bytes that lived at once. Managed memory is left out: its pages may lie in RAM.
    pub held_bytes: u128,
    /// The largest block of plain device memory, in bytes.
    pub block_bytes: u64,
}

/// A block that came or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The block as it was then.
    pub block: Block,
    /// Whether it came.
    pub comes: bool,
}

/// One account.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Counts of calls.
    pub calls: Calls,
    /// What is held now.
    pub held: Held,
    /// Of it managed memory, whose pages may lie in RAM.
    pub managed: Held,
    /// The most that was given so far.
    pub most: Most,
    /// What is held now by layer and kind.
    pub holdings: Holdings,
    /// Layers that gave blocks: bit n is the layer with number n.
    layers: u8,
    /// The moment when most was asked for; the first of several.
    pub peak: Peak,
    /// The model of the card; `None` while its size is not known, and for the host.
    pub arena: Option<Arena>,
    /// What the addresses tell about the granularity of the driver.
    pub spacing: AddressSpacing,
    /// Bytes of reserved address ranges.
    pub reserved_bytes: u128,
    /// Memory of other processes that is open now, in bytes.
    pub imported_bytes: u128,
    /// From which record on the model has seen every block.
    pub arena_since: u64,
    /// What came and went since somebody took this list; kept only where somebody has put one here.
    pub changes: Option<Vec<Change>>,
    /// What each caller asked for; kept only where somebody has put one here.
    pub tally: Option<Box<Tally>>,
    /// Blocks that lived at the peak and are gone. Never more than lived at the peak.
    gone: Vec<Block>,
    /// Mappings that existed at the peak and are gone.
    unmapped: Vec<Mapping>,
    /// Blocks of lower layers that lived at the peak and are gone.
    lower_gone: Vec<LowerBlock>,
    keeps_peak: bool,
}

impl Account {
    /// An account that can tell which blocks lived at its peak.
    pub fn with_blocks_at_peak() -> Self {
        Account { keeps_peak: true, ..Account::default() }
    }

    /// Takes a block in, places it in the arena and notices a new peak.
    #[inline]
    pub fn take_in(&mut self, block: &mut Block, at: u64) {
        self.hold(block);
        if let Some(changes) = &mut self.changes {
            changes.push(Change { block: *block, comes: true });
        }
        self.most.held_bytes = self.most.held_bytes.max(self.held.requested_bytes - self.managed.requested_bytes);
        if block.kind == Kind::Device {
            self.most.block_bytes = self.most.block_bytes.max(block.requested_bytes);
        }
        self.layers |= 1 << block.layer as u8;
        if self.held.requested_bytes > self.peak.held.requested_bytes {
            self.peak = Peak { position: block.entered, at, held: self.held, managed: self.managed };
            self.gone.clear();
            self.unmapped.clear();
            self.lower_gone.clear();
        }
    }

    /// Lets a block go.
    #[inline]
    pub fn let_go(&mut self, block: &Block) {
        self.hold_no_more(block);
        if let Some(changes) = &mut self.changes {
            changes.push(Change { block: *block, comes: false });
        }
        if self.keeps_peak && block.entered <= self.peak.position {
            self.gone.push(*block);
        }
    }

    /// Counts a block among what is held now, and nowhere else: that is no call.
    #[inline]
    pub(super) fn hold(&mut self, block: &mut Block) {
        if let Some(arena) = &mut self.arena {
            block.place = place(arena, block);
        }
        self.held.add(block);
        if block.kind == Kind::Managed {
            self.managed.add(block);
        }
        if let Some(cell) = self.holdings.cell(block.layer, block.kind) {
            cell.add(block);
        }
    }

    /// The opposite.
    #[inline]
    pub(super) fn hold_no_more(&mut self, block: &Block) {
        if let Some(arena) = &mut self.arena {
            arena.release(block.place, block.granules);
        }
        self.held.remove(block);
        if block.kind == Kind::Managed {
            self.managed.remove(block);
        }
        if let Some(cell) = self.holdings.cell(block.layer, block.kind) {
            cell.remove(block);
        }
    }

    /// What is held, and the most that was, for the peak of blocks above the runtime.
    pub fn height(&self) -> Height {
        let held = self.peak.held;
        Height { bytes: self.held.requested_bytes, most_bytes: held.requested_bytes }
    }

    /// Notes that a mapping is gone.
    pub fn unmapped(&mut self, mapping: &Mapping) {
        if self.keeps_peak && mapping.entered <= self.peak.position {
            self.unmapped.push(*mapping);
        }
    }

    /// Layers that gave blocks.
    pub fn layers(&self) -> impl Iterator<Item = Layer> {
        Layer::ALL.iter().copied().filter(|layer| self.layers & 1 << *layer as u8 != 0)
    }

    /// Notes that a block of a lower layer is gone.
    pub fn lower_is_gone(&mut self, block: &LowerBlock) {
        if self.keeps_peak && block.entered <= self.peak.position {
            self.lower_gone.push(*block);
        }
    }

    /// The blocks of lower layers at the peak, given those that live now.
    pub fn lower_at_peak<'a>(
        &'a self,
        live: impl Iterator<Item = &'a LowerBlock>,
    ) -> impl Iterator<Item = &'a LowerBlock> {
        let position = self.peak.position;
        self.lower_gone.iter().chain(live.filter(move |block| block.entered <= position))
    }

    /// The blocks at the peak, given those that live now.
    pub fn blocks_at_peak<'a>(&'a self, live: impl Iterator<Item = &'a Block>) -> Vec<Block> {
        let position = self.peak.position;
        let still = live.filter(|block| block.entered <= position);
        if self.peak.held.blocks == 0 {
            return Vec::new();
        }
        self.gone.iter().chain(still).copied().collect()
    }

    /// The mappings at the peak, given those that exist now.
    pub fn mappings_at_peak<'a>(&'a self, live: impl Iterator<Item = &'a Mapping>) -> Vec<Mapping> {
        let position = self.peak.position;
        let still = live.filter(|mapping| mapping.entered <= position);
        self.unmapped.iter().chain(still).copied().collect()
    }

    /// Starts the model of the card at a record, with the blocks that live placed in the order in which they came.
    pub fn start_arena(&mut self, mut arena: Arena, position: u64, live: &mut [&mut Block]) {
        live.sort_by_key(|block| block.entered);
        for block in live {
            block.place = place(&mut arena, block);
        }
        self.arena = Some(arena);
        self.arena_since = position;
    }
}

/// The place of a block in the model. Managed memory has none: nobody tells how many of its pages lie on the card.
#[inline]
pub fn place(arena: &mut Arena, block: &Block) -> u32 {
    if block.kind == Kind::Managed { NO_PLACE } else { arena.place(block.granules) }
}

/// Whether the model had no room for a block that belongs on the card.
pub fn has_no_room(block: &Block) -> bool {
    block.place == NO_PLACE && block.granules > 0 && block.kind != Kind::Managed
}
