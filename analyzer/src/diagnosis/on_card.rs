//! A failure against the memory of the card itself: what was asked of it, and whether that could fit at all.

use gpuoom_trace::record::Kind;

use super::case::Failure;
use super::check::Known;

/// What a failure says of a card whose other users are not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alone {
    /// What the program holds and asks for is more than the card has: so many bytes more. Nothing else need be known.
    Exceeds(u64),
    /// It would fit: something else holds so many bytes, whether that is rounding, the runtime or another process.
    Fits {
        /// What is in use beside the program's own requests.
        rest_bytes: u64,
    },
}

impl Failure<'_> {
    /// Whether memory of the card was asked for and really refused. Managed memory may lie in RAM, and exceed the card.
    pub fn is_real_of_card(&self) -> bool {
        self.is_real_of_device() && self.oom.kind != Kind::Managed
    }

    /// Whether the program's own requests and this one fit into the card, were nothing else there.
    pub fn alone(&self) -> Known<Alone> {
        let own = self.own_bytes();
        let free = self.free_bytes().get().unwrap_or(0);
        self.request_bytes().zip(self.total_bytes()).map(|(request, total)| {
            let needed = own.saturating_add(request);
            match needed.checked_sub(total) {
                Some(more) if more > 0 => Alone::Exceeds(more),
                _ => Alone::Fits { rest_bytes: total.saturating_sub(own).saturating_sub(free) },
            }
        })
    }
}
