//! Holds a snapshot's segments against the blocks and mappings of a trace: both name addresses, so that every byte of one
//! is either in the other or is not.

use serde::Serialize;

use super::{DeviceSums, Snapshot, sums};

/// Most pieces that are listed on each side.
const MOST_LISTED: usize = 20;

/// A stretch of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Piece {
    /// First address.
    pub address: u64,
    /// Bytes.
    pub size_bytes: u64,
}

/// What a device's segments and the trace have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Join {
    /// The snapshot's sums of this device.
    pub sums: DeviceSums,
    /// Bytes that live in the trace: blocks with addresses, and physical memory where it is mapped.
    pub traced_bytes: u64,
    /// Bytes that both have.
    pub common_bytes: u64,
    /// Segments that are a block of the trace, with the same address and size, or that mappings cover without a gap.
    pub whole_segments: u64,
    /// Bytes of segments that the trace does not have.
    pub only_in_snapshot_bytes: u64,
    /// The largest of these stretches.
    pub only_in_snapshot: Vec<Piece>,
    /// Bytes of the trace in no segment: memory that PyTorch's allocator did not ask for.
    pub only_in_trace_bytes: u64,
    /// The largest of these stretches.
    pub only_in_trace: Vec<Piece>,
}

/// Joins the segments of a device with what lives in a trace.
pub fn join(snapshot: &Snapshot, device: u32, traced: impl Iterator<Item = Piece>) -> Join {
    let sums = sums(snapshot).into_iter().find(|sums| sums.device == device);
    let of_device = snapshot.segments.iter().filter(|segment| segment.device == device);
    let segments =
        united(of_device.clone().map(|segment| Piece { address: segment.address, size_bytes: segment.total_bytes }));
    let traced = united(traced);
    let whole = |segment: &&super::Segment| {
        let before = traced.partition_point(|piece| piece.address <= segment.address);
        let around = before.checked_sub(1).map(|at| traced[at]);
        around.is_some_and(|piece| end(piece) >= segment.end())
    };
    let (only_in_snapshot, only_in_trace) = (without(&segments, &traced), without(&traced, &segments));
    let traced_bytes = total(&traced);
    let only_in_trace_bytes = total(&only_in_trace);
    Join {
        sums: sums.unwrap_or(DeviceSums { device, ..DeviceSums::default() }),
        traced_bytes,
        common_bytes: traced_bytes.saturating_sub(only_in_trace_bytes),
        whole_segments: of_device.filter(whole).count() as u64,
        only_in_snapshot_bytes: total(&only_in_snapshot),
        only_in_snapshot: largest(only_in_snapshot),
        only_in_trace_bytes,
        only_in_trace: largest(only_in_trace),
    }
}

/// Bytes that both have.
pub fn common_bytes(some: impl Iterator<Item = Piece>, others: impl Iterator<Item = Piece>) -> u64 {
    let some = united(some);
    total(&some).saturating_sub(total(&without(&some, &united(others))))
}

fn end(piece: Piece) -> u64 {
    piece.address.saturating_add(piece.size_bytes)
}

fn total(pieces: &[Piece]) -> u64 {
    pieces.iter().fold(0, |sum, piece| sum.saturating_add(piece.size_bytes))
}

fn largest(mut pieces: Vec<Piece>) -> Vec<Piece> {
    pieces.sort_by_key(|piece| (std::cmp::Reverse(piece.size_bytes), piece.address));
    pieces.truncate(MOST_LISTED);
    pieces
}

/// Pieces in order, those that touch or overlap as one.
fn united(pieces: impl Iterator<Item = Piece>) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = pieces.filter(|piece| piece.size_bytes > 0).collect();
    pieces.sort();
    let mut united: Vec<Piece> = Vec::new();
    for piece in pieces {
        match united.last_mut() {
            Some(last) if end(*last) >= piece.address => {
                last.size_bytes = end(*last).max(end(piece)) - last.address;
            }
            _ => united.push(Piece { size_bytes: end(piece) - piece.address, ..piece }),
        }
    }
    united
}

/// What of `pieces` no `other` has. Both are united.
fn without(pieces: &[Piece], others: &[Piece]) -> Vec<Piece> {
    let mut left = Vec::new();
    let mut first = 0;
    for piece in pieces {
        let mut from = piece.address;
        while others.get(first).is_some_and(|other| end(*other) <= from) {
            first += 1;
        }
        for other in others[first..].iter().take_while(|other| other.address < end(*piece)) {
            if other.address > from {
                left.push(Piece { address: from, size_bytes: other.address - from });
            }
            from = from.max(end(*other));
        }
        if from < end(*piece) {
            left.push(Piece { address: from, size_bytes: end(*piece) - from });
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pieces(list: &[(u64, u64)]) -> Vec<Piece> {
        list.iter().map(|(address, size_bytes)| Piece { address: *address, size_bytes: *size_bytes }).collect()
    }

    #[test]
    fn pieces_that_touch_are_one_and_what_is_left_is_found() {
        let one = united(pieces(&[(30, 10), (0, 10), (10, 10), (12, 3)]).into_iter());
        assert_eq!(one, pieces(&[(0, 20), (30, 10)]));
        assert_eq!(without(&one, &pieces(&[(5, 5), (15, 20)])), pieces(&[(0, 5), (10, 5), (35, 5)]));
        assert_eq!(without(&one, &pieces(&[(0, 100)])), []);
    }

    proptest! {
        /// Byte by byte.
        #[test]
        fn every_byte_is_accounted_for(
            one in prop::collection::vec((0u64..60, 0u64..20), 0..12), other in prop::collection::vec((0u64..60, 0u64..20), 0..12),
        ) {
            let has = |list: &[(u64, u64)], byte: u64| list.iter().any(|(at, size)| (*at..at + size).contains(&byte));
            let (left, right) = (united(pieces(&one).into_iter()), united(pieces(&other).into_iter()));
            let rest = without(&left, &right);
            for byte in 0..100 {
                let expected = has(&one, byte) && !has(&other, byte);
                prop_assert_eq!(rest.iter().any(|piece| (piece.address..end(*piece)).contains(&byte)), expected);
            }
        }

        #[test]
        fn addresses_may_be_anything(list in prop::collection::vec((any::<u64>(), any::<u64>()), 0..8)) {
            let all = united(pieces(&list).into_iter());
            without(&all, &pieces(&[(u64::MAX, 1)]));
            total(&all);
        }
    }
}
