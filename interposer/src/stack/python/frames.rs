//! Reads the frames of a Python thread, by a thread that holds the interpreter.

use gpuoom_trace::payload::{MAX_PYTHON_FRAMES, PythonFrame, stack_flag};

use super::api::{Api, Object};
use super::codes;
use crate::record::Recorder;

/// The Python part of a stack.
#[derive(Clone, Copy)]
pub(crate) struct Frames {
    frames: [PythonFrame; MAX_PYTHON_FRAMES],
    /// Of each its code object's address, and the instruction that runs as an offset in bytes; negative: not known.
    places: [(u64, i64); MAX_PYTHON_FRAMES],
    count: usize,
    /// Bits of [`stack_flag`].
    pub(crate) flags: u8,
}

impl Frames {
    /// Nothing is known.
    pub(crate) const UNKNOWN: Frames = Frames {
        frames: [PythonFrame { code: 0, line: 0 }; MAX_PYTHON_FRAMES],
        places: [(0, -1); MAX_PYTHON_FRAMES],
        count: 0,
        flags: 0,
    };

    /// There are none.
    pub(crate) const NONE: Frames = Frames { flags: stack_flag::PYTHON_SEEN, ..Frames::UNKNOWN };

    /// Innermost first.
    pub(crate) fn frames(&self) -> &[PythonFrame] {
        &self.frames[..self.count]
    }

    /// Where they are: code objects and instructions.
    pub(super) fn places(&self) -> &[(u64, i64)] {
        &self.places[..self.count]
    }

    /// Whether the frames were read, and each has the number of a code object, which is then kept for good.
    pub(super) fn are_all_named(&self) -> bool {
        self.flags & stack_flag::PYTHON_SEEN != 0
            && self.flags & stack_flag::PYTHON_CUT == 0
            && self.frames().iter().all(|frame| frame.code != 0)
    }

    /// Frames of which nothing but the places counts.
    #[cfg(test)]
    pub(super) fn of_places(places: &[(u64, i64)]) -> Frames {
        let mut frames = Frames { count: places.len(), ..Frames::UNKNOWN };
        frames.places[..places.len()].copy_from_slice(places);
        frames
    }
}

/// Reads the frames of the thread with this state. The error indicator stays as it is. Frame objects come into being, as
/// they do for `sys._getframe()`.
///
/// # Safety
/// The calling thread holds the interpreter that the state belongs to; the state's thread is this one, or one that waits.
pub(super) unsafe fn read(api: &Api, state: Object, recorder: &Recorder, thread: u32, out: &mut Frames) {
    // SAFETY: promised by the caller.
    unsafe {
        without_collections(api, || keeping_error(api, || walk(api, state, recorder, thread, out)));
    }
}

/// # Safety
/// As [`read`].
unsafe fn walk(api: &Api, state: Object, recorder: &Recorder, thread: u32, out: &mut Frames) {
    (out.count, out.flags) = (0, stack_flag::PYTHON_SEEN);
    // SAFETY: promised by the caller. Each frame and code object is a reference of ours until it is given back; none of
    // them is the last one, because the thread is inside these frames.
    unsafe {
        let mut frame = (api.frame)(state);
        while !frame.is_null() {
            if out.count == MAX_PYTHON_FRAMES {
                out.flags |= stack_flag::PYTHON_CUT;
                (api.drop)(frame);
                return;
            }
            let code = (api.code)(frame);
            let number = codes::number(api, code, recorder, thread);
            (api.drop)(code);
            let line = u32::try_from((api.line)(frame)).unwrap_or(0);
            out.frames[out.count] = PythonFrame { code: number, line };
            out.places[out.count] = (code as u64, last_instruction(api, frame));
            out.count += 1;
            let outer = (api.back)(frame);
            (api.drop)(frame);
            frame = outer;
        }
    }
}

/// The instruction that runs, as an offset in bytes; negative where it is not known.
///
/// # Safety
/// As [`read`]; `frame` is a frame.
unsafe fn last_instruction(api: &Api, frame: Object) -> i64 {
    // SAFETY: promised by the caller; a terminated name. The object is given back after its value was read.
    unsafe {
        if let Some(ask) = api.last_instruction {
            return ask(frame).into();
        }
        let value = (api.attribute)(frame, c"f_lasti".as_ptr());
        if value.is_null() {
            return -1;
        }
        let offset = (api.integer)(value);
        (api.drop)(value);
        offset
    }
}

/// Up to 3.11 making a frame object may start a collection, which runs code of the program; later versions collect when
/// the program goes on.
///
/// # Safety
/// As [`read`].
unsafe fn without_collections(api: &Api, work: impl FnOnce()) {
    match (api.stop_collecting, api.collect_again) {
        (Some(stop), Some(again)) if api.minor == 11 => {
            // SAFETY: with the interpreter held.
            let was_on = unsafe { stop() } != 0;
            work();
            if was_on {
                // SAFETY: as above.
                unsafe { again() };
            }
        }
        _ => work(),
    }
}

/// # Safety
/// As [`read`].
unsafe fn keeping_error(api: &Api, work: impl FnOnce()) {
    // SAFETY: with the interpreter held; what is fetched is put back.
    unsafe {
        if let (Some(take), Some(set)) = (api.take_raised, api.set_raised) {
            let raised = take();
            work();
            set(raised);
        } else {
            let mut error: [Object; 3] = [std::ptr::null_mut(); 3];
            let [kind, value, place] = &mut error;
            (api.fetch_error)(kind, value, place);
            work();
            (api.restore_error)(error[0], error[1], error[2]);
        }
    }
}
