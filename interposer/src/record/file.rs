//! The trace file: made once, named only when its header is whole, never overwritten, appended to only while its descriptor is provably ours.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};

use crate::base::thread;

/// Descriptors below this are left to the program, which may count on low numbers.
const LOWEST_DESCRIPTOR: i32 = 400;

/// Why bytes did not get into the file. The numbers are those of the header's `trouble`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Trouble {
    /// No space, or a quota.
    DiskFull = 1,
    /// `RLIMIT_FSIZE`.
    SizeLimit = 2,
    /// The program closed our descriptor, and the file can't be opened again (another root, removed).
    DescriptorLost = 3,
    /// Anything else.
    Other = 4,
}

/// An open trace file.
#[derive(Debug)]
pub(crate) struct File {
    /// Its number in the program's table, and in the table of the recorder's own thread.
    descriptors: [AtomicI32; 2],
    path: PathBuf,
    identity: (u64, u64),
    named: bool,
}

/// Tries `path`, `path.PID`, `path.PID.1`, ... until `make` does not find the name taken.
fn first_free(path: &Path, pid: u32, make: impl Fn(&CString) -> i32) -> Result<(i32, PathBuf), std::io::Error> {
    let with = |ending: String| {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    };
    let mut candidate = path.to_owned();
    for attempt in 0..1000 {
        let name = c_path(&candidate).ok_or(std::io::ErrorKind::InvalidInput)?;
        let made = make(&name);
        if made >= 0 {
            return Ok((made, candidate));
        }
        match last_errno() {
            libc::EEXIST if attempt == 0 => candidate = with(format!(".{pid}")),
            libc::EEXIST => candidate = with(format!(".{pid}.{attempt}")),
            error => return Err(std::io::Error::from_raw_os_error(error)),
        }
    }
    Err(std::io::ErrorKind::AlreadyExists.into())
}

fn last_errno() -> i32 {
    crate::base::guard::errno()
}

fn identity_of(descriptor: i32) -> Option<(u64, u64)> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: points at memory for a stat; read only when the call says that it was filled.
    unsafe {
        (libc::fstat(descriptor, stat.as_mut_ptr()) == 0).then(|| {
            let stat = stat.assume_init();
            (stat.st_dev, stat.st_ino)
        })
    }
}

fn c_path(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}

/// Moves a descriptor out of the program's way.
fn high(descriptor: i32) -> i32 {
    // SAFETY: descriptor numbers only; on failure (a low RLIMIT_NOFILE) the number stays as it is.
    unsafe {
        let moved = libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR);
        if moved < 0 {
            return descriptor;
        }
        libc::close(descriptor);
        moved
    }
}

impl File {
    /// Makes a new file for `path`. It has no name until [`File::publish`], so nobody ever finds half a header; on file
    /// systems that can't do that it is named at once.
    pub(crate) fn create(path: &Path, pid: u32) -> Result<Self, std::io::Error> {
        let wanted = path.to_owned();
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let directory = c_path(directory).ok_or(std::io::ErrorKind::InvalidInput)?;
        // SAFETY: a terminated path. 0600: a trace holds a command line and an environment.
        let unnamed =
            unsafe { libc::open(directory.as_ptr(), libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC, 0o600) };
        // SAFETY: a terminated path.
        let can_be_named = unsafe { libc::access(c"/proc/thread-self/fd".as_ptr(), libc::X_OK) } == 0;
        if unnamed >= 0 && can_be_named {
            return Ok(File::open(unnamed, wanted, false));
        }
        if unnamed >= 0 {
            // SAFETY: opened above and not handed out.
            unsafe { libc::close(unnamed) };
        }
        let (descriptor, path) = first_free(path, pid, |name| {
            let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
            // SAFETY: a terminated path.
            unsafe { libc::open(name.as_ptr(), flags, 0o600) }
        })?;
        Ok(File::open(descriptor, path, true))
    }

    fn open(descriptor: i32, path: PathBuf, named: bool) -> Self {
        let descriptor = high(descriptor);
        let identity = identity_of(descriptor).unwrap_or_default();
        File { descriptors: [AtomicI32::new(descriptor), AtomicI32::new(descriptor)], path, identity, named }
    }

    /// Gives the file its name: `path`; where that is taken, `path.PID`, then `path.PID.1` and so on.
    pub(crate) fn publish(&mut self, pid: u32) -> Result<(), std::io::Error> {
        if self.named {
            return Ok(());
        }
        let ours = format!("/proc/thread-self/fd/{}\0", self.number());
        let (_, path) = first_free(&self.path, pid, |name| {
            let here = libc::AT_FDCWD;
            // SAFETY: two terminated paths. The link in /proc must be followed to the file.
            unsafe { libc::linkat(here, ours.as_ptr().cast(), here, name.as_ptr(), libc::AT_SYMLINK_FOLLOW) }
        })?;
        self.path = path;
        self.named = true;
        Ok(())
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its number in the table of the calling thread.
    pub(crate) fn number(&self) -> i32 {
        self.slot().load(Ordering::Relaxed)
    }

    fn slot(&self) -> &AtomicI32 {
        &self.descriptors[usize::from(thread::current().has_own_descriptors.get())]
    }

    /// The descriptor, if it still is our file; opened anew where the program closed it.
    fn descriptor(&self) -> Result<i32, Trouble> {
        let descriptor = self.number();
        if identity_of(descriptor) == Some(self.identity) {
            return Ok(descriptor);
        }
        // The number may belong to the program by now, so it is not closed.
        let name = c_path(&self.path).ok_or(Trouble::DescriptorLost)?;
        // SAFETY: a terminated path.
        let opened = unsafe { libc::open(name.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOFOLLOW) };
        if opened < 0 || identity_of(opened) != Some(self.identity) {
            if opened >= 0 {
                // SAFETY: opened above and not handed out.
                unsafe { libc::close(opened) };
            }
            return Err(Trouble::DescriptorLost);
        }
        let opened = high(opened);
        self.slot().store(opened, Ordering::Relaxed);
        Ok(opened)
    }

    /// Writes all bytes at an offset, or says why not. Never raises `SIGXFSZ`.
    pub(crate) fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), Trouble> {
        if offset.saturating_add(bytes.len() as u64) > size_limit() {
            return Err(Trouble::SizeLimit);
        }
        let descriptor = self.descriptor()?;
        let mut done = 0;
        while done < bytes.len() {
            // SAFETY: the rest of the slice and its length.
            let written = unsafe {
                let rest = &bytes[done..];
                libc::pwrite(descriptor, rest.as_ptr().cast(), rest.len(), (offset + done as u64) as i64)
            };
            match written {
                1.. => done += written as usize,
                _ if written < 0 && last_errno() == libc::EINTR => {}
                _ => return Err(trouble_of(last_errno())),
            }
        }
        Ok(())
    }

    /// Gives the file its first `length` bytes on disk, not sparse: a store into a hole of a full disk would raise
    /// `SIGBUS` in the program.
    pub(crate) fn allocate(&self, length: u64) -> Result<(), Trouble> {
        if length > size_limit() {
            return Err(Trouble::SizeLimit);
        }
        let descriptor = self.descriptor()?;
        // SAFETY: descriptor and numbers only.
        match unsafe { libc::fallocate(descriptor, 0, 0, length as i64) } {
            0 => Ok(()),
            _ if matches!(last_errno(), libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL) => self.write_zeros(length),
            _ => Err(trouble_of(last_errno())),
        }
    }

    fn write_zeros(&self, length: u64) -> Result<(), Trouble> {
        let zeros = [0u8; 4096];
        for offset in (0..length).step_by(zeros.len()) {
            self.write_at(&zeros[..(length - offset).min(4096) as usize], offset)?;
        }
        Ok(())
    }

    /// Maps the first `length` bytes, shared with the file.
    pub(crate) fn map(&self, length: usize) -> Option<*mut u8> {
        let descriptor = self.descriptor().ok()?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: a fresh mapping; checked below.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, descriptor, 0) };
        (base != libc::MAP_FAILED).then_some(base.cast())
    }

    /// Removes a file that could not be set up.
    pub(crate) fn remove(&self) {
        if let (Ok(descriptor), Some(name)) = (self.descriptor(), c_path(&self.path)) {
            // SAFETY: a terminated path, and a descriptor that was just shown to be ours.
            unsafe {
                if self.named {
                    libc::unlink(name.as_ptr());
                }
                libc::close(descriptor);
            }
        }
    }
}

fn trouble_of(errno: i32) -> Trouble {
    match errno {
        libc::ENOSPC | libc::EDQUOT => Trouble::DiskFull,
        libc::EFBIG => Trouble::SizeLimit,
        _ => Trouble::Other,
    }
}

/// The soft limit of file sizes: a write beyond it would raise a signal whose default action ends the program.
fn size_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: points at an rlimit.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) };
    limit.rlim_cur
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_in(directory: &tempfile::TempDir) -> PathBuf {
        directory.path().join("t.bin")
    }

    fn with(path: &Path, ending: &str) -> PathBuf {
        PathBuf::from(format!("{}{ending}", path.display()))
    }

    #[test]
    fn a_taken_path_is_never_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = path_in(&directory);
        std::fs::write(&path, "mine").unwrap();
        let mut file = File::create(&path, 42).unwrap();
        file.publish(42).unwrap();
        assert_eq!(file.path(), with(&path, ".42"));
        let mut again = File::create(&path, 42).unwrap();
        again.publish(42).unwrap();
        assert_eq!(again.path(), with(&path, ".42.1"));
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    }

    #[test]
    fn a_reused_descriptor_is_not_written_to() {
        let directory = tempfile::tempdir().unwrap();
        let path = path_in(&directory);
        let mut file = File::create(&path, 1).unwrap();
        file.publish(1).unwrap();
        let other = std::fs::File::create(with(&path, ".other")).unwrap();
        let ours = file.number();
        // The program closes everything and gets our number for its own file.
        // SAFETY: two numbers, both open.
        unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&other), ours) };
        file.write_at(b"trace", 0).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"trace");
        assert_eq!(std::fs::read(with(&path, ".other")).unwrap(), b"");
    }
}
