//! The objects that are loaded in this process.

use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::fork_gate::outside_forks;
use super::ranges::Ranges;
use crate::base::program_memory;

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
pub(crate) fn is_ours(address: usize) -> bool {
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
    /// Only objects whose path is one of these.
    named: Option<fn(&[u8]) -> bool>,
    with_build_ids: bool,
    /// So many objects of the list are passed over.
    skipped: usize,
    passed: usize,
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

/// The same with their build ids, without the first `skipped`. New objects come last.
pub(crate) fn loaded_objects_with_build_ids(skipped: usize) -> Vec<Object> {
    Walk { with_build_ids: true, skipped, ..Walk::default() }.go()
}

/// The object that an address lies in.
pub(crate) fn object_of(address: usize) -> Option<Object> {
    Walk { address: Some(address), ..Walk::default() }.go().pop()
}

/// How many objects are loaded.
pub(crate) fn count() -> usize {
    unsafe extern "C" fn one(_: *mut libc::dl_phdr_info, _: usize, count: *mut libc::c_void) -> i32 {
        // SAFETY: `count` is the number passed below.
        unsafe { *count.cast::<usize>() += 1 };
        0
    }
    let mut count = 0usize;
    // SAFETY: as in `loaded_objects`.
    outside_forks(|| unsafe { libc::dl_iterate_phdr(Some(one), (&raw mut count).cast()) });
    count
}

/// How often objects were loaded and unloaded so far: a change says that the list has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoadCount {
    pub(crate) loads: u64,
    pub(crate) unloads: u64,
}

/// The loader's own counts.
pub(crate) fn load_count() -> LoadCount {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, count: *mut libc::c_void) -> i32 {
        // SAFETY: the loader passes a valid entry; `count` is the structure passed below.
        unsafe {
            let (info, count) = (&*info, &mut *count.cast::<LoadCount>());
            *count = LoadCount { loads: info.dlpi_adds, unloads: info.dlpi_subs };
        }
        1
    }
    let mut count = LoadCount::default();
    // SAFETY: as in `loaded_objects`.
    outside_forks(|| unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut count).cast()) });
    count
}

/// Shows each object: first address, end, and its `.eh_frame_hdr` (0: it has none).
pub(crate) fn for_each_code_object(each: &mut dyn FnMut(u64, u64, u64)) {
    const PT_GNU_EH_FRAME: u32 = 0x6474_E550;
    unsafe extern "C" fn one(info: *mut libc::dl_phdr_info, _: usize, each: *mut libc::c_void) -> i32 {
        // SAFETY: the loader passes a valid entry; `each` is the reference passed below.
        let (info, each) = unsafe { (&*info, &mut *each.cast::<&mut dyn FnMut(u64, u64, u64)>()) };
        // SAFETY: the headers live during the callback.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let of_type = |wanted: u32| headers.iter().filter(move |header| header.p_type == wanted);
        let at = |header: &libc::Elf64_Phdr| info.dlpi_addr.wrapping_add(header.p_vaddr);
        let start = of_type(libc::PT_LOAD).map(at).min().unwrap_or(0);
        let end = of_type(libc::PT_LOAD).map(|header| at(header).saturating_add(header.p_memsz)).max().unwrap_or(0);
        each(start, end, of_type(PT_GNU_EH_FRAME).map(at).next().unwrap_or(0));
        0
    }
    let mut each = each;
    // SAFETY: as in `loaded_objects`.
    outside_forks(|| unsafe { libc::dl_iterate_phdr(Some(one), (&raw mut each).cast()) });
}

unsafe extern "C" fn collect(info: *mut libc::dl_phdr_info, _: usize, walk: *mut libc::c_void) -> i32 {
    // SAFETY: the loader passes a valid entry whose headers and name live as long as the object is loaded, which the
    // loader's lock guarantees during the callback; `walk` is the structure of `Walk::go`.
    unsafe {
        let (info, walk) = (&*info, &mut *walk.cast::<Walk>());
        walk.passed += 1;
        if walk.passed <= walk.skipped {
            return 0;
        }
        let name = if info.dlpi_name.is_null() { c"" } else { CStr::from_ptr(info.dlpi_name) };
        if walk.named.is_some_and(|is_one| !is_one(name.to_bytes())) {
            return 0;
        }
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
        object.path = name.to_string_lossy().into_owned();
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

/// Longest build id that is read, in bytes.
pub(crate) const MAX_BUILD_ID_BYTES: usize = 64;

/// Reads the build id of the object whose ELF header lies at `start`, and which may go away meanwhile; returns its length in
/// bytes, 0 where there is none. Uses no heap.
pub(crate) fn read_build_id(start: u64, out: &mut [u8; MAX_BUILD_ID_BYTES]) -> usize {
    const HEADER_BYTES: usize = std::mem::size_of::<libc::Elf64_Phdr>();
    const MAX_HEADERS: u64 = 32;
    const MAX_NOTE_BYTES: usize = 256;
    let mut elf = [0u8; std::mem::size_of::<libc::Elf64_Ehdr>()];
    if !program_memory::read(start, &mut elf) || elf[..4] != *b"\x7fELF" {
        return 0;
    }
    let half = |at: usize| u64::from(u16::from_le_bytes([elf[at], elf[at + 1]]));
    let word = |bytes: &[u8], at: usize| bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    // `e_phoff` and `e_phnum`; `p_vaddr` and `p_memsz`. A library's first segment has its file's first bytes.
    let (headers, count) = (word(&elf, 32), half(56).min(MAX_HEADERS));
    let header = |index: u64| {
        let mut header = [0u8; HEADER_BYTES];
        let at = start.wrapping_add(headers).wrapping_add(index * HEADER_BYTES as u64);
        program_memory::read(at, &mut header).then_some(header)
    };
    let of_type = |wanted: u32| (0..count).filter_map(header).filter(move |header| header[..4] == wanted.to_le_bytes());
    let first = of_type(libc::PT_LOAD).map(|header| word(&header, 16) & !0xFFF).min().unwrap_or(0);
    for header in of_type(libc::PT_NOTE) {
        let mut notes = [0u8; MAX_NOTE_BYTES];
        let notes = &mut notes[..(word(&header, 40) as usize).min(MAX_NOTE_BYTES)];
        if !program_memory::read(start.wrapping_sub(first).wrapping_add(word(&header, 16)), notes) {
            continue;
        }
        if let Some(found) = find_build_id(notes) {
            let length = found.len().min(out.len());
            out[..length].copy_from_slice(&found[..length]);
            return length;
        }
    }
    0
}

/// The GNU build id among ELF notes in hexadecimal, empty where there is none.
fn build_id(notes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('?');
    let found = find_build_id(notes).unwrap_or_default();
    found.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn find_build_id(mut notes: &[u8]) -> Option<&[u8]> {
    let word =
        |bytes: &[u8], at: usize| bytes.get(at..at + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize);
    while let (Some(name), Some(length), Some(kind)) = (word(notes, 0), word(notes, 4), word(notes, 8)) {
        let at = 12usize.saturating_add(name.next_multiple_of(4));
        let value = notes.get(at..at.saturating_add(length))?;
        if kind == 3 && notes.get(12..16) == Some(b"GNU\0") {
            return Some(value);
        }
        notes = notes.get(at.saturating_add(length.next_multiple_of(4))..)?;
    }
    None
}

/// Code of the vendor runtimes.
static RUNTIME_CODE: Ranges<8> = Ranges::new();
/// Objects that a real function was found in: they are held, so their addresses are theirs for good.
static HELD: Ranges<32> = Ranges::new();

/// Adds an object to the vendor runtimes, with the other runtimes that it brings along.
pub(crate) fn add_runtime_code(object: &Object) {
    RUNTIME_CODE.add(object.start, object.end);
    add_loaded_runtimes();
}

/// Adds the vendor runtimes that are loaded by now: what one of them calls first is already not the program's own.
pub(crate) fn add_loaded_runtimes() {
    static ADDED_AT: AtomicU64 = AtomicU64::new(0);
    let loads = load_count().loads;
    if ADDED_AT.load(Ordering::Relaxed) == loads {
        return;
    }
    fn is_runtime(path: &[u8]) -> bool {
        const BESIDE: [&str; 5] = ["libamdhip64", "libhsa-runtime64", "libhsakmt", "libcudart", "libcuda.so"];
        let file_name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        BESIDE.iter().any(|part| file_name.starts_with(part.as_bytes()))
    }
    for runtime in (Walk { named: Some(is_runtime), ..Walk::default() }).go() {
        RUNTIME_CODE.add(runtime.start, runtime.end);
    }
    ADDED_AT.store(loads, Ordering::Relaxed);
}

/// Whether an address lies in a vendor's runtime.
#[inline(always)]
pub(crate) fn is_runtime_code(address: usize) -> bool {
    RUNTIME_CODE.start_around(address).is_some()
}

/// Whether an address lies in the same object as a real function that was found.
pub(super) fn is_beside(address: usize, real: usize) -> bool {
    HELD.start_around(real).is_some_and(|start| HELD.start_around(address) == Some(start))
}

/// First address of the object that a real function lies in; the object is kept loaded from now on.
pub(crate) fn hold_around(function: usize, is_runtime: bool) -> Option<usize> {
    let known = HELD.start_around(function);
    if let Some(start) = known.filter(|_| !is_runtime || is_runtime_code(function)) {
        if is_runtime {
            add_loaded_runtimes();
        }
        return Some(start);
    }
    let object = object_of(function)?;
    if is_runtime {
        add_runtime_code(&object);
    }
    // A library that goes away under us would leave a pointer to nothing behind.
    object.hold();
    HELD.add(object.start, object.end);
    Some(object.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_and_its_libraries_are_found() {
        let own = object_of(this_program_and_its_libraries_are_found as *const () as usize).unwrap();
        assert!(own.start < own.end);
        let libc = loaded_objects_with_build_ids(0).into_iter().find(|object| object.path.contains("libc.so")).unwrap();
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
