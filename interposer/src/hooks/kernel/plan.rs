//! What a request is about, and how it is recorded.

use gpuoom_trace::record::{Event, Kind};

use super::payload::Payload;
use crate::call::Described;
use crate::table::{self, kernel::Request};

/// How a request is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
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
pub(super) struct Plan {
    pub(super) request: Request,
    pub(super) how: How,
    pub(super) event: Event,
    pub(super) kind: Kind,
    pub(super) what: Described,
    /// Completes `what` with what the driver has answered.
    pub(super) complete: fn(&mut Described, &Payload),
    /// Where the driver puts a status of its own; `None`: it fails with `errno`.
    pub(super) status_at: Option<usize>,
}

impl Plan {
    /// A request whose payload says everything before the call.
    pub(super) fn new(request: Request, how: How, kind: Kind, what: Described) -> Plan {
        let event = table::row(request.api()).event;
        Plan { request, how, event, kind, what, complete: |_, _| {}, status_at: None }
    }

    /// Its number among all functions.
    pub(super) fn api(&self) -> u16 {
        self.request.api()
    }

    /// Whether it is worth a file: what gives back or asks says nothing by itself.
    pub(super) fn starts_recording(&self) -> bool {
        self.how == How::Takes
    }
}
