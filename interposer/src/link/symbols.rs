//! The dynamic symbol table of a loaded object, read in memory: ELF's gABI and the GNU hash section.

use std::ffi::{CStr, c_char};

const PT_DYNAMIC: u32 = 2;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_GNU_HASH: i64 = 0x6FFF_FEF5;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_PLTRELSZ: i64 = 2;
const DT_JMPREL: i64 = 23;
/// Number of relative entries at the beginning of `DT_RELA`: they name nothing.
const DT_RELACOUNT: i64 = 0x6FFF_FFF9;
/// The sections that are looked at; those from `SIZES` on are numbers and not addresses.
const WANTED: [i64; 8] = [DT_STRTAB, DT_SYMTAB, DT_GNU_HASH, DT_RELA, DT_JMPREL, DT_RELASZ, DT_PLTRELSZ, DT_RELACOUNT];
const SIZES: usize = 5;
/// Relocations that hold the address of a function (x86-64 psABI).
const R_X86_64_GLOB_DAT: u64 = 6;
const R_X86_64_JUMP_SLOT: u64 = 7;

#[repr(C)]
struct Dynamic {
    tag: i64,
    value: usize,
}

/// The tables of one object. Valid while the object is loaded.
pub(super) struct Table {
    base: usize,
    symbols: *const libc::Elf64_Sym,
    texts: *const c_char,
    hash: *const u32,
    /// Relocations: first entry and number, for data and for calls.
    relocations: [(*const Relocation, usize); 2],
}

#[repr(C)]
struct Relocation {
    offset: u64,
    info: u64,
    addend: i64,
}

/// A reference to a function by name.
pub(super) struct Reference {
    /// The name, terminated.
    pub(super) name: *const c_char,
    /// What it leads to now: for calls that were never made, a place in the same object.
    pub(super) target: usize,
    /// Where the reference stands.
    pub(super) place: usize,
}

impl Table {
    /// The tables of an object; `None` where it has no dynamic symbols.
    ///
    /// # Safety
    /// `info` comes from the loader, for an object that stays loaded as long as the table is used.
    pub(super) unsafe fn of(info: &libc::dl_phdr_info) -> Option<Table> {
        let base = info.dlpi_addr as usize;
        // SAFETY: promised by the caller.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let dynamic = headers.iter().find(|header| header.p_type == PT_DYNAMIC)?;
        let mut entry = base.wrapping_add(dynamic.p_vaddr as usize) as *const Dynamic;
        let mut found = [0usize; WANTED.len()];
        // SAFETY: the dynamic section of a loaded object ends with an entry of tag 0.
        while let Dynamic { tag: 1.., value } | Dynamic { tag: i64::MIN..=-1, value } = unsafe { &*entry } {
            // SAFETY: as above.
            let tag = unsafe { (*entry).tag };
            if let Some(place) = WANTED.iter().position(|wanted| *wanted == tag) {
                // glibc has made addresses of the offsets in most objects, but not where the section is read-only.
                found[place] = if place < SIZES && *value < base { base + value } else { *value };
            }
            // SAFETY: as above.
            entry = unsafe { entry.add(1) };
        }
        let [texts, symbols, hash, data, calls, data_bytes, call_bytes, relative] = found;
        if texts == 0 || symbols == 0 {
            return None;
        }
        let entries = |bytes: usize| bytes / std::mem::size_of::<Relocation>();
        let (data_count, call_count) = (entries(data_bytes), entries(call_bytes));
        let relative = relative.min(data_count);
        // SAFETY: the relative entries are the first of the section.
        let data = unsafe { (data as *const Relocation).add(if data == 0 { 0 } else { relative }) };
        let relocations = [
            (data, if data.is_null() { 0 } else { data_count - relative }),
            (calls as *const Relocation, if calls == 0 { 0 } else { call_count }),
        ];
        Some(Table { base, symbols: symbols as _, texts: texts as _, hash: hash as _, relocations })
    }

    /// All references of this object to functions by name.
    ///
    /// # Safety
    /// The object stays loaded meanwhile.
    pub(super) unsafe fn for_each_reference(&self, mut each: impl FnMut(Reference)) {
        for (first, count) in self.relocations {
            for index in 0..count {
                // SAFETY: the loader has used these entries itself; the place holds an address (or 0) since then.
                unsafe {
                    let relocation = &*first.add(index);
                    if !matches!(relocation.info & 0xFFFF_FFFF, R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT) {
                        continue;
                    }
                    let symbol = &*self.symbols.add((relocation.info >> 32) as usize);
                    let place = self.base.wrapping_add(relocation.offset as usize);
                    let name = self.texts.add(symbol.st_name as usize);
                    each(Reference { name, target: *(place as *const usize), place });
                }
            }
        }
    }

    /// Whether a name that this object takes from others is wanted; `None` where its table does not tell.
    ///
    /// The hash section covers what the object defines, the last symbols of its table: imports stand before them.
    ///
    /// # Safety
    /// The object stays loaded meanwhile.
    pub(super) unsafe fn imports(&self, is_wanted: impl Fn(*const c_char) -> bool) -> Option<bool> {
        if self.hash.is_null() {
            return None;
        }
        // SAFETY: the section begins as said in `address_of`; symbols and texts are the object's own.
        unsafe {
            let [buckets, first, filter_words] = [0, 1, 2].map(|at| *self.hash.add(at) as usize);
            // Linkers write any number for the first symbol where nothing is covered.
            let bucket_table = std::slice::from_raw_parts(self.hash.add(4 + 2 * filter_words), buckets);
            if bucket_table.iter().all(|index| *index == 0) {
                return None;
            }
            let symbols = std::slice::from_raw_parts(self.symbols, first);
            let mut imported = symbols.iter().filter(|symbol| symbol.st_shndx == 0 && symbol.st_name != 0);
            Some(imported.any(|symbol| is_wanted(self.texts.add(symbol.st_name as usize))))
        }
    }

    /// Where a function is defined in this object, in any version.
    pub(super) fn address_of(&self, name: &CStr) -> Option<usize> {
        if self.hash.is_null() {
            return None;
        }
        let wanted = gnu_hash(name.to_bytes());
        // SAFETY: the section begins with the number of buckets, the first symbol that it covers, the number of 64-bit
        // words of its filter, and a shift; buckets and chains follow the filter. A chain ends with its lowest bit set.
        unsafe {
            let [buckets, first, filter_words] = [0, 1, 2].map(|at| *self.hash.add(at) as usize);
            if buckets == 0 {
                return None;
            }
            let bucket_table = self.hash.add(4 + 2 * filter_words);
            let chains = bucket_table.add(buckets);
            let mut index = *bucket_table.add(wanted as usize % buckets) as usize;
            if index < first {
                return None;
            }
            loop {
                let hash = *chains.add(index - first);
                let symbol = &*self.symbols.add(index);
                let same = hash | 1 == wanted | 1 && CStr::from_ptr(self.texts.add(symbol.st_name as usize)) == name;
                if same && symbol.st_shndx != 0 && symbol.st_value != 0 {
                    return Some(self.base.wrapping_add(symbol.st_value as usize));
                }
                if hash & 1 != 0 {
                    return None;
                }
                index += 1;
            }
        }
    }
}

fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names that an object refers to and neither imports nor has: `imports` would pass over them.
    unsafe extern "C" fn compare(info: *mut libc::dl_phdr_info, _: usize, found: *mut libc::c_void) -> i32 {
        // SAFETY: the loader passes a valid entry; `found` are the lists of the test below.
        unsafe {
            let (missed, told) = &mut *found.cast::<(Vec<String>, u32)>();
            let Some(table) = Table::of(&*info) else { return 0 };
            table.for_each_reference(|reference| {
                let name = CStr::from_ptr(reference.name);
                let Some(is_import) = table.imports(|import| CStr::from_ptr(import) == name) else { return };
                *told += u32::from(is_import);
                if !is_import && table.address_of(name).is_none() {
                    missed.push(name.to_string_lossy().into_owned());
                }
            });
        }
        0
    }

    #[test]
    fn imports_are_what_an_object_refers_to_and_has_not() {
        let mut found = (Vec::<String>::new(), 0u32);
        // SAFETY: the callback gets back this pair.
        unsafe { libc::dl_iterate_phdr(Some(compare), (&raw mut found).cast()) };
        assert_eq!(found.0, Vec::<String>::new());
        assert!(found.1 > 10, "{} imports were told", found.1);
    }

    unsafe extern "C" fn count(info: *mut libc::dl_phdr_info, _: usize, found: *mut libc::c_void) -> i32 {
        // SAFETY: the loader passes a valid entry; `found` is the pair of the test below.
        unsafe {
            let found = &mut *found.cast::<(u32, u32)>();
            if let Some(table) = Table::of(&*info) {
                table.for_each_reference(|reference| {
                    let is_free = CStr::from_ptr(reference.name) == c"free";
                    found.0 += 1;
                    found.1 += u32::from(is_free && reference.target != 0);
                });
            }
        }
        0
    }

    #[test]
    fn references_of_loaded_objects_are_found() {
        let mut found = (0u32, 0u32);
        // SAFETY: the callback gets back this pair.
        unsafe { libc::dl_iterate_phdr(Some(count), (&raw mut found).cast()) };
        assert!(found.0 > 100 && found.1 > 0, "{found:?}");
    }

    #[test]
    fn the_hash_is_that_of_the_specification() {
        assert_eq!(gnu_hash(b""), 0x1505);
        assert_eq!(gnu_hash(b"printf"), 0x156B_2BB8);
    }
}
