//! An ELF file: what it is, and its parts. Parts are read by position and never mapped: a file that somebody shortens
//! meanwhile must not end the analyzer by a signal.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use object::elf::{FileHeader64, PT_LOAD};
use object::read::elf::{ElfFile64, ProgramHeader, SectionHeader, SymbolTable};
use object::read::{CompressedFileRange, CompressionFormat, ReadCache};
use object::{LittleEndian, Object, ObjectSection};
use rustc_hash::FxHashMap;
use thiserror::Error;

use super::functions::Functions;

/// Largest part that is read, in bytes, after it was unpacked.
const MAX_PART_BYTES: u64 = 2 << 30;
/// Sections that a file may have.
const MAX_SECTIONS: usize = 1 << 16;
/// Longest name of a linked debug file.
const MAX_LINK_BYTES: usize = 4096;
const PAGE_BYTES: u64 = 4096;

/// Why a file is of no use.
#[derive(Debug, Error)]
pub(super) enum ElfError {
    /// It is not there.
    #[error("it is not there")]
    NotThere,
    /// It is there and can't be read.
    #[error("it can't be read: {0}")]
    Io(std::io::Error),
    /// It is no file of that sort, or is damaged.
    #[error("it is no 64-bit little-endian ELF file, or it is damaged: {0}")]
    Damaged(object::Error),
    /// A part is too large.
    #[error("a part of it has more than 2 GiB")]
    TooLarge,
}

/// Another file that a file refers to: the supplement of its debug information.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Supplement {
    /// Path as it stands in the file.
    pub(super) path: String,
    /// Build id in hexadecimal.
    pub(super) build_id: String,
}

/// An ELF file of which the heads were read.
pub(super) struct Elf {
    /// Where it was found.
    pub(super) path: PathBuf,
    /// GNU build id in hexadecimal, empty where there is none.
    pub(super) build_id: String,
    /// Address of the page that the first segment begins in.
    pub(super) first_address: u64,
    /// Whether it has a table of symbols, besides that of the dynamic linker.
    pub(super) has_symbols: bool,
    /// File name of a file with its debug information.
    pub(super) debug_link: Option<String>,
    /// File that its debug information refers to.
    pub(super) supplement: Option<Supplement>,
    file: File,
    parts: FxHashMap<String, CompressedFileRange>,
}

type Parsed<'a> = ElfFile64<'a, LittleEndian, &'a ReadCache<File>>;
type Table<'a> = SymbolTable<'a, FileHeader64<LittleEndian>, &'a ReadCache<File>>;

impl Elf {
    /// Opens a file and reads its heads.
    pub(super) fn open(path: &Path) -> Result<Self, ElfError> {
        let file = open_regular(path)?;
        let cache = ReadCache::new(file.try_clone().map_err(ElfError::Io)?);
        let parsed: Parsed<'_> = ElfFile64::parse(&cache).map_err(ElfError::Damaged)?;
        let segments = parsed.elf_program_headers().iter();
        let loaded = segments.filter(|segment| segment.p_type(LittleEndian) == PT_LOAD);
        let low = loaded.map(|segment| segment.p_vaddr(LittleEndian)).min().unwrap_or(0);
        let first_address = low / PAGE_BYTES * PAGE_BYTES;
        let text = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_LINK_BYTES)]).into_owned();
        let link = parsed.gnu_debuglink().ok().flatten();
        let supplement = parsed.gnu_debugaltlink().ok().flatten();
        Ok(Elf {
            path: path.to_owned(),
            build_id: hex(parsed.build_id().ok().flatten().unwrap_or_default()),
            first_address,
            has_symbols: !parsed.elf_symbol_table().is_empty(),
            debug_link: link.map(|(name, _)| text(name)),
            supplement: supplement.map(|(path, id)| Supplement { path: text(path), build_id: hex(id) }),
            parts: parts(&parsed),
            file,
        })
    }

    /// Whether it has debug information.
    pub(super) fn has_debug_information(&self) -> bool {
        self.parts.get(".debug_info").is_some_and(|part| part.uncompressed_size > 0)
    }

    /// Its functions by the table of symbols, else by that of the dynamic linker.
    pub(super) fn functions(&self) -> Result<Functions, ElfError> {
        let cache = ReadCache::new(self.file.try_clone().map_err(ElfError::Io)?);
        let parsed: Parsed<'_> = ElfFile64::parse(&cache).map_err(ElfError::Damaged)?;
        let read = |table: &Table<'_>, is_whole: bool| {
            if table.is_empty() {
                return Ok(Functions::default());
            }
            let names = parsed.elf_section_table().section(table.string_section()).map_err(ElfError::Damaged)?;
            let (offset, bytes) = names.file_range(LittleEndian).unwrap_or_default();
            Ok(Functions::read(table, self.read(offset, bytes)?, is_whole))
        };
        let whole = read(parsed.elf_symbol_table(), true)?;
        if whole.is_empty() { read(parsed.elf_dynamic_symbol_table(), false) } else { Ok(whole) }
    }

    /// A section, unpacked; empty where there is none.
    pub(super) fn part(&self, name: &str) -> Result<Vec<u8>, ElfError> {
        let Some(part) = self.parts.get(name) else { return Ok(Vec::new()) };
        if part.uncompressed_size > MAX_PART_BYTES {
            return Err(ElfError::TooLarge);
        }
        let packed = self.read(part.offset, part.compressed_size)?;
        unpack(packed, part.format, part.uncompressed_size as usize)
    }

    fn read(&self, offset: u64, bytes: u64) -> Result<Vec<u8>, ElfError> {
        let length = self.file.metadata().map_err(ElfError::Io)?.len();
        if offset.checked_add(bytes).is_none_or(|end| end > length) {
            return Err(ElfError::Io(std::io::ErrorKind::UnexpectedEof.into()));
        }
        if bytes > MAX_PART_BYTES {
            return Err(ElfError::TooLarge);
        }
        let mut read = vec![0; bytes as usize];
        self.file.read_exact_at(&mut read, offset).map_err(ElfError::Io)?;
        Ok(read)
    }
}

/// Opens a file that is one: a path may lead to a pipe or a device, which would block or never end.
fn open_regular(path: &Path) -> Result<File, ElfError> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(path);
    let file = file.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => ElfError::NotThere,
        _ => ElfError::Io(error),
    })?;
    match file.metadata().map_err(ElfError::Io)?.is_file() {
        true => Ok(file),
        false => Err(ElfError::NotThere),
    }
}

fn parts(parsed: &Parsed<'_>) -> FxHashMap<String, CompressedFileRange> {
    let named = parsed.sections().take(MAX_SECTIONS).filter_map(|section| {
        let name = section.name().ok().filter(|name| name.starts_with(".debug_"))?;
        Some((name.to_owned(), section.compressed_file_range().ok()?))
    });
    named.collect()
}

fn unpack(packed: Vec<u8>, format: CompressionFormat, length: usize) -> Result<Vec<u8>, ElfError> {
    let broken = |_| ElfError::Io(std::io::Error::other("a section can't be unpacked"));
    match format {
        CompressionFormat::None => Ok(packed),
        CompressionFormat::Zlib => {
            let mut out = Vec::new();
            let reader = flate2::read::ZlibDecoder::new(&packed[..]);
            reader.take(length as u64).read_to_end(&mut out).map_err(ElfError::Io)?;
            Ok(out)
        }
        CompressionFormat::Zstandard => {
            let mut out = vec![0; length];
            let used = zstd_safe::decompress(&mut out[..], &packed).map_err(broken)?;
            out.truncate(used);
            Ok(out)
        }
        _ => Err(ElfError::Io(std::io::Error::other("a section is packed in a way that is not known"))),
    }
}

/// Bytes as the trace writes a build id.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().take(64).map(|byte| format!("{byte:02x}")).collect()
}
