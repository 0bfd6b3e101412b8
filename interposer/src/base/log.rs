//! Lines on stderr that begin with `gpuoom:`, if stderr is still what it was.

use std::fmt::{Arguments, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use super::config::{self, LogLevel};

/// Device and inode of descriptor 2 when the library was loaded; 0: closed then.
static STDERR: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// A line on the stack: logging must work where the heap does not.
struct Line {
    bytes: [u8; 1024],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        // One byte stays free for the end of the line; what does not fit is cut.
        let room = self.bytes.len() - 1 - self.length;
        let text = &text.as_bytes()[..text.len().min(room)];
        self.bytes[self.length..self.length + text.len()].copy_from_slice(text);
        self.length += text.len();
        Ok(())
    }
}

fn stderr_identity() -> [u64; 2] {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: points at memory for a stat; read only when the call says that it was filled.
    match unsafe { libc::fstat(2, stat.as_mut_ptr()) } {
        // SAFETY: filled by the call.
        0 => unsafe { [stat.assume_init_ref().st_dev, stat.assume_init_ref().st_ino] },
        _ => [0, 0],
    }
}

/// Remembers what stderr is. Before the program runs.
pub(crate) fn remember_stderr() {
    let [device, inode] = stderr_identity();
    STDERR[0].store(device, Ordering::Relaxed);
    STDERR[1].store(inode, Ordering::Relaxed);
}

fn line(level: LogLevel, message: Arguments<'_>) {
    if config::get().log < level {
        return;
    }
    // A program may close descriptor 2 and get the number again for a data file; a line there would damage it.
    let [device, inode] = stderr_identity();
    let known = [STDERR[0].load(Ordering::Relaxed), STDERR[1].load(Ordering::Relaxed)];
    if [device, inode] != known || inode == 0 {
        return;
    }
    let mut line = Line { bytes: [0; 1024], length: 0 };
    let _ = write!(line, "gpuoom: {message}");
    line.bytes[line.length] = b'\n';
    // SAFETY: a buffer and its length. A failed write is nobody's concern: there is nowhere to report it.
    unsafe { libc::write(2, line.bytes.as_ptr().cast(), line.length + 1) };
}

/// Something that makes the trace useless or incomplete.
pub(crate) fn error(message: Arguments<'_>) {
    line(LogLevel::Error, message);
}

/// Something the user should know.
pub(crate) fn warn(message: Arguments<'_>) {
    line(LogLevel::Warn, message);
}

/// What the recorder does.
pub(crate) fn info(message: Arguments<'_>) {
    line(LogLevel::Info, message);
}

/// Details for those who work on the recorder.
pub(crate) fn debug(message: Arguments<'_>) {
    line(LogLevel::Debug, message);
}
