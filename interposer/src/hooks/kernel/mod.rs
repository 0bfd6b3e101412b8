//! Requests to the kernel's drivers. They have no exported functions of their own: all go through `ioctl`.
//!
//! `hook.rs` has the exported function, which lets everything else through with a jump. A candidate, by letter and number
//! of the request, becomes a [`Plan`] only if its descriptor belongs to one of the drivers ([`nodes`]) and the size in the
//! request covers the fields that are read; where a request has no size (`uvm.rs`), that of the driver's structure is read. Whoever calls may pass anything: a payload is read as memory that may not be
//! there.

mod cache;
mod calls;
mod devices;
mod drm;
mod hook;
mod kfd;
mod nodes;
mod nvidia;
mod origin;
mod payload;
mod uvm;

use gpuoom_trace::record::{Event, Kind};

use crate::record::Described;
use crate::table::{self, kernel::Request};
use payload::Payload;

pub(crate) use devices::gpus;

/// How a request is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// It takes memory or names something: after the call.
    Takes,
    /// It gives something back: before the call.
    Gives,
    /// It asks how much is there: after the call, and only where a recording is under way.
    Asks,
    /// It is no event; what it says is remembered.
    Tells,
}

/// What a request is about, as its payload says before the call.
#[derive(Clone, Copy, Debug)]
struct Plan {
    request: Request,
    how: How,
    event: Event,
    kind: Kind,
    what: Described,
    /// Completes `what` with what the driver has answered.
    complete: fn(&mut Described, &Payload),
    /// Where the driver puts a status of its own; `None`: it fails with `errno`.
    status_at: Option<usize>,
}

impl Plan {
    /// A request whose payload says everything before the call.
    fn new(request: Request, how: How, kind: Kind, what: Described) -> Plan {
        let event = table::row(request.api()).event;
        Plan { request, how, event, kind, what, complete: |_, _| {}, status_at: None }
    }

    /// Its number among all functions.
    fn api(&self) -> u16 {
        self.request.api()
    }

    /// Whether it is worth a file: what gives back or asks says nothing by itself.
    fn starts_recording(&self) -> bool {
        self.how == How::Takes
    }
}
