//! What is known of the machine when recording has begun; PyTorch's version as soon as it is loaded.

use std::path::Path;

use gpuoom_machine::files::{Keep, PYTORCH_LINES};
use gpuoom_machine::{Roots, collect, read_one};
use gpuoom_trace::chunk::kind;
use gpuoom_trace::metadata::MachineFacts;

use crate::base::{config, log};
use crate::link;
use crate::record::Recorder;

/// What was read, to be told again with PyTorch's version where that is loaded later. The recorder's own thread has it: it
/// opens some hundred files, in a table of descriptors that is not the program's.
pub(crate) struct Machine {
    facts: MachineFacts,
    knows_pytorch: bool,
}

impl Machine {
    /// Reads the listed files and writes them into the trace.
    pub(crate) fn record(recorder: &Recorder) -> Self {
        let roots = Roots { system: &config::get().sysroot, kernel: "/".as_ref() };
        let collected = collect(roots);
        let facts = MachineFacts { files: collected.files, unreadable: collected.unreadable, cut: collected.cut };
        let mut machine = Machine { facts, knows_pytorch: false };
        machine.look_for_pytorch();
        machine.append(recorder);
        machine
    }

    /// Libraries were loaded: PyTorch's may be among them.
    pub(crate) fn libraries_were_loaded(&mut self, recorder: &Recorder) {
        if !self.knows_pytorch && self.look_for_pytorch() {
            self.append(recorder);
        }
    }

    fn look_for_pytorch(&mut self) -> bool {
        let found = pytorch();
        self.knows_pytorch = found.is_some();
        self.facts.files.extend(found);
        self.knows_pytorch
    }

    fn append(&self, recorder: &Recorder) {
        if !recorder.append_metadata(|maker| maker.metadata(kind::MACHINE, &self.facts)) {
            log::debug(format_args!("no room for the facts about the machine"));
        }
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
