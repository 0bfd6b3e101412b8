//! The process that the recorder lives in: what it is, what it has loaded, how it ends.

pub(crate) mod exit;
pub(crate) mod facts;
pub(crate) mod machine;
pub(crate) mod marks;
pub(crate) mod modules;
