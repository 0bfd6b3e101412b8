//! A hooked call while it is under way, and the record it leaves.

mod name;
pub(crate) mod probed;

use std::sync::atomic::{AtomicU64, Ordering};

use gpuoom_trace::header::IN_FLIGHT;
use gpuoom_trace::payload;
use gpuoom_trace::record::{Event, Kind, MAX_PAYLOAD_BYTES, NO_DEVICE, PARENT_FAR, Record, flag};

use crate::base::guard;
use crate::base::thread::{self, ThreadState};
use crate::link;
use crate::record::Recorder;
use crate::record::state;
use crate::stack::{self, Entry, sites};

/// What a call is about, read from its arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Described {
    /// Pointer or handle; after a failed allocation whatever the program's variable holds.
    pub(crate) address: u64,
    /// Bytes asked for.
    pub(crate) requested: u64,
    /// Device, where the arguments name one other than the thread's.
    pub(crate) device: Option<u8>,
    /// Sort of memory, where the arguments decide it and not the function.
    pub(crate) kind: Option<Kind>,
    /// Further numbers, and how many of them count.
    pub(crate) numbers: [u64; 2],
    /// How many of `numbers` count.
    pub(crate) number_count: u8,
    /// Ordered on a stream that is being captured: a node of a graph, whose memory is taken when the graph runs.
    pub(crate) is_captured: bool,
}

impl Described {
    /// An address and a size.
    #[inline(always)]
    pub(crate) fn new(address: u64, requested: u64) -> Self {
        Described { address, requested, device: None, kind: None, numbers: [0; 2], number_count: 0, is_captured: false }
    }
}

/// A call under way. Has no destructor: a `longjmp` or an exception may pass over it.
#[derive(Clone, Copy)]
pub(crate) struct Frame {
    recorder: &'static Recorder,
    thread: &'static ThreadState,
    at: u64,
    call: u32,
    parent_distance: u16,
    api: u16,
    outer_enclosing: u32,
    outer_depth: u32,
    from_runtime: bool,
    /// Where the call came from.
    entry: Entry,
}

impl Frame {
    /// Begins a call of function `api`; `None` when it is to be forwarded without a record.
    #[inline(always)]
    pub(crate) fn enter(api: u16) -> Option<Frame> {
        Self::enter_for(api, false)
    }

    /// The same. `passed_on`: the caller only passes the call on, so it is part of the one under way, if there is one.
    #[inline(always)]
    pub(crate) fn enter_for(api: u16, passed_on: bool) -> Option<Frame> {
        let thread = thread::current();
        if thread.is_recorders.get() {
            return None;
        }
        Some(Self::begin(thread, state::recorder()?, api, passed_on))
    }

    /// A call that the runtime makes while it is probed, on the recorder's thread: it is nobody's but the runtime's.
    fn while_probed(recorder: &'static Recorder, api: u16) -> Frame {
        let frame = Self::begin(thread::current(), recorder, api, true);
        Frame { from_runtime: frame.parent_distance == 0, ..frame }
    }

    #[inline(always)]
    fn begin(thread: &'static ThreadState, recorder: &'static Recorder, api: u16, passed_on: bool) -> Frame {
        // A signal handler that comes in between leaves depth and enclosing call as it found them.
        if thread.pid.get() != recorder.pid {
            guard::cold((), || adopt(thread, recorder));
        }
        forget_abandoned_calls(thread);
        let call = thread.call.get().wrapping_add(1);
        // Inside another call only what the runtime itself calls is part of it: a signal handler that interrupted the
        // runtime makes calls of its own.
        let by_runtime = link::is_runtime_code(thread.caller.get());
        let parent_distance = match thread.depth.get() {
            1.. if by_runtime || passed_on => {
                u16::try_from(call.wrapping_sub(thread.enclosing.get())).unwrap_or(PARENT_FAR).max(1)
            }
            _ => 0,
        };
        let from_runtime = by_runtime && parent_distance == 0;
        let frame = Frame {
            recorder,
            thread,
            at: recorder.clock.now(),
            call,
            parent_distance,
            api,
            outer_enclosing: thread.enclosing.get(),
            outer_depth: thread.depth.get(),
            from_runtime,
            entry: Entry { pc: thread.caller.get() as u64, sp: thread.entry_sp.get(), rbp: thread.entry_rbp.get() },
        };
        thread.call.set(call);
        thread.enclosing.set(call);
        thread.depth.set(thread.depth.get() + 1);
        frame
    }

    /// Ends the call: later calls of the thread are no longer inside it.
    #[inline(always)]
    pub(crate) fn leave(&self) {
        self.thread.depth.set(self.outer_depth);
        self.thread.enclosing.set(self.outer_enclosing);
    }

    /// The recorder that this call belongs to.
    pub(crate) fn recorder(&self) -> &'static Recorder {
        self.recorder
    }

    /// Return address of the call.
    pub(crate) fn caller(&self) -> usize {
        self.entry.pc as usize
    }

    /// Stack pointer at its entry.
    pub(crate) fn entry_sp(&self) -> u64 {
        self.entry.sp
    }

    /// Whether a call inside this one was refused for want of memory, as far as such calls are hooked.
    pub(crate) fn was_refused_inside(&self) -> bool {
        self.thread.refused_inside.get().wrapping_sub(self.call) as i32 > 0
    }

    /// This call, inside another one, was refused for want of memory.
    pub(crate) fn is_refused_inside(&self) {
        self.thread.refused_inside.set(self.call);
    }

    /// Row of the function.
    pub(crate) fn api(&self) -> u16 {
        self.api
    }

    /// Ticks when the call began.
    pub(crate) fn began_at(&self) -> u64 {
        self.at
    }

    /// Whether the program itself makes this call.
    #[inline(always)]
    pub(crate) fn is_programs_own(&self) -> bool {
        self.parent_distance == 0 && !self.from_runtime
    }

    /// The device that the thread has chosen.
    #[inline(always)]
    pub(crate) fn thread_device(&self) -> u8 {
        self.thread.device.get()
    }

    /// Notes the outermost allocation in the file's table of calls under way, before the real call.
    #[inline(always)]
    pub(crate) fn note_under_way(&self, requested: u64) {
        if self.parent_distance != 0 {
            return;
        }
        let entry = self.thread.in_flight.get();
        if entry.is_null() {
            return;
        }
        let word = u64::from(self.thread.thread.get()) | u64::from(self.api) << 32 | IN_FLIGHT;
        // SAFETY: the entry belongs to this thread and its mapping stays for good.
        unsafe {
            (&raw mut (*entry).at).write_volatile(self.at);
            (&raw mut (*entry).requested).write_volatile(requested);
            (&raw mut (*entry).device).write_volatile(u64::from(self.thread.device.get()));
            // Release: in the file, the fields above are whole before the mark.
            AtomicU64::from_ptr(&raw mut (*entry).state).store(word, Ordering::Release);
        }
    }

    /// Clears the note again.
    #[inline(always)]
    pub(crate) fn clear_under_way(&self) {
        let entry = self.thread.in_flight.get();
        if self.parent_distance == 0 && !entry.is_null() {
            let word = u64::from(self.thread.thread.get());
            // SAFETY: as in `note_under_way`.
            unsafe { AtomicU64::from_ptr(&raw mut (*entry).state).store(word, Ordering::Release) };
        }
    }

    /// The record of this call. `finished`: the real call has returned, so its duration is known.
    #[inline(always)]
    pub(crate) fn record(&self, event: Event, kind: Kind, status: i32, what: &Described, finished: bool) -> Record {
        let flags = if self.from_runtime { flag::FROM_RUNTIME } else { 0 };
        let duration = match finished {
            true => u32::try_from(self.recorder.clock.now().wrapping_sub(self.at)).unwrap_or(u32::MAX),
            false => 0,
        };
        let kind = what.kind.unwrap_or(kind);
        let device = what.device.unwrap_or(match kind {
            Kind::HostPinned | Kind::Registered | Kind::Reserved => NO_DEVICE,
            _ => self.thread.device.get(),
        });
        Record {
            commit: 0,
            at: self.at,
            duration,
            thread: self.thread.thread.get(),
            api: self.api,
            event: event as u8,
            kind_flags: kind as u8 | flags,
            device,
            slots: 1,
            parent_distance: self.parent_distance,
            status,
            call: self.call,
            padded_granules: self.recorder.granule.count(what.requested),
            // What lies inside another call is explained by that one's site.
            site: match self.parent_distance {
                0 if finished && takes(event, kind) => self.stack_site(status != 0),
                0 => sites::of(self.recorder, self.caller(), self.thread.thread.get()),
                _ => 0,
            },
            address: what.address,
            requested: what.requested,
        }
    }

    /// The record of a block that an allocator tells of: a moment, not a call that takes time. Only of what was asked for is the
    /// way here worth knowing.
    #[inline(always)]
    pub(crate) fn told(&self, event: Event, status: i32, what: &Described) -> Record {
        let mut record = self.record(event, Kind::Tensor, status, what, false);
        if event == Event::Block {
            record.site = self.stack_site(status != 0);
        }
        record
    }

    /// The number of the way to this call.
    #[inline(always)]
    fn stack_site(&self, has_failed: bool) -> u32 {
        if has_failed {
            // A thread may have been renamed since its first call.
            guard::cold((), || name::say(self.thread, self.recorder));
        }
        stack::site(self.recorder, &self.entry, self.thread, has_failed)
    }

    /// Publishes a record of this call.
    #[inline(always)]
    pub(crate) fn publish(&self, record: &Record, what: &Described) -> Option<u64> {
        match what.number_count {
            0 => self.recorder.publish(record),
            count => {
                let mut out = [0; MAX_PAYLOAD_BYTES];
                let numbers = payload::numbers(&what.numbers[..usize::from(count.min(2))], &mut out);
                self.recorder.publish_long(record, numbers)
            }
        }
    }
}

/// Whether a call takes something, so that one asks for the way to it.
#[inline(always)]
fn takes(event: Event, kind: Kind) -> bool {
    match event {
        Event::Alloc | Event::Reserve | Event::Pin | Event::Import | Event::Module => true,
        Event::Map => kind == Kind::Physical,
        _ => false,
    }
}

/// Takes a thread's state over for this process: a new thread, or a forked child.
#[cold]
#[inline(never)]
fn adopt(state: &ThreadState, recorder: &Recorder) {
    state.pid.set(recorder.pid);
    state.thread.set(thread::kernel_thread_id());
    state.call.set(0);
    state.depth.set(0);
    state.open_failures.set(0);
    state.refused_inside.set(0);
    state.context_said.set(thread::NOTHING_SAID);
    state.context_changed.set(true);
    state.scopes_said.set(thread::NOTHING_SAID);
    state.scopes_changed.set(true);
    state.in_flight.set(recorder.place_in_flight(state.thread.get()));
    state.name_said.set([0; thread::NAME_BYTES]);
    name::say(state, recorder);
}

/// A `longjmp` or an exception may have left calls without ending them. They are gone when the stack has shrunk above the
/// outermost one. A signal handler on another stack may look the same; its calls are outermost ones anyway, and the call
/// that it interrupted restores its own depth when it ends.
#[inline(always)]
fn forget_abandoned_calls(state: &ThreadState) {
    let here = 0u8;
    let stack = &raw const here as usize;
    if state.depth.get() == 0 {
        state.outermost_stack.set(stack);
    } else if stack >= state.outermost_stack.get() {
        state.depth.set(0);
        state.outermost_stack.set(stack);
    }
}
