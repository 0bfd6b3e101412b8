//! Code that is loaded and unloaded: by HSA, and by the interfaces above it.

use super::unknown::Unknown;

/// Moments that are kept of loads. Beyond that each second one is forgotten.
const MOST_MOMENTS: usize = 512;

/// Loads and unloads of one sort.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Loaded so far.
    pub loaded: u64,
    /// Unloaded so far.
    pub unloaded: u64,
    /// Ticks, and how many were loaded and not unloaded then.
    history: Vec<(u64, u64)>,
}

impl Balance {
    /// How many are loaded and not unloaded.
    pub fn left(&self) -> u64 {
        self.loaded.saturating_sub(self.unloaded)
    }

    fn changed(&mut self, at: u64) {
        if self.history.len() == MOST_MOMENTS {
            let mut keep = false;
            self.history.retain(|_| {
                keep = !keep;
                keep
            });
        }
        self.history.push((at, self.left()));
    }

    fn load(&mut self, at: u64) {
        self.loaded += 1;
        self.changed(at);
    }

    /// `failed`: an unload that was counted has failed.
    fn unload(&mut self, at: u64, failed: bool) {
        self.unloaded = if failed { self.unloaded.saturating_sub(1) } else { self.unloaded + 1 };
        self.changed(at);
    }

    /// How many were loaded and not unloaded at the end of each fifth of the time from the first load until `now`.
    pub fn left_over_time(&self, now: u64) -> [u64; 5] {
        let first = self.history.first().map_or(0, |(at, _)| *at);
        [1, 2, 3, 4, 5].map(|fifth| {
            let until = first + (u128::from(now.saturating_sub(first)) * fifth / 5) as u64;
            let before = self.history.partition_point(|(at, _)| *at <= until);
            before.checked_sub(1).map_or(0, |last| self.history[last].1)
        })
    }
}

/// Loaded code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modules {
    /// Code objects that HSA loaded, and executables that were destroyed.
    pub code: Balance,
    /// Modules and libraries above HSA; the driver's calls inside a runtime's are not counted again.
    above: Balance,
    /// Whether the recorder keeps each call above HSA, and not only those after a failure.
    keeps_above: bool,
}

impl Modules {
    /// Nothing yet.
    pub(super) fn new(keeps_above: bool) -> Self {
        Modules { keeps_above, ..Modules::default() }
    }

    /// Modules and libraries above HSA.
    ///
    /// # Errors
    /// The trace is of a recorder that kept these calls only after a failure.
    pub fn above(&self) -> Result<&Balance, Unknown> {
        if self.keeps_above { Ok(&self.above) } else { Err(Unknown::Modules) }
    }

    /// Whether any load was seen, however few of them the recorder keeps.
    pub fn has_loads(&self) -> bool {
        self.code.loaded + self.above.loaded > 0
    }

    fn of(&mut self, by_hsa: bool) -> &mut Balance {
        if by_hsa { &mut self.code } else { &mut self.above }
    }

    pub(super) fn load(&mut self, at: u64, by_hsa: bool) {
        self.of(by_hsa).load(at);
    }

    /// A device was reset or a context ended: what was loaded there is gone, and nobody says what that was.
    pub(super) fn end(&mut self, at: u64) {
        for balance in [&mut self.code, &mut self.above] {
            balance.unloaded = balance.loaded;
            balance.changed(at);
        }
    }

    pub(super) fn unload(&mut self, at: u64, by_hsa: bool, failed: bool) {
        self.of(by_hsa).unload(at, failed);
    }
}
