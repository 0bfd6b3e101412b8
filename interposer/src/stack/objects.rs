//! In which object an address lies, without a lock that the program may hold.
//!
//! glibc 2.35 and later have `_dl_find_object` for that, which takes none. Below that there is a list of the recorder's own:
//! its thread walks the loader's list when something was loaded, and the hook on `dlclose` when something was unloaded. With
//! any glibc, that list tells what was unloaded since it was last made.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};

use super::gone;
use crate::base::{guard, program_memory};
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

/// Whether addresses are looked up in the list below.
pub(super) fn is_listed() -> bool {
    FIND_OBJECT.load(Ordering::Acquire).is_null()
}

/// A loaded object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) start: u64,
    pub(super) end: u64,
    /// `.eh_frame_hdr`, 0 where it has none.
    pub(super) header: u64,
    /// The loader's entry for it, 0 where that is not known.
    entry: u64,
}

impl Object {
    /// Reads its path as the loader knows it; returns how long that is. The program itself has an empty one.
    pub(super) fn path(&self, out: &mut [u8]) -> usize {
        let name = (self.entry != 0).then(|| program_memory::word(self.entry + PATH_IN_LINK_MAP)).flatten();
        name.map_or(0, |name| program_memory::text(name, out))
    }
}

/// `l_name` in `struct link_map` (`link.h`): behind `l_addr`.
const PATH_IN_LINK_MAP: u64 = 8;

/// The object around an address.
pub(super) fn at(address: u64) -> Option<Object> {
    let find = FIND_OBJECT.load(Ordering::Acquire);
    if find.is_null() {
        return listed(address);
    }
    // SAFETY: all zero is a valid value.
    let mut found: Found = unsafe { std::mem::zeroed() };
    // SAFETY: glibc's function of this name: takes any address, takes no lock, may be called from signal handlers.
    let missing = unsafe { std::mem::transmute::<*mut c_void, FindObject>(find)(address as *const c_void, &mut found) };
    (missing == 0).then_some(Object {
        start: found.map_start as u64,
        end: found.map_end as u64,
        header: found.eh_frame as u64,
        entry: found.link_map as u64,
    })
}

/// Objects that the list below has room for.
const LISTED: usize = 4096;

/// First address, end, and `.eh_frame_hdr` of each object.
static LIST: [[AtomicU64; 3]; LISTED] = [const { [const { AtomicU64::new(0) }; 3] }; LISTED];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Odd while the list is made anew.
static VERSION: AtomicU64 = AtomicU64::new(0);
static LISTING: AtomicBool = AtomicBool::new(false);

fn listed(address: u64) -> Option<Object> {
    let version = VERSION.load(Ordering::Acquire);
    let count = COUNT.load(Ordering::Relaxed).min(LISTED);
    let words = |entry: &[AtomicU64; 3]| [0, 1, 2].map(|at: usize| entry[at].load(Ordering::Relaxed));
    let found = LIST[..count].iter().map(words).find(|[start, end, _]| (*start..*end).contains(&address));
    // What was read counts only if nobody wrote meanwhile.
    fence(Ordering::Acquire);
    if version & 1 != 0 || VERSION.load(Ordering::Relaxed) != version {
        return None;
    }
    found.map(|[start, end, header]| Object { start, end, header, entry: 0 })
}

/// How long a thread waits for another that makes the list, in steps of 20 microseconds: a handler may have interrupted it.
const PATIENCE: u32 = 500;

/// Makes the list anew, and notes what has gone from it. Walks the loader's list, under its lock.
pub(super) fn list_again() {
    for _ in 0..PATIENCE {
        if !LISTING.swap(true, Ordering::Acquire) {
            list();
            LISTING.store(false, Ordering::Release);
            return;
        }
        guard::sleep_micros(20);
    }
}

/// A forked child may have been made while another thread of its parent made the list.
pub(super) fn begin() {
    LISTING.store(false, Ordering::Release);
    list_again();
}

/// The loader keeps the order of its objects and appends new ones: what differs from the old list is gone.
fn list() {
    let entry = |index: usize| LIST[index].each_ref().map(|word| word.load(Ordering::Relaxed));
    VERSION.fetch_add(1, Ordering::AcqRel);
    fence(Ordering::Release);
    let old = COUNT.load(Ordering::Relaxed).min(LISTED);
    let (mut next_old, mut count) = (0, 0);
    link::for_each_code_object(&mut |start, end, header| {
        let words = [start, end, header];
        while next_old < old {
            let known = entry(next_old);
            next_old += 1;
            if known == words {
                break;
            }
            gone::add(known[0], known[1]);
        }
        if count < LISTED {
            LIST[count].iter().zip(words).for_each(|(place, value)| place.store(value, Ordering::Relaxed));
            count += 1;
        }
    });
    (next_old..old).map(entry).for_each(|known| gone::add(known[0], known[1]));
    COUNT.store(count, Ordering::Relaxed);
    VERSION.fetch_add(1, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_find_the_same() {
        prepare();
        list_again();
        assert!(!FIND_OBJECT.load(Ordering::Acquire).is_null(), "this machine's C library is older than 2.35");
        for address in [both_ways_find_the_same as *const () as u64, libc::getpid as *const () as u64] {
            let found = at(address).unwrap();
            let ours = listed(address).unwrap();
            assert!(found.header != 0 && found.entry != 0);
            assert_eq!((ours.start, ours.header), (found.start, found.header));
            assert!(ours.end.abs_diff(found.end) < 4096, "{ours:x?} {found:x?}");
        }
        assert_eq!((at(8), listed(8)), (None, None));
        let mut path = [0; 4096];
        let length = at(libc::getpid as *const () as u64).unwrap().path(&mut path);
        assert!(path[..length].ends_with(b"libc.so.6"));
    }
}
