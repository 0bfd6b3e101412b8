//! What the program did on a device up to a moment, on any thread. Two moments of it say what happened in between.

/// What was done on one device so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Bytes that were given.
    pub given_bytes: u64,
    /// In so many blocks, each of which may take more of the card than was asked for.
    pub given_blocks: u64,
    /// Bytes that were given back.
    pub returned_bytes: u64,
    /// Of them those that go back to a pool, which may keep them.
    pub returned_to_pools_bytes: u64,
    /// Waits for the device or for all devices. They are recorded after failures only, in traces of before format 1.6.
    pub waits: u64,
    /// Loads of code, which take memory that no block shows.
    pub loads: u64,
    /// Calls that may give memory back of which nobody tells how much: pools that were trimmed, told to keep less or destroyed,
    /// memory of graphs that was trimmed, graphs, code and queues that went, imported memory and address ranges that were closed,
    /// managed memory that was moved, frees of what nobody saw given, and [`Done::ends`].
    pub releases: u64,
    /// Of them those that end contexts, or reset a device.
    pub ends: u64,
    /// Bytes of pinned and registered host memory that were given back: on an APU they are the device's memory, too.
    pub returned_host_bytes: u64,
}

impl Done {
    /// Whether something gave device memory back, or may have, as far as calls show it.
    pub fn gave_back(&self) -> bool {
        self.returned_bytes > 0 || self.releases > 0
    }

    /// What was done since an earlier moment.
    pub fn since(&self, earlier: &Done) -> Done {
        Done {
            given_bytes: self.given_bytes.saturating_sub(earlier.given_bytes),
            given_blocks: self.given_blocks.saturating_sub(earlier.given_blocks),
            returned_bytes: self.returned_bytes.saturating_sub(earlier.returned_bytes),
            returned_to_pools_bytes: self.returned_to_pools_bytes.saturating_sub(earlier.returned_to_pools_bytes),
            waits: self.waits.saturating_sub(earlier.waits),
            loads: self.loads.saturating_sub(earlier.loads),
            releases: self.releases.saturating_sub(earlier.releases),
            ends: self.ends.saturating_sub(earlier.ends),
            returned_host_bytes: self.returned_host_bytes.saturating_sub(earlier.returned_host_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_moments_say_what_lies_between() {
        let early = Done { given_bytes: 8, returned_bytes: 3, waits: 1, ..Done::default() };
        let late = Done { given_bytes: 9, returned_bytes: 7, waits: 1, loads: 2, ..Done::default() };
        let wanted = Done { given_bytes: 1, returned_bytes: 4, loads: 2, ..Done::default() };
        assert_eq!(late.since(&early), wanted);
        assert_eq!(early.since(&late), Done::default(), "nothing is taken back");
    }
}
