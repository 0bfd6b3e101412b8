//! Memory that a thread gave back between its failure and the GPU work after it, as one does that has noticed.

use gpuoom_trace::record::Event;

use crate::diagnosis::case::{Case, Failure};
use crate::judgement::check::Check;
use crate::replay::tracks::calls::What;
use crate::words::size;

/// Says so: who gives back what it has and goes on may roll back, or be done with that memory anyway.
pub(super) fn came_before_the_work(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let seen = failure.oom.evidence.iter().find(|evidence| evidence.event == Event::GpuWork);
    let Some((work, around)) = seen.zip(case.around(failure)) else { return };
    let calls = &case.replay.tracks.calls;
    let between = (around.calls_before + 1..calls.count()).map_while(|number| calls.get(number));
    let between = between.take_while(|call| call.at < work.at);
    let own = between.filter(|call| call.what == What::Returned && call.thread == failure.oom.thread);
    let bytes = own.fold(0, |sum: u64, call| sum.saturating_add(call.bytes));
    check.note(bytes > 0, || {
        format!("before that work the thread gave {} back, as one does that has noticed", size(bytes))
    });
}
