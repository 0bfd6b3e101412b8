//! From the name of a function to its row, without heap and before anything of ours was set up.

use std::ffi::{CStr, c_char};

use crate::table;

/// Places of the table: a power of two, well above the number of rows.
const PLACES: usize = 4096;
const EMPTY: u16 = u16::MAX;

/// Rows by the hash of their name.
static TABLE: [u16; PLACES] = build();

const fn hash(name: &[u8]) -> usize {
    let (mut hash, mut at) = (0u32, 0);
    while at < name.len() {
        hash = step(hash, name[at]);
        at += 1;
    }
    place(hash)
}

const fn step(hash: u32, byte: u8) -> u32 {
    hash.wrapping_mul(31).wrapping_add(byte as u32)
}

const fn place(hash: u32) -> usize {
    (hash.wrapping_mul(0x9E37_79B9) >> 20) as usize
}

const fn build() -> [u16; PLACES] {
    const { assert!(table::COUNT * 2 < PLACES, "the table is too full") };
    let mut table = [EMPTY; PLACES];
    let mut number = 0;
    while number < table::COUNT {
        let mut at = hash(table::ROWS[number].name.as_bytes());
        while table[at] != EMPTY {
            at = (at + 1) % PLACES;
        }
        table[at] = number as u16;
        number += 1;
    }
    table
}

/// The row of this name, `None` where we have none.
///
/// # Safety
/// `name` is a terminated text.
#[inline]
pub(crate) unsafe fn find(name: *const c_char) -> Option<u16> {
    let (mut value, mut length) = (0u32, 0);
    loop {
        // SAFETY: promised by the caller: nothing behind the terminator is read.
        let byte = unsafe { *name.add(length) } as u8;
        if byte == 0 {
            break;
        }
        value = step(value, byte);
        length += 1;
    }
    let mut at = place(value);
    while TABLE[at] != EMPTY {
        let row = TABLE[at];
        let known = table::row(row).name.as_bytes();
        // SAFETY: the text has this many bytes before its terminator.
        if known.len() == length && known == unsafe { std::slice::from_raw_parts(name.cast::<u8>(), length) } {
            return Some(row);
        }
        at = (at + 1) % PLACES;
    }
    None
}

/// The row of this name.
pub(crate) fn row_of(name: &CStr) -> Option<u16> {
    // SAFETY: terminated.
    unsafe { find(name.as_ptr()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found_by_its_name_and_nothing_else() {
        for (number, row) in (0..).zip(table::rows()) {
            assert_eq!(row_of(row.name_c), Some(number), "{}", row.name);
        }
        for name in [c"", c"hip", c"hipMallo", c"hipMalloc2", c"malloc", c"cuda", c"getpid"] {
            assert_eq!(row_of(name), None, "{name:?}");
        }
    }
}
