//! The memory that a device holds from step to step.

/// What was held when a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Ticks.
    pub at: u64,
    /// Bytes of the program's blocks.
    pub bytes: u64,
    /// Levels that can be compared have the same number.
    pub sort: u32,
}
