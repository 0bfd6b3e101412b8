//! The recorder's own threads: deaf to signals, with a name, keeping nothing of the program alive.

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::base::{guard, thread};

type Work = Box<dyn FnOnce() + Send>;

/// Starts a thread; `false` when the system refuses. The caller must be a thread of the program, or the new thread would
/// share the descriptors of [`forget_descriptors`].
pub(crate) fn start(name: &'static CStr, work: impl FnOnce() + Send + 'static) -> bool {
    let work: Work = Box::new(move || {
        if !has_heap() {
            return;
        }
        note_own();
        // SAFETY: this thread's own state; a terminated name of at most 15 bytes.
        unsafe {
            thread::current().is_recorders.set(true);
            libc::prctl(libc::PR_SET_NAME, name.as_ptr());
        }
        guard::cold((), work);
    });
    let argument = Box::into_raw(Box::new(work));
    // SAFETY: plain pthread calls on valid memory; the argument goes to the thread if there is one. All signals are held
    // back, so that the new thread inherits a full mask: it must never run the program's handlers, and SIGXFSZ or SIGPIPE
    // must never reach it.
    guard::without_signals(|| unsafe {
        let mut attributes = std::mem::zeroed();
        libc::pthread_attr_init(&mut attributes);
        libc::pthread_attr_setdetachstate(&mut attributes, libc::PTHREAD_CREATE_DETACHED);
        libc::pthread_attr_setstacksize(&mut attributes, 512 << 10);
        let mut id = std::mem::zeroed();
        let created = libc::pthread_create(&mut id, &attributes, run, argument.cast()) == 0;
        libc::pthread_attr_destroy(&mut attributes);
        if !created {
            drop(Box::from_raw(argument));
        }
        created
    })
}

/// Starts a thread with work that may be ended by `pthread_exit`: it runs without anything of Rust's around it that would
/// have to be cleaned up. `false` when the system refuses.
pub(crate) fn start_plain(name: &'static CStr, work: extern "C-unwind" fn()) -> bool {
    // SAFETY: plain pthread calls on valid memory; signals as in `start`. The function has the signature that is asked for,
    // but for the permission to unwind.
    guard::without_signals(|| unsafe {
        NAME.store(name.as_ptr().cast_mut(), Ordering::Relaxed);
        let mut attributes = std::mem::zeroed();
        libc::pthread_attr_init(&mut attributes);
        libc::pthread_attr_setdetachstate(&mut attributes, libc::PTHREAD_CREATE_DETACHED);
        libc::pthread_attr_setstacksize(&mut attributes, 512 << 10);
        let mut id = std::mem::zeroed();
        let run: extern "C-unwind" fn(*mut libc::c_void) -> *mut libc::c_void = run_plain;
        let run = std::mem::transmute::<
            extern "C-unwind" fn(*mut libc::c_void) -> *mut libc::c_void,
            extern "C" fn(*mut libc::c_void) -> *mut libc::c_void,
        >(run);
        let created = libc::pthread_create(&mut id, &attributes, run, work as *mut libc::c_void) == 0;
        libc::pthread_attr_destroy(&mut attributes);
        created
    })
}

/// Starts a thread that is like one of the program's, but for the signals, which it holds back until it changes that. `false` when the
/// system refuses.
pub(crate) fn start_like_the_programs(run: extern "C" fn(*mut libc::c_void) -> *mut libc::c_void) -> bool {
    let mut id = 0;
    // SAFETY: a plain pthread call: a place for the number, and no attributes.
    guard::without_signals(|| unsafe {
        libc::pthread_create(&mut id, std::ptr::null(), run, std::ptr::null_mut()) == 0
    })
}

/// The kernel's numbers of the recorder's threads, 0: none. Relaxed everywhere: each is one word, and a thread that is not there yet only
/// makes it seem that the program has one more.
static OWN: [AtomicU32; 4] = [const { AtomicU32::new(0) }; 4];

/// The calling thread is one of the recorder's.
fn note_own() {
    let id = thread::kernel_thread_id();
    let _ = OWN.iter().find(|own| own.compare_exchange(0, id, Ordering::Relaxed, Ordering::Relaxed).is_ok());
}

/// A forked child has none of them.
pub(crate) fn forget_parent() {
    OWN.iter().for_each(|own| own.store(0, Ordering::Relaxed));
}

/// How many of the recorder's threads run. Python may have ended one of them, and the kernel given its number to another thread.
pub(crate) fn running() -> usize {
    let numbers = OWN.iter().map(|own| own.load(Ordering::Relaxed)).filter(|own| *own != 0);
    let name = |own: u32| std::fs::read(format!("/proc/self/task/{own}/comm")).unwrap_or_default();
    numbers.filter(|own| name(*own).starts_with(b"gpuoom")).count()
}

/// Name of the thread that [`start_plain`] starts: there is one of its kind.
static NAME: AtomicPtr<libc::c_char> = AtomicPtr::new(std::ptr::null_mut());

/// Blocks that a thread of the recorder asks for before it begins. A thread that gets no heap of its own has each block in a mapping of
/// its own: where a heap can't be had, so many mappings can't either.
const BLOCKS: usize = 64;
/// Bytes of each.
const BLOCK_BYTES: usize = 1024;

/// Whether the C library has memory for this thread: where the process has no mapping left, there is none for a thread that begins, and
/// the standard library, which needs some for the thread's own name, would end the process. Without the thread, the program's
/// threads do its work. What is asked for here is given back, and stays with the thread's heap.
fn has_heap() -> bool {
    let mut blocks = [std::ptr::null_mut(); BLOCKS];
    // SAFETY: plain calls; each block is given back once (a null is none), and nothing else is done with it.
    unsafe {
        blocks.iter_mut().for_each(|block| *block = libc::malloc(BLOCK_BYTES));
        blocks.iter().for_each(|block| libc::free(*block));
    }
    if blocks.iter().any(|block| block.is_null()) {
        return false;
    }
    // The standard library's own block of this thread, which no allocator of ours can stand in for.
    let _ = std::thread::current();
    true
}

extern "C-unwind" fn run_plain(work: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: the function that was passed to `start_plain`; this thread's own state; a terminated name.
    unsafe {
        note_own();
        thread::current().is_recorders.set(true);
        libc::prctl(libc::PR_SET_NAME, NAME.load(Ordering::Relaxed));
        if !has_heap() {
            return std::ptr::null_mut();
        }
        std::mem::transmute::<*mut libc::c_void, extern "C-unwind" fn()>(work)();
    }
    std::ptr::null_mut()
}

extern "C" fn run(argument: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: made by `start` for this thread alone.
    let work = unsafe { Box::from_raw(argument.cast::<Work>()) };
    work();
    std::ptr::null_mut()
}

/// Gives the calling thread a table of descriptors of its own with nothing in it but `kept`.
///
/// A program may close descriptors wholesale and open files of its own under the same numbers; a file that this thread has
/// open for a moment in the shared table would be closed under it, and then this thread would close the program's. The
/// copies are closed at once, so that no pipe of the program stays open for our sake.
pub(crate) fn forget_descriptors(kept: i32) {
    const CLOSE_RANGE_UNSHARE: libc::c_uint = 2;
    if kept <= 0 {
        return;
    }
    // SAFETY: numbers only. Nothing of the program is closed: either call first makes a copy of its table, which is this
    // thread's own. The first is preferred because containers often allow it and not `unshare`.
    unsafe {
        let below = libc::syscall(libc::SYS_close_range, 0, kept - 1, CLOSE_RANGE_UNSHARE) == 0;
        if !below && libc::unshare(libc::CLONE_FILES) != 0 {
            return;
        }
        thread::current().has_own_descriptors.set(true);
        if !below || libc::syscall(libc::SYS_close_range, kept + 1, libc::c_uint::MAX, 0) != 0 {
            close_one_by_one(kept);
        }
    }
}

/// For kernels before 5.9, which have no `close_range`.
fn close_one_by_one(kept: i32) {
    let Ok(entries) = std::fs::read_dir("/proc/thread-self/fd") else { return };
    let numbers: Vec<i32> = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number != kept) {
        // SAFETY: this thread's own table; the directory's descriptor is closed already and fails harmlessly.
        unsafe { libc::close(number) };
    }
}
