//! What a program does, as a value: written out as a script for the player, and gone through to know what it holds when.

use std::collections::BTreeMap;
use std::fmt::Write;

/// Devices give memory in multiples of this.
pub(crate) const GRANULE: u64 = 2 << 20;

/// What kind of memory is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Device,
    Async,
    Host,
    Managed,
    Virtual,
    Register,
}

impl Kind {
    fn command(self) -> &'static str {
        match self {
            Kind::Device => "alloc",
            Kind::Async => "async",
            Kind::Host => "host",
            Kind::Managed => "managed",
            Kind::Virtual => "virtual",
            Kind::Register => "register",
        }
    }

    /// Whether it takes memory of the card.
    fn is_on_card(self) -> bool {
        !matches!(self, Kind::Host | Kind::Register)
    }
}

/// What the program is doing, as its author would say it. The player knows nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Makes what it needs from the beginning to the end.
    Setup,
    /// Uploads weights.
    Load,
    /// Makes a cache for a context.
    KvCache,
    /// The first pass through a model.
    FirstForward,
    /// The way back, for the first time.
    FirstBackward,
    /// The optimizer's state.
    Optimizer,
    /// A step, request, frame or file, one of many.
    Work,
}

/// One thing that a program does.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Alloc {
        name: String,
        kind: Kind,
        bytes: u64,
    },
    Free(String),
    Copy(String),
    Fetch(String),
    Use(String),
    Launch,
    Sync,
    Sleep(u64),
    Mark(String),
    Device(usize),
    /// Below a function of its own.
    At(&'static str, Vec<Op>),
    /// On a thread that stays.
    Worker(String, Vec<Op>),
    /// At the same time as what follows, up to `Join`.
    Start(String, Vec<Op>),
    Join,
    /// The same again and again.
    Loop(u64, Vec<Op>),
    /// What the author calls it.
    Part(Part),
    /// Another process, and up to its next `park`.
    Process(String, Vec<Op>),
    Resume(String),
    /// A command that holds no memory of the card.
    Raw(String),
}

/// An allocation.
pub(crate) fn alloc(name: impl Into<String>, kind: Kind, bytes: u64) -> Op {
    Op::Alloc { name: name.into(), kind, bytes }
}

/// The end of one.
pub(crate) fn free(name: impl Into<String>) -> Op {
    Op::Free(name.into())
}

/// Another process stops here until it is resumed.
pub(crate) const PARK: &str = "park";

/// A command as the player has it.
pub(crate) fn raw(command: impl Into<String>) -> Op {
    Op::Raw(command.into())
}

/// A size as the player reads it, with the largest unit that has no rest.
fn size(bytes: u64) -> String {
    let units = [("G", 30), ("M", 20), ("K", 10)];
    let unit = units.iter().find(|(_, shift)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    unit.map_or_else(|| bytes.to_string(), |(name, shift)| format!("{}{name}", bytes >> shift))
}

/// The script for the player.
pub(crate) fn write(ops: &[Op]) -> String {
    let mut text = String::new();
    write_at(ops, 0, &mut text);
    text
}

fn write_at(ops: &[Op], depth: usize, text: &mut String) {
    let line = |text: &mut String, command: &str| {
        let _ = writeln!(text, "{:indent$}{command}", "", indent = depth * 2);
    };
    for op in ops {
        match block(op) {
            Some((head, body)) => {
                line(text, &head);
                write_at(body, depth + 1, text);
                line(text, "end");
            }
            None => simple(op).iter().for_each(|command| line(text, command)),
        }
    }
}

fn block(op: &Op) -> Option<(String, &[Op])> {
    Some(match op {
        Op::At(name, body) => (format!("at {name}"), body),
        Op::Worker(name, body) => (format!("worker {name}"), body),
        Op::Start(name, body) => (format!("start {name}"), body),
        Op::Process(name, body) => (format!("process {name}"), body),
        Op::Loop(times, body) => (format!("loop {times}"), body),
        _ => return None,
    })
}

/// A command; none for what only the author knows.
fn simple(op: &Op) -> Option<String> {
    Some(match op {
        Op::Alloc { name, kind, bytes } => format!("{} {name} {}", kind.command(), size(*bytes)),
        Op::Free(name) => format!("free {name}"),
        Op::Copy(name) => format!("copy {name}"),
        Op::Fetch(name) => format!("fetch {name}"),
        Op::Use(name) => format!("use {name}"),
        Op::Launch => "launch".to_owned(),
        Op::Sync => "sync".to_owned(),
        Op::Sleep(ms) => format!("sleep {ms}"),
        Op::Mark(label) => format!("mark {label}"),
        Op::Device(number) => format!("device {number}"),
        Op::Join => "join".to_owned(),
        Op::Resume(name) => format!("resume {name}"),
        Op::Raw(command) => command.clone(),
        _ => return None,
    })
}

/// Changes every operation, also those in blocks.
pub(crate) fn each(ops: &mut [Op], change: &mut impl FnMut(&mut Op)) {
    for op in ops {
        change(op);
        if let Op::At(_, body) | Op::Worker(_, body) | Op::Start(_, body) | Op::Process(_, body) | Op::Loop(_, body) =
            op
        {
            each(body, change);
        }
    }
}

/// The innermost block of a step: where its own work is done.
pub(crate) fn innermost(ops: &mut Vec<Op>) -> &mut Vec<Op> {
    let Some(place) = ops.iter().position(|op| block(op).is_some() && !matches!(op, Op::Process(..))) else {
        return ops;
    };
    match &mut ops[place] {
        Op::At(_, body) | Op::Worker(_, body) | Op::Start(_, body) | Op::Loop(_, body) => innermost(body),
        _ => unreachable!("it is a block"),
    }
}

/// The first request that a card can't give.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    /// What the program was doing.
    pub(crate) part: Part,
    pub(crate) bytes: u64,
    /// What the program held of that device.
    pub(crate) held: u64,
    /// The largest request on that device before it.
    pub(crate) largest_before: u64,
}

/// What a program holds, gone through in the order of its script. Threads that run at the same time count one after the
/// other, but what they all have at the worst is known: none of them gives anything back before the others have begun.
#[derive(Clone)]
pub(crate) struct Model {
    live: BTreeMap<String, (usize, Kind, u64)>,
    held: Vec<u64>,
    pub(crate) peak: Vec<u64>,
    largest: Vec<u64>,
    pub(crate) pinned_peak: u64,
    pinned: u64,
    device: usize,
    devices_of_workers: BTreeMap<String, usize>,
    part: Part,
    /// What each card can give to all processes; none: all of it.
    limit: Option<u64>,
    /// What is left of the scripts of other processes, and what they hold.
    others: BTreeMap<String, Vec<Op>>,
    held_by_others: Vec<u64>,
    pub(crate) refusal: Option<Refusal>,
}

impl Model {
    /// Goes through a program on cards that give so much.
    pub(crate) fn of(ops: &[Op], limit: Option<u64>) -> Self {
        let mut model = Model {
            live: BTreeMap::new(),
            held: vec![0; 16],
            peak: vec![0; 16],
            largest: vec![0; 16],
            pinned_peak: 0,
            pinned: 0,
            device: 0,
            devices_of_workers: BTreeMap::new(),
            part: Part::Setup,
            limit,
            others: BTreeMap::new(),
            held_by_others: vec![0; 16],
            refusal: None,
        };
        model.play(ops);
        model
    }

    /// What is held of a device now: after all of it, or at the refusal.
    pub(crate) fn held(&self, device: usize) -> u64 {
        self.held[device]
    }

    /// What other processes hold of it.
    pub(crate) fn held_by_others(&self, device: usize) -> u64 {
        self.held_by_others[device]
    }

    /// The most that is held of any device.
    pub(crate) fn highest_peak(&self) -> u64 {
        self.peak.iter().copied().max().unwrap_or(0)
    }

    fn play(&mut self, ops: &[Op]) {
        for op in ops {
            if self.refusal.is_some() {
                return;
            }
            match op {
                Op::Alloc { name, kind, bytes } => self.take(name, *kind, *bytes),
                Op::Free(name) => self.give(name),
                Op::Device(number) => self.device = *number,
                Op::At(_, body) => self.play(body),
                Op::Worker(name, body) => {
                    let own = self.devices_of_workers.get(name).copied().unwrap_or(0);
                    let mine = std::mem::replace(&mut self.device, own);
                    self.play(body);
                    self.devices_of_workers.insert(name.clone(), self.device);
                    self.device = mine;
                }
                Op::Start(_, body) => {
                    let mine = std::mem::replace(&mut self.device, 0);
                    self.play(body);
                    self.device = mine;
                }
                Op::Process(name, body) => {
                    self.others.insert(name.clone(), body.clone());
                    self.resume(name);
                }
                Op::Resume(name) => self.resume(name),
                Op::Loop(times, body) => (0..*times).for_each(|_| self.play(body)),
                Op::Part(part) => self.part = *part,
                _ => {}
            }
        }
    }

    /// Another process takes memory until it parks.
    fn resume(&mut self, name: &str) {
        let mut rest = self.others.remove(name).unwrap_or_default().into_iter();
        let mut device = 0;
        for op in rest.by_ref() {
            match op {
                Op::Alloc { bytes, .. } => self.held_by_others[device] += bytes.next_multiple_of(GRANULE),
                Op::Device(number) => device = number,
                Op::Raw(command) if command == PARK => break,
                _ => {}
            }
        }
        self.others.insert(name.to_owned(), rest.collect());
    }

    fn take(&mut self, name: &str, kind: Kind, bytes: u64) {
        if !kind.is_on_card() {
            self.pinned += bytes;
            self.pinned_peak = self.pinned_peak.max(self.pinned);
            self.live.insert(name.to_owned(), (self.device, kind, bytes));
            return;
        }
        let (device, held) = (self.device, bytes.next_multiple_of(GRANULE));
        if self.limit.is_some_and(|limit| self.held[device] + self.held_by_others[device] + held > limit) {
            self.refusal =
                Some(Refusal { part: self.part, bytes, held: self.held[device], largest_before: self.largest[device] });
            return;
        }
        self.held[device] += held;
        self.peak[device] = self.peak[device].max(self.held[device]);
        self.largest[device] = self.largest[device].max(bytes);
        self.live.insert(name.to_owned(), (device, kind, bytes));
    }

    fn give(&mut self, name: &str) {
        // A part of a script may free what another part made.
        let Some((device, kind, bytes)) = self.live.remove(name) else { return };
        match kind.is_on_card() {
            true => self.held[device] -= bytes.next_multiple_of(GRANULE),
            false => self.pinned -= bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_written_and_gone_through() {
        let step = vec![alloc("b", Kind::Device, 3 << 20), Op::Launch, free("b")];
        let ops = [alloc("a", Kind::Device, 1 << 30), Op::Loop(2, vec![Op::At("step", step)])];
        assert_eq!(write(&ops), "alloc a 1G\nloop 2\n  at step\n    alloc b 3M\n    launch\n    free b\n  end\nend\n");
        let model = Model::of(&ops, None);
        assert_eq!((model.held(0), model.highest_peak()), (1 << 30, (1 << 30) + (4 << 20)));
        let refused = Model::of(&ops, Some((1 << 30) + (3 << 20))).refusal.expect("a card that is too small");
        assert_eq!((refused.bytes, refused.held), (3 << 20, 1 << 30));
    }
}
