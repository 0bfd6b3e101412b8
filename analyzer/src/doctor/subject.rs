//! What is examined: the machine, the environment, and what takes looking into processes and directories.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use gpuoom_machine::fdinfo::{self, Graphics};
use serde::Serialize;

use crate::machine::Machine;
use crate::thresholds::Thresholds;

/// Processes of KFD whose state is looked at.
const MAX_OWNERS: usize = 256;
/// Directories in which copies of a library are looked for.
const MAX_DIRECTORIES: usize = 64;
/// Names that are looked at in one of them.
const MAX_NAMES: usize = 20_000;

/// A process that holds memory through KFD.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Owner {
    /// Its number.
    pub pid: u64,
    /// Its name, where it could be found.
    pub name: Option<String>,
    /// Its state, a letter of `proc_pid_stat(5)`; `None`: there is no such process here.
    pub state: Option<char>,
}

/// A copy of HIP's runtime.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Runtime {
    /// The file on its machine, links resolved.
    pub path: PathBuf,
    /// Where it was found first, and why there was looked.
    pub by: String,
    /// Its version by its file name, such as `6.4.60403`.
    pub version: Option<String>,
}

/// What is examined.
#[derive(Clone, Debug, Default)]
pub struct Subject {
    /// The machine.
    pub machine: Machine,
    /// The environment of a program that would be started from here.
    pub environment: BTreeMap<String, String>,
    /// What graphics clients hold; `None` when it could not be summed up.
    pub graphics: Option<Graphics>,
    /// Who holds memory through KFD.
    pub owners: Vec<Owner>,
    /// Copies of HIP's runtime, in the order in which a program would find them.
    pub runtimes: Vec<Runtime>,
    /// The numbers by which checks decide.
    pub thresholds: Thresholds,
}

impl Subject {
    /// Looks at the machine below a directory, with an environment.
    pub fn of_root(root: &Path, environment: BTreeMap<String, String>) -> Self {
        let machine = Machine::of_root(root);
        let proc = root.join("proc");
        let pids: Vec<u64> = machine.kfd_processes.iter().map(|process| process.pid).collect();
        let graphics = fdinfo::graphics(&proc, std::process::id(), |pid| pids.contains(&u64::from(pid)));
        let owners = pids.iter().take(MAX_OWNERS).map(|pid| owner(&proc, *pid)).collect();
        let runtimes = runtimes(root, &environment, &machine);
        Subject { machine, environment, graphics, owners, runtimes, thresholds: Thresholds::default() }
    }

    /// The value of a variable.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.environment.get(name).map(String::as_str)
    }
}

fn owner(proc: &Path, pid: u64) -> Owner {
    let text = fs::read_to_string(proc.join(pid.to_string()).join("stat")).unwrap_or_default();
    // `PID (NAME) STATE ...`, and the name may hold anything.
    let name = text.split_once('(').and_then(|(_, rest)| rest.rsplit_once(')'));
    Owner {
        pid,
        name: name.map(|(name, _)| name.chars().take(32).collect()),
        state: name.and_then(|(_, rest)| rest.trim_start().chars().next()),
    }
}

/// Copies of `libamdhip64.so` where a program would look, each file once.
fn runtimes(root: &Path, environment: &BTreeMap<String, String>, machine: &Machine) -> Vec<Runtime> {
    let mut places: Vec<(String, String)> = Vec::new();
    for directory in environment.get("LD_LIBRARY_PATH").map_or("", String::as_str).split(':') {
        places.push((directory.to_owned(), "LD_LIBRARY_PATH".to_owned()));
    }
    for variable in ["ROCM_PATH", "ROCM_HOME", "HIP_PATH"] {
        let directory = environment.get(variable).map(|value| format!("{}/lib", value.trim_end_matches('/')));
        places.extend(directory.map(|directory| (directory, variable.to_owned())));
    }
    places.extend(machine.rocm.iter().map(|rocm| (format!("{}/lib", rocm.directory), "installed".to_owned())));
    for directory in ["/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib"] {
        places.push((directory.to_owned(), "installed".to_owned()));
    }
    let root = fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
    let mut found: Vec<Runtime> = Vec::new();
    for (directory, by) in places.into_iter().filter(|(directory, _)| directory.starts_with('/')).take(MAX_DIRECTORIES)
    {
        for path in copies(&root.join(directory.trim_start_matches('/'))) {
            // As it is called on that machine.
            let path = path.strip_prefix(&root).map_or(path.clone(), |below| Path::new("/").join(below));
            if found.iter().all(|known| known.path != path) {
                let version = version(&path);
                found.push(Runtime { path, by: by.clone(), version });
            }
        }
    }
    found
}

fn copies(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().take(MAX_NAMES).flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("libamdhip64.so"));
    let mut paths: Vec<PathBuf> = named.filter_map(|entry| fs::canonicalize(entry.path()).ok()).collect();
    paths.sort();
    paths.dedup();
    paths
}

/// The version behind `.so.` of a file name.
fn version(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let version = name.split_once(".so.")?.1;
    version.contains('.').then(|| version.chars().take(32).collect())
}
