//! Chunks: what the ring is compacted into, and metadata. Each is whole or ignored.

use bytemuck::{Pod, Zeroable};
use serde::Serialize;
use zstd_safe::zstd_sys;

use crate::columns::{Batch, Encoder, MAX_ENCODED_BYTES, decode};
use crate::metadata;
use crate::record::Granule;
use crate::ring::{SlotWords, Taken};

/// First bytes of every chunk.
pub const CHUNK_MAGIC: [u8; 4] = *b"CHNK";
/// Bytes of a chunk's header.
pub const CHUNK_HEADER_BYTES: usize = 40;
/// Level 1: the writer must keep up with the program on a busy machine.
const LEVEL: i32 = 1;
/// Metadata up to this size is stored as it is: compressing the few blocks of a short run cost more than all the rest of the
/// recorder's beginning, and made its file smaller by less than a hundredth. Within what one block of a frame may hold.
const STORED_BYTES: usize = 32 << 10;

/// Values of `kind`. Readers pass over kinds and versions that they do not know.
pub mod kind {
    /// Records of the ring.
    pub const EVENTS: u16 = 1;
    /// [`crate::metadata::ProcessFacts`].
    pub const PROCESS: u16 = 2;
    /// [`crate::metadata::ApiTable`].
    pub const APIS: u16 = 3;
    /// [`crate::metadata::Modules`].
    pub const MODULES: u16 = 4;
    /// [`crate::metadata::DeviceFacts`].
    pub const DEVICE: u16 = 5;
    /// [`crate::metadata::Bypasses`].
    pub const BYPASSES: u16 = 6;
    /// [`crate::metadata::MachineFacts`].
    pub const MACHINE: u16 = 7;
    /// [`crate::metadata::ApiMeanings`].
    pub const MEANINGS: u16 = 8;
}

/// Header of a chunk.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct ChunkHeader {
    /// [`CHUNK_MAGIC`].
    pub magic: [u8; 4],
    /// One of [`kind`].
    pub kind: u16,
    /// Version of the payload's encoding.
    pub version: u16,
    /// Bytes of the compressed payload that follows.
    pub stored_bytes: u32,
    /// Bytes of the payload before compression.
    pub raw_bytes: u32,
    /// First sequence number (events).
    pub first_seq: u64,
    /// End of the sequence numbers (events).
    pub next_seq: u64,
    /// Records (events).
    pub records: u32,
    /// CRC-32 of the header before this field and of the stored payload.
    pub checksum: u32,
}

const _: () = assert!(std::mem::size_of::<ChunkHeader>() == CHUNK_HEADER_BYTES);

impl ChunkHeader {
    fn checksum_with(&self, stored: &[u8]) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&bytemuck::bytes_of(self)[..CHUNK_HEADER_BYTES - 4]);
        hasher.update(stored);
        hasher.finalize()
    }

    /// Whether the header begins like a chunk's and its lengths are possible.
    pub fn is_plausible(&self) -> bool {
        self.magic == CHUNK_MAGIC
            && self.raw_bytes as usize <= MAX_ENCODED_BYTES
            && self.stored_bytes <= 2 * MAX_ENCODED_BYTES as u32
    }

    /// The payload, decompressed; `None` when the checksum or the compression is wrong.
    pub fn payload(&self, stored: &[u8]) -> Option<Vec<u8>> {
        if self.checksum_with(stored) != self.checksum || !self.is_plausible() {
            return None;
        }
        // `raw_bytes` is bounded by `is_plausible` and covered by the checksum, so this allocation is too.
        let mut raw = vec![0; self.raw_bytes as usize];
        let length = zstd_safe::decompress(&mut raw[..], stored).ok()?;
        (raw.len() == length).then_some(raw)
    }

    /// Appends the records of an event chunk; `None` when they can't be read.
    pub fn events(&self, stored: &[u8], granule: Granule, batch: &mut Batch) -> Option<()> {
        decode(&self.payload(stored)?, self.records, self.first_seq, granule, batch)
    }
}

/// Makes chunks in memory that was set aside once.
pub struct ChunkMaker {
    encoder: Encoder,
    encoded: Vec<u8>,
    chunk: Vec<u8>,
    workspace: Vec<u64>,
}

impl Default for ChunkMaker {
    fn default() -> Self {
        // SAFETY: a pure function of the level.
        let workspace_bytes = unsafe { zstd_sys::ZSTD_estimateCCtxSize(LEVEL) };
        ChunkMaker {
            encoder: Encoder::default(),
            encoded: vec![0; MAX_ENCODED_BYTES],
            chunk: vec![0; CHUNK_HEADER_BYTES + zstd_safe::compress_bound(MAX_ENCODED_BYTES)],
            workspace: vec![0; workspace_bytes.div_ceil(8)],
        }
    }
}

impl ChunkMaker {
    /// A chunk of the records that [`crate::ring::Ring::take`] copied out. Allocates nothing. Empty when it failed.
    pub fn events(&mut self, slots: &[SlotWords], taken: &Taken, granule: Granule) -> &[u8] {
        let (length, records) = self.encoder.encode(slots, taken.from, granule, &mut self.encoded);
        let header =
            ChunkHeader { kind: kind::EVENTS, records, first_seq: taken.from, next_seq: taken.until, ..blank() };
        self.finish(header, length)
    }

    /// A chunk of metadata. Empty when it failed or the block is too large.
    pub fn metadata<T: Serialize>(&mut self, kind: u16, value: &T) -> &[u8] {
        let bytes = metadata::encode(value);
        if bytes.is_empty() || bytes.len() > self.encoded.len() {
            return &[];
        }
        let header = ChunkHeader { kind, ..blank() };
        if bytes.len() <= STORED_BYTES {
            let stored = store(&bytes, &mut self.chunk[CHUNK_HEADER_BYTES..]);
            return self.seal(header, bytes.len(), stored);
        }
        self.encoded[..bytes.len()].copy_from_slice(&bytes);
        self.finish(header, bytes.len())
    }

    fn finish(&mut self, header: ChunkHeader, raw_bytes: usize) -> &[u8] {
        let body = &mut self.chunk[CHUNK_HEADER_BYTES..];
        let Some(stored) = compress(&mut self.workspace, &self.encoded[..raw_bytes], body) else { return &[] };
        self.seal(header, raw_bytes, stored)
    }

    /// The chunk whose payload lies behind the place of its header.
    fn seal(&mut self, header: ChunkHeader, raw_bytes: usize, stored: usize) -> &[u8] {
        let (head, body) = self.chunk.split_at_mut(CHUNK_HEADER_BYTES);
        let mut header = ChunkHeader { raw_bytes: raw_bytes as u32, stored_bytes: stored as u32, ..header };
        header.checksum = header.checksum_with(&body[..stored]);
        head.copy_from_slice(bytemuck::bytes_of(&header));
        &self.chunk[..CHUNK_HEADER_BYTES + stored]
    }
}

fn blank() -> ChunkHeader {
    ChunkHeader { magic: CHUNK_MAGIC, version: 1, ..ChunkHeader::zeroed() }
}

/// A Zstandard frame of one raw block (RFC 8878, 3.1.1): in a single segment, with its size in four bytes.
fn store(from: &[u8], to: &mut [u8]) -> usize {
    const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
    const SIZE_IN_FOUR_BYTES: u8 = 2 << 6;
    const SINGLE_SEGMENT: u8 = 1 << 5;
    let length = from.len() as u32;
    // The last block, of type 0 (raw): its size above three bits.
    let block = (length << 3 | 1).to_le_bytes();
    let parts: [&[u8]; 5] = [&MAGIC, &[SIZE_IN_FOUR_BYTES | SINGLE_SEGMENT], &length.to_le_bytes(), &block[..3], from];
    parts.iter().fold(0, |at, part| {
        to[at..at + part.len()].copy_from_slice(part);
        at + part.len()
    })
}

/// Compresses in the given workspace only; `None` when zstd refuses.
fn compress(workspace: &mut [u64], from: &[u8], to: &mut [u8]) -> Option<usize> {
    // SAFETY: the workspace is 8-byte aligned, as large as zstd estimated for this level, and borrowed for the whole use
    // of the context that is made in it; source and destination are slices with their own lengths.
    let result = unsafe {
        let context = zstd_sys::ZSTD_initStaticCCtx(workspace.as_mut_ptr().cast(), workspace.len() * 8);
        if context.is_null() {
            return None;
        }
        zstd_sys::ZSTD_compressCCtx(context, to.as_mut_ptr().cast(), to.len(), from.as_ptr().cast(), from.len(), LEVEL)
    };
    // SAFETY: a pure function of the result code.
    (unsafe { zstd_sys::ZSTD_isError(result) } == 0).then_some(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::ApiTable;
    use crate::record::{Event, Kind, Record};

    #[test]
    fn a_chunk_of_events_returns_and_one_wrong_bit_is_noticed() {
        let mut maker = ChunkMaker::default();
        let granule = Granule::new(256 << 20);
        let records: Vec<Record> = (0..1000u64)
            .map(|n| Record {
                commit: n + 1,
                at: n * 1000,
                call: n as u32,
                address: n << 21,
                requested: 4096,
                padded_granules: 1,
                ..Record::new(Event::Alloc, Kind::Device)
            })
            .collect();
        let slots: Vec<SlotWords> = records.iter().map(|record| bytemuck::cast(*record)).collect();
        let taken = Taken { slots: slots.len(), from: 0, until: 1000, ..Taken::default() };
        let mut chunk = maker.events(&slots, &taken, granule).to_vec();
        let (header, stored) = chunk.split_at(CHUNK_HEADER_BYTES);
        let header: ChunkHeader = bytemuck::pod_read_unaligned(header);
        let mut batch = Batch::default();
        header.events(stored, granule, &mut batch).unwrap();
        assert_eq!(batch.records, records);
        assert!(stored.len() < 4 * records.len(), "{} bytes for {} records", stored.len(), records.len());
        let last = chunk.len() - 1;
        chunk[last] ^= 1;
        assert_eq!(header.events(&chunk[CHUNK_HEADER_BYTES..], granule, &mut batch), None);
    }

    #[test]
    fn metadata_chunks_return() {
        let mut maker = ChunkMaker::default();
        let chunk = maker.metadata(kind::APIS, &ApiTable::default()).to_vec();
        let header: ChunkHeader = bytemuck::pod_read_unaligned(&chunk[..CHUNK_HEADER_BYTES]);
        let payload = header.payload(&chunk[CHUNK_HEADER_BYTES..]).unwrap();
        assert_eq!(metadata::decode::<ApiTable>(&payload), Some(ApiTable::default()));
    }

    #[test]
    fn small_metadata_is_stored_and_large_compressed() {
        let mut maker = ChunkMaker::default();
        for bytes in [1, 255, 256, STORED_BYTES - 8, STORED_BYTES - 7, 200_000] {
            let text = "name".repeat(bytes / 4 + 1)[..bytes].to_owned();
            let chunk = maker.metadata(kind::APIS, &text);
            let header: ChunkHeader = bytemuck::pod_read_unaligned(&chunk[..CHUNK_HEADER_BYTES]);
            // Eight bytes of the text's length come first.
            assert_eq!(header.raw_bytes as usize, bytes + 8);
            let is_stored = header.stored_bytes > header.raw_bytes;
            assert_eq!(is_stored, header.raw_bytes as usize <= STORED_BYTES);
            let payload = header.payload(&chunk[CHUNK_HEADER_BYTES..]).unwrap();
            assert_eq!(metadata::decode::<String>(&payload), Some(text));
        }
    }
}
