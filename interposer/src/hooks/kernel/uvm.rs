//! NVIDIA's unified memory, on `/dev/nvidia-uvm`. Numbers and structures: NVIDIA open-gpu-kernel-modules
//! `kernel-open/nvidia-uvm/uvm_ioctl.h` and `uvm_types.h`, from 515.43.04 to 595.45.04. Held against what a tracer
//! outside the process saw on an H200 with driver 580.159.04: all requests below that occurred there agree one by one. Those about
//! locations, migrations and peers did not occur.
//!
//! A request is a small number without letter and size, so the size is that of the structure in the header; some grew with
//! the driver ([`Layout`]). The driver's status is in the payload; the request itself succeeds.
//!
//! The driver gives addresses, and maps what the resource manager gave: no memory but the semaphore pools. Managed memory
//! is a mapping of this file and no request; where it should lie is advice or a migration, as with KFD's SVM. Which card a
//! UUID is, is not followed: the first eight bytes of it are recorded. Left out is what says nothing about where memory is:
//! ranges that are only validated, groups, access, read duplication, sparse mappings, discards.

use std::fs;

use gpuoom_trace::record::{Event, Kind, NO_DEVICE};

use super::nvidia;
use super::payload::Payload;
use super::plan::{How, Plan};
use crate::base::config::{self, Config};
use crate::call::Described;
use crate::devices::cache::Cache;
use crate::table::kernel::Request;

const MAP_EXTERNAL_ALLOCATION: u8 = 33;
const FREE: u8 = 34;
const SET_PREFERRED_LOCATION: u8 = 42;
const MIGRATE: u8 = 51;
const MIGRATE_RANGE_GROUP: u8 = 53;
const MAP_DYNAMIC_PARALLELISM_REGION: u8 = 65;
const UNMAP_EXTERNAL: u8 = 66;
const ALLOC_SEMAPHORE_POOL: u8 = 68;
const CREATE_EXTERNAL_RANGE: u8 = 73;
const ALLOC_DEVICE_P2P: u8 = 78;

/// The numbers that [`plan`] knows.
pub(super) const NUMBERS: [u8; 10] = [
    MAP_EXTERNAL_ALLOCATION,
    FREE,
    SET_PREFERRED_LOCATION,
    MIGRATE,
    MIGRATE_RANGE_GROUP,
    MAP_DYNAMIC_PARALLELISM_REGION,
    UNMAP_EXTERNAL,
    ALLOC_SEMAPHORE_POOL,
    CREATE_EXTERNAL_RANGE,
    ALLOC_DEVICE_P2P,
];

/// What a range should be at, and where it should move to: the words of KFD's SVM attributes.
const PREFERRED: u64 = 0;
const PREFETCH: u64 = 1;

/// Where fields lie that depend on the driver's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    /// Cards in the lists of mapping attributes, 36 bytes each: `UVM_MAX_GPUS`.
    cards: usize,
    /// Status of `UVM_SET_PREFERRED_LOCATION_PARAMS`, which got the number of a NUMA node.
    preferred_status_at: usize,
    /// Status of `UVM_FREE_PARAMS`, which had the range's length before it until the driver took that from the range.
    free_status_at: usize,
}

impl Layout {
    fn of(version: [u32; 3]) -> Self {
        Layout {
            cards: if version < [550, 40, 53] { 32 } else { 256 },
            preferred_status_at: if version < [550, 40, 7] { 32 } else { 36 },
            free_status_at: if version < [590, 44, 1] { 16 } else { 8 },
        }
    }
}

/// The layout of the driver that is loaded; `None` where nobody says which one that is, or one before the first public
/// header: then requests with such fields are not recorded.
fn layout() -> Option<Layout> {
    static LAYOUT: Cache<Option<Layout>> = Cache::new();
    *LAYOUT.get(|| version(config::get()).map(Layout::of))?
}

/// From sysfs, or where a container hides it, from the driver's own text in `/proc`.
fn version(config: &Config) -> Option<[u32; 3]> {
    let paths = ["/sys/module/nvidia_uvm/version", "/sys/module/nvidia/version", "/proc/driver/nvidia/version"];
    let texts = paths.into_iter().filter_map(|path| fs::read_to_string(config.system_path(path)).ok());
    let found = texts.into_iter().find_map(|text| text.split_whitespace().find_map(numbers));
    found.filter(|version| version[0] >= 515)
}

/// `535.54.03`, `550.40`.
fn numbers(word: &str) -> Option<[u32; 3]> {
    let mut version = [0; 3];
    let parts = word.split('.');
    let count = parts.clone().count();
    for (number, part) in version.iter_mut().zip(parts) {
        *number = part.parse().ok()?;
    }
    matches!(count, 2 | 3).then_some(version)
}

/// What a request is about, and the part of its structure that holds the answer; `None` where that is nothing that is
/// recorded.
pub(super) fn plan(number: u8, fd: i32, address: u64) -> Option<(Plan, Payload)> {
    plan_as(number, fd, address, layout)
}

fn plan_as(number: u8, fd: i32, address: u64, layout: impl Fn() -> Option<Layout>) -> Option<(Plan, Payload)> {
    let whole = |bytes: usize| Payload::read(fd, address, bytes);
    match number {
        CREATE_EXTERNAL_RANGE => range(Request::UvmCreateRange, whole(24)?, 16),
        MAP_DYNAMIC_PARALLELISM_REGION => range(Request::UvmMapParallelism, whole(40)?, 32),
        FREE => {
            let status_at = layout()?.free_status_at;
            let payload = whole(status_at + 8)?;
            let what = Described::new(payload.u64(0)?, 0);
            with_status(Plan::new(Request::UvmFree, How::Gives, Kind::Reserved, what), payload, status_at)
        }
        UNMAP_EXTERNAL => {
            let payload = whole(40)?;
            let what = Described { device: Some(NO_DEVICE), ..stretch(&payload)? };
            with_status(Plan::new(Request::UvmUnmap, How::Gives, Kind::Device, what), payload, 32)
        }
        ALLOC_DEVICE_P2P => {
            let payload = whole(56)?;
            let object = nvidia::object(payload.u32(44)?, payload.u32(48)?);
            let what = mapped(stretch(&payload)?, object, payload.u64(16)?);
            with_status(Plan::new(Request::UvmMapP2p, How::Takes, Kind::Device, what), payload, 52)
        }
        MAP_EXTERNAL_ALLOCATION => {
            let head = whole(24)?;
            let tail = behind_list(&head, layout()?.cards, 24)?;
            let object = nvidia::object(tail.u32(12)?, tail.u32(16)?);
            let what = mapped(stretch(&head)?, object, head.u64(16)?);
            with_status(Plan::new(Request::UvmMap, How::Takes, Kind::Device, what), tail, 20)
        }
        ALLOC_SEMAPHORE_POOL => {
            let head = whole(16)?;
            let tail = behind_list(&head, layout()?.cards, 16)?;
            let what = stretch(&head)?;
            with_status(Plan::new(Request::UvmSemaphores, How::Takes, Kind::HostPinned, what), tail, 8)
        }
        SET_PREFERRED_LOCATION => {
            let payload = whole(40)?;
            let what = located(stretch(&payload)?, PREFERRED, payload.u64(16)?);
            let status_at = layout()?.preferred_status_at;
            with_status(Plan::new(Request::UvmPrefer, How::Takes, Kind::Managed, what), payload, status_at)
        }
        MIGRATE => {
            let payload = whole(80)?;
            let what = located(stretch(&payload)?, PREFETCH, payload.u64(16)?);
            with_status(Plan::new(Request::UvmMigrate, How::Takes, Kind::Managed, what), payload, 72)
        }
        MIGRATE_RANGE_GROUP => {
            // A group has a number; which ranges are in it is not told here.
            let payload = whole(32)?;
            let what = located(Described::new(0, 0), PREFETCH, payload.u64(8)?);
            with_status(Plan::new(Request::UvmMigrateGroup, How::Takes, Kind::Managed, what), payload, 24)
        }
        _ => None,
    }
}

fn with_status(plan: Plan, payload: Payload, at: usize) -> Option<(Plan, Payload)> {
    payload.u32(at)?;
    Some((Plan { status_at: Some(at), ..plan }, payload))
}

/// Base and length, which all requests about a range begin with.
fn stretch(payload: &Payload) -> Option<Described> {
    Some(Described::new(payload.u64(0)?, payload.u64(8)?))
}

/// Addresses without memory.
fn range(request: Request, payload: Payload, status_at: usize) -> Option<(Plan, Payload)> {
    let what = stretch(&payload)?;
    with_status(
        Plan { event: Event::Reserve, ..Plan::new(request, How::Takes, Kind::Reserved, what) },
        payload,
        status_at,
    )
}

/// Memory of the resource manager becomes visible at addresses: its object, and the offset within it.
fn mapped(what: Described, object: u64, offset: u64) -> Described {
    Described { numbers: [object, offset], number_count: 2, device: Some(NO_DEVICE), ..what }
}

/// A range and the processor that it should lie at.
fn located(what: Described, how: u64, uuid: u64) -> Described {
    Described { numbers: [how, uuid], number_count: 2, device: Some(NO_DEVICE), ..what }
}

/// The end of a structure, behind its list of mapping attributes.
fn behind_list(head: &Payload, cards: usize, bytes: usize) -> Option<Payload> {
    const ATTRIBUTE_BYTES: usize = 36;
    let at = head.size + cards * ATTRIBUTE_BYTES;
    Payload::read(head.fd, head.address.checked_add(at as u64)?, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: [u32; 3] = [535, 54, 3];
    const NEW: [u32; 3] = [550, 54, 14];

    /// A structure made of fields (offset, width in bytes, value).
    fn structure(fields: &[(usize, usize, u64)]) -> Vec<u8> {
        let mut bytes = vec![0u8; 9264];
        for (at, width, value) in fields {
            bytes[*at..at + width].copy_from_slice(&value.to_le_bytes()[..*width]);
        }
        bytes
    }

    fn of(number: u8, version: [u32; 3], bytes: &[u8]) -> Option<(Plan, Payload)> {
        plan_as(number, 7, bytes.as_ptr() as u64, || Some(Layout::of(version)))
    }

    #[test]
    fn versions_have_two_or_three_numbers() {
        assert_eq!(numbers("535.54.03"), Some(OLD));
        assert_eq!(numbers("550.40"), Some([550, 40, 0]));
        let none = ["550", "x86_64", "1.2.3.4", "", "Fri", "12:00:00", "5.x", ".."];
        assert_eq!(none.map(numbers), [None; 8]);
    }

    #[test]
    fn the_version_is_where_the_driver_writes_it() {
        let directory = tempfile::tempdir().unwrap();
        let config = Config { sysroot: directory.path().into(), ..Config::default() };
        let write = |path: &str, text: &str| {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(version(&config), None);
        let text =
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.14  Release Build\nGCC version: 12.2.0";
        write("proc/driver/nvidia/version", text);
        assert_eq!(version(&config), Some(NEW));
        write("sys/module/nvidia_uvm/version", "535.54.03\n");
        assert_eq!(version(&config), Some(OLD));
        write("sys/module/nvidia_uvm/version", "470.1.2\n");
        assert_eq!(version(&config), None, "older than the first header that was published");
    }

    #[test]
    fn lists_and_statuses_lie_where_the_version_has_them() {
        for (version, tail) in [(OLD, 1176), ([550, 40, 7], 1176), ([550, 40, 53], 9240), (NEW, 9240)] {
            let fields = [(0, 8, 0x5000), (8, 8, 0x2000), (16, 8, 0x100), (tail + 12, 4, 0xC1), (tail + 16, 4, 9)];
            let bytes = structure(&fields);
            let (plan, payload) = of(MAP_EXTERNAL_ALLOCATION, version, &bytes).expect("a mapping");
            assert_eq!((plan.what.address, plan.what.requested), (0x5000, 0x2000));
            assert_eq!(plan.what.numbers, [0xC1_0000_0009, 0x100]);
            assert_eq!(payload.address + plan.status_at.unwrap() as u64, bytes.as_ptr() as u64 + tail as u64 + 20);
        }
        for (version, at) in [(OLD, 1176), (NEW, 9240)] {
            let bytes = structure(&[(0, 8, 0x5000), (8, 8, 0x2000)]);
            let (plan, payload) = of(ALLOC_SEMAPHORE_POOL, version, &bytes).expect("memory");
            assert_eq!((plan.event, plan.kind), (Event::Alloc, Kind::HostPinned));
            assert_eq!(payload.address + plan.status_at.unwrap() as u64, bytes.as_ptr() as u64 + at);
        }
        let bytes = structure(&[(16, 8, 77)]);
        for (version, at) in [(OLD, 32), ([550, 40, 7], 36)] {
            let (plan, _) = of(SET_PREFERRED_LOCATION, version, &bytes).expect("a location");
            assert_eq!((plan.status_at, plan.what.numbers), (Some(at), [PREFERRED, 77]));
        }
    }

    #[test]
    fn without_a_version_only_what_never_changed_is_read() {
        let bytes = structure(&[(0, 8, 0x5000)]);
        let known = |number| plan_as(number, 7, bytes.as_ptr() as u64, || None).is_some();
        let unknown = NUMBERS.into_iter().filter(|number| !known(*number));
        let expected = [MAP_EXTERNAL_ALLOCATION, FREE, SET_PREFERRED_LOCATION, ALLOC_SEMAPHORE_POOL];
        assert_eq!(Vec::from_iter(unknown), expected);
    }

    #[test]
    fn pointers_that_lead_nowhere_are_nothing() {
        for number in NUMBERS {
            for address in [0, 8, u64::MAX - 7, u64::MAX] {
                assert!(plan_as(number, 7, address, || Some(Layout::of(NEW))).is_none(), "{number} {address:#x}");
            }
        }
        assert!(of(72, NEW, &structure(&[])).is_none());
    }

    #[test]
    fn ranges_are_addresses_and_give_them_back() {
        let bytes = structure(&[(0, 8, 0x7000), (8, 8, 0x4000)]);
        for (number, status_at) in [(CREATE_EXTERNAL_RANGE, 16), (MAP_DYNAMIC_PARALLELISM_REGION, 32)] {
            let (plan, _) = of(number, OLD, &bytes).expect("a range");
            assert_eq!((plan.event, plan.kind, plan.status_at), (Event::Reserve, Kind::Reserved, Some(status_at)));
        }
        for (version, status_at) in [(OLD, 16), (NEW, 16), ([580, 142, 0], 16), ([590, 44, 1], 8)] {
            let (plan, _) = of(FREE, version, &bytes).expect("a free");
            assert_eq!((plan.how, plan.what.address, plan.what.requested), (How::Gives, 0x7000, 0));
            assert_eq!(plan.status_at, Some(status_at), "{version:?}");
        }
    }
}
