//! The traces that a recorded command left, and what is noted in them when it has ended.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
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

/// Traces that fit the pattern and were made since the command began, by path.
pub(super) fn find_traces(pattern: &Path, pid: u32, began_ns: u64) -> Vec<FoundTrace> {
    let Some(name) = pattern.file_name() else { return Vec::new() };
    let directory = directory_of(pattern, pid);
    let entries = std::fs::read_dir(&directory).into_iter().flatten().flatten();
    let mut found: Vec<FoundTrace> = entries
        .filter(|entry| matches(name.as_bytes(), entry.file_name().as_bytes()))
        .filter_map(|entry| {
            let header = read_header(&entry.path()).ok().flatten()?;
            let path = if directory == Path::new(".") { entry.file_name().into() } else { entry.path() };
            (header.clock_first.wall_ns >= began_ns).then_some(FoundTrace { path, pid: header.pid })
        })
        .collect();
    found.sort_by(|one, other| one.path.cmp(&other.path));
    found
}

/// The directory of a pattern; of its placeholders only the process id is known here.
fn directory_of(pattern: &Path, pid: u32) -> PathBuf {
    match pattern.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => PathBuf::from(parent.to_string_lossy().replace("%p", &pid.to_string())),
        None => PathBuf::from("."),
    }
}

/// Whether a file name can come from a pattern, with or without the process id that keeps names apart behind it.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match pattern {
        [] => match name {
            [] => true,
            [b'.', digits @ ..] => !digits.is_empty() && digits.iter().all(u8::is_ascii_digit),
            _ => false,
        },
        [b'%', b'p', rest @ ..] => {
            let digits = name.iter().take_while(|byte| byte.is_ascii_digit()).count();
            (1..=digits).any(|length| matches(rest, &name[length..]))
        }
        [b'%', b'e' | b'h' | b'r', rest @ ..] => (0..=name.len()).any(|length| matches(rest, &name[length..])),
        [first, rest @ ..] => name.first() == Some(first) && matches(rest, &name[1..]),
    }
}

fn read_header(path: &Path) -> io::Result<Option<Header>> {
    let mut page = [0u8; HEADER_BYTES];
    File::open(path)?.read_exact(&mut page)?;
    let header: Header = bytemuck::pod_read_unaligned(&page);
    Ok((header.magic == MAGIC && header.major <= FORMAT_MAJOR).then_some(header))
}

/// Writes how the process ended into its trace, where the recorder could not see it.
pub(super) fn note_end(path: &Path, status: ExitStatus) -> io::Result<()> {
    let unknown = read_header(path)?.is_some_and(|header| header.end_kind == end::UNKNOWN);
    let (kind, code) = match (status.code(), status.signal()) {
        _ if !unknown => return Ok(()),
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
            ("%h-%r.bin", "atlas-0.bin", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), fits, "{pattern} {name}");
        }
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
        assert_eq!(find_traces(&pattern, 4711, began), [FoundTrace { path: at("run-4711.bin"), pid: 4711 }]);

        note_end(&at("run-4711.bin"), ExitStatus::from_raw(9)).unwrap();
        note_end(&at("run-4711.bin"), ExitStatus::from_raw(0)).unwrap();
        let header = read_header(&at("run-4711.bin")).unwrap().unwrap();
        assert_eq!((header.end_kind, header.end_code), (end::SIGNALED, 9));
    }
}
