//! From state to values: each pass is a function, and none prints.

pub mod account;
pub mod advice;
pub mod around;
pub mod callers;
pub mod coverage;
pub mod device;
pub mod distribution;
pub mod evidence;
pub mod fit;
pub mod fragmentation;
pub mod growth;
pub mod holders;
pub mod job;
pub mod ledger;
pub mod libraries;
pub mod map;
pub mod model;
pub mod oom;
pub mod profile;
pub mod rise;
pub mod rows;
pub mod shape;
pub mod summary;
pub mod time;
pub mod trend;
pub mod verdict;

#[cfg(test)]
mod tests;
