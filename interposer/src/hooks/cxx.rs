//! The hooks on the C++ runtime. What they are, [`crate::table::cxx`] says.

use super::macros::entries;
use crate::table::cxx::{Number, functions};

functions!(entries);
