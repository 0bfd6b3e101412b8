//! Keys by which stacks are told apart.

/// Keys of stacks have this bit, addresses don't.
pub(super) const STACK_BIT: u64 = 1 << 63;
/// A key with one more word in it.
pub(super) fn mix(key: u64, word: u64) -> u64 {
    let mixed = (key.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ mixed >> 29
}
