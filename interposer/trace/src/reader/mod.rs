//! Reads a trace file that may be live, cut, damaged or hostile.
//!
//! Everything goes through positioned reads with checked ranges: a file that shrinks under the reader gives a short read,
//! never a `SIGBUS`, and no length in the file makes it allocate more than a chunk can hold.

mod error;
mod modules;
mod ring;
#[cfg(all(test, not(loom)))]
mod tests;

use std::fs::{File, FileType};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use crate::FORMAT_MAJOR;
use crate::chunk::{CHUNK_HEADER_BYTES, ChunkHeader, kind};
use crate::clock::Clock;
use crate::columns::Batch;
use crate::header::{HEADER_BYTES, Header, IN_FLIGHT, IN_FLIGHT_ENTRIES, InFlight, MAGIC};
use crate::metadata::{self, ApiMeanings, ApiTable, Bypasses, DeviceFacts, MachineFacts, Modules, ProcessFacts};
use crate::record::{Granule, SLOT_BYTES};

pub use error::ReadError;

use modules::ModuleLists;

/// Largest ring that a reader accepts: 1 GiB.
const MAX_RING_SLOTS: u64 = 1 << 24;
/// Encodings that this reader knows. A field that is added to a block makes a new version of it, and the old one is decoded
/// for good.
const EVENTS_VERSION: u16 = 1;
const METADATA_VERSION: u16 = 1;
/// Largest granule that a reader accepts: 1 PiB.
const MAX_GRANULARITY_BYTES: u64 = 1 << 50;
/// Damages that are listed; more are counted in the last one.
const MAX_DAMAGES: usize = 100;

/// A part of the file that could not be read; what lies before and behind it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Offset in the file.
    pub offset: u64,
    /// What is wrong there, as half a sentence.
    pub reason: String,
}

/// A call that was under way when the file was last written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallUnderWay {
    /// Kernel thread id.
    pub thread: u32,
    /// Row of the table of functions.
    pub api: u16,
    /// Ticks when it began.
    pub at: u64,
    /// Bytes asked for.
    pub requested_bytes: u64,
    /// Device index.
    pub device: u8,
}

/// The metadata of a trace; what is missing is left empty.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    /// Facts about the process.
    pub process: ProcessFacts,
    /// Functions by number.
    pub apis: ApiTable,
    /// What they mean; empty before 1.6.
    pub meanings: ApiMeanings,
    /// Loaded libraries, as last seen.
    pub modules: Modules,
    /// All lists of loaded libraries in their order, each without what an earlier one has, where something that was listed is
    /// not in the last list; else empty.
    pub module_lists: Vec<Modules>,
    /// Devices that the program used.
    pub devices: Vec<DeviceFacts>,
    /// Libraries that call past the recorder.
    pub bypasses: Bypasses,
    /// Files that tell about the machine.
    pub machine: MachineFacts,
}

/// An open trace file.
#[derive(Debug)]
pub struct TraceFile {
    file: File,
    path: PathBuf,
    length: u64,
    /// The header as it was when the file was opened.
    pub header: Header,
    /// Metadata.
    pub metadata: Metadata,
    chunks: Vec<(u64, ChunkHeader)>,
    damages: Vec<Damage>,
}

impl TraceFile {
    /// Opens a trace and reads its metadata.
    ///
    /// # Errors
    /// The file can't be read, or is no trace that this version reads.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        // To open a pipe that nobody writes to would wait for ever.
        let facts = std::fs::metadata(path).map_err(|error| unreadable(path, error))?;
        check_type(facts.file_type(), path)?;
        TraceFile::from_file(File::open(path).map_err(|error| unreadable(path, error))?, path)
    }

    /// The same for a file that is open already and may have no name. `path` is what it is called.
    ///
    /// # Errors
    /// As [`TraceFile::open`].
    pub fn from_file(file: File, path: &Path) -> Result<Self, ReadError> {
        let io = |error| unreadable(path, error);
        let facts = file.metadata().map_err(io)?;
        check_type(facts.file_type(), path)?;
        let length = facts.len();
        let mut page = [0u8; HEADER_BYTES];
        let got = read_at_most(&file, &mut page, 0).map_err(io)?;
        if page[..got].iter().all(|byte| *byte == 0) {
            return Err(ReadError::Unfinished { path: path.into() });
        }
        if got < MAGIC.len() || page[..MAGIC.len()] != MAGIC {
            return Err(ReadError::NotATrace { path: path.into() });
        }
        let header: Header = bytemuck::pod_read_unaligned(&page);
        if got >= 12 && header.major > FORMAT_MAJOR {
            return Err(ReadError::Newer { path: path.into(), major: header.major, minor: header.minor });
        }
        if got < HEADER_BYTES {
            return Err(ReadError::TooShort { path: path.into(), length });
        }
        check_header(&header, path)?;
        let mut trace = TraceFile {
            file,
            path: path.into(),
            length,
            header,
            metadata: Metadata::default(),
            chunks: Vec::new(),
            damages: Vec::new(),
        };
        trace.list_chunks();
        trace.read_metadata();
        Ok(trace)
    }

    /// The file's path as it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the file.
    pub fn length_bytes(&self) -> u64 {
        self.length
    }

    /// The clock of this trace.
    pub fn clock(&self) -> Clock {
        Clock::new(&self.header)
    }

    /// The granule that requests are padded to.
    pub fn granule(&self) -> Granule {
        Granule::new(self.header.granularity_bytes)
    }

    /// Records in the chunks, as their headers say (the ring may hold more).
    pub fn records_in_chunks(&self) -> u64 {
        self.chunks.iter().map(|(_, chunk)| u64::from(chunk.records)).sum()
    }

    /// Whether no record is missing, as far as the file knows: none lost, none claimed and never written, nothing damaged. What a
    /// killed process was writing in its last instant does not count: there is nothing behind it.
    pub fn is_whole(&self) -> bool {
        let torn = if self.header.closed == 1 { self.header.torn } else { 0 };
        self.header.events_lost == 0 && torn == 0 && self.damages().is_empty()
    }

    /// Damage found so far, in the order of discovery.
    pub fn damages(&self) -> &[Damage] {
        &self.damages
    }

    /// Takes over what could not be read of the file that this one is a copy of: the copy is whole, and what it says is not.
    pub fn add_damages(&mut self, damages: impl IntoIterator<Item = Damage>) {
        damages.into_iter().for_each(|damage| self.damaged(damage.offset, damage.reason));
    }

    fn damaged(&mut self, offset: u64, reason: impl Into<String>) {
        let damage = Damage { offset, reason: reason.into() };
        // A trace may be read more than once.
        if self.damages.contains(&damage) {
            return;
        }
        match self.damages.len() {
            0..MAX_DAMAGES => self.damages.push(damage),
            _ => self.damages[MAX_DAMAGES - 1].reason = "more damage follows".into(),
        }
    }

    fn read(&self, offset: u64, length: usize) -> Option<Vec<u8>> {
        let end = offset.checked_add(length as u64)?;
        if end > self.length {
            return None;
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }

    fn list_chunks(&mut self) {
        let mut offset = self.header.chunks_offset;
        let end = self.header.chunks_end;
        while offset < end {
            let Some(bytes) = self.read(offset, CHUNK_HEADER_BYTES) else {
                let missing = end.saturating_sub(self.length);
                let reason = format!("the file ends here, {missing} bytes before the end of its chunks");
                return self.damaged(self.length.min(end), reason);
            };
            let chunk: ChunkHeader = bytemuck::pod_read_unaligned(&bytes);
            let next = offset + CHUNK_HEADER_BYTES as u64 + u64::from(chunk.stored_bytes);
            if !chunk.is_plausible() {
                return self.damaged(offset, "no chunk begins here; the chunks behind it are not read");
            }
            if next > self.length.min(end) {
                return self.damaged(offset, "the chunk is cut off");
            }
            self.chunks.push((offset, chunk));
            offset = next;
        }
    }

    fn stored(&self, offset: u64, chunk: &ChunkHeader) -> Option<Vec<u8>> {
        self.read(offset + CHUNK_HEADER_BYTES as u64, chunk.stored_bytes as usize)
    }

    fn read_metadata(&mut self) {
        let mut lists = ModuleLists::default();
        for (offset, chunk) in std::mem::take(&mut self.chunks) {
            if chunk.kind == kind::EVENTS {
                self.chunks.push((offset, chunk));
                continue;
            }
            if chunk.version > METADATA_VERSION {
                self.damaged(offset, "metadata in a later encoding; use a newer gpuoom-analyze");
                continue;
            }
            let payload = self.stored(offset, &chunk).and_then(|stored| chunk.payload(&stored));
            if payload.is_none_or(|payload| !self.take_metadata(chunk.kind, &payload)) {
                self.damaged(offset, "a metadata chunk is damaged");
            } else if chunk.kind == kind::MODULES {
                lists.take(&self.metadata.modules);
            }
        }
        self.metadata.module_lists = lists.finish(&self.metadata.modules);
    }

    fn take_metadata(&mut self, chunk_kind: u16, payload: &[u8]) -> bool {
        fn set<T>(target: &mut T, value: Option<T>) -> bool {
            value.map(|value| *target = value).is_some()
        }
        let metadata = &mut self.metadata;
        match chunk_kind {
            kind::PROCESS => set(&mut metadata.process, metadata::decode(payload)),
            kind::APIS => set(&mut metadata.apis, metadata::decode(payload)),
            kind::MEANINGS => set(&mut metadata.meanings, metadata::decode(payload)),
            kind::MODULES => set(&mut metadata.modules, metadata::decode(payload)),
            kind::BYPASSES => set(&mut metadata.bypasses, metadata::decode(payload)),
            kind::MACHINE => set(&mut metadata.machine, metadata::decode(payload)),
            kind::DEVICE => match metadata::decode::<DeviceFacts>(payload) {
                Some(device) => {
                    metadata.devices.retain(|known| known.index != device.index);
                    metadata.devices.push(device);
                    true
                }
                None => false,
            },
            // A kind of a newer minor version.
            _ => true,
        }
    }

    /// Reads all records in order, one batch after the other, and hands each to `sink` (which may keep it and leave
    /// another in its place). Damaged chunks are passed over and listed in [`TraceFile::damages`].
    pub fn for_each_batch<E>(&mut self, mut sink: impl FnMut(&mut Batch) -> Result<(), E>) -> Result<(), E> {
        let granule = self.granule();
        let mut batch = Batch::default();
        let mut next_seq = 0;
        for (offset, chunk) in self.chunks.clone() {
            batch.clear();
            if chunk.version > EVENTS_VERSION {
                let reason = format!("{} events are in a later encoding; use a newer gpuoom-analyze", chunk.records);
                self.damaged(offset, reason);
                continue;
            }
            let read = self.stored(offset, &chunk).and_then(|stored| chunk.events(&stored, granule, &mut batch));
            if read.is_none() {
                self.damaged(offset, format!("a chunk of {} events is damaged", chunk.records));
                continue;
            }
            next_seq = chunk.next_seq.max(next_seq);
            sink(&mut batch)?;
        }
        batch.clear();
        self.read_ring(next_seq, &mut batch);
        if batch.records.is_empty() { Ok(()) } else { sink(&mut batch) }
    }

    /// The table of calls under way, as it lies in the file: zeros where the file has less.
    pub(crate) fn in_flight_table(&self) -> Vec<u8> {
        let entries = (self.header.in_flight_entries as usize).min(IN_FLIGHT_ENTRIES);
        let size = std::mem::size_of::<InFlight>();
        let mut bytes = self.read(self.header.in_flight_offset, entries * size).unwrap_or_default();
        bytes.resize(IN_FLIGHT_ENTRIES * size, 0);
        bytes
    }

    /// Calls that were under way when the file was last written.
    pub fn calls_under_way(&self) -> Vec<CallUnderWay> {
        let entries = (self.header.in_flight_entries as usize).min(IN_FLIGHT_ENTRIES);
        let size = std::mem::size_of::<InFlight>();
        let bytes = self.read(self.header.in_flight_offset, entries * size).unwrap_or_default();
        let entries = bytes.chunks_exact(size).map(bytemuck::pod_read_unaligned::<InFlight>);
        let under_way = entries.filter(|entry| entry.state & IN_FLIGHT != 0);
        under_way
            .map(|entry| CallUnderWay {
                thread: entry.state as u32,
                api: (entry.state >> 32) as u16,
                at: entry.at,
                requested_bytes: entry.requested,
                device: entry.device as u8,
            })
            .collect()
    }
}

/// Why a file could not be opened or read.
fn unreadable(path: &Path, error: std::io::Error) -> ReadError {
    match error.kind() {
        std::io::ErrorKind::NotFound => ReadError::Missing { path: path.into() },
        _ => ReadError::Io { path: path.into(), error },
    }
}

/// A trace is read at offsets, which only a file has.
fn check_type(found: FileType, path: &Path) -> Result<(), ReadError> {
    let (what, next) = match found {
        found if found.is_file() => return Ok(()),
        found if found.is_dir() => ("a directory", "name the traces that are in it"),
        found if found.is_fifo() || found.is_socket() => ("a pipe", "save what comes out of it in a file first"),
        _ => ("a device", "give the trace's own path"),
    };
    Err(ReadError::NotAFile { path: path.into(), what, next })
}

fn read_at_most(file: &File, bytes: &mut [u8], offset: u64) -> std::io::Result<usize> {
    let mut got = 0;
    while got < bytes.len() {
        match file.read_at(&mut bytes[got..], offset + got as u64) {
            Ok(0) => break,
            Ok(count) => got += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

fn check_header(header: &Header, path: &Path) -> Result<(), ReadError> {
    let bad = |offset, reason: &str| Err(ReadError::BadHeader { path: path.into(), offset, reason: reason.into() });
    let Header { ring_offset, ring_slots, chunks_offset, granularity_bytes, .. } = *header;
    if !ring_slots.is_power_of_two() || ring_slots > MAX_RING_SLOTS {
        return bad(24, &format!("a ring of {ring_slots} slots is impossible"));
    }
    if ring_offset < HEADER_BYTES as u64
        || ring_offset.checked_add(ring_slots * SLOT_BYTES as u64) != Some(chunks_offset)
    {
        return bad(16, "ring and chunks are not where they must be");
    }
    if granularity_bytes == 0 || granularity_bytes > MAX_GRANULARITY_BYTES {
        return bad(40, &format!("a granularity of {granularity_bytes} bytes is impossible"));
    }
    Ok(())
}
