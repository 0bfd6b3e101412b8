//! Runs a client, with and without the recorder, each time in a fresh directory.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::artefacts::recorder;
use crate::report::Report;
use crate::trace::{Trace, assert_addresses_alternate, parse, report_together};
use crate::truth::{TruthLine, assert_agrees, assert_refusals_agree};

/// No client needs a tenth of it: one that is still there hangs.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// How long a run is left alone between two looks at it.
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// A client and how to run it.
#[derive(Clone)]
pub struct Client {
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(String, Option<OsString>)>,
    preloads: Vec<PathBuf>,
    /// Who reads it: the loader, or a program that starts another one.
    preload_variable: &'static str,
}

/// A run that has ended, with everything that it left.
pub struct Finished {
    /// How the client ended.
    pub status: ExitStatus,
    /// What it printed.
    pub stdout: String,
    /// What it and the recorder printed to stderr.
    pub stderr: String,
    scratch: TempDir,
}

impl Client {
    /// Runs that program without arguments.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            preloads: Vec::new(),
            preload_variable: "LD_PRELOAD",
        }
    }

    /// Adds one argument.
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds several arguments.
    pub fn args<const N: usize>(mut self, arguments: [&str; N]) -> Self {
        self.arguments.extend(arguments.map(OsString::from));
        self
    }

    /// Sets a variable; it wins over what the harness sets.
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), Some(value.into())));
        self
    }

    /// Takes a variable away that the harness would set.
    pub fn without_env(mut self, name: &str) -> Self {
        self.environment.push((name.into(), None));
        self
    }

    /// Preloads a library in both runs, behind the recorder.
    pub fn preload(mut self, library: impl Into<PathBuf>) -> Self {
        self.preloads.push(library.into());
        self
    }

    /// Tells what is to be preloaded by that variable: the program is one that starts the client.
    pub(crate) fn preload_by(mut self, variable: &'static str) -> Self {
        self.preload_variable = variable;
        self
    }

    /// The recorder in front of what a starting program preloads: its own `LD_PRELOAD` does not reach the client.
    pub(crate) fn record_behind_launcher(mut self) -> Self {
        if self.preload_variable != "LD_PRELOAD" {
            self.preloads.insert(0, recorder());
        }
        self
    }

    /// The program and its arguments.
    pub(crate) fn command_line(&self) -> impl Iterator<Item = OsString> + '_ {
        std::iter::once(self.program.clone().into_os_string()).chain(self.arguments.iter().cloned())
    }

    /// Another program in the same surroundings.
    pub(crate) fn instead(&self, program: PathBuf, arguments: Vec<OsString>) -> Client {
        Client { program, arguments, ..self.clone() }
    }

    /// Runs without the recorder.
    ///
    /// A real HIP over the simulated kernel seemed to hang so once, without the recorder; why is not known, and 1,673 runs of it on a busy
    /// machine did not. Such a run is tried once more, which is said on stderr: what it is compared with, the recorded run, is not.
    pub fn run_plain(&self) -> Finished {
        let run = || {
            let scratch = new_scratch();
            let child = self.command(scratch.path(), false).spawn().expect("the client starts");
            finish(child, scratch, TIME_LIMIT)
        };
        let again = |stderr: String| {
            eprintln!("a client without the recorder hung, and is tried again; its stderr:\n{stderr}");
            run()
        };
        run().or_else(again).unwrap_or_else(|stderr| hung(&stderr))
    }

    /// Runs with the recorder preloaded.
    pub fn run_recorded(&self) -> Finished {
        let (child, scratch) = self.spawn_recorded();
        finish(child, scratch, TIME_LIMIT).unwrap_or_else(|stderr| hung(&stderr))
    }

    /// Runs both ways and asserts that the program did not notice: same output, same end; on stderr, only lines that
    /// begin with `gpuoom:` may have been added. Answers the recorded run.
    pub fn run_both(&self) -> Finished {
        let plain = self.run_plain();
        let recorded = self.run_recorded();
        assert_eq!(recorded.stdout, plain.stdout, "stdout changed; stderr with the recorder:\n{}", recorded.stderr);
        assert_eq!(recorded.program_stderr(), plain.stderr, "stderr changed");
        assert_eq!(recorded.status, plain.status, "exit status changed; stderr:\n{}", recorded.stderr);
        recorded
    }

    /// Starts with the recorder and answers while it runs, for a test that ends it its own way.
    pub fn spawn_recorded(&self) -> (Child, TempDir) {
        let scratch = new_scratch();
        let child = self.command(scratch.path(), true).spawn().expect("the client starts");
        (child, scratch)
    }

    pub(crate) fn command(&self, scratch: &Path, recorded: bool) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(scratch.join("cwd")).stdin(Stdio::null());
        // Files, not pipes: a client's own children may keep them open after it has ended.
        command.stdout(File::create(scratch.join("stdout")).expect("a file for stdout"));
        command.stderr(File::create(scratch.join("stderr")).expect("a file for stderr"));
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("GPUOOM_") || text.starts_with("SIM_") || text.starts_with("LD_") {
                command.env_remove(name);
            }
        }
        command.env("SIM_LOG", scratch.join("truth.jsonl"));
        let preloads = recorded.then(recorder).into_iter().chain(self.preloads.iter().cloned());
        let preloads: Vec<_> = preloads.map(PathBuf::into_os_string).collect();
        if !preloads.is_empty() {
            command.env(self.preload_variable, preloads.join(OsStr::new(":")));
        }
        if recorded {
            command.env("GPUOOM_TRACE", scratch.join("trace/%e-%p.trace.bin"));
        }
        for (name, value) in &self.environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        // A group of its own, so that a client that hangs can be ended with its children.
        command.process_group(0);
        command
    }
}

/// A directory for a run: one that the client runs in, one for its trace.
pub(crate) fn new_scratch() -> TempDir {
    let scratch = TempDir::new().expect("a scratch directory");
    for name in ["cwd", "trace"] {
        fs::create_dir(scratch.path().join(name)).expect("a directory in the scratch directory");
    }
    scratch
}

/// How a client ended, or what it said on stderr until it was killed because it hung.
fn finish(mut child: Child, scratch: TempDir, limit: Duration) -> Result<Finished, String> {
    // Not by a clock: one goes on while a machine stands still, and then the client has had no time either.
    let mut time_given = Duration::ZERO;
    let status = loop {
        if let Some(status) = child.try_wait().expect("the client is ours") {
            break status;
        }
        if time_given > limit {
            // SAFETY: the client leads a process group of its own, which holds nothing but its children.
            unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
            child.wait().expect("the killed client");
            return Err(read(&scratch.path().join("stderr")));
        }
        std::thread::sleep(BETWEEN_LOOKS);
        time_given += BETWEEN_LOOKS;
    };
    let stdout = read(&scratch.path().join("stdout"));
    let stderr = read(&scratch.path().join("stderr"));
    Ok(Finished { status, stdout, stderr, scratch })
}

fn hung(stderr: &str) -> ! {
    panic!("the client hung; stderr so far:\n{stderr}")
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

fn sorted_files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).expect("a directory of the run");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a directory entry").path()).collect();
    paths.sort();
    paths
}

impl Finished {
    /// The directory that the client ran in.
    pub fn cwd(&self) -> PathBuf {
        self.scratch.path().join("cwd")
    }

    /// What lies there now.
    pub fn files_in_cwd(&self) -> Vec<PathBuf> {
        sorted_files(&self.cwd())
    }

    /// Every trace that the run left, by name.
    pub fn traces(&self) -> Vec<Trace> {
        sorted_files(&self.scratch.path().join("trace")).into_iter().map(Trace::new).collect()
    }

    /// The trace, where there must be exactly one.
    pub fn only_trace(&self) -> Trace {
        let mut traces = self.traces();
        assert_eq!(traces.len(), 1, "one trace expected: {traces:?}; stderr:\n{}", self.stderr);
        traces.remove(0)
    }

    /// How sure the report on the only trace is of a diagnosis; `None` where it does not have it.
    pub fn confidence(&self, id: &str) -> Option<String> {
        let found = self.only_trace().report().diagnoses().into_iter().find(|found| found.id == id);
        found.map(|found| found.confidence)
    }

    /// The page of the only trace, without its line breaks.
    pub fn page(&self) -> String {
        self.only_trace().report_text().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// The report on all traces of the run together.
    pub fn job(&self) -> Report {
        Report::new(parse(&report_together(&self.traces(), "json")))
    }

    /// The same as people read it.
    pub fn job_text(&self) -> String {
        report_together(&self.traces(), "text")
    }

    /// What the device itself logged, of all processes of the run.
    pub fn truth(&self) -> Vec<TruthLine> {
        TruthLine::read_all(&self.scratch.path().join("truth.jsonl"))
    }

    /// stderr without the recorder's lines.
    pub fn program_stderr(&self) -> String {
        self.stderr.split_inclusive('\n').filter(|line| !line.starts_with("gpuoom:")).collect()
    }

    /// The recorder's lines.
    pub fn recorder_lines(&self) -> Vec<&str> {
        self.stderr.lines().filter(|line| line.starts_with("gpuoom:")).collect()
    }

    /// The exit code, where the client exited.
    pub fn exit_code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("ended by signal {:?}; {}", self.status.signal(), self.stderr))
    }

    /// Asserts that the traces of all processes together hold what the device did, no more and no less, in an order in
    /// which the allocations and frees of each address alternate, and that their reports account for it.
    pub fn assert_trace_is_true(&self) {
        self.traces().iter().for_each(|trace| trace.report().assert_accounts());
        let traces: Vec<_> = self.traces().iter().map(Trace::events).collect();
        for events in &traces {
            assert_addresses_alternate(events);
        }
        assert_agrees(&self.truth(), &traces.concat());
    }

    /// The same for a program on the simulated CUDA driver, and for what that driver refused.
    pub fn assert_cuda_trace_is_true(&self) {
        self.assert_trace_is_true();
        let traces: Vec<_> = self.traces().iter().map(Trace::events).collect();
        assert_refusals_agree(&self.truth(), &traces.concat());
    }
}
