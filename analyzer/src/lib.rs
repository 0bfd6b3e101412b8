//! Reads gpuoom traces and says why a program ran out of GPU memory.
//!
//! One way through: a file is read ([`intake`]), its events become state ([`replay`]), passes turn state into values
//! ([`passes`]), and the report turns values into bytes ([`report`]). No pass prints, no report computes.

pub mod bundle;
pub mod catalogue;
pub mod commands;
pub mod compare;
pub mod conclusion;
pub mod diagnosis;
pub mod doctor;
pub mod evidence;
pub mod gauntlet;
pub mod intake;
pub mod job;
pub mod judgement;
pub mod machine;
pub mod message;
pub mod options;
pub mod passes;
pub mod policy;
pub mod replay;
pub mod report;
pub mod software;
pub mod symbols;
#[doc(hidden)]
pub mod testing;
pub mod thresholds;
pub mod whatif;
pub mod words;
