//! F. Errors.

use gpuoom_trace::record::Event;

use super::{Labelled, Says, Scene};
use crate::diagnosis::check::Confidence::Probable;
use crate::testing::{GIB, TraceBuilder};

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "dropped-oom-return",
        says: Says::Found(Probable),
        also: &[],
        story: "a kernel is launched after the failure",
        scene: || after_failure(Event::GpuWork, "hipLaunchKernel"),
    },
    Labelled {
        id: "dropped-oom-return",
        says: Says::Not,
        also: &[],
        story: "an exception is thrown after the failure",
        scene: || after_failure(Event::Exception, "__cxa_throw"),
    },
];

fn after_failure(event: Event, api: &str) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.refuse(GIB);
    trace.after(event, api, 0, 0);
    Scene { trace }
}
