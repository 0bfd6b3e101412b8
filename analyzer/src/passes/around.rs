//! The events around one failure.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use crate::passes::rows::EventRow;

/// Events that are shown before and after.
const CONTEXT: usize = 25;

/// Lets the events around an out-of-memory return through.
pub struct Around {
    number: u64,
    before: VecDeque<EventRow>,
    after: usize,
    /// Out-of-memory returns that went by.
    pub seen: u64,
}

impl Around {
    /// Around the failure with this number, counted from 1.
    pub fn new(number: u64) -> Self {
        Around { number, before: VecDeque::with_capacity(CONTEXT + 1), after: 0, seen: 0 }
    }

    /// Whether the failure was there.
    pub fn found(&self) -> bool {
        self.seen >= self.number
    }

    /// Takes the next event; breaks once everything was let through.
    pub fn take(&mut self, row: EventRow, sink: &mut impl FnMut(EventRow) -> ControlFlow<()>) -> ControlFlow<()> {
        self.seen = self.seen.max(row.oom.unwrap_or(0));
        if row.oom == Some(self.number) {
            for row in self.before.drain(..) {
                sink(row)?;
            }
            self.after = CONTEXT;
            return sink(row);
        }
        if self.after > 0 {
            self.after -= 1;
            sink(row)?;
            return if self.after == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        }
        if self.before.len() == CONTEXT {
            self.before.pop_front();
        }
        self.before.push_back(row);
        ControlFlow::Continue(())
    }
}
