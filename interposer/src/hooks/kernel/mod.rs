//! Requests to the kernel's drivers. They have no exported functions of their own: all go through `ioctl`.
//!
//! `hook.rs` has the exported function, which lets everything else through with a jump. A candidate, by letter and number
//! of the request, becomes a [`plan::Plan`] only if its descriptor belongs to one of the drivers ([`crate::devices::nodes`]) and the size in the
//! request covers the fields that are read; where a request has no size (`uvm.rs`), that of the driver's structure is read. Whoever calls may pass anything: a payload is read as memory that may not be
//! there.

mod calls;
mod drm;
mod hook;
mod kfd;
mod nvidia;
mod origin;
mod payload;
mod plan;
mod uvm;
