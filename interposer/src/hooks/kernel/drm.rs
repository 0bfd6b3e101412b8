//! amdgpu's nodes below `/dev/dri`. Numbers and structures: Linux `include/uapi/drm/drm.h` and `amdgpu_drm.h`.
//!
//! Handles are numbers per open file, so the descriptor becomes part of the address.

use gpuoom_trace::record::Kind;

use super::payload::Payload;
use super::plan::{How, Plan};
use crate::call::Described;
use crate::devices::gpus;
use crate::table::kernel::Request;

/// The numbers that [`plan`] knows.
pub(super) const NUMBERS: [u8; 4] = [0x09, 0x2E, 0x40, 0x51];

/// `AMDGPU_GEM_DOMAIN_*`.
mod domain {
    pub(super) const GTT: u64 = 1 << 1;
    pub(super) const VRAM: u64 = 1 << 2;
}

/// What a request with this number, on the node with this minor number, is about.
pub(super) fn plan(number: u8, minor: u32, payload: &Payload) -> Option<Plan> {
    let mut plan = match number {
        0x40 => create(payload)?,
        0x51 => userptr(payload)?,
        0x09 => {
            let address = payload.handle_of_fd(payload.u32(0)?);
            Plan::new(Request::GemClose, How::Gives, Kind::Device, Described::new(address, 0))
        }
        0x2E => import(payload)?,
        _ => return None,
    };
    plan.what.device = Some(gpus::of_minor(minor));
    Some(plan)
}

/// The answer overlays the question, so the size is read before. VRAM or GTT at the driver's choice counts as VRAM: where
/// it lies is known to the driver alone, and the domains tell what was asked.
fn create(payload: &Payload) -> Option<Plan> {
    let (size, domains, flags) = (payload.u64(0)?, payload.u64(16)?, payload.u64(24)?);
    let kind = match domains {
        _ if domains & domain::VRAM != 0 => Kind::Device,
        _ if domains & domain::GTT != 0 => Kind::HostPinned,
        _ => return None,
    };
    let what = Described { numbers: [domains, flags], number_count: 2, ..Described::new(0, size) };
    let complete = |what: &mut Described, after: &Payload| {
        what.address = after.u32(0).map_or(0, |handle| after.handle_of_fd(handle));
    };
    Some(Plan { complete, ..Plan::new(Request::GemCreate, How::Takes, kind, what) })
}

fn userptr(payload: &Payload) -> Option<Plan> {
    let (address, size, flags) = (payload.u64(0)?, payload.u64(8)?, payload.u32(16)?);
    payload.u32(20)?;
    let what = Described { numbers: [address, u64::from(flags)], number_count: 2, ..Described::new(0, size) };
    let complete = |what: &mut Described, after: &Payload| {
        what.address = after.u32(20).map_or(0, |handle| after.handle_of_fd(handle));
    };
    Some(Plan { complete, ..Plan::new(Request::GemUserptr, How::Takes, Kind::Registered, what) })
}

/// A buffer of another process, or of another descriptor of this one: the size is not told.
fn import(payload: &Payload) -> Option<Plan> {
    payload.u32(8)?;
    let complete = |what: &mut Described, after: &Payload| {
        what.address = after.u32(0).map_or(0, |handle| after.handle_of_fd(handle));
    };
    Some(Plan { complete, ..Plan::new(Request::PrimeImport, How::Takes, Kind::Imported, Described::new(0, 0)) })
}

#[cfg(test)]
mod tests {
    use super::super::payload::tests::payload;
    use super::*;

    #[test]
    fn a_buffer_is_counted_where_it_may_lie() {
        for (domains, kind) in [(4, Kind::Device), (2, Kind::HostPinned), (6, Kind::Device)] {
            let found = plan(0x40, 128, &payload(32, &[(0, 8, 12288), (16, 8, domains)])).expect("memory");
            assert_eq!((found.kind, found.what.requested, found.what.numbers[0]), (kind, 12288, domains));
            let mut what = found.what;
            (found.complete)(&mut what, &payload(32, &[(0, 4, 3)]));
            assert_eq!((what.address, what.requested), (7 << 32 | 3, 12288));
        }
        for domains in [0, 1, 8, 0x40] {
            assert!(plan(0x40, 128, &payload(32, &[(0, 8, 4096), (16, 8, domains)])).is_none(), "{domains}");
        }
    }

    #[test]
    fn a_size_that_does_not_cover_the_fields_is_nothing() {
        for (number, short) in [(0x40, 31), (0x51, 23), (0x2E, 11), (0x09, 3)] {
            assert!(plan(number, 128, &payload(short, &[(16.min(short - 1), 1, 4)])).is_none(), "{number:#x}");
        }
    }
}
