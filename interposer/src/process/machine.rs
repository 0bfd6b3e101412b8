//! What is known of the machine, once, when recording has begun.

use gpuoom_machine::{Roots, collect};
use gpuoom_trace::chunk::kind;
use gpuoom_trace::metadata::MachineFacts;

use crate::record::Recorder;
use crate::{config, log};

/// Reads the listed files and writes them into the trace. On the recorder's own thread: it opens some hundred files, in
/// a table of descriptors that is not the program's.
pub(crate) fn record(recorder: &Recorder) {
    let roots = Roots { system: &config::get().sysroot, kernel: "/".as_ref() };
    let collected = collect(roots);
    let facts = MachineFacts { files: collected.files, unreadable: collected.unreadable, cut: collected.cut };
    if !recorder.append_metadata(|maker| maker.metadata(kind::MACHINE, &facts)) {
        log::debug(format_args!("no room for the facts about the machine"));
    }
}
