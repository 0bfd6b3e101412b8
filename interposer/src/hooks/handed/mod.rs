//! Functions that a program takes by name: what it is handed out in their place.

pub(super) mod dlsym;
pub(super) mod entry_points;
mod slots;
