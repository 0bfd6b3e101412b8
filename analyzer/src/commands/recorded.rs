//! The traces that a recorded command left, and what is noted in them when it has ended.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::mem::offset_of;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Component, Path, PathBuf};
use std::process::ExitStatus;

use gpuoom_trace::FORMAT_MAJOR;
use gpuoom_trace::header::{HEADER_BYTES, Header, MAGIC, end};

/// A trace that was made by the command or by a process that it started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoundTrace {
    /// The file.
    pub(super) path: PathBuf,
    /// Process that recorded it.
    pub(super) pid: u32,
}

/// Directories that are looked through for one pattern at most.
const MOST_DIRECTORIES: usize = 10_000;

/// A pattern that stands for exactly this path.
pub(super) fn literal(path: &Path) -> PathBuf {
    let mut pattern = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        pattern.extend_from_slice(if *byte == b'%' { b"%%" } else { std::slice::from_ref(byte) });
    }
    OsString::from_vec(pattern).into()
}

/// Traces that fit the pattern and were made since the command began, by path.
pub(super) fn find_traces(pattern: &Path, began_ns: u64) -> Vec<FoundTrace> {
    let Some(name) = pattern.file_name() else { return Vec::new() };
    let mut found: Vec<FoundTrace> = directories_of(pattern)
        .iter()
        .flat_map(|directory| fitting(directory, |entry| matches(name.as_bytes(), entry, true)))
        .filter_map(|path| {
            let header = read_header(&path).ok().flatten()?;
            (header.clock_first.wall_ns >= began_ns).then_some(FoundTrace { path, pid: header.pid })
        })
        .collect();
    found.sort_by(|one, other| one.path.cmp(&other.path));
    found
}

/// The directories that a pattern's directory can stand for: ranks and processes may each have one of their own.
fn directories_of(pattern: &Path) -> Vec<PathBuf> {
    let mut directories = vec![PathBuf::new()];
    for part in pattern.parent().into_iter().flat_map(Path::components) {
        let Component::Normal(name) = part else {
            directories.iter_mut().for_each(|directory| directory.push(part));
            continue;
        };
        if !name.as_bytes().contains(&b'%') {
            directories.iter_mut().for_each(|directory| directory.push(name));
            continue;
        }
        let below =
            directories.iter().flat_map(|directory| fitting(directory, |entry| matches(name.as_bytes(), entry, false)));
        directories = below.filter(|path| path.is_dir()).take(MOST_DIRECTORIES).collect();
    }
    directories
}

/// The entries of a directory whose names fit.
fn fitting(directory: &Path, fits: impl Fn(&[u8]) -> bool) -> Vec<PathBuf> {
    let opened = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let entries = std::fs::read_dir(opened).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name()).filter(|name| fits(name.as_bytes()));
    names.map(|name| directory.join(name)).collect()
}

/// Whether a name can come from a pattern; that of a file also with what keeps names apart behind it: `.PID`, `.PID.1`.
fn matches(pattern: &[u8], name: &[u8], is_file: bool) -> bool {
    let number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    match pattern {
        [] => match name {
            [] => true,
            [b'.', behind @ ..] => {
                let mut parts = behind.split(|byte| *byte == b'.');
                is_file && parts.clone().count() <= 2 && parts.all(number)
            }
            _ => false,
        },
        [b'%', b'p' | b'r', rest @ ..] => {
            let digits = name.iter().take_while(|byte| byte.is_ascii_digit()).count();
            (1..=digits).any(|length| matches(rest, &name[length..], is_file))
        }
        [b'%', b'e' | b'h', rest @ ..] => (0..=name.len()).any(|length| matches(rest, &name[length..], is_file)),
        [b'%', b'%', rest @ ..] => name.first() == Some(&b'%') && matches(rest, &name[1..], is_file),
        [first, rest @ ..] => name.first() == Some(first) && matches(rest, &name[1..], is_file),
    }
}

fn read_header(path: &Path) -> io::Result<Option<Header>> {
    let mut page = [0u8; HEADER_BYTES];
    File::open(path)?.read_exact(&mut page)?;
    let header: Header = bytemuck::pod_read_unaligned(&page);
    Ok((header.magic == MAGIC && header.major <= FORMAT_MAJOR).then_some(header))
}

/// Writes how the process ended into its trace, where the recorder could not see it, or saw an exit on the way to which it crashed: in
/// another library's handler, or while runtimes are taken down.
pub(super) fn note_end(path: &Path, status: ExitStatus) -> io::Result<()> {
    let kind = read_header(path)?.map(|header| header.end_kind);
    let is_open = kind == Some(end::UNKNOWN) || kind == Some(end::EXITED) && status.signal().is_some();
    let (kind, code) = match (status.code(), status.signal()) {
        _ if !is_open => return Ok(()),
        (Some(code), _) => (end::EXITED, code),
        (None, Some(signal)) => (end::SIGNALED, signal),
        (None, None) => return Ok(()),
    };
    let file = OpenOptions::new().write(true).open(path)?;
    // The code first: a reader that comes in between must not see an end without its code.
    file.write_all_at(&code.to_le_bytes(), offset_of!(Header, end_code) as u64)?;
    file.write_all_at(&kind.to_le_bytes(), offset_of!(Header, end_kind) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TraceBuilder;

    #[test]
    fn names_fit_their_patterns() {
        for (pattern, name, fits) in [
            ("gpuoom-%e-%p.trace.bin", "gpuoom-python3-4711.trace.bin", true),
            ("gpuoom-%e-%p.trace.bin", "gpuoom-a-b-4711.trace.bin", true),
            ("gpuoom-%e-%p.trace.bin", "gpuoom-python3-x.trace.bin", false),
            ("run.bin", "run.bin", true),
            ("run.bin", "run.bin.4712", true),
            ("run.bin", "run.bin.old", false),
            ("run.bin", "run.bin2", false),
            ("run.bin", "run.bin.4712.1", true),
            ("run.bin", "run.bin.4712.1.2", false),
            ("%h-%r.bin", "atlas-0.bin", true),
            ("%h-%r.bin", "atlas-x.bin", false),
            ("100%%-%p.bin", "100%-7.bin", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes(), true), fits, "{pattern} {name}");
        }
        assert!(matches(b"rank%r", b"rank12", false) && !matches(b"rank%r", b"rank12.4711", false));
    }

    #[test]
    fn ranks_may_have_directories_of_their_own() {
        let directory = tempfile::tempdir().unwrap();
        let trace = TraceBuilder::default();
        for path in ["run/rank0/atlas.bin", "run/rank1/atlas.bin", "run/rank1/x.txt", "run/other/atlas.bin"] {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            trace.write(&path).unwrap();
        }
        let pattern = directory.path().join("run/rank%r/%h.bin");
        let found = find_traces(&pattern, 0);
        let expected = ["run/rank0/atlas.bin", "run/rank1/atlas.bin"].map(|path| directory.path().join(path));
        assert_eq!(found.into_iter().map(|trace| trace.path).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn only_new_traces_are_found_and_get_their_end() {
        let directory = tempfile::tempdir().unwrap();
        let pattern = directory.path().join("run-%p.bin");
        let at = |name: &str| directory.path().join(name);
        let mut trace = TraceBuilder::default();
        let began = trace.header.clock_first.wall_ns;
        trace.write(&at("run-4711.bin")).unwrap();
        trace.header.clock_first.wall_ns -= 1;
        trace.write(&at("run-4710.bin")).unwrap();
        std::fs::write(at("run-4709.bin"), "no trace").unwrap();
        assert_eq!(find_traces(&pattern, began), [FoundTrace { path: at("run-4711.bin"), pid: 4711 }]);

        note_end(&at("run-4711.bin"), ExitStatus::from_raw(9)).unwrap();
        note_end(&at("run-4711.bin"), ExitStatus::from_raw(0)).unwrap();
        let header = read_header(&at("run-4711.bin")).unwrap().unwrap();
        assert_eq!((header.end_kind, header.end_code), (end::SIGNALED, 9));

        note_end(&at("run-4710.bin"), ExitStatus::from_raw(3 << 8)).unwrap();
        let end_of = |name: &str| read_header(&at(name)).unwrap().map(|header| (header.end_kind, header.end_code));
        assert_eq!(end_of("run-4710.bin"), Some((end::EXITED, 3)));
        note_end(&at("run-4710.bin"), ExitStatus::from_raw(0)).unwrap();
        assert_eq!(end_of("run-4710.bin"), Some((end::EXITED, 3)));
        note_end(&at("run-4710.bin"), ExitStatus::from_raw(libc::SIGSEGV)).unwrap();
        assert_eq!(end_of("run-4710.bin"), Some((end::SIGNALED, libc::SIGSEGV)), "on the way out");
    }
}
