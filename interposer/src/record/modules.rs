//! The lists of libraries in the file.

use gpuoom_trace::chunk::kind;

use super::recorder::Recorder;
use crate::link::modules;

impl Recorder {
    /// Writes the list of libraries; says whether the file has it.
    pub(crate) fn append_modules(&self) -> bool {
        modules::list(|modules| self.append_metadata(|maker| maker.metadata(kind::MODULES, modules)))
    }

    /// Writes the list of libraries if it has one that no list in this file has: before that may be unloaded.
    pub(crate) fn note_unlisted_modules(&self) {
        modules::list_unlisted(|modules| self.append_metadata(|maker| maker.metadata(kind::MODULES, modules)));
    }
}
