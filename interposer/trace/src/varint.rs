//! Variable-length integers: seven bits a byte, low bits first.

/// Appends `value` at `*at`. The caller keeps room for 10 bytes.
#[inline]
pub(crate) fn put(out: &mut [u8], at: &mut usize, mut value: u64) {
    while value >= 0x80 {
        out[*at] = value as u8 | 0x80;
        *at += 1;
        value >>= 7;
    }
    out[*at] = value as u8;
    *at += 1;
}

/// Reads a value at `*at`; `None` at the end of the input or when it has more than 64 bits.
#[inline]
pub(crate) fn get(input: &[u8], at: &mut usize) -> Option<u64> {
    let first = *input.get(*at)?;
    if first < 0x80 {
        *at += 1;
        return Some(u64::from(first));
    }
    // Up to 8 bytes at once: a loop over bytes is a branch each that no processor foresees, the larger part of a reader's time.
    let Some(bytes) = input[*at..].first_chunk::<8>() else { return by_bytes(input, at) };
    let word = u64::from_le_bytes(*bytes);
    let lasts = !word & 0x8080_8080_8080_8080;
    if lasts == 0 {
        return by_bytes(input, at);
    }
    *at += (lasts.trailing_zeros() / 8) as usize + 1;
    // All bits below the mark of the last byte.
    Some(without_marks(word & (lasts ^ (lasts - 1))))
}

/// The seven low bits of each of eight bytes, side by side.
#[inline]
fn without_marks(word: u64) -> u64 {
    let sevens = word & 0x7F7F_7F7F_7F7F_7F7F;
    let pairs = (sevens & 0x007F_007F_007F_007F) | (sevens & 0x7F00_7F00_7F00_7F00) >> 1;
    let fours = (pairs & 0x0000_3FFF_0000_3FFF) | (pairs & 0x3FFF_0000_3FFF_0000) >> 2;
    (fours & 0x0FFF_FFFF) | (fours & 0x0FFF_FFFF_0000_0000) >> 4
}

/// Values at the end of the input and of more than 56 bits.
#[cold]
fn by_bytes(input: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *input.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return (shift < 63 || byte <= 1).then_some(value);
        }
    }
    None
}

/// Signed to unsigned, small magnitudes first.
#[inline]
pub(crate) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Inverse of [`zigzag`].
#[inline]
pub(crate) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn values_return(value: u64, signed: i64) {
            let mut bytes = [0u8; 10];
            let (mut at, mut back) = (0, 0);
            put(&mut bytes, &mut at, value);
            prop_assert_eq!(get(&bytes[..at], &mut back), Some(value));
            prop_assert_eq!(at, back);
            prop_assert_eq!(unzigzag(zigzag(signed)), signed);
        }

        /// Whatever follows, and however long the value: both ways of reading agree.
        #[test]
        fn what_follows_changes_nothing(value: u64, bits in 0..64u32, after: [u8; 9], more in 0..9usize) {
            let value = value >> bits;
            let mut bytes = [0u8; 20];
            let (mut at, mut back) = (0, 0);
            put(&mut bytes, &mut at, value);
            bytes[at..at + 9].copy_from_slice(&after);
            prop_assert_eq!(get(&bytes[..at + more], &mut back), Some(value));
            prop_assert_eq!(at, back);
        }

        /// No bytes are read otherwise than one by one.
        #[test]
        fn any_bytes_are_read_as_one_by_one(bytes in prop::collection::vec(prop_oneof![0x80..=0xFFu8, any::<u8>()], 0..14)) {
            let (mut at, mut one_by_one) = (0, 0);
            let value = get(&bytes, &mut at);
            prop_assert_eq!(value, by_bytes(&bytes, &mut one_by_one));
            prop_assert!(value.is_none() || at == one_by_one);
        }

        #[test]
        fn cut_input_is_no_value(value in 0x80u64..) {
            let mut bytes = [0u8; 10];
            let mut at = 0;
            put(&mut bytes, &mut at, value);
            prop_assert_eq!(get(&bytes[..at - 1], &mut 0), None);
        }
    }
}
