//! The words of a row for what runs around its call.

pub(super) use super::around::*;
pub(super) use super::contexts::*;
