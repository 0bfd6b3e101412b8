//! Source lines and inlined functions, by debug information.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use addr2line::Context;
use gimli::{Dwarf, EndianRcSlice, LittleEndian, SectionId};

use super::elf::{Elf, ElfError};

type Reader = EndianRcSlice<LittleEndian>;

/// Inlined functions at one address that are listed.
const MAX_INLINED: usize = 64;
/// Bytes of debug information that are read of one library, unpacked.
const MAX_BYTES: u64 = 3 << 30;
/// The sections that tell about functions and lines.
const NEEDED: [SectionId; 10] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugAranges,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

/// One function at an address, as the debug information tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Its name as the linker knows it.
    pub(super) function: Option<String>,
    /// Source file.
    pub(super) file: Option<String>,
    /// Line.
    pub(super) line: Option<u32>,
}

/// The debug information of a library.
pub(super) struct DebugInformation {
    context: Context<Reader>,
}

impl DebugInformation {
    /// Reads it from a file, and from the one that this refers to, where that is known.
    pub(super) fn read(elf: &Elf, supplement: Option<&Elf>) -> Result<Self, ElfError> {
        let mut left = MAX_BYTES;
        let mut dwarf = Dwarf::load(|section| load(elf, section, &mut left))?;
        if let Some(supplement) = supplement {
            dwarf.load_sup(|section| load(supplement, section, &mut left))?;
        }
        let damaged = || ElfError::Io(std::io::Error::other("its debug information is damaged"));
        // Strangers' files: that no bytes make the library panic is nothing that a report should rest on.
        let context = catch_unwind(AssertUnwindSafe(|| Context::from_dwarf(dwarf)));
        let context = context.map_err(|_| damaged())?.map_err(|_| damaged())?;
        Ok(DebugInformation { context })
    }

    /// What lies at an address of the file: inlined functions first, the one that has the code last. Empty where nothing
    /// tells.
    pub(super) fn at(&self, address: u64) -> Vec<Place> {
        catch_unwind(AssertUnwindSafe(|| self.look_up(address))).unwrap_or_default()
    }

    fn look_up(&self, address: u64) -> Vec<Place> {
        let mut places = Vec::new();
        let Ok(mut frames) = self.context.find_frames(address).skip_all_loads() else { return places };
        while let Ok(Some(frame)) = frames.next() {
            let raw = frame.function.as_ref().and_then(|function| function.raw_name().ok());
            let location = frame.location.as_ref();
            places.push(Place {
                function: raw.map(|name| name.into_owned()).filter(|name| !name.is_empty()),
                file: location.and_then(|location| location.file).map(str::to_owned),
                line: location.and_then(|location| location.line).filter(|line| *line > 0),
            });
            if places.len() >= MAX_INLINED {
                break;
            }
        }
        places
    }
}

fn load(elf: &Elf, section: SectionId, left: &mut u64) -> Result<Reader, ElfError> {
    let bytes = match NEEDED.contains(&section) {
        true => elf.part(section.name())?,
        false => Vec::new(),
    };
    *left = left.checked_sub(bytes.len() as u64).ok_or(ElfError::TooLarge)?;
    Ok(EndianRcSlice::new(Rc::from(bytes), LittleEndian))
}
