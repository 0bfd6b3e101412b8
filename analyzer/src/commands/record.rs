//! `record`: runs a command with the recorder loaded.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use clap::Args;

use super::recorded::{find_traces, note_end};

/// The recorder's file name.
const LIBRARY: &str = "libgpuoom.so";
/// Where the recorder writes when nobody says.
const DEFAULT_PATTERN: &str = "gpuoom-%e-%p.trace.bin";
/// Traces that are named when the command has ended.
const MOST_TRACES: usize = 8;
/// Exit status of a shell for a command that can't be run, and for one that is not there.
const CANNOT_RUN: u8 = 126;
/// See [`CANNOT_RUN`].
const NOT_FOUND: u8 = 127;

#[derive(Debug, Args)]
pub(super) struct RecordArgs {
    /// Where to write the trace (%p process id, %e executable, %h host, %r rank)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The command and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

pub(super) fn run(args: &RecordArgs) -> anyhow::Result<u8> {
    let library = library()?;
    let preload = preload(&library, std::env::var_os("LD_PRELOAD").as_deref())?;
    let pattern = match &args.output {
        Some(path) => std::path::absolute(path).with_context(|| format!("{}: not a path", path.display()))?,
        None => std::env::var_os("GPUOOM_TRACE").map_or(DEFAULT_PATTERN.into(), PathBuf::from),
    };
    let began_ns = now_ns();
    let Some((program, arguments)) = args.command.split_first() else { bail!("there is no command to run") };
    let mut command = Command::new(program);
    command.args(arguments).env("LD_PRELOAD", preload);
    if args.output.is_some() {
        command.env("GPUOOM_TRACE", &pattern);
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            super::output::complain(&format!("{}: {error}", program.display()));
            return Ok(if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN });
        }
    };
    let_the_child_answer_the_keyboard();
    let pid = child.id();
    let status = child.wait().context("the command can't be waited for")?;
    announce(&pattern, pid, began_ns, status);
    Ok(pass_through(status))
}

/// The recorder's path.
pub(super) fn library() -> anyhow::Result<PathBuf> {
    find_library(std::env::current_exe().ok().as_deref(), std::env::var_os("GPUOOM_LIBRARY"))
}

/// The recorder: beside this program, else in `../lib`, else where `GPUOOM_LIBRARY` says.
fn find_library(own: Option<&Path>, named: Option<OsString>) -> anyhow::Result<PathBuf> {
    let own = own.and_then(|own| own.canonicalize().ok());
    let directory = own.as_deref().and_then(Path::parent);
    let beside = directory.map(|directory| directory.join(LIBRARY));
    let in_lib = directory.and_then(Path::parent).map(|prefix| prefix.join("lib").join(LIBRARY));
    let candidates = [beside, in_lib, named.map(PathBuf::from)];
    let found = candidates.iter().flatten().find(|path| path.is_file());
    let Some(found) = found else {
        let looked: Vec<String> = candidates.iter().flatten().map(|path| path.display().to_string()).collect();
        bail!("{LIBRARY} is not at {}; set GPUOOM_LIBRARY to its path", looked.join(" or "));
    };
    found.canonicalize().with_context(|| format!("{}: can't be used", found.display()))
}

/// `LD_PRELOAD` with the recorder in front.
pub(super) fn preload(library: &Path, before: Option<&OsStr>) -> anyhow::Result<OsString> {
    if library.to_string_lossy().contains([' ', ':']) {
        bail!("{}: the loader can't preload a path with a space or a colon in it", library.display());
    }
    let mut value = library.as_os_str().to_owned();
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        value.push(":");
        value.push(before);
    }
    Ok(value)
}

/// From now on Ctrl-C and Ctrl-\ are the command's: this process must outlive it to pass its status on.
fn let_the_child_answer_the_keyboard() {
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: ignoring a signal installs no handler; the child was started before and keeps its own dispositions.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

fn announce(pattern: &Path, pid: u32, began_ns: u64, status: ExitStatus) {
    let traces = find_traces(pattern, began_ns);
    for trace in traces.iter().filter(|trace| trace.pid == pid) {
        // A failure to note the end leaves it unknown, as after any other kill.
        let _ = note_end(&trace.path, status);
    }
    let shown: Vec<String> = traces.iter().map(|trace| trace.path.display().to_string()).collect();
    shown.iter().take(MOST_TRACES).for_each(|path| eprintln!("gpuoom: trace: {path}"));
    match shown.len() {
        0 => {}
        1..=MOST_TRACES => eprintln!("gpuoom: explain it with: gpuoom-analyze {}", shown.join(" ")),
        all => {
            eprintln!("gpuoom: and {} more traces", all - MOST_TRACES);
            eprintln!("gpuoom: explain them with: gpuoom-analyze and all {all} of them together");
        }
    }
}

fn pass_through(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128u8.wrapping_add(signal as u8),
        (None, None) => CANNOT_RUN,
    }
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorder_comes_first_in_the_preloads() {
        let library = Path::new("/opt/gpuoom/libgpuoom.so");
        assert_eq!(preload(library, None).unwrap(), "/opt/gpuoom/libgpuoom.so");
        assert_eq!(preload(library, Some(OsStr::new(""))).unwrap(), "/opt/gpuoom/libgpuoom.so");
        assert_eq!(preload(library, Some(OsStr::new("/a.so:/b.so"))).unwrap(), "/opt/gpuoom/libgpuoom.so:/a.so:/b.so");
        assert!(preload(Path::new("/my programs/libgpuoom.so"), None).is_err());
    }

    #[test]
    fn the_recorder_is_looked_for_beside_in_lib_and_where_the_variable_says() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            path.canonicalize().unwrap()
        };
        let own = at("bin/gpuoom-analyze");
        let named = at("elsewhere/libgpuoom.so");
        assert!(find_library(Some(&own), None).unwrap_err().to_string().contains("GPUOOM_LIBRARY"));
        assert_eq!(find_library(Some(&own), Some(named.clone().into())).unwrap(), named);
        let in_lib = at("lib/libgpuoom.so");
        assert_eq!(find_library(Some(&own), Some(named.clone().into())).unwrap(), in_lib);
        let beside = at("bin/libgpuoom.so");
        assert_eq!(find_library(Some(&own), Some(named.into())).unwrap(), beside);
    }

    #[test]
    fn the_status_is_passed_on() {
        assert_eq!(pass_through(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(pass_through(ExitStatus::from_raw(9)), 137);
    }
}
