//! `gauntlet`: runs a program once per allocation call site, with that call failing.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};

use super::output::{Output, complain};
use super::record::{library, preload};
use super::recorded::{find_traces, note_end};
use super::stop::{self, Stopped};
use super::units::parse_time;
use crate::gauntlet::trial::Told;
use crate::gauntlet::{Ending, Gauntlet, Place, Plan, Trial};
use crate::report::gauntlet;
use crate::words::clean;

/// Exit status where an error was dropped, the program faulted, or nothing was tried: a gate must not pass on a program that did not start.
const NOT_PASSED: u8 = 1;
/// Of what a program wrote on stderr that allocated nothing, so much of the end is shown.
const MOST_LINES: usize = 5;
/// Runs are given so many times what the first one took, and at least [`LEAST_TIME`].
const PATIENCE: u32 = 10;
const LEAST_TIME: Duration = Duration::from_secs(30);
/// Names that are told where none is the one that was asked for.
const MOST_NAMES: usize = 10;
/// How often a running program is looked at.
const LOOK: Duration = Duration::from_millis(5);

#[derive(Debug, Args)]
pub(super) struct GauntletArgs {
    /// How to write the table
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Try at most so many call sites, in the order in which the program comes to them
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = parse_limit)]
    limit: usize,
    /// Try only call sites whose name contains this (may be given several times)
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Kill a run after this time (60s, 500ms) [default: ten times what the first run takes, at least 30s]
    #[arg(long, value_name = "TIME", value_parser = parse_patience)]
    timeout: Option<u64>,
    /// Keep traces and output of all runs in this directory
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// The command and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
    /// For a pull request
    Markdown,
}

fn parse_limit(text: &str) -> Result<usize, String> {
    let limit = text.parse().ok().filter(|limit| *limit > 0);
    limit.ok_or_else(|| format!("'{text}' is no number of call sites: write 1 or more"))
}

fn parse_patience(text: &str) -> Result<u64, String> {
    match parse_time(text)? {
        0 => Err(format!("'{text}': no program ends in no time")),
        time => Ok(time),
    }
}

/// How runs are made.
struct Runner<'a> {
    command: &'a [OsString],
    preload: OsString,
    root: PathBuf,
}

/// A run that has ended.
struct Run {
    ending: Ending,
    took: Duration,
    traces: Vec<PathBuf>,
}

pub(super) fn run(args: &GauntletArgs) -> anyhow::Result<u8> {
    stop::catch_signals();
    let done = run_all(args);
    match done.as_ref().err().and_then(|error| error.downcast_ref::<Stopped>()) {
        Some(stopped) => {
            complain(&format!("{stopped}: the run under way was ended, and there is no table"));
            Ok(stopped.status())
        }
        None => done,
    }
}

fn run_all(args: &GauntletArgs) -> anyhow::Result<u8> {
    let library = library()?;
    let temporary = args.keep.is_none().then(tempfile_dir).transpose()?;
    let root = match (&args.keep, &temporary) {
        (Some(kept), _) => kept.clone(),
        (None, Some(temporary)) => temporary.0.clone(),
        (None, None) => bail!("there is no directory for the runs"),
    };
    std::fs::create_dir_all(&root).with_context(|| format!("{}: can't be made", root.display()))?;
    // What lies there would be taken for the traces of this run.
    if std::fs::read_dir(&root).is_ok_and(|mut entries| entries.next().is_some()) {
        bail!("{}: it is not empty; --keep takes a new directory", root.display());
    }
    let root = root.canonicalize().with_context(|| format!("{}: can't be used", root.display()))?;
    let preload = preload(&library, std::env::var_os("LD_PRELOAD").as_deref())?;
    let runner = Runner { command: &args.command, preload, root };

    let first_limit = args.timeout.map(Duration::from_nanos);
    let undisturbed = runner.go("undisturbed", None, first_limit)?;
    let mut plan = Plan::default();
    for trace in &undisturbed.traces {
        if let Err(error) = plan.add(trace) {
            complain(&error.to_string());
        }
    }
    match undisturbed.ending {
        _ if !plan.places.is_empty() => {}
        Ending::Hung => {
            complain("the program allocated no GPU memory before --timeout ended it: there is nothing to try")
        }
        _ => complain("the program allocated no GPU memory: there is nothing to try"),
    }
    if plan.places.is_empty() {
        last_lines(&runner.root.join("undisturbed/stderr"))
            .iter()
            .for_each(|line| complain(&format!("it wrote: {line}")));
    }
    if plan.calls_without_file > 0 {
        complain(&format!("{} allocation calls come from no file and are left out", plan.calls_without_file));
    }
    let limit = first_limit.unwrap_or((undisturbed.took * PATIENCE).max(LEAST_TIME));
    let mut trials = Vec::new();
    let wanted = wanted(&args.only, &plan.places)?;
    for (number, place) in (1..).zip(wanted.into_iter().take(args.limit)) {
        progress(number, place);
        trials.push(runner.try_place(number, place, limit, undisturbed.ending)?);
    }
    let words = args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    write(args, &Gauntlet::new(words, undisturbed.ending, plan.places.len(), trials))
}

/// The places that `--only` chooses. A name that fits none would make an empty table, in which nothing is dropped.
fn wanted<'a>(only: &[String], places: &'a [Place]) -> anyhow::Result<Vec<&'a Place>> {
    let fits = |place: &&Place| {
        let operator = place.operator.as_deref().unwrap_or_default();
        only.iter().any(|text| place.name.contains(text) || operator.contains(text) || place.rule().contains(text))
    };
    let wanted: Vec<&Place> = places.iter().filter(|place| only.is_empty() || fits(place)).collect();
    if wanted.is_empty() && !places.is_empty() {
        let names: BTreeSet<&str> = places.iter().map(|place| &place.name[..]).collect();
        let names: Vec<&str> = names.into_iter().take(MOST_NAMES).collect();
        bail!("no call site fits --only {}; there are {}", only.join(" --only "), clean(&names.join(", ")));
    }
    Ok(wanted)
}

/// The end of what a program wrote, without the recorder's own lines.
fn last_lines(path: &Path) -> Vec<String> {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let mut lines: Vec<&str> = text.lines().filter(|line| !line.is_empty() && !line.starts_with("gpuoom:")).collect();
    lines.drain(..lines.len().saturating_sub(MOST_LINES));
    lines.into_iter().map(clean).collect()
}

fn progress(number: usize, place: &Place) {
    let _ = writeln!(std::io::stderr(), "gpuoom: run {number}: {} fails", place.name);
}

fn write(args: &GauntletArgs, done: &Gauntlet) -> anyhow::Result<u8> {
    let output = Output::open(args.output.as_deref())?;
    let look = output.look();
    output.write(|out| match args.format {
        Format::Text => out.write_all(gauntlet::text(done, look).as_bytes()),
        Format::Json => gauntlet::json(out, done),
        Format::Markdown => out.write_all(gauntlet::markdown(done).as_bytes()),
    })?;
    Ok(if done.is_bad() || done.trials.is_empty() { NOT_PASSED } else { 0 })
}

impl Runner<'_> {
    fn try_place(&self, number: usize, place: &Place, limit: Duration, undisturbed: Ending) -> anyhow::Result<Trial> {
        let run = self.go(&format!("{number:03}"), Some(&place.rule()), Some(limit))?;
        let mut told = Told::default();
        for trace in &run.traces {
            match Told::of(trace) {
                Ok(of_process) => told = told.and(of_process),
                Err(error) => complain(&error.to_string()),
            }
        }
        let (fate, because) = told.fate(run.ending, undisturbed);
        Ok(Trial {
            rule: place.rule(),
            place: place.clone(),
            fate,
            because,
            fell_back_to: told.fell_back_to,
            by_time_alone: told.by_time_alone,
            other_failures: told.others,
            ending: run.ending,
        })
    }

    /// Runs the command once, in a directory of its own for traces and output, with this rule.
    fn go(&self, name: &str, rule: Option<&str>, limit: Option<Duration>) -> anyhow::Result<Run> {
        let directory = self.root.join(name);
        std::fs::create_dir_all(&directory).with_context(|| format!("{}: can't be made", directory.display()))?;
        let pattern = directory.join("%e-%p.trace.bin");
        let Some((program, arguments)) = self.command.split_first() else { bail!("there is no command to run") };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).process_group(0);
        command.stdout(file_in(&directory, "stdout")?).stderr(file_in(&directory, "stderr")?);
        command.env("LD_PRELOAD", &self.preload).env("GPUOOM_TRACE", &pattern);
        // Neither changes what becomes of a failure, and both take time.
        command.env("GPUOOM_PROBE", "off").env("GPUOOM_SAMPLE", "off").env_remove("GPUOOM_INJECT");
        // Whoever calls this wants it to record.
        command.env_remove("GPUOOM_DISABLE");
        if let Some(rule) = rule {
            command.env("GPUOOM_INJECT", rule);
        }
        let began = Instant::now();
        let mut child = command.spawn().with_context(|| format!("{}: can't be run", program.display()))?;
        let status = wait(&mut child, limit)?;
        let took = began.elapsed();
        let traces = find_traces(&pattern, 0);
        for trace in traces.iter().filter(|trace| trace.pid == child.id()) {
            if let Some(status) = status {
                // A failure to note the end leaves it unknown, as after any other kill.
                let _ = note_end(&trace.path, status);
            }
        }
        let ending = match status.map(|status| (status.code(), status.signal())) {
            Some((Some(code), _)) => Ending::Exited(code),
            Some((None, signal)) => Ending::Signaled(signal.unwrap_or(0)),
            None => Ending::Hung,
        };
        Ok(Run { ending, took, traces: traces.into_iter().map(|trace| trace.path).collect() })
    }
}

fn file_in(directory: &Path, name: &str) -> anyhow::Result<File> {
    let path = directory.join(name);
    File::create(&path).with_context(|| format!("{}: can't be written", path.display()))
}

/// Waits for the end; `None`: it did not come in time, and the program was killed with all that it had started.
fn wait(child: &mut Child, limit: Option<Duration>) -> anyhow::Result<Option<ExitStatus>> {
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    loop {
        if let Some(status) = child.try_wait().context("the command can't be waited for")? {
            return Ok(Some(status));
        }
        let stopped = stop::asked();
        if stopped.is_some() || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            // SAFETY: a signal to the process group that the child was given above; the child is not reaped yet, so the
            // number is still its own.
            unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
            child.wait().context("the command can't be waited for")?;
            return stopped.map_or(Ok(None), |stopped| Err(stopped.into()));
        }
        std::thread::sleep(LOOK);
    }
}

/// A directory that goes when this does.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn tempfile_dir() -> anyhow::Result<Temporary> {
    let root = std::env::temp_dir();
    for attempt in 0..100 {
        let path = root.join(format!("gpuoom-gauntlet-{}-{attempt}", std::process::id()));
        match std::fs::create_dir(&path) {
            Ok(()) => return Ok(Temporary(path)),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| format!("{}: can't be made", path.display())),
        }
    }
    bail!("{}: there is no name left for a directory", root.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_hangs_is_ended_with_its_children() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 100 & wait"]).process_group(0);
        let mut child = command.spawn().unwrap();
        assert!(wait(&mut child, Some(Duration::from_millis(50))).unwrap().is_none());
        let mut child = Command::new("true").spawn().unwrap();
        assert!(wait(&mut child, Some(Duration::from_secs(60))).unwrap().is_some());
    }

    #[test]
    fn a_temporary_directory_goes_with_its_owner() {
        let temporary = tempfile_dir().unwrap();
        let path = temporary.0.clone();
        assert!(path.is_dir());
        drop(temporary);
        assert!(!path.exists());
    }
}
