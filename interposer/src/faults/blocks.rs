//! What lives on the virtual card: from an address or handle to the bytes that it holds there.
//!
//! A table with open addressing and no lock: a hook may run in a signal handler, and a forked child must find nothing held.
//! It lies in memory of its own that takes no room until it is used, and that a child empties by giving it back.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Places of the table: a power of two. 32 bytes each, 16 MiB when all are touched.
const PLACES: usize = 1 << 19;
/// Places that are tried from the hashed one on. At half the table's room that is far beyond what is needed.
const TRIES: usize = 1024;

/// Keys that are no addresses.
mod mark {
    /// Never used: a search ends here.
    pub(super) const EMPTY: u64 = 0;
    /// Being written or taken out.
    pub(super) const BUSY: u64 = 1;
    /// Free again; a search goes on behind it.
    pub(super) const GONE: u64 = 2;
    /// In use, but not to be found: physical memory whose handle is released while it is mapped.
    pub(super) const NAMELESS: u64 = 3;
}

/// Which numbers a key belongs to: equal numbers of two sorts mean different things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// Pointers and arrays.
    Pointer,
    /// Handles of physical memory.
    Physical,
    /// Start addresses of mappings of physical memory.
    Mapping,
    /// Pools of stream-ordered memory.
    Pool,
}

impl Sort {
    fn key(self, number: u64) -> u64 {
        // Addresses end below 2^57.
        number ^ (self as u64) << 61
    }
}

/// One entry of the table.
#[derive(Debug)]
#[repr(C)]
struct Place {
    key: AtomicU64,
    bytes: AtomicU64,
    /// Pointers: context. Mappings: place of the physical memory.
    link: AtomicU64,
    /// Device in the low byte, then [`POOLED`]; physical memory: references from bit 16, mappings from bit 40 on.
    about: AtomicU64,
}

const POOLED: u64 = 1 << 8;
const REFERENCE: u64 = 1 << 16;
const MAPPING: u64 = 1 << 40;
/// References and mappings together.
const HELD: u64 = !(REFERENCE - 1);

/// A block: what it takes, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// Padded bytes.
    pub(super) bytes: u64,
    /// Device index.
    pub(super) device: u8,
    /// It came from a stream-ordered pool, which no context owns.
    pub(super) is_pooled: bool,
    /// The CUDA context that it belongs to, 0 where none is known.
    pub(super) context: u64,
}

/// The table.
#[derive(Clone, Copy)]
pub(super) struct Blocks(&'static [Place]);

static TABLE: AtomicPtr<Place> = AtomicPtr::new(std::ptr::null_mut());
const BYTES: usize = PLACES * std::mem::size_of::<Place>();

/// Maps the table. Before the program runs.
pub(super) fn prepare() -> bool {
    // SAFETY: a fresh anonymous mapping; checked below.
    let mapping = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        libc::mmap(std::ptr::null_mut(), BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    if mapping == libc::MAP_FAILED {
        return false;
    }
    // Release: who sees the table sees its zeros.
    TABLE.store(mapping.cast(), Ordering::Release);
    true
}

/// The table, once there is one.
pub(super) fn table() -> Option<Blocks> {
    let table = TABLE.load(Ordering::Acquire);
    // SAFETY: a mapping of so many entries that stays for good; all bits zero are valid atomics.
    (!table.is_null()).then(|| Blocks(unsafe { std::slice::from_raw_parts(table, PLACES) }))
}

/// Empties the table: a new process begins. Nobody else may use it meanwhile.
pub(super) fn forget_all() {
    let table = TABLE.load(Ordering::Acquire);
    if !table.is_null() {
        // SAFETY: our own private mapping of this length, which is zero again afterwards.
        unsafe { libc::madvise(table.cast(), BYTES, libc::MADV_DONTNEED) };
    }
}

impl Blocks {
    fn places_from(self, key: u64) -> impl Iterator<Item = usize> {
        let count = self.0.len();
        let start = (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize;
        (0..TRIES.min(count)).map(move |step| (start + step) % count)
    }

    /// Enters a number; the place it got, `None` where the table is full around there.
    fn enter(self, key: u64, bytes: u64, link: u64, about: u64) -> Option<usize> {
        for index in self.places_from(key) {
            let place = &self.0[index];
            let free = place.key.load(Ordering::Relaxed);
            let is_free = matches!(free, mark::EMPTY | mark::GONE);
            // Acquire: whoever gave the place up has finished reading it.
            if is_free && place.key.compare_exchange(free, mark::BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                place.bytes.store(bytes, Ordering::Relaxed);
                place.link.store(link, Ordering::Relaxed);
                place.about.store(about, Ordering::Relaxed);
                // Release: who finds the key sees the rest.
                place.key.store(key, Ordering::Release);
                return Some(index);
            }
        }
        None
    }

    fn find(self, key: u64) -> Option<usize> {
        for index in self.places_from(key) {
            match self.0[index].key.load(Ordering::Acquire) {
                mark::EMPTY => return None,
                found if found == key => return Some(index),
                _ => {}
            }
        }
        None
    }

    /// Takes a place's content out, if it still has that key: whoever gets it has it alone.
    fn take(self, index: usize, key: u64) -> Option<(u64, u64, u64)> {
        let place = &self.0[index];
        place.key.compare_exchange(key, mark::BUSY, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let content = [&place.bytes, &place.link, &place.about].map(|word| word.load(Ordering::Relaxed));
        // Release: the content was read before somebody else writes there.
        place.key.store(mark::GONE, Ordering::Release);
        Some((content[0], content[1], content[2]))
    }

    /// A block exists from now on. `false`: the table is full.
    pub(super) fn add(self, pointer: u64, block: Block) -> bool {
        let about = u64::from(block.device) | if block.is_pooled { POOLED } else { 0 };
        self.enter(Sort::Pointer.key(pointer), block.bytes, block.context, about).is_some()
    }

    /// A block is gone.
    pub(super) fn remove(self, pointer: u64) -> Option<Block> {
        let key = Sort::Pointer.key(pointer);
        self.take(self.find(key)?, key).map(block)
    }

    /// The block that an address lies in is gone: HIP takes such an address for the block's. Looks at all of them.
    pub(super) fn remove_around(self, pointer: u64) -> Option<Block> {
        let is_around = |place: &&Place| {
            let key = place.key.load(Ordering::Acquire);
            key > mark::NAMELESS && key >> 61 == 0 && pointer.wrapping_sub(key) < place.bytes.load(Ordering::Relaxed)
        };
        self.remove(self.0.iter().find(is_around)?.key.load(Ordering::Relaxed))
    }

    /// Takes out all blocks that `is_gone`.
    pub(super) fn remove_all(self, is_gone: impl Fn(&Block) -> bool, mut gone: impl FnMut(Block)) {
        for (index, place) in self.0.iter().enumerate() {
            let key = place.key.load(Ordering::Acquire);
            if key <= mark::NAMELESS || key >> 61 != 0 {
                continue;
            }
            let content = [&place.bytes, &place.link, &place.about].map(|word| word.load(Ordering::Relaxed));
            if is_gone(&block((content[0], content[1], content[2]))) {
                self.take(index, key).map(block).into_iter().for_each(&mut gone);
            }
        }
    }

    /// Takes out the physical memory of a device, with its mappings and handles.
    pub(super) fn remove_physical(self, device: u8, mut gone: impl FnMut(Block)) {
        let is_of_device = |place: &Place| place.about.load(Ordering::Relaxed) as u8 == device;
        let of_sort = |sort: Sort, key: u64| key > mark::NAMELESS && key >> 61 == sort as u64;
        for (index, place) in self.0.iter().enumerate() {
            let key = place.key.load(Ordering::Acquire);
            let memory = place.link.load(Ordering::Relaxed) as usize % self.0.len();
            if of_sort(Sort::Mapping, key) && is_of_device(&self.0[memory]) {
                self.take(index, key);
            }
        }
        for (index, place) in self.0.iter().enumerate() {
            let key = place.key.load(Ordering::Acquire);
            if (of_sort(Sort::Physical, key) || key == mark::NAMELESS) && is_of_device(place) {
                self.take(index, key).map(block).into_iter().for_each(&mut gone);
            }
        }
    }

    /// A pool gives memory of this device.
    pub(super) fn add_pool(self, handle: u64, device: u8) {
        self.remove_pool(handle);
        // Where the table is full, its memory counts on the thread's device.
        self.enter(Sort::Pool.key(handle), 0, 0, u64::from(device));
    }

    /// A pool is gone; what it gave is not.
    pub(super) fn remove_pool(self, handle: u64) {
        let key = Sort::Pool.key(handle);
        let _ = self.find(key).and_then(|index| self.take(index, key));
    }

    /// The device of a pool's memory, where the pool is known.
    pub(super) fn device_of_pool(self, handle: u64) -> Option<u8> {
        let index = self.find(Sort::Pool.key(handle))?;
        Some(self.0[index].about.load(Ordering::Relaxed) as u8)
    }

    /// Physical memory exists from now on, with one reference.
    pub(super) fn add_physical(self, handle: u64, bytes: u64, device: u8) -> bool {
        self.enter(Sort::Physical.key(handle), bytes, 0, u64::from(device) | REFERENCE).is_some()
    }

    /// One more reference.
    pub(super) fn retain(self, handle: u64) {
        if let Some(index) = self.find(Sort::Physical.key(handle)) {
            self.0[index].about.fetch_add(REFERENCE, Ordering::AcqRel);
        }
    }

    /// One reference less. The memory, where that was the last that held it.
    pub(super) fn release(self, handle: u64) -> Option<Block> {
        let key = Sort::Physical.key(handle);
        let index = self.find(key)?;
        let about = self.0[index].about.fetch_sub(REFERENCE, Ordering::AcqRel) - REFERENCE;
        if about & HELD == 0 {
            return self.take(index, key).map(block);
        }
        if about & HELD & (MAPPING - 1) == 0 {
            // Mapped, without a handle: the number may stand for other memory from now on.
            self.0[index].key.store(mark::NAMELESS, Ordering::Release);
        }
        None
    }

    /// A stretch of addresses holds physical memory.
    pub(super) fn map(self, address: u64, bytes: u64, handle: u64) {
        let Some(index) = self.find(Sort::Physical.key(handle)) else { return };
        self.0[index].about.fetch_add(MAPPING, Ordering::AcqRel);
        if self.enter(Sort::Mapping.key(address), bytes, index as u64, 0).is_none() {
            self.0[index].about.fetch_sub(MAPPING, Ordering::AcqRel);
        }
    }

    /// The mappings in a stretch are gone; it holds whole ones. Hands out the memory that nothing holds any more.
    pub(super) fn unmap(self, address: u64, bytes: u64, mut gone: impl FnMut(Block)) {
        let (mut at, end) = (address, address.saturating_add(bytes));
        while at < end {
            let key = Sort::Mapping.key(at);
            let Some((mapped, index, _)) = self.find(key).and_then(|index| self.take(index, key)) else { return };
            let place = &self.0[index as usize % self.0.len()];
            let about = place.about.fetch_sub(MAPPING, Ordering::AcqRel) - MAPPING;
            if about & HELD == 0 {
                let key = place.key.load(Ordering::Acquire);
                self.take(index as usize, key).map(block).into_iter().for_each(&mut gone);
            }
            at = at.saturating_add(mapped.max(1));
        }
    }
}

fn block((bytes, context, about): (u64, u64, u64)) -> Block {
    Block { bytes, device: about as u8, is_pooled: about & POOLED != 0, context }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty(places: usize) -> Blocks {
        let word = || AtomicU64::new(0);
        let place = || Place { key: word(), bytes: word(), link: word(), about: word() };
        Blocks(Box::leak((0..places).map(|_| place()).collect()))
    }

    fn on(device: u8, bytes: u64) -> Block {
        Block { bytes, device, is_pooled: false, context: 0 }
    }

    #[test]
    fn blocks_come_and_go_and_their_places_are_used_again() {
        let blocks = empty(64);
        for round in 0..100u64 {
            for number in 1..=32 {
                assert!(blocks.add(round << 32 | number << 12, on(1, number)), "round {round}");
            }
            for number in (1..=32).rev() {
                assert_eq!(blocks.remove(round << 32 | number << 12), Some(on(1, number)));
                assert_eq!(blocks.remove(round << 32 | number << 12), None);
            }
        }
        (0..64).for_each(|number| assert!(blocks.add(number << 12 | 1 << 40, on(0, 1))));
        assert!(!blocks.add(7, on(0, 1)), "full");
    }

    #[test]
    fn an_address_inside_a_block_stands_for_the_block() {
        let blocks = empty(16);
        blocks.add(0x7000_0000, on(0, 0x1000));
        assert_eq!(blocks.remove_around(0x7000_1000), None);
        assert_eq!(blocks.remove_around(0x7000_0fff), Some(on(0, 0x1000)));
        assert_eq!(blocks.remove(0x7000_0000), None);
    }

    #[test]
    fn a_context_takes_its_blocks_along() {
        let blocks = empty(16);
        let of_context = |context| Block { context, ..on(0, 10) };
        blocks.add(0x1000, of_context(7));
        blocks.add(0x2000, of_context(8));
        blocks.add_physical(0x3000, 5, 0);
        let mut gone = 0;
        blocks.remove_all(|block| block.context == 7, |block| gone += block.bytes);
        assert_eq!((gone, blocks.remove(0x1000), blocks.remove(0x2000)), (10, None, Some(of_context(8))));
        assert!(blocks.release(0x3000).is_some());
    }

    #[test]
    fn physical_memory_lives_until_it_is_released_and_unmapped() {
        let blocks = empty(16);
        let mut gone = Vec::new();
        blocks.add_physical(5, 100, 2);
        blocks.map(0x1000, 0x1000, 5);
        blocks.map(0x2000, 0x1000, 5);
        assert_eq!(blocks.release(5), None, "mapped twice");
        // The number stands for other memory now.
        blocks.add_physical(5, 50, 2);
        blocks.unmap(0x1000, 0x2000, |block| gone.push(block.bytes));
        assert_eq!(gone, [100]);
        blocks.retain(5);
        assert_eq!(blocks.release(5), None);
        assert_eq!(blocks.release(5), Some(on(2, 50)));
        assert_eq!(blocks.release(5), None);
    }

    #[test]
    fn a_reset_takes_the_physical_memory_of_a_device_along() {
        let blocks = empty(32);
        for (device, handle) in [(0, 5), (1, 6), (1, 7)] {
            blocks.add_physical(handle, 10 * handle, device);
            blocks.map(handle << 12, 0x1000, handle);
        }
        assert_eq!(blocks.release(7), None, "mapped, without a handle");
        let mut gone = Vec::new();
        blocks.remove_physical(1, |block| gone.push(block.bytes));
        gone.sort_unstable();
        assert_eq!((gone, blocks.release(6)), (vec![60, 70], None));
        blocks.unmap(6 << 12, 0x2000, |_| panic!("these are gone"));
        assert_eq!(blocks.release(5), None, "of the other device, and mapped");
        let mut left = 0;
        blocks.unmap(5 << 12, 0x1000, |block| left += block.bytes);
        assert_eq!(left, 50);
    }

    #[test]
    fn a_pool_has_a_device_until_it_is_destroyed() {
        let blocks = empty(16);
        blocks.add_pool(0x9000, 1);
        blocks.add_pool(0x9000, 2);
        blocks.add(0x9000, on(0, 1));
        assert_eq!((blocks.device_of_pool(0x9000), blocks.device_of_pool(0x8000)), (Some(2), None));
        blocks.remove_pool(0x9000);
        assert_eq!((blocks.device_of_pool(0x9000), blocks.remove(0x9000)), (None, Some(on(0, 1))));
    }

    #[test]
    fn threads_do_not_lose_or_double_blocks() {
        let blocks = empty(1 << 12);
        let taken = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 1..=4u64 {
                let taken = &taken;
                scope.spawn(move || {
                    for number in 0..20_000 {
                        let pointer = thread << 40 | (number % 64 + 1) << 12;
                        assert!(blocks.add(pointer, on(0, thread)));
                        taken.fetch_add(blocks.remove(pointer).unwrap().bytes, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(taken.into_inner(), 20_000 * (1 + 2 + 3 + 4));
    }
}
