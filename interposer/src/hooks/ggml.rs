//! The hooks on ggml. What they are, [`crate::table::ggml`] says.

use super::macros::entries;
use crate::table::ggml::{Number, functions};

functions!(entries);
