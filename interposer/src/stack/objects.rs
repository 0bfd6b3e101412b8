//! In which object an address lies, without a lock that the program may hold.
//!
//! glibc 2.35 and later have `_dl_find_object` for that, which takes none. Below that there is a list of the recorder's own:
//! its thread walks the loader's list when something was loaded, and the hook on `dlclose` when something was unloaded.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};

use crate::link;

/// `struct dl_find_object` of glibc on x86-64 (`dlfcn.h`).
#[repr(C)]
struct Found {
    flags: u64,
    map_start: *const c_void,
    map_end: *const c_void,
    link_map: *const c_void,
    eh_frame: *const c_void,
    reserved: [u64; 7],
}

type FindObject = unsafe extern "C" fn(*const c_void, *mut Found) -> i32;

static FIND_OBJECT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Looks for glibc's function. Called before the program runs.
pub(super) fn prepare() {
    // Release: whoever sees the pointer may call through it.
    FIND_OBJECT.store(link::next::after_us(c"_dl_find_object"), Ordering::Release);
    if FIND_OBJECT.load(Ordering::Relaxed).is_null() {
        list_again();
    }
}

/// Whether the list below is needed.
pub(super) fn is_listed() -> bool {
    FIND_OBJECT.load(Ordering::Acquire).is_null()
}

/// Where the object around an address has its `.eh_frame_hdr`: 0 where it has none, `None` where there is no object.
pub(super) fn header_of(address: u64) -> Option<u64> {
    let find = FIND_OBJECT.load(Ordering::Acquire);
    if find.is_null() {
        return listed(address);
    }
    // SAFETY: all zero is a valid value.
    let mut found: Found = unsafe { std::mem::zeroed() };
    // SAFETY: glibc's function of this name: takes any address, takes no lock, may be called from signal handlers.
    let missing = unsafe { std::mem::transmute::<*mut c_void, FindObject>(find)(address as *const c_void, &mut found) };
    (missing == 0).then_some(found.eh_frame as u64)
}

/// Objects that the list below has room for.
const LISTED: usize = 1024;

/// First address, end, and `.eh_frame_hdr` of each object.
static LIST: [[AtomicU64; 3]; LISTED] = [const { [const { AtomicU64::new(0) }; 3] }; LISTED];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Odd while the list is made anew.
static VERSION: AtomicU64 = AtomicU64::new(0);
static LISTING: AtomicBool = AtomicBool::new(false);

fn listed(address: u64) -> Option<u64> {
    let version = VERSION.load(Ordering::Acquire);
    let count = COUNT.load(Ordering::Relaxed).min(LISTED);
    let words = |entry: &[AtomicU64; 3]| [0, 1, 2].map(|at: usize| entry[at].load(Ordering::Relaxed));
    let found = LIST[..count].iter().map(words).find(|[start, end, _]| (*start..*end).contains(&address));
    // What was read counts only if nobody wrote meanwhile.
    fence(Ordering::Acquire);
    if version & 1 != 0 || VERSION.load(Ordering::Relaxed) != version {
        return None;
    }
    found.map(|[_, _, header]| header)
}

/// Makes the list anew. Walks the loader's list, under its lock.
pub(super) fn list_again() {
    if LISTING.swap(true, Ordering::Acquire) {
        return;
    }
    VERSION.fetch_add(1, Ordering::AcqRel);
    fence(Ordering::Release);
    let mut count = 0;
    link::for_each_code_object(&mut |start, end, header| {
        if count < LISTED {
            for (place, value) in LIST[count].iter().zip([start, end, header]) {
                place.store(value, Ordering::Relaxed);
            }
            count += 1;
        }
    });
    COUNT.store(count, Ordering::Relaxed);
    VERSION.fetch_add(1, Ordering::Release);
    LISTING.store(false, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_find_the_same() {
        prepare();
        list_again();
        assert!(!is_listed(), "this machine's C library is older than 2.35");
        for address in [both_ways_find_the_same as *const () as u64, libc::getpid as *const () as u64] {
            let header = header_of(address).unwrap();
            assert!(header != 0);
            assert_eq!(listed(address), Some(header));
        }
        assert_eq!((header_of(8), listed(8)), (None, None));
    }
}
