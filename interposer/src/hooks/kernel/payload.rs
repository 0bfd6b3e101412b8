//! The structure behind a request: a copy of its beginning, and the fields that the request's size covers.

use crate::base::program_memory;

/// Bytes that are copied at most: NVIDIA's heap control has 184, and an SVM request with 21 attributes 192.
const MAX_BYTES: usize = 192;

/// A copy of a payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Payload {
    /// Descriptor that the request was made on.
    pub(super) fd: i32,
    /// Where it lies in the program.
    pub(super) address: u64,
    /// Size that the request names.
    pub(super) size: usize,
    bytes: [u8; MAX_BYTES],
    length: usize,
}

impl Payload {
    /// Copies a payload; `None` where it is null, empty, or not all of what is wanted is there.
    pub(super) fn read(fd: i32, address: u64, size: usize) -> Option<Payload> {
        let length = size.min(MAX_BYTES);
        let mut payload = Payload { fd, address, size, bytes: [0; MAX_BYTES], length };
        let readable = address != 0 && length != 0 && program_memory::read(address, &mut payload.bytes[..length]);
        readable.then_some(payload)
    }

    /// Copies it once more, for what the driver has answered.
    pub(super) fn again(&self) -> Option<Payload> {
        Payload::read(self.fd, self.address, self.size)
    }

    /// Four bytes at an offset, if the size covers them.
    pub(super) fn u32(&self, at: usize) -> Option<u32> {
        let bytes = self.bytes[..self.length].get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }

    /// Eight bytes at an offset, if the size covers them.
    pub(super) fn u64(&self, at: usize) -> Option<u64> {
        Some(u64::from(self.u32(at)?) | u64::from(self.u32(at.checked_add(4)?)?) << 32)
    }

    /// An address that no other descriptor's handle has.
    pub(super) fn handle_of_fd(&self, handle: u32) -> u64 {
        (self.fd as u32 as u64) << 32 | u64::from(handle)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A payload made of fields (offset, width in bytes, value).
    pub(in super::super) fn payload(size: usize, fields: &[(usize, usize, u64)]) -> Payload {
        let mut bytes = vec![0u8; size];
        for (at, width, value) in fields {
            bytes[*at..at + width].copy_from_slice(&value.to_le_bytes()[..*width]);
        }
        Payload::read(7, bytes.as_ptr() as u64, size).expect("our own memory")
    }

    #[test]
    fn fields_beyond_the_size_are_not_there() {
        let payload = payload(12, &[(0, 8, 0x1122_3344_5566_7788), (8, 4, 9)]);
        assert_eq!((payload.u64(0), payload.u32(8)), (Some(0x1122_3344_5566_7788), Some(9)));
        assert_eq!((payload.u64(8), payload.u32(9), payload.u32(usize::MAX)), (None, None, None));
        assert_eq!(payload.handle_of_fd(5), 7 << 32 | 5);
        assert!(
            Payload::read(0, 0, 8).is_none() && Payload::read(0, 8, 8).is_none() && Payload::read(0, 8, 0).is_none()
        );
    }
}
