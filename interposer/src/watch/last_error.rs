//! A look at the last error while the thread has an undecided failure. What a runtime answers decides whether the program was told: HIP before
//! 7 answers with the status of the thread's last call, so a success in between hides the failure.

use gpuoom_trace::outcome::Step;
use gpuoom_trace::record::{Event, Kind, Record, STATUS_IS_KNOWN};

use super::failure;
use crate::base::{guard, thread};
use crate::call::{Described, Frame};
use crate::table::{self, cuda_runtime, hip};
use crate::{faults, link};

/// The rows, each with what the stub jumps to in its place. Each of these knows its own row, so that a signal handler that looks at the last
/// error in between leaves nothing behind.
const ANSWERS: [(usize, *const ()); 5] = [
    (ROWS[0], answer::<0> as *const ()),
    (ROWS[1], answer::<1> as *const ()),
    (ROWS[2], answer::<2> as *const ()),
    (ROWS[3], answer::<3> as *const ()),
    (ROWS[4], answer::<4> as *const ()),
];

const ROWS: [usize; 5] = [
    table::HIP + hip::Number::hipGetLastError as usize,
    table::HIP + hip::Number::hipPeekAtLastError as usize,
    table::HIP + hip::Number::hipExtGetLastError as usize,
    table::CUDA_RUNTIME + cuda_runtime::Number::cudaGetLastError as usize,
    table::CUDA_RUNTIME + cuda_runtime::Number::cudaPeekAtLastError as usize,
];

/// What stands for a look at the last error, where the row is one.
pub(super) fn answer_of(api: u16) -> Option<*const ()> {
    ANSWERS.iter().find(|(row, _)| *row == usize::from(api)).map(|(_, answer)| *answer)
}

extern "C-unwind" fn answer<const PLACE: usize>() -> i32 {
    let api = const { ROWS[PLACE] as u16 };
    let caller = thread::current().caller.get();
    let real = link::real(api, caller);
    let function = if faults::is_on() { faults::instead(api, caller, real).unwrap_or(real) } else { real };
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
            assert_eq!(answer_of(api).is_some(), asks, "{}", row.name);
        }
    }
}
