//! The lock-free ring: any thread publishes, one at a time drains.
//!
//! A record claims consecutive slots with one `fetch_add`, fills them, and commits them by writing the sequence number
//! into the first word of each, the record's first slot last. The drainer copies committed stretches out and gives the
//! slots back by writing the number of the next lap. So the first word of the slot for sequence number `s` (with `N`
//! slots in the ring) reads:
//!
//! | word | meaning |
//! |---|---|
//! | `s`, and 0 in the first lap | free, may be filled by the claimant of `s` |
//! | `s + 1` | committed, first slot of a record |
//! | `(s + 1) \| EXTENSION` | committed, further slot of a record |
//! | something older | a claimant of an earlier lap was stopped between claim and commit and still owns the slot |
//!
//! A ring begins as zeros: a fresh file is that already, and nobody has to touch four megabytes of it for a program that
//! makes ten calls. 0 is no word of a later lap, so a slot that still reads 0 then belongs to a stopped claimant.
//!
//! A claimant that finds anything but "free" gives its number up and claims again: numbers have gaps, records are never
//! overwritten, and a thread that sleeps inside the claim can never tear a later record.
//!
//! The price is paid only when the ring is full: if a claimant gives a number up at the very moment in which the drainer
//! frees its slot for that number, the slot looks claimed for good and stays out of use. So whoever publishes keeps the ring
//! from filling up (the recorder refuses new events from three quarters on), and the models in `models.rs` show that even
//! then nothing is torn, lost or seen twice.

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
pub(crate) mod tests;

use crate::record::{EXTENSION_BYTES, MAX_SLOTS, Record, SLOT_BYTES};
use crate::sync::{AtomicU64, Ordering};

/// Bit of the commit mark that says "further slot of a record".
pub const EXTENSION: u64 = 1 << 63;
/// Claims that one record may try before it counts as lost.
const CLAIM_ATTEMPTS: usize = 8;
/// Words of a slot.
const WORDS: usize = SLOT_BYTES / 8;

/// One slot of the ring in memory.
#[derive(Default)]
#[repr(C, align(64))]
pub struct Slot {
    words: [AtomicU64; WORDS],
}

/// A slot's bytes outside the ring.
pub type SlotWords = [u64; WORDS];

impl Slot {
    /// Whether the claimant of `seq` may fill this slot, in a ring of `mask + 1` slots.
    #[inline]
    fn is_free(&self, seq: u64, mask: u64) -> bool {
        // Acquire: pairs with the drainer's release in `give_back`, so that the copy it took is done before we overwrite.
        is_free(self.words[0].load(Ordering::Acquire), seq, mask)
    }

    #[inline]
    fn fill(&self, words: &SlotWords, commit: u64) {
        for (to, from) in self.words[1..].iter().zip(&words[1..]) {
            // Relaxed: nobody reads these before the commit mark below, which orders them.
            to.store(*from, Ordering::Relaxed);
        }
        // Release: a reader that sees the mark sees the words above, in this process and in the file after a kill.
        self.words[0].store(commit, Ordering::Release);
    }

    /// Slots of the record whose first slot this is; at least 1, whatever the memory says.
    fn record_slots(&self) -> usize {
        // Relaxed: as in `copy`.
        usize::from(self.words[3].load(Ordering::Relaxed).to_le_bytes()[5]).clamp(1, MAX_SLOTS)
    }

    fn copy(&self) -> SlotWords {
        // Relaxed: the caller has loaded the commit mark with acquire, and only the drainer changes a committed slot.
        std::array::from_fn(|i| self.words[i].load(Ordering::Relaxed))
    }
}

/// A view of a ring: slots and cursors, in shared memory or on the heap.
#[derive(Clone, Copy)]
pub struct Ring<'a> {
    slots: &'a [Slot],
    mask: u64,
    /// Next sequence number to claim.
    head: &'a AtomicU64,
    /// Everything below was drained.
    tail: &'a AtomicU64,
}

/// Why a record did not get in: all its claims met slots that were not free. The caller counts it.
#[derive(Debug, PartialEq, Eq)]
pub struct Lost;

/// What [`Ring::take`] found.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Slots copied out.
    pub slots: usize,
    /// First sequence number of the stretch.
    pub from: u64,
    /// End of the stretch that may be given back.
    pub until: u64,
    /// The stretch ends before a slot that is claimed and not committed yet.
    pub blocked: bool,
    /// Claimed numbers that were passed over.
    pub torn: u64,
    pub(crate) late: [u64; MAX_LATE],
    pub(crate) late_count: usize,
}

/// Late records that one stretch may hold; a stretch ends early rather than forget one.
const MAX_LATE: usize = 8;

/// What the commit word of the slot for a sequence number says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The first slot of a whole record.
    First,
    /// A record that an earlier claimant committed after its number had been passed over.
    Late,
    /// Claimed, not committed.
    Pending,
    /// Nothing: a further slot without its first, or a number that was given up.
    Void,
}

/// Whether a commit word says that its slot waits for `seq`: by number, or untouched in the first lap.
#[inline]
fn is_free(word: u64, seq: u64, mask: u64) -> bool {
    word == seq || (word == 0 && seq <= mask)
}

/// Judges the commit word of the slot for `seq` in a ring of `mask + 1` slots that was drained up to `tail`.
pub(crate) fn judge(word: u64, seq: u64, mask: u64, tail: u64) -> Found {
    if word == seq + 1 {
        return Found::First;
    }
    if is_free(word, seq, mask) {
        return Found::Pending;
    }
    let owner = word.wrapping_sub(1);
    if word & EXTENSION == 0 && owner < tail && owner & mask == seq & mask { Found::Late } else { Found::Void }
}

impl<'a> Ring<'a> {
    /// A ring over `slots`, whose number must be a power of two; `None` otherwise.
    pub fn new(slots: &'a [Slot], head: &'a AtomicU64, tail: &'a AtomicU64) -> Option<Self> {
        let mask = (slots.len() as u64).checked_sub(1)?;
        slots.len().is_power_of_two().then_some(Ring { slots, mask, head, tail })
    }

    /// Begins the first lap, in slots that are all zero. Before the ring is shared.
    pub fn initialise(&self) {
        // Relaxed: whoever finds the ring does so through a pointer that is published later.
        self.head.store(0, Ordering::Relaxed);
        self.tail.store(0, Ordering::Relaxed);
    }

    #[inline]
    fn slot(&self, seq: u64) -> &'a Slot {
        let index = (seq & self.mask) as usize;
        debug_assert!(index < self.slots.len());
        // SAFETY: `mask` is `slots.len() - 1` and the length is a power of two, so the index is in range. An unchecked
        // access keeps the panic path out of the hooks.
        unsafe { self.slots.get_unchecked(index) }
    }

    /// Publishes a record of one slot and returns its sequence number.
    #[inline]
    pub fn publish(&self, record: &Record) -> Result<u64, Lost> {
        // Relaxed: the number alone orders the records; the payload is ordered by the commit mark.
        let seq = self.head.fetch_add(1, Ordering::Relaxed);
        let slot = self.slot(seq);
        if slot.is_free(seq, self.mask) {
            slot.fill(bytemuck::cast_ref(record), seq + 1);
            return Ok(seq);
        }
        self.publish_again(record, &[])
    }

    /// Publishes a record with a payload behind its first slot; the payload is cut at what fits into [`MAX_SLOTS`].
    pub fn publish_long(&self, record: &Record, payload: &[u8]) -> Result<u64, Lost> {
        self.publish_again(record, payload)
    }

    #[cold]
    fn publish_again(&self, record: &Record, payload: &[u8]) -> Result<u64, Lost> {
        let further = payload.len().div_ceil(EXTENSION_BYTES).min(MAX_SLOTS - 1);
        let count = 1 + further as u64;
        let record = Record { slots: count as u8, ..*record };
        for _ in 0..CLAIM_ATTEMPTS {
            let seq = self.head.fetch_add(count, Ordering::Relaxed);
            if (seq..seq + count).all(|s| self.slot(s).is_free(s, self.mask)) {
                self.fill_all(seq, &record, payload);
                return Ok(seq);
            }
            self.void(seq, count);
        }
        Err(Lost)
    }

    fn fill_all(&self, seq: u64, record: &Record, payload: &[u8]) {
        for (number, bytes) in payload.chunks(EXTENSION_BYTES).take(MAX_SLOTS - 1).enumerate() {
            let mut words: SlotWords = [0; WORDS];
            bytemuck::bytes_of_mut(&mut words)[8..8 + bytes.len()].copy_from_slice(bytes);
            let at = seq + 1 + number as u64;
            self.slot(at).fill(&words, (at + 1) | EXTENSION);
        }
        // The first slot last: once it is committed, all of the record is.
        self.slot(seq).fill(bytemuck::cast_ref(record), seq + 1);
    }

    /// Commits what is free of a claim that was given up as further slots of nothing, which readers pass over.
    fn void(&self, seq: u64, count: u64) {
        for s in seq..seq + count {
            if self.slot(s).is_free(s, self.mask) {
                self.slot(s).fill(&[0; WORDS], (s + 1) | EXTENSION);
            }
        }
    }

    /// Slots claimed and not drained yet.
    #[inline]
    pub fn fill_level(&self) -> u64 {
        // Relaxed: an estimate that decides only who does the draining.
        self.head.load(Ordering::Relaxed).saturating_sub(self.tail.load(Ordering::Relaxed))
    }

    /// How far `seq` is ahead of what was drained.
    #[inline]
    pub fn ahead(&self, seq: u64) -> u64 {
        seq.saturating_sub(self.tail.load(Ordering::Relaxed))
    }

    /// Number of slots.
    pub fn capacity(&self) -> u64 {
        self.mask + 1
    }

    /// Copies committed records from the tail on into `out`, as many as fit. The caller is the only drainer.
    ///
    /// A number that is claimed and not committed ends the stretch (`blocked`), unless `skip_pending` says that it was
    /// waited for long enough: then it is passed over, and its slot stays with its owner until that one commits.
    pub fn take(&self, out: &mut [SlotWords], skip_pending: bool) -> Taken {
        let from = self.tail.load(Ordering::Relaxed);
        // Acquire: nothing of the slots is read before the head that says they were claimed.
        let head = self.head.load(Ordering::Acquire);
        let mut taken = Taken { from, until: from, ..Taken::default() };
        while taken.until < head {
            let slot = self.slot(taken.until);
            // Acquire: pairs with the release of the commit mark in `fill`.
            let step = match judge(slot.words[0].load(Ordering::Acquire), taken.until, self.mask, from) {
                Found::First => slot.record_slots(),
                Found::Late if taken.late_count == MAX_LATE => break,
                Found::Late => 1,
                Found::Pending if !skip_pending => {
                    taken.blocked = true;
                    break;
                }
                Found::Pending => {
                    taken.torn += 1;
                    taken.until += 1;
                    continue;
                }
                Found::Void => {
                    taken.until += 1;
                    continue;
                }
            };
            if taken.slots + step > out.len() {
                break;
            }
            self.copy_out(&mut taken, step, out);
        }
        taken
    }

    fn copy_out(&self, taken: &mut Taken, step: usize, out: &mut [SlotWords]) {
        let late = step == 1 && self.slot(taken.until).words[0].load(Ordering::Relaxed) != taken.until + 1;
        if late {
            taken.late[taken.late_count] = taken.until;
            taken.late_count += 1;
        }
        for _ in 0..step {
            out[taken.slots] = self.slot(taken.until).copy();
            taken.slots += 1;
            taken.until += 1;
        }
        if late {
            // What came behind its first slot was passed over.
            let words = &mut out[taken.slots - 1];
            let record: &mut Record = bytemuck::cast_mut(words);
            record.slots = 1;
        }
    }

    /// Gives the slots of a stretch back for the next lap and moves the tail. Only after the stretch is safe elsewhere.
    pub fn give_back(&self, taken: &Taken) {
        let late = &taken.late[..taken.late_count];
        for seq in taken.from..taken.until {
            let slot = self.slot(seq);
            // Relaxed: this thread loaded the same word in `take`, and a committed word changes only here.
            let word = slot.words[0].load(Ordering::Relaxed);
            // A committed further slot that is older than this lap belongs to a record that was passed over: nobody will
            // touch it again.
            let is_left_over = word & EXTENSION != 0 && word & !EXTENSION <= seq;
            if word & !EXTENSION == seq + 1 || is_left_over || late.contains(&seq) {
                // The first number of this slot that nobody has claimed and given up, as far as the stretch tells.
                let laps = (taken.until - seq).div_ceil(self.capacity()).max(1);
                // Release: pairs with `is_free`.
                slot.words[0].store(seq + laps * self.capacity(), Ordering::Release);
            }
        }
        // Release: in the file, after a kill, the tail never runs ahead of the marks of the slots behind it.
        self.tail.store(taken.until, Ordering::Release);
    }
}
