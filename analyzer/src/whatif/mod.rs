//! A run under other limits: another card, another granule. What a model says, beside how well the model explains what
//! was recorded.

pub mod cards;
pub mod overhead;
mod replays;
#[cfg(test)]
mod tests;
pub mod torch;
pub mod world;

use serde::Serialize;

pub use replays::{Question, ask};

use cards::DeviceAnswer;

/// What would have been.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// The trace file.
    pub trace: String,
    /// One answer per device that the program used.
    pub devices: Vec<DeviceAnswer>,
    /// PyTorch's caching allocator, where a snapshot was given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub torch: Vec<torch::TorchAnswer>,
}
