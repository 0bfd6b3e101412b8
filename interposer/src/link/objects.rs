//! The objects that are loaded in this process.

use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::fork_gate::outside_forks;

/// A loaded object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Object {
    /// Path as the loader knows it; empty for the program itself.
    pub(crate) path: String,
    /// First address.
    pub(crate) start: usize,
    /// End of the last segment.
    pub(crate) end: usize,
    /// GNU build id in hexadecimal, empty where there is none.
    pub(crate) build_id: String,
}

impl Object {
    /// Looks a name up in this object and what it depends on, as its own references would be; never answers with a hook.
    pub(crate) fn symbol(&self, name: &CStr) -> Option<*const ()> {
        let handle = self.handle()?;
        // SAFETY: a live handle and a terminated name.
        let symbol = unsafe { super::next::dlsym(handle, name.as_ptr()) };
        // SAFETY: the handle was taken above; the object stays loaded through its other references.
        unsafe { libc::dlclose(handle) };
        (!symbol.is_null() && !is_ours(symbol as usize)).then_some(symbol.cast())
    }

    /// Keeps the object loaded for good.
    pub(crate) fn hold(&self) {
        let Ok(path) = CString::new(self.path.as_str()) else { return };
        if !self.path.is_empty() {
            // SAFETY: a terminated path; RTLD_NOLOAD only adds a reference.
            unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY | libc::RTLD_NODELETE) };
        }
    }

    fn handle(&self) -> Option<*mut libc::c_void> {
        let path = CString::new(self.path.as_str()).ok()?;
        let path = if self.path.is_empty() { std::ptr::null() } else { path.as_ptr() };
        // SAFETY: a terminated path or null (the program); RTLD_NOLOAD loads nothing.
        let handle = unsafe { libc::dlopen(path, libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
        (!handle.is_null()).then_some(handle)
    }

    fn contains(&self, address: usize) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// First and last address of this library; zero until they are first asked for.
static OURS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Whether an address lies in this library.
pub(super) fn is_ours(address: usize) -> bool {
    if OURS[1].load(Ordering::Acquire) == 0
        && let Some(own) = object_of(is_ours as *const () as usize)
    {
        OURS[0].store(own.start, Ordering::Relaxed);
        // Release: who sees the end sees the start.
        OURS[1].store(own.end, Ordering::Release);
    }
    let end = OURS[1].load(Ordering::Acquire);
    (OURS[0].load(Ordering::Relaxed)..end).contains(&address)
}

/// What a walk through the loader's list looks for, and what it found.
#[derive(Default)]
struct Walk {
    /// Only the object at this address.
    address: Option<usize>,
    with_build_ids: bool,
    found: Vec<Object>,
}

impl Walk {
    fn go(mut self) -> Vec<Object> {
        // SAFETY: the callback gets back the structure that is passed here, for the time of this call.
        outside_forks(|| unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut self).cast()) });
        self.found
    }
}

/// All loaded objects, in load order.
pub(crate) fn loaded_objects() -> Vec<Object> {
    Walk::default().go()
}

/// The same with their build ids.
pub(crate) fn loaded_objects_with_build_ids() -> Vec<Object> {
    Walk { with_build_ids: true, ..Walk::default() }.go()
}

/// The object that an address lies in.
pub(crate) fn object_of(address: usize) -> Option<Object> {
    Walk { address: Some(address), ..Walk::default() }.go().pop()
}

/// How often objects were loaded so far: a change says that the list has changed.
pub(crate) fn load_count() -> u64 {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, count: *mut libc::c_void) -> i32 {
        // SAFETY: the loader passes a valid entry; `count` is the number passed below.
        unsafe { *count.cast::<u64>() = (*info).dlpi_adds };
        1
    }
    let mut count = 0u64;
    // SAFETY: as in `loaded_objects`.
    outside_forks(|| unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut count).cast()) });
    count
}

unsafe extern "C" fn collect(info: *mut libc::dl_phdr_info, _: usize, walk: *mut libc::c_void) -> i32 {
    // SAFETY: the loader passes a valid entry whose headers and name live as long as the object is loaded, which the
    // loader's lock guarantees during the callback; `walk` is the structure of `Walk::go`.
    unsafe {
        let (info, walk) = (&*info, &mut *walk.cast::<Walk>());
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
        let base = info.dlpi_addr as usize;
        let mut object = Object { start: usize::MAX, ..Object::default() };
        for header in headers.iter().filter(|header| header.p_type == libc::PT_LOAD) {
            let address = base.wrapping_add(header.p_vaddr as usize);
            object.start = object.start.min(address);
            object.end = object.end.max(address.saturating_add(header.p_memsz as usize));
        }
        if walk.address.is_some_and(|address| !object.contains(address)) {
            return 0;
        }
        if !info.dlpi_name.is_null() {
            object.path = CStr::from_ptr(info.dlpi_name).to_string_lossy().into_owned();
        }
        for note in headers.iter().filter(|header| walk.with_build_ids && header.p_type == libc::PT_NOTE) {
            let address = base.wrapping_add(note.p_vaddr as usize);
            let notes = std::slice::from_raw_parts(address as *const u8, note.p_memsz as usize);
            if object.build_id.is_empty() {
                object.build_id = build_id(notes);
            }
        }
        walk.found.push(object);
        i32::from(walk.address.is_some())
    }
}

/// Finds the GNU build id among ELF notes.
fn build_id(mut notes: &[u8]) -> String {
    let word =
        |bytes: &[u8], at: usize| bytes.get(at..at + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize);
    while let (Some(name), Some(length), Some(kind)) = (word(notes, 0), word(notes, 4), word(notes, 8)) {
        let at = 12usize.saturating_add(name.next_multiple_of(4));
        let Some(value) = notes.get(at..at.saturating_add(length)) else { break };
        if kind == 3 && notes.get(12..16) == Some(b"GNU\0") {
            let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('?');
            return value.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect();
        }
        let Some(rest) = notes.get(at.saturating_add(length.next_multiple_of(4))..) else { break };
        notes = rest;
    }
    String::new()
}

/// Address ranges of vendor runtimes, start and end; zero: unused.
static RUNTIME_CODE: [[AtomicUsize; 2]; 8] = [const { [AtomicUsize::new(0), AtomicUsize::new(0)] }; 8];
static RUNTIME_CODE_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Adds an object to the vendor runtimes, with the other runtimes that it brings along.
pub(crate) fn add_runtime_code(object: &Object) {
    add_range(object);
    add_loaded_runtimes();
}

/// Adds the vendor runtimes that are loaded by now: what one of them calls first is already not the program's own.
pub(crate) fn add_loaded_runtimes() {
    let beside = ["libamdhip64", "libhsa-runtime64", "libhsakmt", "libcudart", "libcuda.so"];
    for other in loaded_objects() {
        let file_name = other.path.rsplit('/').next().unwrap_or_default();
        if beside.iter().any(|part| file_name.starts_with(part)) {
            add_range(&other);
        }
    }
}

fn add_range(object: &Object) {
    let known = RUNTIME_CODE.iter().any(|range| range[0].load(Ordering::Acquire) == object.start);
    if known || object.start == 0 {
        return;
    }
    for range in &RUNTIME_CODE {
        if range[0].compare_exchange(0, object.start, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            // Release: a reader that sees the count sees the range; until the end is stored the range is empty.
            range[1].store(object.end, Ordering::Release);
            RUNTIME_CODE_COUNT.fetch_add(1, Ordering::Release);
            return;
        }
    }
}

/// Whether an address lies in a vendor's runtime.
#[inline(always)]
pub(crate) fn is_runtime_code(address: usize) -> bool {
    let count = RUNTIME_CODE_COUNT.load(Ordering::Relaxed).min(RUNTIME_CODE.len());
    RUNTIME_CODE[..count].iter().any(|[start, end]| {
        let start = start.load(Ordering::Relaxed);
        address >= start && address < end.load(Ordering::Relaxed)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_and_its_libraries_are_found() {
        let own = object_of(this_program_and_its_libraries_are_found as *const () as usize).unwrap();
        assert!(own.start < own.end);
        let libc = loaded_objects_with_build_ids().into_iter().find(|object| object.path.contains("libc.so")).unwrap();
        assert_eq!(libc.build_id.len(), 40, "{libc:?}");
        assert!(libc.symbol(c"getpid").is_some());
        assert!(libc.symbol(c"no_such_function").is_none());
    }

    #[test]
    fn damaged_notes_are_no_build_id() {
        assert_eq!(build_id(&[]), "");
        assert_eq!(build_id(&[0xFF; 40]), "");
        let mut note = Vec::new();
        for word in [4u32, 2, 3] {
            note.extend_from_slice(&word.to_le_bytes());
        }
        note.extend_from_slice(b"GNU\0\xAB\xCD");
        assert_eq!(build_id(&note), "abcd");
    }
}
