//! What is known of the machine, once, when recording has begun.

use std::path::Path;

use gpuoom_machine::files::{Keep, PYTORCH_LINES};
use gpuoom_machine::{Roots, collect, read_one};
use gpuoom_trace::chunk::kind;
use gpuoom_trace::metadata::MachineFacts;

use crate::record::Recorder;
use crate::{config, link, log};

/// Reads the listed files and writes them into the trace. On the recorder's own thread: it opens some hundred files, in
/// a table of descriptors that is not the program's.
pub(crate) fn record(recorder: &Recorder) {
    let roots = Roots { system: &config::get().sysroot, kernel: "/".as_ref() };
    let mut collected = collect(roots);
    collected.files.extend(pytorch());
    let facts = MachineFacts { files: collected.files, unreadable: collected.unreadable, cut: collected.cut };
    if !recorder.append_metadata(|maker| maker.metadata(kind::MACHINE, &facts)) {
        log::debug(format_args!("no room for the facts about the machine"));
    }
}

/// PyTorch's version file: it lies beside the directory of the library that calls the runtime, so that is loaded by now.
fn pytorch() -> Option<(String, String)> {
    let objects = link::loaded_objects();
    let library = objects.iter().find(|object| object.path.contains("/torch/lib/libtorch_"))?;
    let directory = Path::new(&library.path).parent()?.parent()?;
    let file = directory.join("version.py");
    let text = read_one(&file, Keep::Lines(&PYTORCH_LINES))?;
    Some((file.to_string_lossy().into_owned(), text))
}
