//! The hooks on OpenCL. What they are, [`crate::table::opencl`] says.
//!
//! A call of OpenCL's leaves no record of its own, but where memory was refused inside it (what it then answered to the program), and
//! where it says itself that there was none. The call is no enclosing one of what it asks the layers below for: that is the program's.

use gpuoom_trace::outcome::UNKNOWN_BYTES;
use gpuoom_trace::record::{Event, Kind, NO_DEVICE, Record};

use super::describe::Pointer;
use super::macros::entries;
use crate::base::guard;
use crate::base::thread::{self, ThreadState};
use crate::call::{Described, Frame};
use crate::record::state;
use crate::table::opencl::{Number, functions};
use crate::{table, watch};

functions!(entries);

/// Where a call writes its status, null: nowhere.
type Error = *const i32;

/// The status of a call that has answered null and told nobody why; no code of OpenCL's, which are 0 or less.
const NO_STATUS: i32 = 1;

/// How a call tells its status, and the memory that it works on, if it does.
pub(super) struct Told {
    by: By,
    work: Option<Work>,
}

/// Work on the device, and the handles or addresses of the memory that it is known to be about.
#[derive(Clone, Copy)]
struct Work {
    memory: [u64; 2],
    known: usize,
}

enum By {
    /// It returns it.
    Return,
    /// It returns a handle, and writes the status there.
    Error(Error),
}

fn answers() -> Told {
    Told { by: By::Return, work: None }
}

fn makes(error: Error) -> Told {
    Told { by: By::Error(error), work: None }
}

/// Memory or null, without a status.
fn gives() -> Told {
    makes(std::ptr::null())
}

fn maps(memory: u64, error: Error) -> Told {
    Told { by: By::Error(error), work: Some(Work { memory: [memory, memory], known: 2 }) }
}

fn works_on(one: u64, other: u64) -> Told {
    Told { by: By::Return, work: Some(Work { memory: [one, other], known: 2 }) }
}

/// Work on memory that its arguments do not name.
fn works() -> Told {
    Told { by: By::Return, work: Some(Work { memory: [0, 0], known: 0 }) }
}

impl Told {
    /// What the call said, once it has returned.
    fn status(&self, returned: u64) -> i32 {
        match self.by {
            By::Return => returned as i32,
            By::Error(error) if error.is_null() => {
                if returned == 0 {
                    NO_STATUS
                } else {
                    0
                }
            }
            // SAFETY: the call that has just returned wrote its status there.
            By::Error(error) => unsafe { error.read_unaligned() },
        }
    }

    /// Whether it is a handle that the program gets.
    fn is_handle(&self) -> bool {
        matches!(self.by, By::Error(_))
    }
}

/// How things were when a call began.
struct Began {
    /// Ticks, where something was recorded by then.
    at: Option<u64>,
    monotonic_ns: u64,
    /// Requests of this thread that were refused so far.
    refusals: u32,
    /// Where the call came from: the hooks that it passes note their own there.
    entry: [u64; 3],
}

impl Began {
    fn now(state: &ThreadState) -> Self {
        Began {
            at: state::running().map(|recorder| recorder.clock.now()),
            monotonic_ns: watch::monotonic_ns(),
            refusals: state.refusals.get(),
            entry: [state.caller.get() as u64, state.entry_sp.get(), state.entry_rbp.get()],
        }
    }

    fn restore_entry(&self, state: &ThreadState) {
        let [caller, sp, rbp] = self.entry;
        state.caller.set(caller as usize);
        state.entry_sp.set(sp);
        state.entry_rbp.set(rbp);
    }
}

/// A call of OpenCL's.
pub(super) fn answering(api: u16, told: &Told, real: impl Fn() -> u64) -> u64 {
    let state = thread::current();
    if state.is_recorders.get() {
        return real();
    }
    let began = Began::now(state);
    if let Some(work) = told.work.filter(|_| watch::is_awake()) {
        guard::cold((), || note_work(api, work));
        began.restore_entry(state);
    }
    let returned = real();
    let status = told.status(returned);
    let refused_inside = state.refusals.get() != began.refusals;
    let says_so = table::row(api).is_out_of_memory(status);
    let makes_up = status == 0 && told.is_handle() && watch::is_awake();
    if refused_inside || says_so || makes_up {
        began.restore_entry(state);
        guard::cold((), || match refused_inside {
            true => note_answer(api, status, &began, told.is_handle()),
            false => note_by_itself(api, status),
        });
    }
    returned
}

/// The thread has an undecided failure and goes on with work.
fn note_work(api: u16, work: Work) {
    let Some(frame) = Frame::enter(api) else { return };
    watch::works_on(&frame, &work.memory[..work.known]);
    frame.leave();
}

/// Memory was refused inside the call: what it answers is what the program gets to know of that.
fn note_answer(api: u16, status: i32, began: &Began, is_handle: bool) {
    let Some(frame) = Frame::enter(api) else { return };
    if frame.is_programs_own() {
        let what = nowhere();
        let record = frame.record(Event::Answer, Kind::None, status, &what, false);
        let at = began.at.unwrap_or(record.at);
        let duration = u32::try_from(record.at.wrapping_sub(at)).unwrap_or(u32::MAX);
        frame.publish(&Record { at, duration, ..record }, &what);
        watch::answered(began.monotonic_ns, status != 0, is_handle);
    }
    frame.leave();
}

/// No recorded call was refused inside it: OpenCL itself says that there was no memory, or gave what it had not before.
fn note_by_itself(api: u16, status: i32) {
    let Some(frame) = Frame::enter(api) else { return };
    if frame.is_programs_own() {
        let what = nowhere();
        let record = frame.record(Event::Module, Kind::None, status, &what, true);
        let seq = frame.publish(&record, &what);
        // How much it takes is not known here.
        let record = Record { requested: UNKNOWN_BYTES, ..record };
        match status {
            0 => watch::allocated(&frame, &record, 0, watch::is_awake()),
            _ => watch::failed(&frame, &record, seq, 0),
        }
    }
    frame.leave();
}

/// Which card it is, only the layers below know.
fn nowhere() -> Described {
    Described { device: Some(NO_DEVICE), ..Described::new(0, 0) }
}
