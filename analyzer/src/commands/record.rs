//! `record`: runs a command with the recorder loaded.

use std::ffi::{OsStr, OsString, c_int};
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use clap::Args;

use super::output::is_trace;
use super::preloadable;
use super::recorded::{find_traces, literal, note_end};
use crate::words::signal;

/// The recorder's file name.
const LIBRARY: &str = "libgpuoom.so";
/// Where the README installs it.
const INSTALLED: &str = "/opt/gpuoom/libgpuoom.so";
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
    /// Write over a trace of that name, which else is kept
    #[arg(long, requires = "output")]
    overwrite: bool,
    /// The command and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

pub(super) fn run(args: &RecordArgs) -> anyhow::Result<u8> {
    let library = library()?;
    let preload = preload(&library, std::env::var_os("LD_PRELOAD").as_deref())?;
    let own = std::env::current_dir().context("the current directory is not known")?;
    let set = || std::env::var_os("GPUOOM_TRACE").filter(|value| !value.is_empty());
    let wanted = args.output.clone().or_else(|| set().map(PathBuf::from));
    // Absolute: the command may change its directory, and start others there. The rest of a directory is the recorder's.
    let pattern = literal(&own).join(wanted.as_deref().unwrap_or(Path::new(DEFAULT_PATTERN)));
    make_room(&pattern, &own, args.overwrite)?;
    let began_ns = now_ns();
    catch_signals();
    let Some((program, arguments)) = args.command.split_first() else { bail!("there is no command to run") };
    let mut command = Command::new(program);
    command.args(arguments).env("LD_PRELOAD", preload).env("GPUOOM_TRACE", &pattern);
    // Said below, once, of all traces together.
    command.env("GPUOOM_EXPLAIN", "off");
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            super::output::complain(&format!("{}: {error}", program.display()));
            return Ok(if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN });
        }
    };
    let pid = child.id();
    let_the_child_answer_the_keyboard();
    pass_signals_on(pid);
    let status = child.wait().context("the command can't be waited for")?;
    CHILD.store(0, Ordering::Relaxed);
    if let Some(number) = status.signal() {
        eprintln!("gpuoom: the command was ended by {}", signal(number));
    }
    if !announce(&pattern, &own, pid, began_ns, status) {
        say_why_nothing(program);
    }
    Ok(pass_through(status))
}

/// What lies where the trace is to come, is kept; on request a trace gives way.
fn make_room(pattern: &Path, own: &Path, overwrite: bool) -> anyhow::Result<()> {
    let path = pattern.strip_prefix(own).unwrap_or(pattern).display();
    match (pattern.is_file(), overwrite) {
        (false, _) => {}
        (true, false) => eprintln!(
            "gpuoom: {path} is there already, and is kept: the trace of this run gets another name (--overwrite replaces it)"
        ),
        (true, true) if is_trace(pattern) => {
            std::fs::remove_file(pattern).with_context(|| format!("{path}: can't be replaced"))?;
        }
        (true, true) => bail!("{path}: this is no trace, and is kept"),
    }
    Ok(())
}

/// The recorder's path.
pub(super) fn library() -> anyhow::Result<PathBuf> {
    find_library(std::env::current_exe().ok().as_deref(), std::env::var_os("GPUOOM_LIBRARY"), Path::new(INSTALLED))
}

/// The recorder: where `GPUOOM_LIBRARY` says, else beside this program, else in `../lib`, else where the README installs it.
fn find_library(own: Option<&Path>, named: Option<OsString>, installed: &Path) -> anyhow::Result<PathBuf> {
    if let Some(named) = named.as_deref().map(Path::new).filter(|named| !named.is_file()) {
        bail!("GPUOOM_LIBRARY: {} is no file", named.display());
    }
    let own = own.and_then(|own| own.canonicalize().ok());
    let directory = own.as_deref().and_then(Path::parent);
    let beside = directory.map(|directory| directory.join(LIBRARY));
    let in_lib = directory.and_then(Path::parent).map(|prefix| prefix.join("lib").join(LIBRARY));
    let candidates = [named.map(PathBuf::from), beside, in_lib, Some(installed.to_owned())];
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

/// The command, while it runs; otherwise 0.
static CHILD: AtomicI32 = AtomicI32::new(0);
/// A signal that came before the command ran; otherwise 0.
static EARLY: AtomicI32 = AtomicI32::new(0);

extern "C" fn pass_on(signal: c_int) {
    match CHILD.load(Ordering::Relaxed) {
        0 => EARLY.store(signal, Ordering::Relaxed),
        // SAFETY: kill is safe in a signal handler; errno is put back for the code that was interrupted.
        child => unsafe {
            let errno = *libc::__errno_location();
            libc::kill(child, signal);
            *libc::__errno_location() = errno;
        },
    }
}

/// Whoever asks this process to end (a service manager, a container, a batch system) means the command. The command itself
/// starts with the default actions: a handler does not outlive `exec`.
fn catch_signals() {
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2] {
        // SAFETY: both structures are plain data, zero is a valid value of each field, and the handler only calls kill.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut before);
            // What `nohup` made it ignore stays ignored.
            if before.sa_sigaction != libc::SIG_IGN {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = pass_on as extern "C" fn(c_int) as usize;
                action.sa_flags = libc::SA_RESTART;
                libc::sigaction(signal, &action, std::ptr::null_mut());
            }
        }
    }
}

/// The handlers run on this thread, the only one: none comes between the two steps of another.
fn pass_signals_on(child: u32) {
    CHILD.store(child as i32, Ordering::Relaxed);
    let early = EARLY.swap(0, Ordering::Relaxed);
    if early != 0 {
        pass_on(early);
    }
}

/// Says where the traces are; whether there are any.
fn announce(pattern: &Path, own: &Path, pid: u32, began_ns: u64, status: ExitStatus) -> bool {
    let mut traces = find_traces(pattern, began_ns);
    // Where the pattern is a directory, the recorder chooses a name in it.
    traces.extend(find_traces(&pattern.join(DEFAULT_PATTERN), began_ns));
    for trace in traces.iter().filter(|trace| trace.pid == pid) {
        // A failure to note the end leaves it unknown, as after any other kill.
        let _ = note_end(&trace.path, status);
    }
    let near = |path: &Path| path.strip_prefix(own).unwrap_or(path).display().to_string();
    let shown: Vec<String> = traces.iter().map(|trace| near(&trace.path)).collect();
    shown.iter().take(MOST_TRACES).for_each(|path| eprintln!("gpuoom: trace: {path}"));
    match shown.len() {
        0 => {}
        1..=MOST_TRACES => eprintln!("gpuoom: explain it with: gpuoom-analyze {}", shown.join(" ")),
        all => {
            eprintln!("gpuoom: and {} more traces", all - MOST_TRACES);
            eprintln!("gpuoom: explain them with: gpuoom-analyze and all {all} of them together");
        }
    }
    !shown.is_empty()
}

fn say_why_nothing(program: &OsStr) {
    match preloadable::why_not(program) {
        Some(why) => eprintln!("gpuoom: no trace: {} {why}", program.display()),
        None => {
            eprintln!(
                "gpuoom: no trace: the command made no GPU memory call that was seen, or the file could not be written"
            );
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
    fn the_recorder_is_looked_for_where_the_variable_says_beside_in_lib_and_where_it_is_installed() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            path.canonicalize().unwrap()
        };
        let own = at("bin/gpuoom-analyze");
        let find = |named: Option<&PathBuf>| {
            find_library(Some(&own), named.map(Into::into), &root.path().join("opt/gpuoom/libgpuoom.so"))
        };
        assert!(find(None).unwrap_err().to_string().contains("GPUOOM_LIBRARY"));
        for path in ["opt/gpuoom/libgpuoom.so", "lib/libgpuoom.so", "bin/libgpuoom.so"] {
            assert_eq!(at(path), find(None).unwrap());
        }
        let missing = find(Some(&root.path().join("missing.so"))).unwrap_err().to_string();
        assert!(missing.contains("GPUOOM_LIBRARY") && missing.contains("missing.so"), "{missing}");
        let named = at("elsewhere/libgpuoom.so");
        assert_eq!(find(Some(&named)).unwrap(), named);
    }

    #[test]
    fn the_status_is_passed_on() {
        assert_eq!(pass_through(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(pass_through(ExitStatus::from_raw(9)), 137);
    }
}
