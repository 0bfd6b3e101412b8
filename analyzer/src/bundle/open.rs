//! Reading a bundle. It comes from a stranger: nothing is unpacked by name, sizes are bounded before and while they are read,
//! and what is not exactly what `bundle` writes refuses the whole archive. Its own report is not looked at.

use std::cell::Cell;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Cursor, Read, Seek};
use std::path::Path;
use std::rc::Rc;

use flate2::read::GzDecoder;
use gpuoom_trace::header::MAGIC;
use gpuoom_trace::reader::Damage;
use tar::{Archive, Entry, EntryType};

use super::error::BundleError;
use super::layout::{Content, ROOT, content};
use crate::evidence::Source;
use crate::words::{clean, shorten};

/// Entries that are looked at.
const MAX_ENTRIES: usize = 10_000;
/// Traces of one bundle.
const MAX_TRACES: usize = 4096;
/// Bytes of everything, unpacked.
const MAX_TOTAL_BYTES: u64 = 16 << 30;
/// Bytes of all other evidence: it is kept in memory.
const MAX_EVIDENCE_BYTES: u64 = 512 << 20;
/// Bytes of its thresholds: there are some hundred, each a line.
const MAX_THRESHOLD_BYTES: u64 = 64 << 10;
/// Bytes of its damages: the reader lists a bounded number of each trace.
const MAX_DAMAGE_BYTES: u64 = 4 << 20;
/// Unpacked bytes from which on the ratio counts: short files of zeros compress without limit.
const FREE_BYTES: u64 = 64 << 20;
/// Most unpacked bytes for a packed one. Traces are compressed already, and texts come to 20.
const MAX_RATIO: u64 = 200;
/// Longest name of an entry.
const MAX_NAME_BYTES: usize = 200;
/// Bytes of a tar header, and where in it the magic word stands.
const TAR_BLOCK: usize = 512;
const TAR_MAGIC_AT: usize = 257;

/// What was in a bundle.
#[derive(Debug, Default)]
pub struct Bundle {
    /// Traces by name, in files that have none.
    pub traces: Vec<(String, File)>,
    /// Other evidence by name.
    pub evidence: Vec<(Source, String, Vec<u8>)>,
    /// The thresholds that its report was made with: `NAME=VALUE` each.
    pub thresholds: Vec<String>,
    /// What could not be read of the original traces, by the name of the trace.
    pub damages: Vec<(String, Damage)>,
}

impl Bundle {
    /// What could not be read of the trace with this name.
    pub fn damages_of(&self, name: &str) -> Vec<Damage> {
        let of_trace = self.damages.iter().filter(|(of, _)| of == name);
        of_trace.map(|(_, damage)| damage.clone()).collect()
    }
}

/// A line of [`super::layout::DAMAGES`]; what is no such line is damage, too.
fn damage(line: &str) -> (String, Damage) {
    let mut words = line.splitn(3, ' ');
    let (name, offset, reason) = (words.next(), words.next(), words.next());
    let offset = offset.and_then(|offset| offset.parse().ok()).unwrap_or(0);
    let reason =
        reason.map_or_else(|| "it is not known what".to_owned(), |reason| clean(&shorten(reason, MAX_NAME_BYTES)));
    (name.unwrap_or_default().to_owned(), Damage { offset, reason })
}

/// How other sorts of files begin, what they are, and what to do with them.
const OTHERS: [(&[u8], &str, &str); 7] = [
    (b"PK\x03\x04", "this is a ZIP archive", "unpack it, and give the .tar.gz or the trace that is in it"),
    (b"PK\x05\x06", "this is an empty ZIP archive", "give the .tar.gz that gpuoom-analyze bundle wrote"),
    (b"\x28\xb5\x2f\xfd", "this is compressed by zstd", "bundles are gzip: unpack it with zstd -d"),
    (b"\xfd7zXZ\0", "this is compressed by xz", "bundles are gzip: unpack it with xz -d"),
    (b"BZh", "this is compressed by bzip2", "bundles are gzip: unpack it with bzip2 -d"),
    (b"7z\xbc\xaf\x27\x1c", "this is a 7-Zip archive", "unpack it, and give the .tar.gz or the trace that is in it"),
    (&MAGIC, "this is a trace", "give it a name that does not end in .tar.gz"),
];

/// Whether a path leads to what is meant as a bundle: by its first bytes, or by its name.
pub fn is_bundle(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let mut first = [0; 2];
    // To open a pipe that nobody writes to would wait for ever.
    if !path.is_file() {
        return false;
    }
    let begins = File::open(path).and_then(|mut file| file.read_exact(&mut first)).is_ok();
    (begins && first == [0x1f, 0x8b]) || name.ends_with(".tar.gz") || name.ends_with(".tgz")
}

/// Reads a bundle.
///
/// # Errors
/// The file can't be read, or is not exactly a bundle; see [`BundleError`].
pub fn open(path: &Path) -> Result<Bundle, BundleError> {
    let mut file = File::open(path).map_err(|error| BundleError::Io { path: path.into(), error })?;
    check_beginning(path, &mut file)?;
    let tripped = Rc::new(Cell::new(None));
    let mut unpacked =
        Unpacked { decoder: GzDecoder::new(Counted { inner: file, bytes: 0 }), bytes: 0, tripped: Rc::clone(&tripped) };
    let reader = Reader { path, tripped };
    let mut first = Vec::new();
    (&mut unpacked).take(TAR_BLOCK as u64).read_to_end(&mut first).map_err(|error| reader.damaged(&error))?;
    check_content(path, &first)?;
    let mut all = Cursor::new(first).chain(unpacked);
    let bundle = reader.entries(&mut all)?;
    // To the end: only there is the checksum.
    io::copy(&mut all, &mut io::sink()).map_err(|error| reader.damaged(&error))?;
    if bundle.traces.is_empty() {
        return Err(BundleError::NoTrace { path: path.into() });
    }
    Ok(bundle)
}

fn check_beginning(path: &Path, file: &mut File) -> Result<(), BundleError> {
    let other = |found, next| Err(BundleError::Other { path: path.into(), found, next });
    let mut first = Vec::new();
    let read = Read::by_ref(file).take(TAR_BLOCK as u64).read_to_end(&mut first).and_then(|_| file.rewind());
    read.map_err(|error| BundleError::Io { path: path.into(), error })?;
    match OTHERS.iter().find(|(magic, ..)| first.starts_with(magic)) {
        Some((_, found, next)) => other(found, next),
        None if first.is_empty() => other("the file is empty", "copy it again"),
        None if is_tar(&first) => other("this is a tar archive that is not compressed", "compress it with gzip"),
        None if !first.starts_with(&[0x1f, 0x8b]) => {
            other("this is not compressed by gzip", "give the .tar.gz that gpuoom-analyze bundle wrote")
        }
        None => Ok(()),
    }
}

fn check_content(path: &Path, first: &[u8]) -> Result<(), BundleError> {
    let other = |found, next| Err(BundleError::Other { path: path.into(), found, next });
    if first.starts_with(&MAGIC) {
        return other("this is a compressed trace", "unpack it with gunzip, and give the trace");
    }
    // An empty archive is nothing but zeros.
    if first.iter().all(|byte| *byte == 0) {
        return Err(BundleError::NoTrace { path: path.into() });
    }
    match is_tar(first) {
        true => Ok(()),
        false => other("this is compressed, but holds no tar archive", "give what gpuoom-analyze bundle wrote"),
    }
}

fn is_tar(first: &[u8]) -> bool {
    first.get(TAR_MAGIC_AT..TAR_MAGIC_AT + 5) == Some(b"ustar")
}

/// Counts what comes in.
struct Counted<R> {
    inner: R,
    bytes: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.bytes += count as u64;
        Ok(count)
    }
}

/// A limit that was met.
#[derive(Clone, Copy, Debug)]
enum Limit {
    Total,
    Ratio,
}

/// The unpacked bytes, with limits.
struct Unpacked<R> {
    decoder: GzDecoder<Counted<R>>,
    bytes: u64,
    /// The archive's reader hides errors behind its own: here is which it was.
    tripped: Rc<Cell<Option<Limit>>>,
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.decoder.read(buffer)?;
        self.bytes += count as u64;
        let packed = self.decoder.get_ref().bytes.max(1);
        if self.bytes > MAX_TOTAL_BYTES {
            self.tripped.set(Some(Limit::Total));
        } else if self.bytes > FREE_BYTES && self.bytes / packed > MAX_RATIO {
            self.tripped.set(Some(Limit::Ratio));
        }
        if self.tripped.get().is_some() { Err(io::Error::other("a limit was met")) } else { Ok(count) }
    }
}

/// One archive while it is read.
struct Reader<'a> {
    path: &'a Path,
    tripped: Rc<Cell<Option<Limit>>>,
}

impl Reader<'_> {
    fn damaged(&self, error: &io::Error) -> BundleError {
        let why = match self.tripped.get() {
            None => return BundleError::Damaged { path: self.path.into(), reason: error.to_string() },
            Some(Limit::Total) => format!("the archive unpacks to more than {} GiB", MAX_TOTAL_BYTES >> 30),
            Some(Limit::Ratio) => {
                format!(
                    "the archive unpacks to more than {MAX_RATIO} times its size, which traces and reports never do"
                )
            }
        };
        self.too_large(why)
    }

    fn too_large(&self, why: String) -> BundleError {
        BundleError::TooLarge { path: self.path.into(), why }
    }

    fn entry(&self, name: &[u8], why: &'static str) -> BundleError {
        let entry = crate::words::clean(&String::from_utf8_lossy(name));
        BundleError::Entry { path: self.path.into(), entry: crate::words::shorten(&entry, 80), why }
    }

    fn entries(&self, unpacked: &mut impl Read) -> Result<Bundle, BundleError> {
        let mut archive = Archive::new(unpacked);
        let (mut bundle, mut seen) = (Bundle::default(), HashSet::new());
        let mut evidence_bytes = 0;
        // Raw: extensions would let an entry claim any name and size, and are read into memory whole.
        let entries = archive.entries().map_err(|error| self.damaged(&error))?.raw(true);
        for (number, entry) in entries.enumerate() {
            let mut entry = entry.map_err(|error| self.damaged(&error))?;
            if number == MAX_ENTRIES {
                return Err(self.too_large(format!("the archive has more than {MAX_ENTRIES} entries")));
            }
            let Some(name) = self.name(&entry)? else { continue };
            if !seen.insert(name.clone()) {
                return Err(self.entry(name.as_bytes(), "the name is there twice"));
            }
            match content(&name) {
                Content::Trace if bundle.traces.len() == MAX_TRACES => {
                    return Err(self.too_large(format!("the archive has more than {MAX_TRACES} traces")));
                }
                Content::Trace => bundle.traces.push((name, self.unpack(&mut entry)?)),
                Content::Evidence(source) => {
                    evidence_bytes += entry.size();
                    if evidence_bytes > MAX_EVIDENCE_BYTES {
                        let most = MAX_EVIDENCE_BYTES >> 20;
                        return Err(self.too_large(format!("the archive has more than {most} MiB beside its traces")));
                    }
                    let mut bytes = Vec::new();
                    entry.read_to_end(&mut bytes).map_err(|error| self.damaged(&error))?;
                    self.check_whole(&entry, bytes.len() as u64)?;
                    bundle.evidence.push((source, name, bytes));
                }
                Content::Thresholds => bundle.thresholds = self.lines(&mut entry, &name, MAX_THRESHOLD_BYTES)?,
                Content::Damages => {
                    let lines = self.lines(&mut entry, &name, MAX_DAMAGE_BYTES)?;
                    bundle.damages = lines.iter().map(|line| damage(line)).collect();
                }
                Content::Else => {}
            }
        }
        bundle.traces.sort_by(|one, other| one.0.cmp(&other.0));
        bundle.evidence.sort_by(|one, other| one.1.cmp(&other.1));
        Ok(bundle)
    }

    /// The name below [`ROOT`] of an entry that holds a file; none for directories and the notes that other archivers leave.
    /// The lines of a text of the bundle that are not empty.
    fn lines<R: Read>(
        &self,
        entry: &mut Entry<'_, R>,
        name: &str,
        most_bytes: u64,
    ) -> Result<Vec<String>, BundleError> {
        if entry.size() > most_bytes {
            return Err(self.too_large(format!("{name} has more than {} KiB", most_bytes >> 10)));
        }
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).map_err(|error| self.damaged(&error))?;
        self.check_whole(entry, bytes.len() as u64)?;
        let text = String::from_utf8_lossy(&bytes);
        Ok(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect())
    }

    fn name<R: Read>(&self, entry: &Entry<'_, R>) -> Result<Option<String>, BundleError> {
        let name = entry.path_bytes();
        let refuse = |why| Err(self.entry(&name, why));
        match entry.header().entry_type() {
            EntryType::Regular | EntryType::Continuous | EntryType::Directory => {}
            EntryType::XHeader | EntryType::XGlobalHeader => return Ok(None),
            EntryType::Symlink | EntryType::Link => return refuse("it is a link"),
            EntryType::Char | EntryType::Block | EntryType::Fifo => return refuse("it is a device or a pipe"),
            _ => return refuse("it is of a sort that a bundle does not have"),
        }
        let Ok(text) = std::str::from_utf8(&name) else { return refuse("its name is not UTF-8") };
        if text.len() > MAX_NAME_BYTES {
            return refuse("its name is too long");
        }
        if text.starts_with('/') {
            return refuse("its path is absolute");
        }
        if text.contains(|c: char| c.is_control() || c == '\\') {
            return refuse("its name has characters that a bundle does not use");
        }
        let text = text.strip_prefix("./").unwrap_or(text).trim_end_matches('/');
        if text.split('/').any(|part| part == "..") {
            return refuse("its path leads out of the archive");
        }
        if text.split('/').any(|part| part == "." || part.is_empty()) && !text.is_empty() {
            return refuse("its path is not in its simple form");
        }
        let below = text.strip_prefix(ROOT).and_then(|rest| rest.strip_prefix('/'));
        Ok(below.filter(|_| entry.header().entry_type() != EntryType::Directory).map(str::to_owned))
    }

    /// A trace, in a file without a name: it is gone when it is closed.
    fn unpack<R: Read>(&self, entry: &mut Entry<'_, R>) -> Result<File, BundleError> {
        if entry.size() > MAX_TOTAL_BYTES {
            return Err(self.too_large(format!("a trace in the archive has more than {} GiB", MAX_TOTAL_BYTES >> 30)));
        }
        let mut file = tempfile::tempfile().map_err(|error| BundleError::Io { path: self.path.into(), error })?;
        let copied = io::copy(entry, &mut file).map_err(|error| self.damaged(&error))?;
        self.check_whole(entry, copied)?;
        Ok(file)
    }

    fn check_whole<R: Read>(&self, entry: &Entry<'_, R>, got: u64) -> Result<(), BundleError> {
        let size = entry.size();
        match got == size {
            true => Ok(()),
            false => Err(BundleError::Damaged {
                path: self.path.into(),
                reason: format!("it ends {} bytes before the end of an entry", size - got.min(size)),
            }),
        }
    }
}
