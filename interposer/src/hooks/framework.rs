//! The hooks on allocators above the runtime. What they are, [`crate::table::framework`] says.

use super::blocks::{no_tensor, tensor, told};
use super::describe::Pointer;
use super::macros::entries;
use crate::table::framework::{Number, functions};

functions!(entries);
