//! A look at the last error while the thread has an undecided failure. What a runtime answers decides whether the program was told: HIP before
//! 7 answers with the status of the thread's last call, so a success in between hides the failure.

use gpuoom_trace::outcome::Step;
use gpuoom_trace::record::{Event, Kind, Record, STATUS_IS_KNOWN};

use super::failure;
use crate::base::guard;
use crate::base::thread::{self, LAST_ERROR_ROWS};
use crate::call::{Described, Frame};
use crate::faults;
use crate::table::{self, cuda_runtime, hip};

/// The rows, each with what the stub jumps to in its place. Each of these has a place of its own for the function that it calls, so that a
/// signal handler that looks at the last error in between, and clears it or not, leaves the same function there.
const ANSWERS: [*const (); LAST_ERROR_ROWS] = [
    answer::<0> as *const (),
    answer::<1> as *const (),
    answer::<2> as *const (),
    answer::<3> as *const (),
    answer::<4> as *const (),
];

const ROWS: [usize; LAST_ERROR_ROWS] = [
    table::HIP + hip::Number::hipGetLastError as usize,
    table::HIP + hip::Number::hipPeekAtLastError as usize,
    table::HIP + hip::Number::hipExtGetLastError as usize,
    table::CUDA_RUNTIME + cuda_runtime::Number::cudaGetLastError as usize,
    table::CUDA_RUNTIME + cuda_runtime::Number::cudaPeekAtLastError as usize,
];

/// What stands for a look at the last error that came from `caller` and was to go to `real`, where the row is one.
pub(super) fn instead(api: u16, caller: usize, real: *const ()) -> Option<*const ()> {
    let place = place_of(api)?;
    let function = if faults::is_on() { faults::instead(api, caller, real) } else { None };
    let state = thread::current();
    let mut functions = state.last_error.get();
    functions[place] = function.unwrap_or(real);
    state.last_error.set(functions);
    state.caller.set(caller);
    Some(ANSWERS[place])
}

fn place_of(api: u16) -> Option<usize> {
    ROWS.iter().position(|row| *row == usize::from(api))
}

extern "C-unwind" fn answer<const PLACE: usize>() -> i32 {
    let api = const { ROWS[PLACE] as u16 };
    let caller = thread::current().caller.get();
    // Of two copies of a runtime, the stub knew which one was called.
    let function = thread::current().last_error.get()[PLACE];
    // SAFETY: the vendor's function that was called, or what answers in its place: without arguments, and with a status.
    let status = unsafe { std::mem::transmute::<*const (), extern "C-unwind" fn() -> i32>(function)() };
    guard::cold((), || {
        thread::current().caller.set(caller);
        note(api, status);
    });
    status
}

fn note(api: u16, status: i32) {
    let Some(frame) = Frame::enter(api) else { return };
    if frame.is_programs_own() {
        let record = frame.record(Event::ErrorQuery, Kind::None, status, &Described::new(0, 0), false);
        frame.recorder().publish(&Record { requested: STATUS_IS_KNOWN, ..record });
        if status != 0 {
            failure::step(Step::LastErrorRead);
        }
    }
    frame.leave();
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuoom_trace::meaning::Does;

    #[test]
    fn every_look_at_the_last_error_has_an_answer_and_nothing_else() {
        for (api, row) in (0..).zip(table::rows()) {
            let asks = row.event == Event::ErrorQuery && row.meaning.does != Does::NamesError;
            assert_eq!(place_of(api).is_some(), asks, "{}", row.name);
        }
    }
}
