//! The first GPU call of a process: the trace file is made, and what every trace has stands in it.

use std::arch::global_asm;

use gpuoom_trace::chunk::kind;
use gpuoom_trace::metadata::{ApiMeanings, ApiRow, ApiTable};

use super::{exit, facts, libraries, service};
use crate::base::{config, log};
use crate::hooks::marks;
use crate::record::Recorder;
use crate::{faults, link, readings, stack, table, watch};

// `record::state` calls this at the first call that is to be recorded. That may come from the constructor of a library, before
// anything of ours has run that could tell it where to go; so the linker does.
global_asm!(
    ".pushsection .text.gpuoom_begin,\"ax\",@progbits",
    ".globl gpuoom_begin",
    ".hidden gpuoom_begin",
    ".type gpuoom_begin,@function",
    "gpuoom_begin:",
    "jmp {begin}",
    ".popsection",
    begin = sym begin,
);

/// Makes the recorder and shows it; false when there is to be none.
extern "C" fn begin(show: extern "C" fn(*const ())) -> bool {
    let config = config::get();
    if config.disabled {
        return false;
    }
    let pid = std::process::id();
    let path = facts::trace_path(&config.trace, pid);
    let recorder = Recorder::make(&path, config.model_granularity_bytes(), pid, |recorder| {
        stack::begin();
        faults::forget_parent();
        write_metadata(recorder);
    });
    let Some(recorder) = recorder else { return false };
    let recorder: &'static Recorder = Box::leak(recorder);
    show(std::ptr::from_ref(recorder).cast());
    started(recorder);
    true
}

/// What is left to do once other threads may see the recorder.
fn started(recorder: &'static Recorder) {
    watch::forget_all();
    readings::forget_parent();
    readings::on_first_use(|| exit::arm(true));
    exit::record_begin(recorder);
    marks::publish_early(recorder);
    link::add_loaded_runtimes();
    service::spawn(recorder);
    for complaint in &config::get().complaints {
        log::warn(format_args!("{complaint}"));
    }
    log::info(format_args!("recording to {}", recorder.path().display()));
}

fn write_metadata(recorder: &Recorder) {
    let rows = table::rows().map(|row| ApiRow { name: row.name.into(), layer: row.layer as u8 }).collect();
    let meanings = ApiMeanings::of(table::rows().map(|row| (row.kind, row.meaning)));
    let facts = facts::collect(recorder.pid);
    let written = recorder.append_metadata(|maker| maker.metadata(kind::PROCESS, &facts))
        && recorder.append_metadata(|maker| maker.metadata(kind::APIS, &ApiTable { rows }))
        && recorder.append_metadata(|maker| maker.metadata(kind::MEANINGS, &meanings))
        && recorder.append_modules();
    if !written {
        log::warn(format_args!(
            "no room behind the ring in {}: only the newest events are kept",
            recorder.path().display()
        ));
    }
    libraries::note_bypasses(recorder);
}
