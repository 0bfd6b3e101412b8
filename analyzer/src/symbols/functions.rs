//! The functions of an ELF file by its table of symbols.

use object::LittleEndian;
use object::elf::{FileHeader64, STB_LOCAL, STT_FUNC, STT_GNU_IFUNC};
use object::read::ReadRef;
use object::read::elf::{Sym, SymbolTable};

/// Symbols that are looked at; no library comes near.
const MAX_SYMBOLS: usize = 1 << 25;
/// Longest name, in bytes.
const MAX_NAME_BYTES: usize = 1 << 16;
/// Symbols before an address that may have it: functions overlap where one has several entries.
const MAX_OVERLAPPING: usize = 16;
/// How far a function without a size reaches, in bytes, where no other follows. It reaches no further than to the next one, and
/// nowhere in a table of exported functions: what follows there is a function that the table does not have.
const MAX_UNSIZED_BYTES: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Function {
    address: u64,
    size_bytes: u64,
    /// A local symbol is a second name more often than a global one is.
    is_local: bool,
    name: u32,
}

/// Functions in the order of their addresses.
#[derive(Default)]
pub(super) struct Functions {
    functions: Vec<Function>,
    names: Vec<u8>,
    is_whole: bool,
}

impl Functions {
    /// Those of a table with its names. `is_whole`: it has the functions that only the file itself sees, too.
    pub(super) fn read<'a, R: ReadRef<'a>>(
        table: &SymbolTable<'a, FileHeader64<LittleEndian>, R>,
        names: Vec<u8>,
        is_whole: bool,
    ) -> Functions {
        let wanted = table.iter().take(MAX_SYMBOLS).filter(|symbol| {
            let is_code = matches!(symbol.st_type(), STT_FUNC | STT_GNU_IFUNC);
            is_code && !symbol.is_undefined(LittleEndian) && symbol.st_value(LittleEndian) != 0
        });
        let mut functions: Vec<Function> = wanted
            .map(|symbol| Function {
                address: symbol.st_value(LittleEndian),
                size_bytes: symbol.st_size(LittleEndian),
                is_local: symbol.st_bind() == STB_LOCAL,
                name: symbol.st_name(LittleEndian),
            })
            .collect();
        functions.sort_unstable();
        functions.shrink_to_fit();
        Functions { functions, names, is_whole }
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Whether the functions that only the file itself sees are among them.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// The function that an address lies in, as the file names it.
    pub(super) fn at(&self, address: u64) -> Option<String> {
        let behind = self.functions.partition_point(|function| function.address <= address);
        let next = self.functions.get(behind).map(|function| function.address);
        let before = self.functions[..behind].iter().rev().take(MAX_OVERLAPPING);
        let last = before.clone().next()?.address;
        let unsized_reaches =
            |from: u64| self.is_whole && from == last && (next.is_some() || address - from < MAX_UNSIZED_BYTES);
        let reaches = |function: &&Function| match function.size_bytes {
            0 => unsized_reaches(function.address),
            size => address - function.address < size,
        };
        // Among several names of one piece of code, always the same one: builds must agree.
        let nearest = before.clone().find(reaches)?.address;
        let names = before.filter(|function| function.address == nearest).filter(reaches);
        let best = names.filter_map(|function| Some((function.is_local, self.name(function.name)?)));
        best.min().map(|(_, name)| name)
    }

    fn name(&self, start: u32) -> Option<String> {
        let text = self.names.get(start as usize..)?;
        let text = &text[..text.len().min(MAX_NAME_BYTES)];
        let end = text.iter().position(|byte| *byte == 0)?;
        (end > 0).then(|| String::from_utf8_lossy(&text[..end]).into_owned())
    }
}
