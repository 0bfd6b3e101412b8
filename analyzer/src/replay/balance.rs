//! Which bytes of the layers are the same: each byte once, at the lowest layer that was seen.
//!
//! A call of the program asks for bytes; the calls below it ask for the same bytes again, rounded up or with a reserve.
//! So what lies under the calls of one class (a layer and a kind of memory) is compared with what that class gave: the
//! difference is rounding, or a cache. The total of all differences and of what nothing encloses is what the lowest layer
//! holds. Where a layer below saw less than the one above (its calls were not all seen), the upper one counts.

use std::collections::BTreeMap;

use gpuoom_trace::record::{Kind, Layer};

use super::account::Holdings;
use super::block::Side;
use super::lower::sums::{Class, Sum};

/// A class of calls whose memory may have other memory below it. The program's own calls of the runtime stand apart from
/// those of vendor libraries; below the runtime all share what the next layer gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Asking {
    /// Layer that was asked.
    pub layer: Layer,
    /// Kind of memory.
    pub kind: Kind,
    /// Whether the program itself asked.
    pub own: bool,
}

impl Asking {
    /// The class of calls of a layer about a kind of memory.
    pub fn new(layer: Layer, kind: Kind, own: bool) -> Self {
        Asking { layer, kind, own: own && layer == Layer::Runtime }
    }
}

/// What lies under a class beyond what the class gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overhead {
    /// The class.
    pub asking: Asking,
    /// The layer that holds it.
    pub layer: Layer,
    /// Bytes beyond.
    pub bytes: u128,
}

#[derive(Clone, Copy, Debug, Default)]
struct Weighed {
    given: u128,
    below: u128,
    layer_below: Option<Layer>,
}

/// The layers weighed against each other.
#[derive(Clone, Debug, Default)]
pub struct Balance {
    side_bytes: u128,
    classes: BTreeMap<Asking, Weighed>,
}

/// Managed pages move: what is asked for need not lie on the device. Only what lower layers gave for it counts.
pub fn counted_bytes(kind: Kind, bytes: u128) -> u128 {
    if kind == Kind::Managed { 0 } else { bytes }
}

impl Balance {
    /// Adds memory that the program itself asked for.
    pub fn add_own(&mut self, layer: Layer, kind: Kind, bytes: u128) {
        let bytes = counted_bytes(kind, bytes);
        self.side_bytes += bytes;
        self.classes.entry(Asking::new(layer, kind, true)).or_default().given += bytes;
    }

    /// Adds memory of other calls.
    pub fn add_lower(&mut self, class: &Class, sum: &Sum) {
        let bytes = counted_bytes(class.kind, sum.bytes);
        self.classes.entry(Asking::new(class.layer, class.kind, false)).or_default().given += bytes;
        match class.cause.backs(Side::of(class.kind)) {
            Some((layer, kind, own)) => {
                let above = self.classes.entry(Asking::new(layer, kind, own)).or_default();
                above.below += bytes;
                above.layer_below = above.layer_below.max(Some(class.layer));
            }
            None => self.side_bytes += bytes,
        }
    }

    /// Both of one device.
    pub fn of(own: &Holdings, lower: &[(Class, Sum)]) -> Self {
        let mut balance = Balance::default();
        own.rows().for_each(|(layer, kind, held)| balance.add_own(layer, kind, held.requested_bytes));
        lower.iter().for_each(|(class, sum)| balance.add_lower(class, sum));
        balance
    }

    /// Rounding and caches, by class.
    pub fn overheads(&self) -> impl Iterator<Item = Overhead> {
        self.classes.iter().filter_map(|(asking, weighed)| {
            let bytes = weighed.below.checked_sub(weighed.given).filter(|bytes| *bytes > 0)?;
            Some(Overhead { asking: *asking, layer: weighed.layer_below?, bytes })
        })
    }

    /// Each byte once.
    pub fn total_bytes(&self) -> u128 {
        self.side_bytes + self.overheads().map(|overhead| overhead.bytes).sum::<u128>()
    }

    /// The lowest layer that holds some of it.
    pub fn lowest(&self) -> Option<Layer> {
        let held = self.classes.iter().filter(|(_, weighed)| weighed.given > 0 || weighed.below > 0);
        held.map(|(asking, weighed)| weighed.layer_below.unwrap_or(asking.layer).max(asking.layer)).max()
    }
}
