//! The dynamic symbol table of a loaded object, read in memory: ELF's gABI and the GNU hash section.

use std::ffi::CStr;

const PT_DYNAMIC: u32 = 2;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_GNU_HASH: i64 = 0x6FFF_FEF5;

#[repr(C)]
struct Dynamic {
    tag: i64,
    value: usize,
}

/// The tables of one object. Valid while the object is loaded.
pub(super) struct Table {
    base: usize,
    symbols: *const libc::Elf64_Sym,
    texts: *const libc::c_char,
    hash: *const u32,
}

impl Table {
    /// The tables of an object; `None` where it has no GNU hash section.
    ///
    /// # Safety
    /// `info` comes from the loader, for an object that stays loaded as long as the table is used.
    pub(super) unsafe fn of(info: &libc::dl_phdr_info) -> Option<Table> {
        let base = info.dlpi_addr as usize;
        // SAFETY: promised by the caller.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let dynamic = headers.iter().find(|header| header.p_type == PT_DYNAMIC)?;
        let mut entry = base.wrapping_add(dynamic.p_vaddr as usize) as *const Dynamic;
        let mut found = [0usize; 3];
        // SAFETY: the dynamic section of a loaded object ends with an entry of tag 0.
        while let Dynamic { tag: 1.., value } | Dynamic { tag: i64::MIN..=-1, value } = unsafe { &*entry } {
            // SAFETY: as above.
            let tag = unsafe { (*entry).tag };
            let place = [DT_STRTAB, DT_SYMTAB, DT_GNU_HASH].iter().position(|wanted| *wanted == tag);
            if let Some(place) = place {
                // glibc has made addresses of the offsets in most objects, but not where the section is read-only.
                found[place] = if *value < base { base + value } else { *value };
            }
            // SAFETY: as above.
            entry = unsafe { entry.add(1) };
        }
        let [texts, symbols, hash] = found;
        let whole = texts != 0 && symbols != 0 && hash != 0;
        whole.then_some(Table { base, symbols: symbols as _, texts: texts as _, hash: hash as _ })
    }

    /// Where a function is defined in this object, in any version.
    pub(super) fn address_of(&self, name: &CStr) -> Option<usize> {
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

    #[test]
    fn the_hash_is_that_of_the_specification() {
        assert_eq!(gnu_hash(b""), 0x1505);
        assert_eq!(gnu_hash(b"printf"), 0x156B_2BB8);
    }
}
