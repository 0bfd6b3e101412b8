//! The layers below the program's own calls: what lives there and why.
//!
//! The program's own calls are counted by [`super::accounts`]. What they call below, and what vendor libraries call for
//! themselves, is kept here: one book per layer, because equal numbers of two layers mean different things. Layers are
//! never added up; [`super::balance`] says which bytes are the same.

mod alone;
pub(super) mod book;
mod cause;
mod frees;
mod open;
pub(super) mod sums;
#[cfg(test)]
mod tests;

use gpuoom_trace::payload;
use gpuoom_trace::record::{Event, Kind, Layer, NO_DEVICE, Record, flag};

pub use alone::Alone;
pub use book::LowerBlock;
pub use cause::Cause;
pub use sums::{Class, Sum, Sums};

use super::accounts::Accounts;
use super::apis::{Api, Family};
use super::block::{Side, Space};
use super::contexts::{End, Number};
use super::pins::Pins;
use alone::TakenAlone;
use book::Book;
use frees::LowerFrees;
use open::{Open, OpenCalls};

/// Layers that have a book.
const BOOKS: usize = 4;

/// Where a block comes in: its ordinal, and the CUDA context that it belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Ordinal (in the replay) of the record.
    pub position: u64,
    /// Number of the context, 0 where it is not known.
    pub context: Number,
}

/// The layers below.
#[derive(Clone, Debug)]
pub struct Lower {
    books: [Book; BOOKS],
    /// What the books hold.
    pub sums: Sums,
    open: OpenCalls,
    /// Room for what a record settles.
    settled: Vec<(Open, Cause)>,
    frees: LowerFrees,
    pins: Pins,
    alone: TakenAlone,
    /// Out-of-memory returns of calls that vendor libraries made for themselves.
    pub failures: u64,
    /// Layers that gave device memory, by device: bit n is the layer with number n.
    seen: [u8; 256],
    /// The device of records that name none, where the trace knows only one.
    only_device: Option<u8>,
    /// Layers that gave anything, to device or host: bit n is the layer with number n.
    gave_any: u8,
    is_used: bool,
}

impl Lower {
    /// Empty books.
    pub fn new(only_device: Option<u8>) -> Self {
        Lower {
            books: Default::default(),
            sums: Sums::default(),
            open: OpenCalls::default(),
            settled: Vec::new(),
            frees: LowerFrees::default(),
            pins: Pins::default(),
            alone: TakenAlone::default(),
            failures: 0,
            seen: [0; 256],
            only_device,
            gave_any: 0,
            is_used: false,
        }
    }

    /// Whether any layer below was ever recorded: a trace of upper calls alone pays no more than this question.
    #[inline]
    pub fn is_used(&self) -> bool {
        self.is_used
    }

    /// Whether calls wait for the record of what encloses them.
    #[inline]
    pub fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// The lowest layer that gave memory of a device in a call that was not the program's own.
    pub fn lowest(&self, device: u8) -> Option<Layer> {
        Layer::ALL.iter().copied().filter(|layer| self.gave(device, *layer)).max()
    }

    /// Whether a layer gave memory of a device in a call that was not the program's own.
    pub fn gave(&self, device: u8, layer: Layer) -> bool {
        self.seen[usize::from(device)] & 1 << layer as u8 != 0
    }

    /// Whether a layer gave anything in a call that was not the program's own, be it of a device or of the host.
    pub fn gave_any(&self, layer: Layer) -> bool {
        self.gave_any & 1 << layer as u8 != 0
    }

    /// Whether a layer below the runtime gave device memory of any device.
    pub fn gave_below_runtime(&self) -> bool {
        self.seen.iter().any(|bits| *bits & !1 != 0)
    }

    /// All blocks of one side and device.
    pub fn blocks(&self, side: Side, device: u8) -> impl Iterator<Item = &LowerBlock> {
        let here = move |block: &&LowerBlock| block.side() == side && (side == Side::Host || block.device == device);
        self.books.iter().flat_map(Book::blocks).filter(here)
    }

    /// What the kernel's driver gave of the host's memory inside the program's calls and beside them, and what still lives of it.
    pub fn kernel_host_bytes(&self) -> u128 {
        let is_of_host = |class: &Class| class.layer == Layer::Kernel && Side::of(class.kind) == Side::Host;
        self.sums.rows().filter(|(class, _)| is_of_host(class)).map(|(_, sum)| sum.bytes).sum()
    }

    /// What vendor libraries took outside any recorded call: a row per layer, function and call site.
    pub fn taken_alone(&self) -> Vec<Alone> {
        self.alone.rows()
    }

    /// Memory was given by a call that is not the program's own.
    pub fn take_in(&mut self, record: &Record, payload: &[u8], api: &Api, place: Place, accounts: &mut Accounts) {
        let position = place.position;
        let Some(layer) = api.layer.filter(|layer| (*layer as usize) < BOOKS) else { return };
        if record.address == 0 {
            return;
        }
        self.is_used = true;
        self.gave_any |= 1 << layer as u8;
        let kind = match record.event() {
            Some(Event::Import) => Kind::Imported,
            _ => record.kind(),
        };
        let is_nvidia = api.family == Family::Nvidia;
        if kind == Kind::Imported
            && !is_nvidia
            && self.books[layer as usize].has(Space::of(kind, api.family), record.address)
        {
            // The process imports what it exported itself: the memory is there already.
            return;
        }
        let key = (Space::of(kind, api.family), record.address);
        if Pins::counts(record.event(), api.layer)
            && self.books[layer as usize].get(key.0, key.1).is_some_and(|block| block.bytes == record.requested)
        {
            self.pins.add(record.address);
            return;
        }
        let number = |index: usize| payload::unpack_numbers(payload).nth(index).unwrap_or(0);
        // Of a duplicate the object that it was made of comes first.
        let is_duplicate = is_nvidia && kind == Kind::Imported;
        let parent = if is_nvidia { number(usize::from(is_duplicate)) } else { 0 };
        let block = LowerBlock {
            address: record.address,
            bytes: record.requested,
            entered: position,
            parent: if parent != 0 { record.address >> 32 << 32 | (parent & 0xFFFF_FFFF) } else { 0 },
            site: record.site,
            api: record.api,
            context: place.context,
            device: if record.device == NO_DEVICE { self.only_device.unwrap_or(NO_DEVICE) } else { record.device },
            kind,
            layer,
            family: api.family,
            is_outermost: record.is_outermost(),
            cause: Cause::Itself,
        };
        let (key, old) = self.books[layer as usize].insert(block);
        if is_duplicate {
            self.books[layer as usize].join(block.address, number(0));
        }
        old.iter().for_each(|old| self.let_go(old, accounts));
        self.count(&block, accounts);
        if !record.is_outermost() {
            self.open.push(record, layer, key, position);
        }
    }

    fn count(&mut self, block: &LowerBlock, accounts: &mut Accounts) {
        self.sums.add(block);
        if block.side() == Side::Device {
            self.seen[usize::from(block.device)] |= 1 << block.layer as u8;
            accounts.device_mut(block.device);
            self.alone.add(block);
        }
    }

    fn let_go(&mut self, block: &LowerBlock, accounts: &mut Accounts) {
        self.sums.remove(block);
        if block.side() == Side::Device {
            self.alone.remove(block);
        }
        accounts.lower_is_gone(block);
    }

    /// A record came that may enclose calls which wait.
    #[cold]
    pub fn close(&mut self, record: &Record, api: &Api, accounts: &mut Accounts) {
        let Some(layer) = api.layer else { return };
        let mut settled = std::mem::take(&mut self.settled);
        self.open.close(record, layer, &mut settled);
        for (open, cause) in settled.drain(..) {
            let book = &mut self.books[open.layer as usize];
            let Some(block) = book.get_mut(open.key).filter(|block| block.entered == open.entered) else { continue };
            if open.is_double {
                let gone = book.drop_key(open.key);
                gone.iter().for_each(|gone| self.let_go(gone, accounts));
                continue;
            }
            let before = *block;
            block.cause = match cause {
                // Pinned memory inside a call for managed memory is what that call gave only where it has its address.
                Cause::Call { kind: Kind::Managed, .. }
                    if block.side() == Side::Host && block.address != record.address =>
                {
                    Cause::Itself
                }
                cause => cause,
            };
            if block.device == NO_DEVICE && block.side() == Side::Device {
                block.device = open.device;
            }
            let after = *block;
            self.sums.remove(&before);
            self.count(&after, accounts);
        }
        self.settled = settled;
    }

    /// Device bytes that wait inside a call: what the layers below gave for it, as far as it is known. None at all where they gave
    /// host memory instead: HIP puts an array there when the card is full, and does not say so.
    pub fn bytes_inside(&mut self, record: &Record, layer: Layer) -> Option<u64> {
        let books = &mut self.books;
        let (mut bytes, mut host_bytes) = (None, 0u64);
        for open in self.open.directly_inside(record, layer) {
            let block = books[open.layer as usize].get_mut(open.key);
            let Some(block) = block.filter(|block| block.entered == open.entered) else { continue };
            match block.side() {
                Side::Device => bytes = Some(bytes.unwrap_or(0u64).saturating_add(block.bytes)),
                Side::Host => host_bytes = host_bytes.saturating_add(block.bytes),
                Side::Neither => {}
            }
        }
        let lies_on_the_host = record.requested > 0 && host_bytes >= record.requested;
        bytes.or_else(|| lies_on_the_host.then_some(0))
    }

    /// The device whose memory HSA gave inside a call, where that is one. It is asked for a device's memory by the pool of that device;
    /// CUDA's driver by the thread's context, which says no more than the call itself.
    pub fn device_inside(&mut self, record: &Record, layer: Layer) -> Option<u8> {
        let books = &mut self.books;
        let mut device = None;
        for open in self.open.directly_inside(record, layer) {
            let block = books[open.layer as usize].get_mut(open.key);
            let is_hsas = open.layer as usize == Layer::Hsa as usize;
            let block = block.filter(|block| block.entered == open.entered && block.side() == Side::Device && is_hsas);
            let Some(block) = block.filter(|block| block.device != NO_DEVICE) else { continue };
            if device.is_some_and(|device| device != block.device) {
                return None;
            }
            device = Some(block.device);
        }
        device
    }

    /// A reference to physical memory that is mapped at an address; whether it is known.
    pub fn retain(&mut self, record: &Record, layer: Option<Layer>, address: u64) -> bool {
        let book = layer.and_then(|layer| self.books.get_mut(layer as usize));
        book.is_some_and(|book| book.retain(record.address, address))
    }

    /// A call of a vendor library on itself failed.
    pub fn failed(&mut self, record: &Record, api: &Api) {
        if record.has(flag::FROM_RUNTIME) && api.is_out_of_memory(record.status) {
            self.failures += 1;
        }
    }

    /// A context ended: what runtime and driver had given in it is gone.
    pub(super) fn end(&mut self, record: &Record, api: &Api, end: &End, accounts: &mut Accounts) {
        if !self.is_used {
            return;
        }
        let gone: Vec<LowerBlock> =
            [Layer::Runtime, Layer::Driver].into_iter().flat_map(|layer| self.books[layer as usize].end(end)).collect();
        gone.iter().for_each(|gone| self.let_go(gone, accounts));
        self.remember_taken(record, api, gone, Vec::new());
    }

    /// The context of what the driver gave at an address.
    pub(super) fn context_at(&self, kind: Kind, address: u64) -> Option<Number> {
        let block = self.books[Layer::Driver as usize].get(Space::of(kind, Family::Pointers), address)?;
        Some(block.context).filter(|context| *context != 0)
    }

    /// How many blocks runtime and driver hold that have an address.
    pub(super) fn addressed(&self) -> usize {
        [Layer::Runtime, Layer::Driver].into_iter().map(|layer| self.books[layer as usize].count()).sum()
    }

    /// The program reset a device: its contexts are gone, and what runtime and driver had given with them.
    pub fn reset(&mut self, record: &Record, api: &Api, device: u8, accounts: &mut Accounts) {
        let (mut blocks, mut physical) = (Vec::new(), Vec::new());
        for layer in [Layer::Runtime, Layer::Driver] {
            let (gone, reset) = self.books[layer as usize].reset(device);
            gone.iter().chain(reset.blocks()).for_each(|gone| self.let_go(gone, accounts));
            blocks.extend(gone);
            if !reset.is_empty() {
                physical.push((layer, reset));
            }
        }
        self.remember_taken(record, api, blocks, physical);
    }
}
