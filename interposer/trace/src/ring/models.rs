//! Models of the ring: every interleaving of a few threads, by loom.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --release -p gpuoom-trace --lib ring::models`.

use loom::sync::Arc;
use loom::thread;

use crate::record::{Event, Kind, Record};
use crate::ring::{EXTENSION, Ring, Slot, SlotWords};
use crate::sync::AtomicU64;

struct Memory {
    slots: Vec<Slot>,
    head: AtomicU64,
    tail: AtomicU64,
}

impl Memory {
    fn new(count: usize) -> Arc<Self> {
        let slots = (0..count).map(|_| Slot::default()).collect();
        let memory = Arc::new(Memory { slots, head: AtomicU64::new(0), tail: AtomicU64::new(0) });
        memory.ring().initialise();
        memory
    }

    fn ring(&self) -> Ring<'_> {
        Ring::new(&self.slots, &self.head, &self.tail).expect("the count is a power of two")
    }
}

/// A record whose fields all follow from its call number, so that a torn one shows.
fn record(call: u32) -> Record {
    let number = u64::from(call);
    Record {
        call,
        at: number,
        address: number << 8,
        requested: number << 16,
        ..Record::new(Event::Alloc, Kind::Device)
    }
}

fn drain(ring: &Ring<'_>, skip_pending: bool, seen: &mut Vec<u32>) {
    let mut out = [SlotWords::default(); 8];
    let taken = ring.take(&mut out, skip_pending);
    for words in out[..taken.slots].iter().filter(|words| words[0] & EXTENSION == 0) {
        let read: Record = bytemuck::cast(*words);
        assert_eq!(Record { commit: 0, ..read }, record(read.call), "a torn record");
        seen.push(read.call);
    }
    ring.give_back(&taken);
}

#[test]
fn two_writers_and_a_drainer() {
    loom::model(|| {
        let memory = Memory::new(2);
        let writers: Vec<_> = (1..=2u32)
            .map(|writer| {
                let memory = memory.clone();
                thread::spawn(move || memory.ring().publish(&record(writer)).is_ok())
            })
            .collect();
        let mut seen = Vec::new();
        drain(&memory.ring(), false, &mut seen);
        let published = writers.into_iter().map(|writer| writer.join().expect("no panic")).filter(|ok| *ok).count();
        drain(&memory.ring(), true, &mut seen);
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), published, "every published record comes out, and none twice");
    });
}

#[test]
fn a_slot_is_used_again_only_after_it_was_copied() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let memory = Memory::new(2);
        let writer = {
            let memory = memory.clone();
            thread::spawn(move || (1..=3u32).filter(|call| memory.ring().publish(&record(*call)).is_ok()).count())
        };
        let mut seen = Vec::new();
        drain(&memory.ring(), false, &mut seen);
        drain(&memory.ring(), false, &mut seen);
        let published = writer.join().expect("no panic");
        // The ring was full: a number may have been given up just before its slot became free, and is waited for in vain.
        drain(&memory.ring(), true, &mut seen);
        assert!(seen.is_sorted(), "one writer's records come out in order");
        seen.dedup();
        assert_eq!(seen.len(), published);
    });
}
