//! From state to values: each pass is a function, and none prints.

pub mod account;
pub mod around;
pub mod below;
pub mod buffers;
pub mod callers;
pub mod coverage;
pub mod device;
pub mod distribution;
mod earlier;
pub mod evidence;
pub mod facts;
pub mod fit;
pub mod fragmentation;
mod given;
pub mod growth;
pub mod holders;
pub mod kept;
pub mod ledger;
pub mod level;
pub mod libraries;
pub mod map;
pub mod model;
pub mod moved;
pub mod numbered;
pub mod oom;
pub mod outcomes;
pub mod phase;
pub mod pools;
pub mod profile;
pub mod rise;
pub mod rows;
pub mod segments;
pub mod shape;
pub mod stays;
pub mod tensor_growth;
pub mod tensors;
pub mod time;
pub mod trend;
pub mod unreached;
pub mod which_card;

#[cfg(test)]
mod tests;
