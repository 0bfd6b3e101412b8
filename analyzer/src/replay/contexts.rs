//! CUDA contexts: which one a thread allocates in, and what goes with one that ends.
//!
//! A context takes with it what `cuMemAlloc` and its kin, `cuMemAllocHost`, `cuMemHostRegister` and the array functions gave
//! in it. Physical memory (`cuMemCreate`) and stream-ordered memory (`cuMemAllocAsync`) belong to no context and stay
//! (NVIDIA CUDA driver API, `cuCtxDestroy`; CUDA runtime API, `cudaDeviceReset`).

use gpuoom_trace::record::{Kind, Layer, NO_DEVICE, Record, flag};
use rustc_hash::FxHashMap;

use super::Replay;
use super::apis::{Ends, Family};
use super::block::{Block, Side};
use super::undo::Undo;

/// Contexts that are told apart; what is allocated in later ones is in none that is known.
const MAX_CONTEXTS: usize = 1 << 12;
/// Threads whose context is known at once.
const MAX_THREADS: usize = 1 << 16;
/// Blocks that are looked at to find those of a context that ends. A trace with very many ends over very many blocks
/// follows the first ones only; what the later ones took is counted as unclear.
const LOOKED_AT: u64 = 1 << 26;

/// A context by its number in order of appearance; 0 is none that is known.
pub type Number = u16;

/// Memory that may be gone with a context, which nobody can tell: it counts as live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unclear {
    /// Contexts that ended while there was such memory.
    pub ends: u64,
    /// Most blocks at one such end.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u128,
}

/// The primary context of a device.
#[derive(Clone, Copy, Debug, Default)]
struct Primary {
    number: Number,
    /// How often it was retained and not released.
    references: u64,
    /// Whether the runtime was seen to retain it: if not, it may hold one reference that nobody saw.
    is_runtimes: bool,
}

/// What is known about contexts.
#[derive(Clone, Debug, Default)]
pub(super) struct Contexts {
    numbers: FxHashMap<u64, Number>,
    primaries: FxHashMap<u8, Primary>,
    threads: FxHashMap<u32, Number>,
    looked_at: u64,
    /// What may be gone.
    unclear: Unclear,
}

impl Contexts {
    /// The context that a thread allocates in.
    #[inline]
    fn of_thread(&self, thread: u32) -> Number {
        if self.threads.is_empty() { 0 } else { self.threads.get(&thread).copied().unwrap_or(0) }
    }

    fn number_of(&mut self, handle: u64) -> Number {
        let next = self.numbers.len() + 1;
        if handle == 0 || (next > MAX_CONTEXTS && !self.numbers.contains_key(&handle)) {
            return 0;
        }
        *self.numbers.entry(handle).or_insert(next as Number)
    }

    /// A thread allocates in another context from here on.
    pub(super) fn enters(&mut self, thread: u32, handle: u64) {
        match self.number_of(handle) {
            0 => {
                self.threads.remove(&thread);
            }
            number if self.threads.len() < MAX_THREADS || self.threads.contains_key(&thread) => {
                self.threads.insert(thread, number);
            }
            _ => {}
        }
    }

    /// The primary context of a device was retained.
    pub(super) fn retained(&mut self, record: &Record) {
        if record.status != 0 || record.address == 0 {
            return;
        }
        let number = self.number_of(record.address);
        let primary = self.primaries.entry(record.device).or_default();
        primary.number = number;
        primary.references += 1;
        primary.is_runtimes |= !record.is_programs_own();
    }

    /// One reference less; whether it was the last one.
    fn released(&mut self, device: u8) -> bool {
        let Some(primary) = self.primaries.get_mut(&device).filter(|primary| primary.references > 0) else {
            return false;
        };
        primary.references -= 1;
        primary.references == 0
    }

    /// A release failed.
    fn unreleased(&mut self, device: u8) {
        self.primaries.entry(device).or_default().references += 1;
    }

    fn primary(&self, device: u8) -> Primary {
        self.primaries.get(&device).copied().unwrap_or_default()
    }
}

/// An end of contexts: which blocks it takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// The context, 0 where it was never seen.
    number: Number,
    /// The device of the context.
    device: Option<u8>,
    /// Whether memory of the device in no known context goes, too: a reset is all that such a trace tells.
    takes_unknown: bool,
    /// Whether what the runtime gave may be held by a reference of its own that nobody saw.
    spares_runtime: bool,
}

/// What an end means for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is gone.
    Gone,
    /// It stays.
    Stays,
    /// It may be gone.
    Unclear,
}

impl End {
    /// What becomes of memory of this kind, layer, device and context.
    pub(super) fn fate(&self, kind: Kind, layer: Layer, device: u8, context: Number) -> Fate {
        let bound = matches!(kind, Kind::Device | Kind::Managed | Kind::Array | Kind::HostPinned | Kind::Registered);
        if !bound || layer > Layer::Driver {
            return Fate::Stays;
        }
        if context != 0 {
            return match context == self.number {
                true if self.spares_runtime && layer == Layer::Runtime => Fate::Unclear,
                true => Fate::Gone,
                false => Fate::Stays,
            };
        }
        // Host memory is of no device.
        match Side::of(kind) {
            Side::Device if self.device != Some(device) => Fate::Stays,
            Side::Device if self.takes_unknown => Fate::Gone,
            _ => Fate::Unclear,
        }
    }
}

impl Replay {
    /// A call that ends a context, or may end one.
    #[cold]
    pub(super) fn context_ends(&mut self, record: &Record, ends: Ends) {
        if record.has(flag::CORRECTION) {
            return self.context_stays(record);
        }
        // A reference that is given back must be had again if the call fails; one that was not there must not.
        let gives_back = ends == Ends::Reference && self.contexts.primary(record.device).references > 0;
        let reference = if gives_back { record.device } else { NO_DEVICE };
        let gone = self.end_of(record, ends).map(|end| self.take_of_context(record, &end)).unwrap_or_default();
        for block in &gone {
            self.let_go(block, record);
            if let Some(account) = self.accounts.of_mut(block) {
                account.calls.reset += 1;
            }
        }
        if matches!(ends, Ends::CudaDevice) {
            self.tracks.pools.reset(record.device);
        }
        // The driver's call inside finds nothing more, and must not displace what the runtime's took.
        if !gone.is_empty() || reference != NO_DEVICE {
            self.last_frees.remember(record, Undo::Context(reference, gone));
        }
    }

    /// The call failed: what it took away is still there.
    fn context_stays(&mut self, record: &Record) {
        if record.status == 0 {
            return;
        }
        self.lower.correct(record, self.apis.get(record.api), self.events, &mut self.accounts);
        let Some(Undo::Context(device, blocks)) = self.last_frees.take(record.thread, record.call) else { return };
        if device != NO_DEVICE {
            self.contexts.unreleased(device);
        }
        for block in blocks {
            if let Some(account) = self.accounts.of_mut(&block) {
                account.calls.reset -= 1;
            }
            self.bring_back(Side::of(block.kind), block, record.at);
        }
    }

    /// What a call ends; `None` where it ends nothing.
    fn end_of(&mut self, record: &Record, ends: Ends) -> Option<End> {
        let primary = self.contexts.primary(record.device);
        let device = record.device();
        let of_primary = End { number: primary.number, device, takes_unknown: true, spares_runtime: false };
        match ends {
            Ends::Context => {
                let number = self.contexts.numbers.get(&record.address).copied().unwrap_or(0);
                Some(End { number, device, takes_unknown: false, spares_runtime: false })
            }
            Ends::Reference => {
                let spares_runtime = !primary.is_runtimes;
                let end = End { takes_unknown: false, spares_runtime, ..of_primary };
                self.contexts.released(record.device).then_some(end)
            }
            // With another context current, the runtime forgets only what it knows of that one.
            Ends::CudaDevice => {
                let current = self.contexts.of_thread(record.thread);
                let is_primary = current == 0 || primary.number == 0 || current == primary.number;
                is_primary.then_some(of_primary)
            }
            Ends::Primary => Some(of_primary),
            Ends::Nothing | Ends::HipDevice => None,
        }
    }

    /// Takes what goes with a context out of all books; returns the program's own.
    fn take_of_context(&mut self, record: &Record, end: &End) -> Vec<Block> {
        let live = self.live.count() + self.lower.addressed();
        self.contexts.looked_at = self.contexts.looked_at.saturating_add(live as u64);
        let can_look = self.contexts.looked_at <= LOOKED_AT;
        if can_look {
            self.lower.end(record, self.apis.get(record.api), end, &mut self.accounts);
        }
        let (mut blocks, mut bytes) = (0u64, 0u128);
        let apis = &self.apis;
        let gone = self.live.remove_where(|block| {
            let is_cuda = block.family == Family::Pointers && apis.get(block.api).is_cuda;
            let fate = end.fate(block.kind, block.layer, block.device, block.context);
            match fate {
                Fate::Gone if can_look => return is_cuda,
                Fate::Gone | Fate::Unclear if is_cuda => {
                    blocks += 1;
                    bytes += u128::from(block.requested_bytes);
                }
                _ => {}
            }
            false
        });
        let unclear = &mut self.contexts.unclear;
        unclear.ends += u64::from(blocks > 0);
        unclear.blocks = unclear.blocks.max(blocks);
        unclear.bytes = unclear.bytes.max(bytes);
        gone
    }

    /// The context that a block belongs to. The runtime may go back to another context before its own call returns, so
    /// that what the driver was asked for inside of it counts.
    #[inline]
    pub(super) fn context_of(&self, record: &Record, layer: Option<Layer>) -> Number {
        if self.contexts.threads.is_empty() {
            return 0;
        }
        let inside = (layer == Some(Layer::Runtime)).then(|| self.lower.context_at(record.kind(), record.address));
        inside.flatten().unwrap_or_else(|| self.contexts.of_thread(record.thread))
    }

    /// Memory that may be gone with a context that ended, as far as anybody can tell from the trace.
    pub fn unclear_contexts(&self) -> Unclear {
        self.contexts.unclear
    }
}

#[cfg(test)]
mod tests {
    use gpuoom_trace::record::{Event, Kind, NO_DEVICE, Record, flag};

    use super::*;
    use crate::replay::{Options, Replay};
    use crate::testing::{GIB, MIB, TraceBuilder, at, replay};

    const THREADS: [u32; 2] = [1, 2];

    /// A program on one card, whose threads work in one context each.
    struct Program(TraceBuilder);

    impl Program {
        fn new() -> Self {
            Program(TraceBuilder::default().device(0, "card", 16 * GIB))
        }

        fn enter(&mut self, thread: u32, context: u64) {
            let record = Record { thread, address: context, device: 0, ..Record::new(Event::Context, Kind::None) };
            self.0.push(record, &[]);
        }

        fn alloc(&mut self, thread: u32, kind: Kind, api: &str, address: u64) {
            let record = self.0.record_on(thread, Event::Alloc, kind, api);
            let device = if kind == Kind::HostPinned { NO_DEVICE } else { 0 };
            self.0.push(Record { address, requested: MIB, device, ..record }, &[]);
        }

        fn retain(&mut self, context: u64, flags: u8) {
            let record = self.0.record(Event::Module, Kind::None, "cuDevicePrimaryCtxRetain");
            self.0.push(Record { address: context, kind_flags: flags, ..record }, &[]);
        }

        fn end(&mut self, api: &str, context: u64) {
            let record = self.0.record(Event::Device, Kind::None, api);
            self.0.push(Record { address: context, duration: 0, ..record }, &[]);
        }

        /// Addresses that live, in order.
        fn live(&self) -> Vec<u64> {
            let replay = self.replay();
            let mut live: Vec<u64> = replay.live.blocks().map(|block| block.address).collect();
            live.sort_unstable();
            live
        }

        fn replay(&self) -> Replay {
            replay(&self.0, Options::default())
        }
    }

    /// Two contexts of one device, a thread in each.
    fn two_contexts() -> Program {
        let mut program = Program::new();
        for (thread, context) in THREADS.into_iter().zip([0xA0, 0xB0]) {
            program.enter(thread, context);
            let base = u64::from(thread) * 0x1000;
            program.alloc(thread, Kind::Device, "cuMemAlloc_v2", base);
            program.alloc(thread, Kind::HostPinned, "cuMemHostAlloc", base + 1);
            program.alloc(thread, Kind::Pool, "cuMemAllocAsync", base + 2);
        }
        program
    }

    #[test]
    fn with_a_context_goes_what_was_allocated_in_it_but_pools() {
        let mut program = two_contexts();
        program.end("cuCtxDestroy_v2", 0xA0);
        assert_eq!(program.live(), [0x1002, 0x2000, 0x2001, 0x2002]);
        let replay = program.replay();
        assert_eq!((replay.unclear_contexts(), replay.unmatched_frees), (Unclear::default(), 0));
        assert_eq!((replay.accounts.device(0).unwrap().calls.reset, replay.accounts.host.calls.reset), (1, 1));
        program.end("cuCtxDestroy_v2", 0xC0);
        assert_eq!(program.live().len(), 4, "a context that nobody works in holds nothing");
    }

    #[test]
    fn an_end_that_fails_takes_nothing() {
        let mut program = two_contexts();
        program.end("cuCtxDestroy_v2", 0xA0);
        program.0.last_call_failed(201);
        assert_eq!(program.live().len(), 6);
        let replay = program.replay();
        assert_eq!((replay.accounts.device(0).unwrap().calls.reset, replay.accounts.host.calls.reset), (0, 0));
        assert_eq!(replay.accounts.device(0).unwrap().held.requested_bytes, 4 * u128::from(MIB));
    }

    #[test]
    fn the_last_release_ends_a_primary_context() {
        let mut program = two_contexts();
        program.retain(0xA0, 0);
        program.retain(0xA0, 0);
        program.end("cuDevicePrimaryCtxRelease_v2", 0);
        assert_eq!(program.live().len(), 6);
        let mut failed = Program(program.0.clone());
        failed.end("cuDevicePrimaryCtxRelease_v2", 0);
        failed.0.last_call_failed(201);
        assert_eq!(failed.live().len(), 6);
        program.end("cuDevicePrimaryCtxRelease_v2", 0);
        assert_eq!(program.live(), [0x1002, 0x2000, 0x2001, 0x2002]);
    }

    #[test]
    fn a_release_without_a_reference_leaves_none_behind() {
        let mut program = two_contexts();
        program.end("cuDevicePrimaryCtxRelease_v2", 0);
        program.0.last_call_failed(201);
        program.retain(0xA0, 0);
        program.end("cuDevicePrimaryCtxRelease_v2", 0);
        assert_eq!(program.live(), [0x1002, 0x2000, 0x2001, 0x2002]);
    }

    #[test]
    fn the_runtime_may_hold_a_reference_that_nobody_saw() {
        let program = |flags| {
            let mut program = two_contexts();
            program.alloc(1, Kind::Device, "cudaMalloc", 0x1003);
            program.retain(0xA0, flags);
            program.end("cuDevicePrimaryCtxRelease_v2", 0);
            program
        };
        let unseen = program(0);
        assert!(unseen.live().contains(&0x1003));
        assert_eq!(unseen.replay().unclear_contexts(), Unclear { ends: 1, blocks: 1, bytes: MIB.into() });
        assert!(!program(flag::FROM_RUNTIME).live().contains(&0x1003));
    }

    #[test]
    fn what_is_in_no_known_context_goes_with_a_reset_only() {
        let mut program = Program::new();
        program.alloc(1, Kind::Device, "cuMemAlloc_v2", 0x1000);
        program.alloc(1, Kind::HostPinned, "cuMemHostAlloc", 0x1001);
        program.end("cuCtxDestroy_v2", 0xA0);
        assert_eq!(program.live(), [0x1000, 0x1001]);
        let unclear = Unclear { ends: 1, blocks: 2, bytes: 2 * u128::from(MIB) };
        assert_eq!(program.replay().unclear_contexts(), unclear);
        program.end("cudaDeviceReset", 0);
        assert_eq!(program.live(), [0x1001]);
    }

    #[test]
    fn the_runtime_resets_its_own_context_only() {
        let mut program = two_contexts();
        program.retain(0xA0, flag::FROM_RUNTIME);
        let reset = |program: &mut Program, thread| {
            let record = program.0.record_on(thread, Event::Device, Kind::None, "cudaDeviceReset");
            program.0.push(record, &[]);
        };
        reset(&mut program, 2);
        assert_eq!(program.live().len(), 6);
        reset(&mut program, 1);
        assert_eq!(program.live(), [0x1002, 0x2000, 0x2001, 0x2002]);
    }

    #[test]
    fn what_the_driver_gave_inside_decides() {
        let mut program = Program::new();
        // The driver's call is made in one context, and the runtime's returns in another.
        program.enter(crate::testing::THREAD, 0xA0);
        program.0.alloc_through(0, &[at("cudaMalloc", 0x1000, MIB), at("cuMemAlloc_v2", 0x1000, MIB)]);
        program.end("cuCtxDestroy_v2", 0xA0);
        let replay = program.replay();
        assert_eq!((replay.live.count(), replay.lower.blocks(Side::Device, 0).count()), (0, 0));
        program.0.last_call_failed(201);
        let replay = program.replay();
        assert_eq!((replay.live.count(), replay.lower.blocks(Side::Device, 0).count()), (1, 1));
    }
}
