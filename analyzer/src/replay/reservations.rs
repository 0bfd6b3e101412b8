//! Reservations of address ranges that were refused. They take no memory, so they are no failures to get any.

use gpuoom_trace::record::Record;

/// A reservation that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Ticks when it was asked for.
    pub at: u64,
    /// Function.
    pub api: u16,
    /// What it returned.
    pub status: i32,
    /// Bytes asked for.
    pub bytes: u64,
    /// What was reserved then, of all devices, in bytes.
    pub reserved_bytes: u64,
}

/// All of them: the first one, and how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reservations {
    first: Option<Refused>,
    count: u64,
}

impl Reservations {
    /// Takes note of a refusal.
    #[cold]
    pub(super) fn refuse(&mut self, record: &Record, reserved_bytes: u64) {
        self.count += 1;
        let Record { at, api, status, requested, .. } = *record;
        self.first.get_or_insert(Refused { at, api, status, bytes: requested, reserved_bytes });
    }

    /// The first one.
    pub fn refused(&self) -> Option<&Refused> {
        self.first.as_ref()
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count
    }
}
