//! From plain values to a snapshot. What a version does not write is left at its default; what is of the wrong kind is an
//! error, because then the file is not a snapshot.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use thiserror::Error;

use super::pickle::{self, Arena, PickleError, Value};
use super::{Action, Annotation, Block, Event, Frame, Segment, Snapshot, StackId, State};

/// Why a file is no snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SnapshotError {
    /// It is no pickle of plain data.
    #[error("{0}")]
    Pickle(#[from] PickleError),
    /// It holds something else.
    #[error("{0}")]
    NoSnapshot(String),
}

/// Reads a snapshot from the bytes of a file.
pub fn read(bytes: &[u8]) -> Result<Snapshot, SnapshotError> {
    let (arena, top) = pickle::read(bytes)?;
    let mut reader = Reader { arena, frames: Vec::new(), stacks: vec![Vec::new()], names: Names::default() };
    // The first snapshots were lists of segments.
    let (segments, whole) = match top {
        Value::List(_) => (Some(top), None),
        _ => (reader.arena.get(top, "segments"), Some(top)),
    };
    let segments =
        segments.ok_or_else(|| wrong("the pickle has no \"segments\": it is no memory snapshot of PyTorch"))?;
    let mut snapshot = Snapshot::default();
    for segment in reader.items(segments, "segments")? {
        snapshot.segments.push(reader.segment(segment)?);
    }
    snapshot.segments.sort_by_key(|segment| (segment.device, segment.address));
    if let Some(whole) = whole {
        snapshot.host_segments = reader.host_segments(whole)?;
        snapshot.device_traces = reader.traces(whole)?;
        snapshot.allocator_settings = reader.settings(whole);
        snapshot.annotations = reader.annotations(whole);
    }
    (snapshot.frames, snapshot.stacks) = (reader.frames, reader.stacks);
    Ok(snapshot)
}

fn wrong(text: &str) -> SnapshotError {
    SnapshotError::NoSnapshot(text.to_owned())
}

/// What was already made of values that the file shares.
#[derive(Default)]
struct Names {
    texts: FxHashMap<(u32, u32), Arc<str>>,
    frames: FxHashMap<u32, u32>,
    stacks: FxHashMap<u32, StackId>,
}

struct Reader<'a> {
    arena: Arena<'a>,
    frames: Vec<Frame>,
    stacks: Vec<Vec<u32>>,
    names: Names,
}

impl Reader<'_> {
    fn items(&self, value: Value, what: &str) -> Result<Vec<Value>, SnapshotError> {
        let items = self.arena.list(value).map(<[Value]>::to_vec);
        items.ok_or_else(|| SnapshotError::NoSnapshot(format!("\"{what}\" is no list: this is no memory snapshot")))
    }

    /// An integer that can't be negative. Addresses that PyTorch's C++ wrote with a sign get their bits back.
    fn number(&self, dict: Value, key: &str) -> Result<Option<u64>, SnapshotError> {
        match self.arena.get(dict, key) {
            None | Some(Value::Nothing) => Ok(None),
            Some(value) => integer(value).map(Some).ok_or_else(|| {
                SnapshotError::NoSnapshot(format!("\"{key}\" is no number: this is no memory snapshot"))
            }),
        }
    }

    fn needed(&self, dict: Value, key: &str, of: &str) -> Result<u64, SnapshotError> {
        let number = self.number(dict, key)?;
        number.ok_or_else(|| {
            SnapshotError::NoSnapshot(format!("{of} has no \"{key}\": this is no memory snapshot of PyTorch"))
        })
    }

    fn text(&self, dict: Value, key: &str) -> &str {
        self.arena.get(dict, key).and_then(|value| self.arena.text(value)).unwrap_or_default()
    }

    fn segment(&mut self, dict: Value) -> Result<Segment, SnapshotError> {
        let address = self.needed(dict, "address", "a segment")?;
        let mut segment = Segment {
            device: self.number(dict, "device")?.unwrap_or(0) as u32,
            address,
            total_bytes: self.needed(dict, "total_size", "a segment")?,
            allocated_bytes: self.number(dict, "allocated_size")?.unwrap_or(0),
            active_bytes: self.number(dict, "active_size")?.unwrap_or(0),
            requested_bytes: self.number(dict, "requested_size")?,
            stream: self.number(dict, "stream")?.unwrap_or(0),
            small: self.text(dict, "segment_type") == "small",
            expandable: self.arena.get(dict, "is_expandable") == Some(Value::Bool(true)),
            pool: self.pool(dict, "segment_pool_id"),
            blocks: Vec::new(),
            stack: self.stack(dict),
        };
        let mut next = address;
        if let Some(blocks) = self.arena.get(dict, "blocks") {
            for block in self.items(blocks, "blocks")? {
                segment.blocks.push(self.block(block, &mut next)?);
            }
        }
        Ok(segment)
    }

    fn block(&mut self, dict: Value, next: &mut u64) -> Result<Block, SnapshotError> {
        let size_bytes = self.needed(dict, "size", "a block")?;
        // Older snapshots list them without addresses, in order.
        let address = self.number(dict, "address")?.unwrap_or(*next);
        *next = address.saturating_add(size_bytes);
        let state = match self.text(dict, "state") {
            "active_allocated" => State::ActiveAllocated,
            "active_pending_free" | "active_awaiting_free" => State::ActivePendingFree,
            "inactive" => State::Inactive,
            _ => State::Unknown,
        };
        let requested_bytes = self.number(dict, "requested_size")?;
        Ok(Block { address, size_bytes, requested_bytes, state, stack: self.stack(dict) })
    }

    fn pool(&self, dict: Value, key: &str) -> (u64, u64) {
        let ids = self.arena.get(dict, key).and_then(|value| self.arena.list(value));
        match ids {
            Some([one, other]) => (integer(*one).unwrap_or(0), integer(*other).unwrap_or(0)),
            _ => (0, 0),
        }
    }

    /// Blocks of pinned memory: each is a segment of its own. From PyTorch 2.15 on, where they were asked for.
    fn host_segments(&mut self, whole: Value) -> Result<Vec<Segment>, SnapshotError> {
        let Some(segments) = self.arena.get(whole, "host_segments") else { return Ok(Vec::new()) };
        self.items(segments, "host_segments")?.into_iter().map(|segment| self.segment(segment)).collect()
    }

    fn traces(&mut self, whole: Value) -> Result<Vec<Vec<Event>>, SnapshotError> {
        let Some(traces) = self.arena.get(whole, "device_traces") else { return Ok(Vec::new()) };
        let mut all = Vec::new();
        for trace in self.items(traces, "device_traces")? {
            let mut events = Vec::new();
            for event in self.items(trace, "device_traces")? {
                events.push(self.event(event)?);
            }
            all.push(events);
        }
        Ok(all)
    }

    fn event(&mut self, dict: Value) -> Result<Event, SnapshotError> {
        let action = match self.text(dict, "action") {
            "alloc" => Action::Alloc,
            "free_requested" => Action::FreeRequested,
            "free_completed" => Action::FreeCompleted,
            "segment_alloc" => Action::SegmentAlloc,
            "segment_free" => Action::SegmentFree,
            "segment_map" => Action::SegmentMap,
            "segment_unmap" => Action::SegmentUnmap,
            "snapshot" => Action::Snapshot,
            "oom" => Action::Oom,
            _ => Action::Unknown,
        };
        let key = if action == Action::Oom { "device_free" } else { "addr" };
        Ok(Event {
            action,
            address_or_free_bytes: self.number(dict, key)?.unwrap_or(0),
            size_bytes: self.number(dict, "size")?.unwrap_or(0),
            stream: self.number(dict, "stream")?.unwrap_or(0),
            time_us: self.number(dict, "time_us")?.unwrap_or(0),
            pool: self.pool(dict, "pool_id"),
            stack: self.stack(dict),
        })
    }

    fn stack(&mut self, dict: Value) -> StackId {
        let Some(list @ Value::List(number)) = self.arena.get(dict, "frames") else { return 0 };
        if let Some(known) = self.names.stacks.get(&number) {
            return *known;
        }
        let frames = self.arena.list(list).map(<[Value]>::to_vec).unwrap_or_default();
        let stack: Vec<u32> = frames.into_iter().filter_map(|frame| self.frame(frame)).collect();
        let id = if stack.is_empty() { 0 } else { self.stacks.len() as StackId };
        if id != 0 {
            self.stacks.push(stack);
        }
        self.names.stacks.insert(number, id);
        id
    }

    fn frame(&mut self, dict: Value) -> Option<u32> {
        let Value::Dict(number) = dict else { return None };
        if let Some(known) = self.names.frames.get(&number) {
            return Some(*known);
        }
        let (name, file) = (self.shared(dict, "name"), self.shared(dict, "filename"));
        let line = self.number(dict, "line").ok().flatten().unwrap_or(0);
        let id = self.frames.len() as u32;
        self.frames.push(Frame { name, file, line });
        self.names.frames.insert(number, id);
        Some(id)
    }

    fn shared(&mut self, dict: Value, key: &str) -> Arc<str> {
        let Some(value @ Value::Text(at, length)) = self.arena.get(dict, key) else { return Arc::default() };
        let text = self.arena.text(value).unwrap_or_default();
        self.names.texts.entry((at, length)).or_insert_with(|| Arc::from(text)).clone()
    }

    fn settings(&self, whole: Value) -> Vec<(String, String)> {
        let Some(settings) = self.arena.get(whole, "allocator_settings") else { return Vec::new() };
        let pairs = self.arena.pairs(settings).into_iter().flatten();
        let named = pairs.filter_map(|(name, value)| Some((self.arena.text(name)?.to_owned(), self.word(value)?)));
        named.collect()
    }

    /// A plain value as Python prints it; none for containers.
    fn word(&self, value: Value) -> Option<String> {
        match value {
            Value::Bool(value) => Some(if value { "True" } else { "False" }.to_owned()),
            Value::Int(value) => Some(value.to_string()),
            Value::Unsigned(value) => Some(value.to_string()),
            Value::Float(value) => Some(value.to_string()),
            Value::Text(..) => self.arena.text(value).map(str::to_owned),
            _ => None,
        }
    }

    fn annotations(&self, whole: Value) -> Vec<Annotation> {
        let list = self.arena.get(whole, "external_annotations");
        let items = list.and_then(|list| self.arena.list(list)).unwrap_or_default();
        let number = |dict, key| self.number(dict, key).ok().flatten().unwrap_or(0);
        let annotations = items.iter().filter(|item| matches!(item, Value::Dict(_)));
        annotations
            .map(|dict| Annotation {
                device: number(*dict, "device") as u32,
                time_us: number(*dict, "time_us"),
                stage: self.text(*dict, "stage").to_owned(),
                name: self.text(*dict, "name").to_owned(),
            })
            .collect()
    }
}

fn integer(value: Value) -> Option<u64> {
    match value {
        Value::Int(value) => Some(value as u64),
        Value::Unsigned(value) => Some(value),
        Value::Bool(value) => Some(u64::from(value)),
        _ => None,
    }
}
