//! From values to bytes: one file per format.

pub mod events;
pub mod json;
