//! What tensors held over a snapshot's history, and where those come from that stay: the driver sees segments only.
//!
//! The history may begin in the middle of a run. What it frees and never gave was there before; how much that was follows from
//! what lives at its end.

use rustc_hash::FxHashMap;

use super::{Action, Event, Frame, Snapshot, StackId, State};
use crate::replay::tracks::series::Series;

/// Stretches of equal length that the history is divided into.
const STRETCHES: usize = 16;

/// Tensors of one device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tensors {
    /// Device number.
    pub device: u32,
    /// Bytes over the history; its moments are numbers of entries.
    pub live: Series,
    /// Where what stays comes from, the largest first.
    pub origins: Vec<Origin>,
}

/// What one place allocated and nobody freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The way to it; 0 where the history has no stacks: then these are all tensors of one size.
    pub stack: StackId,
    /// Tensors that live.
    pub tensors: u64,
    /// Their bytes.
    pub bytes: u64,
    /// In which stretches of the history they were allocated.
    born: u16,
}

impl Origin {
    /// Whether they came all along the history.
    pub fn came_all_along(&self) -> bool {
        self.born.count_ones() as usize * 2 >= STRETCHES
    }
}

/// A tensor that lives.
#[derive(Clone, Copy)]
struct Tensor {
    bytes: u64,
    stack: StackId,
    number: usize,
}

/// The tensors of each device that has a history.
pub fn tensors(snapshot: &Snapshot) -> Vec<Tensors> {
    let traces = (0..).zip(&snapshot.device_traces).filter(|(_, events)| !events.is_empty());
    traces.map(|(device, events)| of_device(snapshot, device, events)).collect()
}

fn of_device(snapshot: &Snapshot, device: u32, events: &[Event]) -> Tensors {
    let mut alive: FxHashMap<u64, Tensor> = FxHashMap::default();
    // What each entry adds; of what was there before, only what is freed is seen.
    let mut changes: Vec<(u64, i128)> = Vec::new();
    for (number, event) in events.iter().enumerate() {
        let (address, bytes) = (event.address_or_free_bytes, event.size_bytes);
        let at = number as u64 + 1;
        match event.action {
            Action::Alloc => {
                alive.insert(address, Tensor { bytes, stack: event.stack, number });
                changes.push((at, i128::from(bytes)));
            }
            // That the program asked for it is told before, and counts for nothing: other streams may use it still.
            Action::FreeCompleted => {
                let known = alive.remove(&address).map_or(bytes, |tensor| tensor.bytes);
                changes.push((at, -i128::from(known)));
            }
            _ => {}
        }
    }
    let net = changes.iter().fold(0i128, |sum, (_, change)| sum.saturating_add(*change));
    let mut held = (i128::from(live_at_end(snapshot, device)) - net).max(0);
    let mut live = Series::default();
    let bytes = |held: i128| u64::try_from(held.max(0)).unwrap_or(u64::MAX);
    live.follow(0, bytes(held), 0);
    for (at, change) in changes {
        held = held.saturating_add(change);
        live.follow(at, bytes(held), bytes(change));
    }
    Tensors { device, live, origins: origins(&alive, events.len()) }
}

fn live_at_end(snapshot: &Snapshot, device: u32) -> u64 {
    let segments = snapshot.segments.iter().filter(|segment| segment.device == device);
    let blocks = segments.flat_map(|segment| &segment.blocks).filter(|block| block.state != State::Inactive);
    blocks.fold(0, |sum: u64, block| sum.saturating_add(block.requested_bytes.unwrap_or(block.size_bytes)))
}

fn origins(alive: &FxHashMap<u64, Tensor>, events: usize) -> Vec<Origin> {
    let mut by_place: FxHashMap<(StackId, u64), Origin> = FxHashMap::default();
    for tensor in alive.values() {
        let size = if tensor.stack == 0 { tensor.bytes } else { 0 };
        let origin = by_place.entry((tensor.stack, size)).or_default();
        origin.stack = tensor.stack;
        origin.tensors += 1;
        origin.bytes = origin.bytes.saturating_add(tensor.bytes);
        origin.born |= 1 << (tensor.number * STRETCHES / events.max(1)).min(STRETCHES - 1);
    }
    let mut origins: Vec<Origin> = by_place.into_values().collect();
    origins.sort_by_key(|origin| (std::cmp::Reverse(origin.bytes), origin.stack, origin.tensors));
    origins
}

impl Snapshot {
    /// The frame of a stack that its reader knows: the innermost of the program's own Python, else of any, else the innermost.
    pub fn own_frame(&self, stack: StackId) -> Option<&Frame> {
        let is_python = |frame: &&Frame| frame.file.ends_with(".py");
        let is_own = |frame: &&Frame| is_python(frame) && !frame.file.contains("/torch/");
        let frames = || self.frames_of(stack);
        frames().find(is_own).or_else(|| frames().find(is_python)).or_else(|| frames().next())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Block, Segment};
    use super::*;

    const MIB: u64 = 1 << 20;

    fn event(action: Action, address: u64, size_bytes: u64, stack: StackId) -> Event {
        Event { action, address_or_free_bytes: address, size_bytes, stream: 0, time_us: 0, pool: (0, 0), stack }
    }

    fn bytes(tensors: &Tensors) -> Vec<u64> {
        tensors.live.turns().map(|turn| turn.bytes / MIB).collect()
    }

    #[test]
    fn what_was_there_before_the_history_counts() {
        let block = |address, state| Block { address, size_bytes: 30 * MIB, requested_bytes: None, state, stack: 0 };
        let segment = Segment {
            device: 0,
            address: 0,
            total_bytes: 100 * MIB,
            allocated_bytes: 0,
            active_bytes: 0,
            requested_bytes: None,
            stream: 0,
            small: false,
            expandable: false,
            pool: (0, 0),
            blocks: vec![block(0, State::ActiveAllocated), block(30 * MIB, State::Inactive)],
            stack: 0,
        };
        let snapshot = Snapshot {
            segments: vec![segment],
            device_traces: vec![vec![
                // Was there before.
                event(Action::FreeRequested, 50, 20 * MIB, 0),
                event(Action::FreeCompleted, 50, 20 * MIB, 0),
                event(Action::Alloc, 0, 30 * MIB, 3),
                event(Action::Alloc, 60, 10 * MIB, 4),
                event(Action::FreeRequested, 60, 10 * MIB, 0),
                event(Action::FreeCompleted, 60, 10 * MIB, 0),
            ]],
            ..Snapshot::default()
        };
        let found = tensors(&snapshot);
        assert_eq!(bytes(&found[0]), [0, 20, 0, 40, 30]);
        let [origin] = found[0].origins[..] else { panic!("{:?}", found[0].origins) };
        assert_eq!((origin.stack, origin.tensors, origin.bytes), (3, 1, 30 * MIB));
    }

    proptest::proptest! {
        #[test]
        fn any_history_is_borne(events in proptest::collection::vec((0u8..4, 0u64..9, proptest::prelude::any::<u64>()), 0..60)) {
            let actions = [Action::Alloc, Action::FreeRequested, Action::FreeCompleted, Action::Oom];
            let events = events.iter().map(|(action, address, size)| event(actions[usize::from(*action)], *address, *size, 0));
            let snapshot = Snapshot { device_traces: vec![events.collect()], ..Snapshot::default() };
            tensors(&snapshot);
        }
    }
}
