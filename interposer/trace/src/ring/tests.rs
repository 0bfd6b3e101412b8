//! The ring on one thread: laps, losses, long and late records.

use super::*;
use crate::record::{Event, Kind};

/// A ring on the heap.
pub(crate) struct Memory {
    pub(crate) slots: Vec<Slot>,
    pub(crate) head: AtomicU64,
    pub(crate) tail: AtomicU64,
}

impl Memory {
    pub(crate) fn new(count: usize) -> Self {
        let slots = (0..count).map(|_| Slot { words: Default::default() }).collect();
        let memory = Memory { slots, head: AtomicU64::new(0), tail: AtomicU64::new(0) };
        memory.ring().initialise();
        memory
    }

    pub(crate) fn ring(&self) -> Ring<'_> {
        Ring::new(&self.slots, &self.head, &self.tail).unwrap()
    }

    /// What a file would hold of it.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let words = self.slots.iter().flat_map(|slot| slot.copy());
        words.flat_map(u64::to_le_bytes).collect()
    }

    /// Commits a number late, as a thread would that was stopped inside its claim.
    pub(crate) fn commit(&self, seq: u64, record: &Record) {
        self.ring().slot(seq).fill(bytemuck::cast_ref(record), seq + 1);
    }
}

pub(crate) fn record(call: u32) -> Record {
    Record { call, ..Record::new(Event::Alloc, Kind::Device) }
}

fn drain(ring: &Ring<'_>, skip: bool) -> (Taken, Vec<Record>) {
    let mut out = vec![[0; WORDS]; 64];
    let taken = ring.take(&mut out, skip);
    ring.give_back(&taken);
    let firsts = out[..taken.slots].iter().filter(|words| words[0] & EXTENSION == 0);
    (taken, firsts.map(|words| bytemuck::cast(*words)).collect())
}

#[test]
fn what_goes_in_comes_out_in_order_over_many_laps() {
    let memory = Memory::new(8);
    let ring = memory.ring();
    for call in 0..100 {
        assert_eq!(ring.publish(&record(call)), Ok(u64::from(call)));
        let (_, out) = drain(&ring, false);
        assert_eq!(out.iter().map(|r| (r.seq(), r.call)).collect::<Vec<_>>(), [(u64::from(call), call)]);
    }
}

#[test]
fn a_full_ring_loses_the_newest_and_keeps_the_rest() {
    let memory = Memory::new(8);
    let ring = memory.ring();
    for call in 0..8 {
        assert!(ring.publish(&record(call)).is_ok());
    }
    assert_eq!(ring.publish(&record(8)), Err(Lost));
    let (_, out) = drain(&ring, false);
    assert_eq!(out.len(), 8);
    let (_, rest) = drain(&ring, false);
    assert!(rest.is_empty());
    assert!(ring.publish(&record(9)).is_ok(), "the ring works again once it was drained");
    assert_eq!(drain(&ring, false).1[0].call, 9);
}

#[test]
fn a_long_record_travels_whole_and_is_cut_at_the_longest() {
    let memory = Memory::new(64);
    let ring = memory.ring();
    let payload: Vec<u8> = (0..5000).map(|i| i as u8).collect();
    ring.publish_long(&record(1), &payload).unwrap();
    let mut out = vec![[0; WORDS]; 64];
    let taken = ring.take(&mut out, false);
    assert_eq!(taken.slots, MAX_SLOTS);
    let bytes: Vec<u8> = out[1..MAX_SLOTS].iter().flat_map(|w| bytemuck::bytes_of(w)[8..].to_vec()).collect();
    assert_eq!(bytes, payload[..bytes.len()]);
}

/// A long record that is committed late comes out without its payload, and all its slots work again.
#[test]
fn a_long_record_that_comes_late_leaves_no_dead_slots() {
    let memory = Memory::new(8);
    let ring = memory.ring();
    let stopped = memory.head.fetch_add(3, Ordering::Relaxed);
    let (taken, _) = drain(&ring, true);
    assert_eq!(taken.torn, 3);
    ring.fill_all(stopped, &Record { slots: 3, ..record(0) }, &[1; 100]);
    let mut seen = Vec::new();
    for call in 1..60 {
        ring.publish(&record(call)).unwrap();
        seen.extend(drain(&ring, false).1);
    }
    let late: Vec<_> = seen.iter().filter(|record| record.call == 0).collect();
    assert_eq!((late.len(), late[0].slots, seen.len()), (1, 1, 60));
    let head = memory.head.load(Ordering::Relaxed);
    assert!((head..head + 8).all(|seq| ring.slot(seq).is_free(seq, ring.capacity() - 1)), "all eight slots are free");
}

/// A thread stopped between claim and commit neither blocks for good nor tears a later record.
#[test]
fn a_stopped_claimant_keeps_its_slot_until_it_commits() {
    let memory = Memory::new(8);
    let ring = memory.ring();
    let stopped = memory.head.fetch_add(1, Ordering::Relaxed);
    ring.publish(&record(1)).unwrap();
    let (taken, out) = drain(&ring, false);
    assert!(taken.blocked && out.is_empty());
    let (taken, out) = drain(&ring, true);
    assert_eq!((taken.torn, out.len()), (1, 1));
    // Two laps go by; the stopped slot is passed over each time.
    for call in 2..18 {
        ring.publish(&record(call)).unwrap();
        assert_eq!(drain(&ring, false).1.len(), 1);
    }
    assert!(!memory.slots[0].is_free(memory.head.load(Ordering::Relaxed), ring.capacity() - 1));
    // It wakes up and commits; the record comes out once, with its own number, and the slot works again.
    memory.commit(stopped, &record(0));
    let mut seen = Vec::new();
    for call in 18..40 {
        ring.publish(&record(call)).unwrap();
        seen.extend(drain(&ring, false).1.iter().map(|r| r.call));
    }
    assert_eq!(seen.iter().filter(|call| **call == 0).count(), 1);
    assert_eq!(seen.len(), 23);
}

/// A slot that nobody has touched is free in the first lap only: later it belongs to whoever was stopped before it.
#[test]
fn zeros_are_free_in_the_first_lap_only() {
    assert!(is_free(0, 0, 7) && is_free(0, 7, 7) && is_free(12, 12, 7));
    assert!(!is_free(0, 8, 7) && !is_free(4, 12, 7) && !is_free(12, 4, 7));
    assert_eq!(judge(0, 5, 7, 0), Found::Pending);
    assert_eq!(judge(0, 13, 7, 0), Found::Void);
}
