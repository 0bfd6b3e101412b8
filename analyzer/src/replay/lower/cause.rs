//! Why a block below the program's own calls exists.

use gpuoom_trace::record::{Event, Kind, Layer, Record};

use crate::replay::block::Side;

/// Why a block exists that the program did not ask for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// A recorded call of a higher layer asked for it.
    Call {
        /// That call's layer.
        layer: Layer,
        /// What that call was about.
        kind: Kind,
        /// Whether the program itself made that call.
        own: bool,
    },
    /// A context or a library's handle was being set up.
    SetUp,
    /// A vendor's library took it for itself: outside any recorded call, or inside one that takes no memory.
    Itself,
}

impl Cause {
    /// What memory that is taken inside this call is for.
    pub(super) fn inside(record: &Record, layer: Layer) -> Self {
        let kind = record.kind();
        match record.event() {
            Some(Event::Alloc | Event::Pin) => Cause::Call { layer, kind, own: false },
            Some(Event::Module | Event::Reserve) if matches!(kind, Kind::Code | Kind::Queue | Kind::Scratch) => {
                Cause::Call { layer, kind, own: false }
            }
            // HIP 5.7 takes a graph's memory when the node is made.
            Some(Event::Reserve) if kind == Kind::Pool && record.requested > 0 => {
                Cause::Call { layer, kind, own: false }
            }
            Some(Event::Module) => Cause::SetUp,
            _ => Cause::Itself,
        }
    }

    /// The same, now that it is known who made the outermost call.
    pub(super) fn of_outermost(self, record: &Record) -> Self {
        match self {
            Cause::Call { layer: Layer::Runtime, kind, .. } => {
                let asks = matches!(record.event(), Some(Event::Alloc | Event::Pin)) || kind == Kind::Pool;
                Cause::Call { layer: Layer::Runtime, kind, own: asks && record.is_programs_own() }
            }
            other => other,
        }
    }

    /// The call that this memory stands below, if that call gave memory of the same side.
    pub fn backs(self, side: Side) -> Option<(Layer, Kind, bool)> {
        match self {
            Cause::Call { layer, kind, own } if Side::of(kind) == side => Some((layer, kind, own)),
            _ => None,
        }
    }
}
