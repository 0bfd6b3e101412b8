//! Which device something belongs to: a context, an HSA agent or pool, a card of the kernel's.

pub(crate) mod cache;
pub(crate) mod contexts;
pub(crate) mod gpus;
pub(crate) mod nodes;
pub(crate) mod places;
