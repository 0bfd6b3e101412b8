//! A stretch of records as columns of small differences, which compress to a few bytes per event.
//!
//! Each field is predicted from the records before it and only the difference is kept; both sides run the same
//! model. Fields that repeat together (function, event, kind, device, thread, status, nesting) form a *shape*, kept
//! once per chunk. See `FORMAT.md`, "Event chunks".

use crate::record::{EXTENSION_BYTES, Granule, MAX_SLOTS, Record, SLOT_BYTES};
use crate::ring::{EXTENSION, SlotWords};
use crate::varint::{get, put, unzigzag, zigzag};

/// Slots of the longest stretch that one chunk holds: 1 MiB of ring.
pub const MAX_CHUNK_SLOTS: usize = 1 << 14;
/// Upper bound of an encoded stretch in bytes, before compression.
pub const MAX_ENCODED_BYTES: usize = COLUMNS * 4 + COLUMNS * COLUMN_BYTES;

const COLUMNS: usize = 10;
/// A shape takes 20 bytes and an extension 56; no other field takes more than 10 bytes a record.
const COLUMN_BYTES: usize = MAX_CHUNK_SLOTS * SLOT_BYTES;
const SHAPE_BYTES: usize = 20;
const HASH_BITS: u32 = 15;
const THREADS: usize = 64;

/// The columns in the order in which they lie in the chunk.
#[derive(Clone, Copy)]
enum Column {
    Seq,
    At,
    Duration,
    Shape,
    Shapes,
    Call,
    Padded,
    Address,
    Requested,
    Extension,
}

/// Fields that repeat together.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    fields: [u64; 2],
    site: u32,
}

impl Shape {
    fn of(record: &Record) -> Self {
        let Record { api, event, kind_flags, device, slots, parent_distance, status, thread, site, .. } = *record;
        let low = u64::from(api)
            | u64::from(event) << 16
            | u64::from(kind_flags) << 24
            | u64::from(device) << 32
            | u64::from(slots) << 40
            | u64::from(parent_distance) << 48;
        Shape { fields: [low, u64::from(thread) | u64::from(status as u32) << 32], site }
    }

    fn apply(&self, record: &mut Record) {
        let [low, high] = self.fields;
        record.api = low as u16;
        record.event = (low >> 16) as u8;
        record.kind_flags = (low >> 24) as u8;
        record.device = (low >> 32) as u8;
        record.slots = (low >> 40) as u8;
        record.parent_distance = (low >> 48) as u16;
        record.thread = high as u32;
        record.status = (high >> 32) as i32;
        record.site = self.site;
    }

    fn hash(&self) -> usize {
        let mixed = (self.fields[0] ^ self.fields[1].rotate_left(29) ^ u64::from(self.site))
            .wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> (64 - HASH_BITS)) as usize
    }

    fn to_bytes(self) -> [u8; SHAPE_BYTES] {
        let mut bytes = [0; SHAPE_BYTES];
        bytes[..8].copy_from_slice(&self.fields[0].to_le_bytes());
        bytes[8..16].copy_from_slice(&self.fields[1].to_le_bytes());
        bytes[16..].copy_from_slice(&self.site.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; SHAPE_BYTES]) -> Self {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        Shape { fields: [word(0), word(8)], site: u32::from_le_bytes(std::array::from_fn(|i| bytes[16 + i])) }
    }
}

/// What both sides predict the next record from.
struct Model {
    seq: u64,
    at: u64,
    calls: [(u32, u32); THREADS],
    /// Last address per event number.
    addresses: [u64; 32],
    requested: [u64; 32],
}

impl Model {
    fn new(first_seq: u64) -> Self {
        Model { seq: first_seq, at: 0, calls: [(0, 0); THREADS], addresses: [0; 32], requested: [0; 32] }
    }

    fn call(&mut self, thread: u32) -> &mut u32 {
        let entry = &mut self.calls[thread as usize % THREADS];
        if entry.0 != thread {
            *entry = (thread, 0);
        }
        &mut entry.1
    }
}

/// The encoder's memory, set aside once: encoding allocates nothing.
pub struct Encoder {
    columns: Vec<Vec<u8>>,
    lengths: [usize; COLUMNS],
    shapes: Vec<Shape>,
    index: Vec<u16>,
}

impl Default for Encoder {
    fn default() -> Self {
        Encoder {
            // Not `vec![vec![..]; n]`, which copies the first: fresh memory of zeros is taken up only where it is used.
            columns: (0..COLUMNS).map(|_| vec![0; COLUMN_BYTES]).collect(),
            lengths: [0; COLUMNS],
            shapes: Vec::with_capacity(MAX_CHUNK_SLOTS),
            index: vec![u16::MAX; 1 << HASH_BITS],
        }
    }
}

impl Encoder {
    fn put(&mut self, column: Column, value: u64) {
        put(&mut self.columns[column as usize], &mut self.lengths[column as usize], value);
    }

    fn put_bytes(&mut self, column: Column, bytes: &[u8]) {
        let at = self.lengths[column as usize];
        self.columns[column as usize][at..at + bytes.len()].copy_from_slice(bytes);
        self.lengths[column as usize] = at + bytes.len();
    }

    /// Encodes up to [`MAX_CHUNK_SLOTS`] slots, as [`crate::ring::Ring::take`] gives them, into `out` (at least
    /// [`MAX_ENCODED_BYTES`] long). Returns the bytes used and the number of records.
    pub fn encode(&mut self, slots: &[SlotWords], first_seq: u64, granule: Granule, out: &mut [u8]) -> (usize, u32) {
        self.lengths = [0; COLUMNS];
        self.shapes.clear();
        self.index.fill(u16::MAX);
        let mut model = Model::new(first_seq);
        let mut records = 0;
        for words in &slots[..slots.len().min(MAX_CHUNK_SLOTS)] {
            if words[0] & EXTENSION != 0 {
                self.put_bytes(Column::Extension, &bytemuck::bytes_of(words)[8..]);
                continue;
            }
            self.record(&mut model, bytemuck::cast_ref(words), granule);
            records += 1;
        }
        (self.join(out), records)
    }

    fn record(&mut self, model: &mut Model, record: &Record, granule: Granule) {
        let shape = self.shape(Shape::of(record));
        self.put(Column::Shape, shape);
        self.put(Column::Seq, zigzag(record.seq().wrapping_sub(model.seq) as i64));
        model.seq = record.seq().wrapping_add(u64::from(record.slots));
        self.put(Column::At, zigzag(record.at.wrapping_sub(model.at) as i64));
        model.at = record.at;
        self.put(Column::Duration, u64::from(record.duration));
        let call = model.call(record.thread);
        self.put(Column::Call, zigzag(i64::from(record.call.wrapping_sub(*call).wrapping_sub(1) as i32)));
        *call = record.call;
        let predicted = granule.count(record.requested);
        self.put(Column::Padded, zigzag(i64::from(record.padded_granules) - i64::from(predicted)));
        let class = usize::from(record.event & 31);
        self.put(Column::Address, zigzag(record.address.wrapping_sub(model.addresses[class]) as i64));
        model.addresses[class] = record.address;
        self.put(Column::Requested, zigzag(record.requested.wrapping_sub(model.requested[class]) as i64));
        model.requested[class] = record.requested;
    }

    fn shape(&mut self, shape: Shape) -> u64 {
        let mut slot = shape.hash();
        loop {
            match self.index[slot] {
                u16::MAX => break,
                known if self.shapes[usize::from(known)] == shape => return u64::from(known),
                _ => slot = (slot + 1) % (1 << HASH_BITS),
            }
        }
        let number = self.shapes.len() as u16;
        self.index[slot] = number;
        self.shapes.push(shape);
        self.put_bytes(Column::Shapes, &shape.to_bytes());
        u64::from(number)
    }

    fn join(&self, out: &mut [u8]) -> usize {
        let mut at = COLUMNS * 4;
        for (number, length) in self.lengths.iter().enumerate() {
            out[number * 4..number * 4 + 4].copy_from_slice(&(*length as u32).to_le_bytes());
            out[at..at + length].copy_from_slice(&self.columns[number][..*length]);
            at += length;
        }
        at
    }
}

/// Records of one chunk or of the ring, in order, and the payloads of the long ones behind each other.
#[derive(Default, Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The records.
    pub records: Vec<Record>,
    /// Payload bytes, `56 * (slots - 1)` for each record in order.
    pub payloads: Vec<u8>,
}

impl Batch {
    /// Records with their payloads (empty for records of one slot).
    pub fn iter(&self) -> impl Iterator<Item = (&Record, &[u8])> {
        let mut rest = self.payloads.as_slice();
        self.records.iter().map(move |record| {
            let length = (usize::from(record.slots).saturating_sub(1) * EXTENSION_BYTES).min(rest.len());
            let (payload, after) = rest.split_at(length);
            rest = after;
            (record, payload)
        })
    }

    /// Forgets the content and keeps the memory.
    pub fn clear(&mut self) {
        self.records.clear();
        self.payloads.clear();
    }
}

/// Decodes what [`Encoder::encode`] made and appends it; `None` when the bytes are not such an encoding.
pub fn decode(encoded: &[u8], records: u32, first_seq: u64, granule: Granule, batch: &mut Batch) -> Option<()> {
    if records as usize > MAX_CHUNK_SLOTS {
        return None;
    }
    let mut columns = split(encoded)?;
    let shapes: Vec<Shape> =
        columns[Column::Shapes as usize].as_chunks::<SHAPE_BYTES>().0.iter().map(Shape::from_bytes).collect();
    let mut model = Model::new(first_seq);
    let mut further_slots = 0usize;
    batch.records.reserve(records as usize);
    for _ in 0..records {
        let record = decode_record(&mut columns, &shapes, &mut model, granule)?;
        further_slots += usize::from(record.slots).checked_sub(1).filter(|further| *further < MAX_SLOTS)?;
        batch.records.push(record);
    }
    let payload = columns[Column::Extension as usize];
    batch.payloads.extend_from_slice(payload.get(..further_slots * EXTENSION_BYTES)?);
    Some(())
}

fn split(encoded: &[u8]) -> Option<[&[u8]; COLUMNS]> {
    let (lengths, mut rest) = encoded.split_at_checked(COLUMNS * 4)?;
    let mut columns = [&[][..]; COLUMNS];
    for (column, length) in columns.iter_mut().zip(lengths.as_chunks::<4>().0) {
        (*column, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    }
    Some(columns)
}

#[inline]
fn next(columns: &mut [&[u8]; COLUMNS], column: Column) -> Option<u64> {
    let input = &mut columns[column as usize];
    let mut at = 0;
    let value = get(input, &mut at)?;
    *input = &input[at..];
    Some(value)
}

#[inline]
fn decode_record(
    columns: &mut [&[u8]; COLUMNS],
    shapes: &[Shape],
    model: &mut Model,
    granule: Granule,
) -> Option<Record> {
    let mut record = Record::default();
    shapes.get(usize::try_from(next(columns, Column::Shape)?).ok()?)?.apply(&mut record);
    let seq = model.seq.wrapping_add(unzigzag(next(columns, Column::Seq)?) as u64);
    record.commit = seq.wrapping_add(1);
    model.seq = seq.wrapping_add(u64::from(record.slots));
    model.at = model.at.wrapping_add(unzigzag(next(columns, Column::At)?) as u64);
    record.at = model.at;
    record.duration = u32::try_from(next(columns, Column::Duration)?).ok()?;
    let call = model.call(record.thread);
    *call = call.wrapping_add(1).wrapping_add(unzigzag(next(columns, Column::Call)?) as u32);
    record.call = *call;
    let class = usize::from(record.event & 31);
    model.addresses[class] = model.addresses[class].wrapping_add(unzigzag(next(columns, Column::Address)?) as u64);
    record.address = model.addresses[class];
    model.requested[class] = model.requested[class].wrapping_add(unzigzag(next(columns, Column::Requested)?) as u64);
    record.requested = model.requested[class];
    let predicted = i64::from(granule.count(record.requested));
    record.padded_granules = u32::try_from(predicted.checked_add(unzigzag(next(columns, Column::Padded)?))?).ok()?;
    Some(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_record() -> impl Strategy<Value = Record> {
        let small = (any::<u64>(), any::<u32>(), 0..40u32, 0..300u16, any::<u8>(), any::<u8>(), any::<u8>());
        let large =
            (1..4u8, any::<u16>(), any::<i32>(), any::<u32>(), any::<u32>(), any::<u32>(), any::<u64>(), any::<u64>());
        (small, large).prop_map(|((at, duration, thread, api, event, kind_flags, device), rest)| {
            let (slots, parent_distance, status, call, padded_granules, site, address, requested) = rest;
            Record {
                commit: 0,
                at,
                duration,
                thread,
                api,
                event,
                kind_flags,
                device,
                slots,
                parent_distance,
                status,
                call,
                padded_granules,
                site,
                address,
                requested,
            }
        })
    }

    fn stretch(records: &[Record], first_seq: u64) -> (Vec<SlotWords>, Batch) {
        let (mut slots, mut batch, mut seq) = (Vec::new(), Batch::default(), first_seq);
        for record in records {
            let record = Record { commit: seq + 1, ..*record };
            slots.push(bytemuck::cast(record));
            batch.records.push(record);
            for further in 1..u64::from(record.slots) {
                let mut words: SlotWords = [seq + further; 8];
                words[0] = (seq + further + 1) | EXTENSION;
                batch.payloads.extend_from_slice(&bytemuck::bytes_of(&words)[8..]);
                slots.push(words);
            }
            seq += u64::from(record.slots);
        }
        (slots, batch)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_stretch_returns(records in prop::collection::vec(any_record(), 0..200), first_seq in 0..u64::MAX / 4, granule_bytes in 1..1u64 << 40) {
            let (slots, expected) = stretch(&records, first_seq);
            let mut out = vec![0; MAX_ENCODED_BYTES];
            let (length, count) = Encoder::default().encode(&slots, first_seq, Granule::new(granule_bytes), &mut out);
            let mut batch = Batch::default();
            prop_assert!(decode(&out[..length], count, first_seq, Granule::new(granule_bytes), &mut batch).is_some());
            prop_assert_eq!(batch, expected);
        }

        #[test]
        fn arbitrary_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..400), records in 0..100u32) {
            let _ = decode(&bytes, records, 0, Granule::new(1 << 28), &mut Batch::default());
        }
    }
}
