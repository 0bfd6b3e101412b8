//! What the further slots of a long record hold.
//!
//! Every payload begins with its length in bytes (u16), because slots come in units of 56 bytes.

mod library;
mod stack;

use crate::record::MAX_PAYLOAD_BYTES;

pub use library::{LibraryName, library};
pub use stack::{CodeName, MAX_NATIVE_FRAMES, MAX_PYTHON_FRAMES, PythonFrame, Stack, code_name, stack, stack_flag};

/// Longest text that a record can carry, in bytes.
pub const MAX_TEXT_BYTES: usize = MAX_PAYLOAD_BYTES - 2;

/// Writes the length and the bytes into `out` and returns what was used; cuts what does not fit.
pub fn pack<'a>(bytes: &[u8], out: &'a mut [u8; MAX_PAYLOAD_BYTES]) -> &'a [u8] {
    let length = bytes.len().min(MAX_TEXT_BYTES);
    out[..2].copy_from_slice(&(length as u16).to_le_bytes());
    out[2..2 + length].copy_from_slice(&bytes[..length]);
    &out[..2 + length]
}

/// The bytes that [`pack`] was given; empty where the payload is not one.
pub fn unpack(payload: &[u8]) -> &[u8] {
    let Some((length, rest)) = payload.split_first_chunk::<2>() else { return &[] };
    rest.get(..usize::from(u16::from_le_bytes(*length))).unwrap_or(&[])
}

/// The text of a payload, with replacement characters where it is not UTF-8.
pub fn text(payload: &[u8]) -> String {
    String::from_utf8_lossy(unpack(payload)).into_owned()
}

/// The further numbers of a record ([`numbers`] packs them), e.g. the handle of a mapping.
pub fn unpack_numbers(payload: &[u8]) -> impl Iterator<Item = u64> {
    unpack(payload).as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes))
}

/// Packs further numbers of a record.
pub fn numbers<'a>(values: &[u64], out: &'a mut [u8; MAX_PAYLOAD_BYTES]) -> &'a [u8] {
    let count = values.len().min(MAX_TEXT_BYTES / 8);
    out[..2].copy_from_slice(&((count * 8) as u16).to_le_bytes());
    for (to, value) in out[2..].as_chunks_mut::<8>().0.iter_mut().zip(&values[..count]) {
        *to = value.to_le_bytes();
    }
    &out[..2 + count * 8]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_numbers_return() {
        let mut out = [0; MAX_PAYLOAD_BYTES];
        assert_eq!(unpack(pack(b"label", &mut out)), b"label");
        assert_eq!(unpack(pack(&[7; 4000], &mut out)).len(), MAX_TEXT_BYTES);
        assert_eq!(unpack_numbers(numbers(&[1, u64::MAX], &mut out)).collect::<Vec<_>>(), [1, u64::MAX]);
        assert_eq!(unpack(&[9]), b"");
        assert_eq!(unpack(&[9, 0, 1]), b"", "a length that runs past the payload is no payload");
    }
}
