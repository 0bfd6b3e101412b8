//! From values to bytes: one file per format.

mod apart;
pub mod bundle;
pub mod check;
pub mod diff;
pub mod doctor;
pub mod events;
pub mod explain;
pub mod gauntlet;
pub mod json;
pub mod map;
pub mod markdown;
pub mod message;
pub mod page;
pub mod shade;
pub mod short;
pub mod text;
pub mod whatif;
