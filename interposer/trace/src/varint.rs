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
    *at += 1;
    if first < 0x80 {
        return Some(u64::from(first));
    }
    let mut value = u64::from(first & 0x7F);
    for shift in (7..64).step_by(7) {
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

        #[test]
        fn cut_input_is_no_value(value in 0x80u64..) {
            let mut bytes = [0u8; 10];
            let mut at = 0;
            put(&mut bytes, &mut at, value);
            prop_assert_eq!(get(&bytes[..at - 1], &mut 0), None);
        }
    }
}
