//! Reads what was still in the ring when the file was last written.

use super::TraceFile;
use crate::columns::Batch;
use crate::header::Header;
use crate::record::{EXTENSION_BYTES, MAX_SLOTS, Record, SLOT_BYTES};
use crate::ring::{EXTENSION, Found, SlotWords, judge};

impl TraceFile {
    /// The records that were still in the ring.
    pub(super) fn read_ring(&mut self, next_seq: u64, batch: &mut Batch) {
        let Header { ring_slots, ring_offset, head, tail, .. } = self.header;
        let mut seq = tail.max(next_seq);
        if head.saturating_sub(seq) > ring_slots {
            self.damaged(256, format!("{} events lie before what the ring can hold", head - seq - ring_slots));
            seq = head - ring_slots;
        }
        let Some(ring) = self.read(ring_offset, (ring_slots as usize) * SLOT_BYTES) else {
            return self.damaged(self.length, "the file ends inside the ring");
        };
        let start = seq;
        let slots: &[[u8; SLOT_BYTES]] = ring.as_chunks().0;
        let slot = |seq: u64| bytemuck::pod_read_unaligned::<SlotWords>(&slots[(seq & (ring_slots - 1)) as usize]);
        late_records(ring_slots, tail, &slot, batch);
        while seq < head {
            match judge(slot(seq)[0], seq, ring_slots - 1, start) {
                Found::First => seq += ring_record(seq, head, &slot, batch),
                Found::Pending => {
                    self.header.torn += 1;
                    seq += 1;
                }
                // Late ones were read above.
                Found::Late | Found::Void => seq += 1,
            }
        }
    }
}

/// Appends the records that were committed after the drainer had passed their numbers over: they lie anywhere in the ring.
fn late_records(ring_slots: u64, tail: u64, slot: &impl Fn(u64) -> SlotWords, batch: &mut Batch) {
    let mask = ring_slots - 1;
    let is_late = |index: &u64| {
        let word = slot(*index)[0];
        let owner = word.wrapping_sub(1);
        word & EXTENSION == 0 && owner < tail && owner & mask == *index
    };
    let mut late: Vec<Record> =
        (0..ring_slots).filter(is_late).map(|index| Record { slots: 1, ..bytemuck::cast(slot(index)) }).collect();
    late.sort_unstable_by_key(|record| record.commit);
    batch.records.append(&mut late);
}

/// Appends the record at `seq` and its payload; returns its slots.
fn ring_record(seq: u64, head: u64, slot: &impl Fn(u64) -> SlotWords, batch: &mut Batch) -> u64 {
    let mut record: Record = bytemuck::cast(slot(seq));
    let slots = usize::from(record.slots).clamp(1, MAX_SLOTS) as u64;
    let whole = (seq + 1..seq + slots).all(|s| s < head && slot(s)[0] == (s + 1) | EXTENSION);
    if !whole {
        record.slots = 1;
        batch.records.push(record);
        return 1;
    }
    record.slots = slots as u8;
    batch.records.push(record);
    for further in seq + 1..seq + slots {
        batch.payloads.extend_from_slice(&bytemuck::bytes_of(&slot(further))[SLOT_BYTES - EXTENSION_BYTES..]);
    }
    slots
}
