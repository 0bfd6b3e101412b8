//! What the program did on a device up to a moment, on any thread. Two moments of it say what happened in between.

/// What was done on one device so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Bytes that were given.
    pub given_bytes: u64,
    /// Bytes that were given back.
    pub returned_bytes: u64,
    /// Of them those that go back to a pool, which may keep them.
    pub returned_to_pools_bytes: u64,
    /// Waits for the device or for all devices. They are recorded after failures only, in traces of before format 1.6.
    pub waits: u64,
    /// Loads of code, which take memory that no block shows.
    pub loads: u64,
    /// Trims of pools.
    pub trims: u64,
}

impl Done {
    /// What was done since an earlier moment.
    pub fn since(&self, earlier: &Done) -> Done {
        Done {
            given_bytes: self.given_bytes.saturating_sub(earlier.given_bytes),
            returned_bytes: self.returned_bytes.saturating_sub(earlier.returned_bytes),
            returned_to_pools_bytes: self.returned_to_pools_bytes.saturating_sub(earlier.returned_to_pools_bytes),
            waits: self.waits.saturating_sub(earlier.waits),
            loads: self.loads.saturating_sub(earlier.loads),
            trims: self.trims.saturating_sub(earlier.trims),
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
