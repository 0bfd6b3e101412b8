//! The first GPU call of a process: the trace file is made, and what every trace has stands in it.

use std::arch::global_asm;
use std::sync::atomic::{AtomicU32, Ordering};

use crossbeam_channel::Receiver;
use gpuoom_trace::chunk::kind;
use gpuoom_trace::metadata::{ApiMeanings, ApiRow, ApiTable};

use super::{exit, facts, last, libraries, service};
use crate::base::{config, log};
use crate::hooks::marks;
use crate::record::{Recorder, Request};
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

/// Process that last began to record, in this memory: a forked child finds its parent here, or whose child that is.
static BEGUN_BY: AtomicU32 = AtomicU32::new(0);

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
        forget_parent();
        write_metadata(recorder);
    });
    let Some(recorder) = recorder else { return false };
    let recorder: &'static Recorder = Box::leak(recorder);
    let requests = service::open(recorder);
    // Relaxed: one thread begins, and a fork copies what it wrote.
    let begun_by = BEGUN_BY.swap(pid, Ordering::Relaxed);
    show(std::ptr::from_ref(recorder).cast());
    started(recorder, requests, begun_by);
    true
}

/// A forked child begins without what its parent knew. Before other threads see the recorder: what they note then is the child's.
fn forget_parent() {
    faults::forget_parent();
    watch::forget_all();
    readings::forget_parent();
    last::forget_parent();
    last::watch_first_thread();
    readings::on_first_use(|| exit::arm(true));
}

/// What is left to do once other threads may see the recorder.
fn started(recorder: &'static Recorder, requests: Receiver<Request>, begun_by: u32) {
    exit::record_begin(recorder, begun_by);
    marks::publish_early(recorder);
    link::add_loaded_runtimes();
    service::spawn(recorder, requests);
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
