//! Where blocks lie in the segments of their allocator.

use gpuoom_trace::record::Kind;

use super::moment::{OfAllocator, Seen, walk};
use super::segments::Segment;
use super::{Blocks, Given};

/// A segment, or mapped pieces that lie beside each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Laid {
    /// First address.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// Kind of memory; [`Kind::Physical`] for mapped pieces.
    pub kind: Kind,
    /// Where blocks begin, from the segment's beginning, and their bytes; in order, without a gap of nothing between them.
    pub blocks: Vec<(u64, u64)>,
    /// Stretches that are in no block, in bytes; in order.
    pub unused: Vec<u64>,
}

/// An allocator's segments at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The same as of any moment.
    pub of: OfAllocator,
    /// Its segments, by address; `None` where blocks do not fit into what calls gave.
    pub segments: Option<Vec<Laid>>,
}

impl Blocks {
    /// Where the blocks of a device lie now.
    pub fn layout_now(&self, device: u8) -> Vec<Layout> {
        let known = self.device(device).into_iter().flat_map(|known| known.all());
        let one = |told: &super::Told| {
            let (blocks, segments) = self.parts_now(told.allocator, device);
            layout(told.allocator, told.now, blocks, segments)
        };
        known.map(one).collect()
    }

    /// The same at the peak that [`Blocks::at_peak`] tells of.
    pub fn layout_at_peak(&self, device: u8) -> Vec<Layout> {
        let known = self.device(device).into_iter().flat_map(|known| known.all());
        let one = |told: &super::Told| {
            let (state, blocks, segments) = self.parts_at_peak(told, device)?;
            Some(layout(told.allocator, state, blocks, segments))
        };
        known.filter_map(one).collect()
    }
}

fn layout(allocator: u8, state: super::State, blocks: Vec<Given>, segments: Option<Vec<Segment>>) -> Layout {
    let laid = segments.as_ref().and_then(|segments| lay(segments, blocks.clone()));
    Layout { of: OfAllocator::describe(allocator, state, blocks, segments), segments: laid }
}

fn lay(segments: &[Segment], blocks: Vec<Given>) -> Option<Vec<Laid>> {
    let mut all: Vec<Laid> = Vec::new();
    walk(segments, blocks, |seen| match seen {
        Seen::Segment(segment, false) => all.push(Laid {
            address: segment.address,
            bytes: segment.bytes(),
            kind: segment.kind,
            blocks: Vec::new(),
            unused: Vec::new(),
        }),
        Seen::Segment(segment, true) => {
            if let Some(last) = all.last_mut() {
                last.bytes += segment.bytes();
            }
        }
        Seen::Block(given) => {
            if let Some(last) = all.last_mut() {
                last.blocks.push((given.address - last.address, given.size_bytes));
            }
        }
        Seen::Unused(bytes) => {
            if let Some(last) = all.last_mut().filter(|_| bytes > 0) {
                last.unused.push(bytes);
            }
        }
    })?;
    Some(all)
}
