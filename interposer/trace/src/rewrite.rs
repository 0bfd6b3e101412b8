//! A trace once more, with other texts in it: what a trace that is sent to others is made with.
//!
//! The copy holds the same records with the same numbers, the same calls under way and the same header facts. What was still
//! in the ring stands in chunks, so the copy's ring is empty. The file behind `out` is written by position and needs no name.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

use crate::chunk::{ChunkMaker, kind};
use crate::columns::{Batch, MAX_CHUNK_SLOTS};
use crate::header::{HEADER_BYTES, Header, IN_FLIGHT_ENTRIES, InFlight};
use crate::metadata::{ApiMeanings, Bypasses, MachineFacts, Modules};
use crate::reader::{Metadata, TraceFile};
use crate::record::{EXTENSION_BYTES, Granule, Record, SLOT_BYTES};
use crate::ring::{EXTENSION, SlotWords, Taken};

/// Slots of the copy's ring, which stays empty: the smallest that the recorder makes.
const RING_SLOTS: u64 = 1 << 10;

/// What changes in a copy.
pub trait Rewording {
    /// Changes the facts about process, libraries and machine.
    fn metadata(&mut self, metadata: &mut Metadata);

    /// Changes a record's payload in place: a payload keeps its room, so that no number of a record changes.
    fn payload(&mut self, record: &Record, payload: &mut [u8]);
}

/// What became of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Records in it.
    pub records: u64,
    /// Records that no chunk can hold, because a damaged file gave them impossible numbers.
    pub left_out: u64,
    /// Bytes of the copy.
    pub bytes: u64,
}

/// Writes a copy of a trace into an empty file. Damaged parts of the trace are missing in it, as they are for every reader;
/// [`TraceFile::damages`] lists them.
///
/// # Errors
/// The file can't be written, or a block of metadata became too large.
pub fn copy(trace: &mut TraceFile, rewording: &mut impl Rewording, out: &File) -> io::Result<Copied> {
    let mut metadata = trace.metadata.clone();
    rewording.metadata(&mut metadata);
    let table = trace.in_flight_table();
    let mut header = trace.header;
    place(&mut header);
    out.write_all_at(&table, header.in_flight_offset)?;
    let mut chunks = Chunks {
        out,
        end: header.chunks_offset,
        maker: ChunkMaker::default(),
        granule: trace.granule(),
        slots: Vec::with_capacity(MAX_CHUNK_SLOTS),
        copied: Copied::default(),
    };
    chunks.metadata(&metadata)?;
    trace.for_each_batch(|batch| chunks.events(batch, rewording))?;
    // What was pending in the ring counts as torn once it is read, see `FORMAT.md`, "Reading".
    header.torn = trace.header.torn;
    header.chunks_end = chunks.end;
    out.write_all_at(bytemuck::bytes_of(&header), 0)?;
    Ok(Copied { bytes: chunks.end, ..chunks.copied })
}

/// Gives table, ring and chunks their places in the copy.
fn place(header: &mut Header) {
    header.in_flight_offset = HEADER_BYTES as u64;
    header.in_flight_entries = IN_FLIGHT_ENTRIES as u32;
    header.ring_offset = header.in_flight_offset + (IN_FLIGHT_ENTRIES * std::mem::size_of::<InFlight>()) as u64;
    header.ring_slots = RING_SLOTS;
    header.chunks_offset = header.ring_offset + RING_SLOTS * SLOT_BYTES as u64;
    header.tail = header.head;
}

/// The chunks of a copy, as they are written.
struct Chunks<'a> {
    out: &'a File,
    end: u64,
    maker: ChunkMaker,
    granule: Granule,
    slots: Vec<SlotWords>,
    copied: Copied,
}

impl Chunks<'_> {
    fn metadata(&mut self, metadata: &Metadata) -> io::Result<()> {
        let Metadata { process, apis, meanings, modules, module_lists, devices, bypasses, machine } = metadata;
        append(self.out, &mut self.end, self.maker.metadata(kind::PROCESS, process))?;
        append(self.out, &mut self.end, self.maker.metadata(kind::APIS, apis))?;
        if *meanings != ApiMeanings::default() {
            append(self.out, &mut self.end, self.maker.metadata(kind::MEANINGS, meanings))?;
        }
        for list in module_lists {
            append(self.out, &mut self.end, self.maker.metadata(kind::MODULES, list))?;
        }
        if *modules != Modules::default() {
            append(self.out, &mut self.end, self.maker.metadata(kind::MODULES, modules))?;
        }
        if *machine != MachineFacts::default() {
            append(self.out, &mut self.end, self.maker.metadata(kind::MACHINE, machine))?;
        }
        if *bypasses != Bypasses::default() {
            append(self.out, &mut self.end, self.maker.metadata(kind::BYPASSES, bypasses))?;
        }
        for device in devices {
            append(self.out, &mut self.end, self.maker.metadata(kind::DEVICE, device))?;
        }
        Ok(())
    }

    fn events(&mut self, batch: &Batch, rewording: &mut impl Rewording) -> io::Result<()> {
        self.slots.clear();
        for (record, payload) in batch.iter() {
            // Such a number would read as that of a further slot.
            if record.commit & EXTENSION != 0 {
                self.copied.left_out += 1;
                continue;
            }
            if self.slots.len() + usize::from(record.slots) > MAX_CHUNK_SLOTS {
                self.flush()?;
            }
            let mut payload = payload.to_vec();
            rewording.payload(record, &mut payload);
            self.slots.push(bytemuck::cast(*record));
            let parts = payload.chunks(EXTENSION_BYTES).zip(1..u64::from(record.slots));
            for (part, further) in parts {
                let mut words: SlotWords = [0; 8];
                words[0] = record.commit.wrapping_add(further) | EXTENSION;
                bytemuck::bytes_of_mut(&mut words)[8..8 + part.len()].copy_from_slice(part);
                self.slots.push(words);
            }
            self.copied.records += 1;
        }
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        let is_first = |words: &&SlotWords| words[0] & EXTENSION == 0;
        let ends = |words: &SlotWords| {
            let record: &Record = bytemuck::cast_ref(words);
            record.seq().wrapping_add(u64::from(record.slots))
        };
        let firsts = || self.slots.iter().filter(is_first);
        let Some(from) = firsts().map(|words| bytemuck::cast_ref::<_, Record>(words).seq()).next() else {
            return Ok(());
        };
        let until = firsts().map(ends).max().unwrap_or(from);
        let taken = Taken { slots: self.slots.len(), from, until, ..Taken::default() };
        append(self.out, &mut self.end, self.maker.events(&self.slots, &taken, self.granule))?;
        self.slots.clear();
        Ok(())
    }
}

fn append(out: &File, end: &mut u64, chunk: &[u8]) -> io::Result<()> {
    if chunk.is_empty() {
        return Err(io::Error::new(ErrorKind::InvalidData, "a block of the trace is too large to be written again"));
    }
    out.write_all_at(chunk, *end)?;
    *end += chunk.len() as u64;
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::payload;
    use crate::record::{Event, Kind, MAX_PAYLOAD_BYTES};
    use crate::ring::tests::{Memory, record};

    /// Writes every text in capital letters.
    struct Louder;

    impl Rewording for Louder {
        fn metadata(&mut self, metadata: &mut Metadata) {
            metadata.process.hostname = metadata.process.hostname.to_uppercase();
        }

        fn payload(&mut self, record: &Record, payload: &mut [u8]) {
            if record.event == Event::Mark as u8 {
                // Behind the length.
                payload[2..].make_ascii_uppercase();
            }
        }
    }

    fn libraries(name: &str) -> Modules {
        let module = |path: &str| crate::metadata::Module {
            path: path.into(),
            build_id: String::new(),
            start: 0x1000,
            end: 0x2000,
            vendor: false,
        };
        Modules { modules: vec![module(name)] }
    }

    /// A file with chunks of metadata, records in a chunk, and more in the ring: one of them pending.
    fn trace() -> tempfile::NamedTempFile {
        let memory = Memory::new(RING_SLOTS as usize);
        let mut header = Header::new(RING_SLOTS, 1 << 28, 7);
        let mut maker = ChunkMaker::default();
        let process = crate::metadata::ProcessFacts { hostname: "atlas".into(), ..Default::default() };
        let mut chunks = maker.metadata(kind::PROCESS, &process).to_vec();
        // A library takes the place of another, which comes back.
        for name in ["a.so", "b.so", "a.so"] {
            chunks.extend_from_slice(maker.metadata(kind::MODULES, &libraries(name)));
        }
        for number in 0..40 {
            memory.ring().publish(&record(number)).unwrap();
        }
        let mut out = vec![[0; 8]; 64];
        let taken = memory.ring().take(&mut out, false);
        chunks.extend_from_slice(maker.events(&out[..taken.slots], &taken, Granule::new(1 << 28)));
        memory.ring().give_back(&taken);
        let mut room = [0; MAX_PAYLOAD_BYTES];
        let mark = Record { call: 40, ..Record::new(Event::Mark, Kind::None) };
        memory.ring().publish_long(&mark, payload::pack("x".repeat(100).as_bytes(), &mut room)).unwrap();
        memory.head.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        memory.ring().publish(&record(41)).unwrap();
        header.head = memory.head.load(std::sync::atomic::Ordering::Relaxed);
        header.tail = memory.tail.load(std::sync::atomic::Ordering::Relaxed);
        header.events_lost = 3;
        header.chunks_end = header.chunks_offset + chunks.len() as u64;
        let mut entry = InFlight::default();
        (entry.state, entry.requested) = (crate::header::IN_FLIGHT | 99, 1 << 30);
        let mut bytes = bytemuck::bytes_of(&header).to_vec();
        bytes.extend_from_slice(bytemuck::bytes_of(&entry));
        bytes.resize(header.ring_offset as usize, 0);
        bytes.extend(memory.bytes());
        bytes.extend(chunks);
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&bytes).unwrap();
        file
    }

    fn read(trace: &mut TraceFile) -> Batch {
        let mut all = Batch::default();
        let read: Result<(), ()> = trace.for_each_batch(|batch| {
            all.records.append(&mut batch.records);
            all.payloads.append(&mut batch.payloads);
            Ok(())
        });
        read.unwrap();
        all
    }

    #[test]
    fn a_copy_has_other_texts_and_the_same_events() {
        let original = trace();
        let copied = tempfile::NamedTempFile::new().unwrap();
        let mut trace = TraceFile::open(original.path()).unwrap();
        let done = copy(&mut trace, &mut Louder, copied.as_file()).unwrap();
        assert_eq!((done.records, done.left_out), (42, 0));
        assert_eq!(done.bytes, copied.as_file().metadata().unwrap().len());

        let (mut before, mut after) =
            (TraceFile::open(original.path()).unwrap(), TraceFile::open(copied.path()).unwrap());
        assert_eq!(after.metadata.process.hostname, "ATLAS");
        assert_eq!(after.metadata.modules, libraries("a.so"));
        assert_eq!(after.metadata.module_lists, [libraries("a.so"), libraries("b.so")]);
        assert_eq!(before.metadata.module_lists, after.metadata.module_lists);
        let (old, new) = (read(&mut before), read(&mut after));
        assert_eq!(old.records, new.records);
        assert_eq!(payload::text(&new.payloads), "X".repeat(100));
        assert_eq!(old.payloads.len(), new.payloads.len());
        assert_eq!(before.calls_under_way(), after.calls_under_way());
        assert_eq!(after.calls_under_way().len(), 1);
        let facts = |trace: &TraceFile| (trace.header.torn, trace.header.events_lost, trace.header.head);
        assert_eq!(facts(&before), facts(&after));
        assert_eq!(facts(&after), (1, 3, 44 + 1));
        assert_eq!(after.damages(), []);
    }

    #[test]
    fn a_long_ring_is_written_in_several_chunks() {
        let memory = Memory::new(1 << 15);
        for number in 0..20_000 {
            memory.ring().publish(&record(number)).unwrap();
        }
        let mut header = Header::new(1 << 15, 1 << 28, 7);
        header.head = 20_000;
        let mut bytes = bytemuck::bytes_of(&header).to_vec();
        bytes.resize(header.ring_offset as usize, 0);
        bytes.extend(memory.bytes());
        let (mut original, copied) = (tempfile::NamedTempFile::new().unwrap(), tempfile::NamedTempFile::new().unwrap());
        original.write_all(&bytes).unwrap();
        let mut trace = TraceFile::open(original.path()).unwrap();
        copy(&mut trace, &mut Louder, copied.as_file()).unwrap();
        let mut after = TraceFile::open(copied.path()).unwrap();
        assert_eq!(read(&mut after).records, read(&mut trace).records);
        assert_eq!(after.records_in_chunks(), 20_000);
    }
}
