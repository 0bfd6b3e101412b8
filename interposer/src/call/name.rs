//! What the program's threads are called.

use gpuoom_trace::payload;
use gpuoom_trace::record::{Event, Kind, MAX_PAYLOAD_BYTES, Record};

use crate::base::thread::{NAME_BYTES, ThreadState};
use crate::record::Recorder;

/// Says in the file what the calling thread is called, if that is another name than before. To be called where `errno` is kept: a
/// process may have forbidden itself to ask.
#[cold]
#[inline(never)]
pub(super) fn say(state: &ThreadState, recorder: &Recorder) {
    let mut name = [0u8; NAME_BYTES];
    // SAFETY: the kernel writes at most 16 bytes with a zero at the end, which is as many as there are.
    let is_known = unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) } == 0;
    if !is_known || name == state.name_said.get() {
        return;
    }
    let length = name.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES);
    let at = recorder.clock.now();
    let record = Record { at, thread: state.thread.get(), ..Record::new(Event::Thread, Kind::None) };
    // Where it is lost, the next failure tries again.
    let mut out = [0; MAX_PAYLOAD_BYTES];
    if recorder.publish_long(&record, payload::pack(&name[..length], &mut out)).is_some() {
        state.name_said.set(name);
    }
}
