//! The hooks on the mathematical libraries. What they are, [`crate::table::handles`] says.

use super::describe::{Out, block};
use super::macros::entries;
use crate::table::handles::{Number, functions};

functions!(entries);
