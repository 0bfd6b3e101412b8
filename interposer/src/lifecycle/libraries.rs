//! The file learns of libraries that were loaded since.

use gpuoom_trace::chunk::kind;
use gpuoom_trace::metadata::Bypasses;

use crate::base::log;
use crate::link::{bypass, modules};
use crate::record::Recorder;
use crate::stack;

/// Writes the list of libraries, and those that call past the hooks, if any were loaded since the last list; says whether.
pub(super) fn note(recorder: &Recorder) -> bool {
    if !modules::have_changed() {
        return false;
    }
    stack::objects_changed();
    recorder.append_modules();
    note_bypasses(recorder);
    true
}

/// Writes which libraries call past the hooks, and which one has `ioctl` before us.
pub(super) fn note_bypasses(recorder: &Recorder) {
    let mut bypasses = bypass::find();
    if let Some(first) = bypasses.first() {
        log::info(format_args!("{} calls {} past the recorder", first.caller, first.function));
    }
    bypasses.extend(bypass::in_front());
    if !bypasses.is_empty() {
        recorder.append_metadata(|maker| maker.metadata(kind::BYPASSES, &Bypasses { bypasses }));
    }
}
