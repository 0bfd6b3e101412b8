//! Reads memory of the program that may not be there: pointers that nobody has checked yet.

use super::{guard, thread};

/// Reads a word.
pub(crate) fn word(address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    read(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
}

/// Reads a terminated text, as far as `out` has room and pages can be read; returns its length.
pub(crate) fn text(address: u64, out: &mut [u8]) -> usize {
    let mut length = 0;
    while length < out.len() {
        let at = address.wrapping_add(length as u64);
        let in_page = 4096 - (at & 4095) as usize;
        let end = out.len().min(length + in_page);
        let part = &mut out[length..end];
        if !read(at, part) {
            return length;
        }
        if let Some(terminator) = part.iter().position(|byte| *byte == 0) {
            return length + terminator;
        }
        length = end;
    }
    length
}

/// Reads all of `out`, or nothing that counts; leaves `errno` alone. The kernel does the copy, so a bad address is an
/// answer and not a crash.
pub(crate) fn read(address: u64, out: &mut [u8]) -> bool {
    let errno = guard::errno();
    let local = libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: out.len() };
    // SAFETY: one local buffer of that length; the remote side is checked by the kernel.
    let got = unsafe { libc::process_vm_readv(own_id(), &local, 1, &remote, 1, 0) };
    let refused = got < 0 && matches!(guard::errno(), libc::EPERM | libc::ENOSYS);
    guard::set_errno(errno);
    if refused { read_tested(address, out) } else { usize::try_from(got) == Ok(out.len()) }
}

/// Who the kernel copies from: the calling thread and not the process, which has no memory to show once its first thread
/// has ended by `pthread_exit`, while the others go on.
fn own_id() -> libc::pid_t {
    thread::kernel_thread_id() as libc::pid_t
}

/// Whether each page from `low` (the beginning of one) up to `end` can be read.
pub(crate) fn are_readable(low: u64, end: u64) -> bool {
    const AT_ONCE: usize = 64;
    let errno = guard::errno();
    let mut next = low;
    let mut readable = true;
    while readable && next < end {
        let count = ((end - next).div_ceil(4096) as usize).min(AT_ONCE);
        let mut bytes = [0u8; AT_ONCE];
        let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: count };
        let page =
            |index: usize| libc::iovec { iov_base: (next + index as u64 * 4096) as *mut libc::c_void, iov_len: 1 };
        let pages: [libc::iovec; AT_ONCE] = std::array::from_fn(page);
        // SAFETY: one local buffer of that length; the remote side is checked by the kernel.
        let got = unsafe { libc::process_vm_readv(own_id(), &local, 1, pages.as_ptr(), count as libc::c_ulong, 0) };
        readable = match usize::try_from(got) {
            Ok(got) => got == count,
            Err(_) if matches!(guard::errno(), libc::EPERM | libc::ENOSYS) => {
                (0..count).all(|index| is_readable(next + index as u64 * 4096))
            }
            Err(_) => false,
        };
        next += count as u64 * 4096;
    }
    guard::set_errno(errno);
    readable
}

/// For containers that forbid the call above: tests the first and the last word of each page, then reads. Another thread
/// may still unmap the memory in between, as it may under the vendor's library.
fn read_tested(address: u64, out: &mut [u8]) -> bool {
    let Some(last) = address.checked_add(out.len().max(8) as u64 - 8) else { return false };
    let pages = (address | 4095)..last;
    if ![address, last].into_iter().chain(pages.step_by(4096).map(|end| end + 1)).all(is_readable) {
        return false;
    }
    // SAFETY: every page of the range was readable just now.
    unsafe { std::ptr::copy_nonoverlapping(address as *const u8, out.as_mut_ptr(), out.len()) };
    true
}

/// The kernel reads the set of signals before it looks at what is to be done with it, which here is nothing.
fn is_readable(address: u64) -> bool {
    let errno = guard::errno();
    // SAFETY: the kernel checks the pointer; with this `how` it changes nothing. It reads 8 bytes.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, -1, address, 0usize, 8usize) };
    let readable = guard::errno() != libc::EFAULT;
    guard::set_errno(errno);
    readable
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two pages, the second of which nobody may read.
    fn half_readable() -> u64 {
        // SAFETY: a fresh mapping of two pages, the second protected; it stays.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let pages = libc::mmap(std::ptr::null_mut(), 8192, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            assert_ne!(pages, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(pages.cast::<u8>().add(4096).cast(), 4096, libc::PROT_NONE), 0);
            pages as u64
        }
    }

    #[test]
    fn a_bad_address_is_an_answer() {
        assert_eq!(word(8), None);
        let value = 77u64;
        assert_eq!(word(&raw const value as u64), Some(77));
        let mut out = [0; 16];
        let length = text(c"text".as_ptr() as u64, &mut out);
        assert_eq!(&out[..length], b"text");
    }

    #[test]
    fn a_text_ends_where_it_is_terminated_or_can_be_read_no_further() {
        let long = vec![b'x'; 9000];
        let mut out = [0; 8500];
        assert_eq!(text(long.as_ptr() as u64, &mut out), 8500);
        assert_eq!(out[8499], b'x');
        let pages = half_readable();
        assert_eq!(text(pages + 4096, &mut out), 0);
        // SAFETY: the first of the two pages can be written.
        unsafe { std::ptr::write_bytes((pages + 4090) as *mut u8, b'y', 6) };
        assert_eq!(text(pages + 4090, &mut out), 6);
    }

    #[test]
    fn pages_are_tested_one_by_one() {
        let pages = half_readable();
        assert!(are_readable(pages, pages + 4096) && !are_readable(pages, pages + 4097));
        assert!(!are_readable(0, 4096) && are_readable(pages, pages));
    }

    #[test]
    fn both_ways_of_reading_stop_at_what_is_not_there() {
        let pages = half_readable();
        for reads in [read, read_tested] {
            assert!(reads(pages + 4096 - 40, &mut [0; 40]));
            assert!(!reads(pages + 4096 - 40, &mut [0; 41]));
            assert!(!reads(pages + 4096, &mut [0; 1]));
            assert!(!reads(0, &mut [0; 24]));
            assert!(!reads(u64::MAX - 3, &mut [0; 24]));
        }
        let value = [1u64, 2, 3];
        let mut out = [0; 24];
        assert!(read_tested(value.as_ptr() as u64, &mut out));
        assert_eq!(out[8], 2);
    }
}
