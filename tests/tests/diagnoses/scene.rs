//! One scene: a program's script, the machine that it runs on, and what the report must say.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use gpuoom_tests::{Client, Diagnosis, Finished, Library, Report, Trace, analyzer, plugin, program_with, sim_dir};

use crate::machine::{Built, Machine};

/// How sure a diagnosis must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sure {
    Proven,
    Probable,
    Possible,
}

impl Sure {
    /// As the report writes it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Sure::Proven => "proven",
            Sure::Probable => "probable",
            Sure::Possible => "possible",
        }
    }
}

/// What must come of a scene.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    /// It stands first, this sure, and is the cause of a failure where it is about failures.
    First(Sure),
    /// It is found, this sure.
    Found(Sure),
    /// It is not found, although it looks like it.
    Not,
    /// Nothing is a cause of anything.
    Healthy,
}

/// A scene.
#[derive(Clone)]
pub(crate) struct Scene {
    /// The diagnosis that it is about; empty for a healthy run.
    pub(crate) id: &'static str,
    /// What must come of it.
    pub(crate) says: Says,
    /// Other diagnoses that are true of it.
    pub(crate) also: &'static [&'static str],
    /// What happens in it.
    pub(crate) story: &'static str,
    machine: Machine,
    script: String,
    is_cuda: bool,
    settings: Vec<(String, String)>,
    libraries: Vec<(&'static str, &'static str)>,
    torch: Option<String>,
    evidence: Vec<(&'static str, String)>,
    loads_late: bool,
    thresholds: Vec<&'static str>,
    is_watched: bool,
}

/// A scene's report.
pub(crate) struct Played {
    /// What the report found, the most telling first.
    pub(crate) found: Vec<Diagnosis>,
    /// What it names as causes of failures.
    pub(crate) causes: Vec<String>,
    /// What it ruled out, and what it found, for messages.
    pub(crate) details: String,
}

/// A 24 GiB card of RDNA3, and a program that does this.
pub(crate) fn scene(id: &'static str, says: Says, story: &'static str, script: impl Into<String>) -> Scene {
    Scene {
        id,
        says,
        also: &[],
        story,
        machine: Machine::card(),
        script: script.into(),
        is_cuda: false,
        settings: Vec::new(),
        libraries: Vec::new(),
        torch: None,
        evidence: Vec::new(),
        thresholds: Vec::new(),
        loads_late: false,
        is_watched: false,
    }
}

impl Scene {
    /// Other diagnoses that are true of it.
    pub(crate) fn also(mut self, ids: &'static [&'static str]) -> Self {
        self.also = ids;
        self
    }

    /// On another machine.
    pub(crate) fn on(mut self, machine: Machine) -> Self {
        self.machine = machine;
        self
    }

    /// Over CUDA.
    pub(crate) fn cuda(mut self) -> Self {
        self.is_cuda = true;
        self
    }

    /// With a setting of the simulator, or a variable of the program.
    pub(crate) fn set(mut self, name: &str, value: impl ToString) -> Self {
        self.settings.push((name.to_owned(), value.to_string()));
        self
    }

    /// With a library of that file name in the process.
    pub(crate) fn library(self, name: &'static str) -> Self {
        self.library_of(name, "caller.c")
    }

    /// With a library of that file name, made from that source: its functions are on the way to the calls that it makes.
    pub(crate) fn library_of(mut self, name: &'static str, source: &'static str) -> Self {
        self.libraries.push((name, source));
        self
    }

    /// With PyTorch of that version, built for that HIP.
    pub(crate) fn torch(mut self, version: &str, hip: &str) -> Self {
        self.torch =
            Some(format!("__version__ = '{version}'\ncuda: Optional[str] = None\nhip: Optional[str] = '{hip}'\n"));
        self.library("libtorch_hip.so")
    }

    /// With PyTorch of that version for CUDA.
    pub(crate) fn torch_cuda(mut self, version: &str, cuda: &str) -> Self {
        self.torch =
            Some(format!("__version__ = '{version}'\ncuda: Optional[str] = '{cuda}'\nhip: Optional[str] = None\n"));
        self.cuda().library("libtorch_cuda.so")
    }

    /// PyTorch's library is there, and the script loads it.
    pub(crate) fn loads_torch_late(mut self) -> Self {
        self.loads_late = true;
        self
    }

    /// With a file from beside the trace.
    pub(crate) fn given(mut self, option: &'static str, text: impl Into<String>) -> Self {
        self.evidence.push((option, text.into()));
        self
    }

    /// Judged by another threshold than the default: nobody should have to wait for a minute.
    pub(crate) fn threshold(mut self, setting: &'static str) -> Self {
        self.thresholds.push(setting);
        self
    }

    /// Started by `gpuoom-analyze record`, which sees how the program ended.
    pub(crate) fn watched(mut self) -> Self {
        self.is_watched = true;
        self
    }

    /// Whether the diagnosis must be found.
    pub(crate) fn is_positive(&self) -> bool {
        matches!(self.says, Says::First(_) | Says::Found(_))
    }

    /// Whether a diagnosis is true of this scene.
    pub(crate) fn is_true(&self, id: &str) -> bool {
        self.also.contains(&id) || (self.is_positive() && self.id == id)
    }

    /// Runs the program under the recorder, and the analyzer on its trace.
    pub(crate) fn play(&self) -> Played {
        let machine = self.machine.build();
        let run = self.client(&machine).run_recorded();
        assert!(run.status.code() != Some(99), "{}: {}", self.story, run.stderr);
        let trace = match () {
            () if self.is_watched => watched_trace(machine.root.path()),
            () if self.script.contains("child;") => childs_trace(&run),
            () => run.only_trace(),
        };
        let settings = self.thresholds.iter().flat_map(|setting| ["--threshold", setting]);
        let mut arguments: Vec<OsString> = settings.map(OsString::from).collect();
        for (index, (option, text)) in self.evidence.iter().enumerate() {
            let path = machine.root.path().join(format!("evidence-{index}"));
            fs::write(&path, text.replace("{pid}", &pid_of(&trace.path))).expect("a file of evidence");
            arguments.extend([OsString::from(option), path.into()]);
        }
        let arguments: Vec<_> = arguments.iter().map(OsString::as_os_str).collect();
        Played::of(&trace.report_with(&arguments))
    }

    fn client(&self, machine: &Built) -> Client {
        let root = machine.root.path();
        let installed: Vec<PathBuf> = self.libraries.iter().map(|library| self.install(*library, root)).collect();
        let at_once = installed.iter().filter(|_| !self.loads_late);
        let loads = at_once.map(|path| format!("load {};", path.display()));
        let script: String = loads.chain([self.script_in(root)]).collect();
        let program = match self.is_cuda {
            true => program_with("scene_cuda.c", Library::Cuda),
            false => program_with("scene_hip.c", Library::Hip),
        };
        let client = match self.is_watched {
            true => Client::new(analyzer()).args(["record", "-o"]).arg(root.join(WATCHED_TRACE)).arg("--").arg(program),
            false => Client::new(program),
        };
        let mut client = client.arg(script).env("GPUOOM_SYSROOT", root).env("GPUOOM_SAMPLE", "20ms");
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        for (name, value) in [
            ("SIM_SYSFS", root.display().to_string()),
            ("SIM_SYSFS_CARD", text(&machine.card)),
            ("SIM_SYSFS_GPU", text(&machine.gpu)),
            ("SIM_PCI_BUS_ID", text(&machine.pci_bus_id)),
            ("SIM_CAPACITY", machine.vram_bytes.unwrap_or(24 << 30).to_string()),
            ("SIM_COPY_BYTES", "4096".to_owned()),
        ] {
            client = client.env(name, value);
        }
        self.settings.iter().fold(client, |client, (name, value)| client.env(name, value))
    }

    /// The script with the places of libraries: `{sim}` for the simulators', `{lib}` for the scene's own.
    fn script_in(&self, root: &Path) -> String {
        let own = root.join(LIBRARIES).display().to_string();
        self.script.replace("{sim}", &sim_dir().display().to_string()).replace("{lib}", &own)
    }

    /// A library under that name, with PyTorch's version beside it.
    fn install(&self, (name, source): (&str, &str), root: &Path) -> PathBuf {
        let directory = root.join(LIBRARIES);
        fs::create_dir_all(&directory).expect("a directory below the root");
        let path = directory.join(name);
        fs::copy(plugin(source, Library::None), &path).expect("a library");
        if let Some(version) = &self.torch {
            fs::write(root.join("usr/lib/python3/torch/version.py"), version).expect("PyTorch's version");
        }
        path
    }
}

/// Where a scene's libraries lie: where PyTorch's do, one above them is its version.
const LIBRARIES: &str = "usr/lib/python3/torch/lib";
/// Where `gpuoom-analyze record` puts the trace.
const WATCHED_TRACE: &str = "trace-%p.trace.bin";

/// Of a program that forked, what the child did.
fn childs_trace(run: &Finished) -> Trace {
    let traces = run.traces();
    let pids: Vec<u64> = traces.iter().map(Trace::pid).collect();
    let is_child = |trace: &Trace| pids.contains(&trace.report().number("/process/parent_pid"));
    traces.into_iter().find(is_child).expect("a trace of the child")
}

fn watched_trace(root: &Path) -> Trace {
    let entries = fs::read_dir(root).expect("the scratch directory").flatten().map(|entry| entry.path());
    let mut traces = entries.filter(|path| path.to_string_lossy().ends_with(".trace.bin"));
    Trace::new(traces.next().expect("a trace"))
}

/// The process's number, from the name of its trace.
fn pid_of(trace: &Path) -> String {
    let name = trace.file_name().expect("a name").to_string_lossy();
    name.trim_end_matches(".trace.bin").rsplit('-').next().unwrap_or_default().to_owned()
}

impl Played {
    fn of(report: &Report) -> Self {
        let details = format!(
            "failures {}\nruled out {}\nfound {}",
            report.excerpt("/ooms"),
            report.excerpt("/diagnoses_excluded"),
            report.excerpt("/diagnoses")
        );
        Played { found: report.diagnoses(), causes: report.causes(), details }
    }

    /// How sure it is of a diagnosis.
    pub(crate) fn sure_of(&self, id: &str) -> Option<&str> {
        self.found.iter().find(|found| found.id == id).map(|found| found.confidence.as_str())
    }

    /// Whether the report says what the scene's label says.
    pub(crate) fn is_as(&self, scene: &Scene) -> bool {
        match scene.says {
            Says::First(sure) => {
                let first = self.found.first().filter(|first| first.id == scene.id && first.confidence == sure.name());
                let names_it = |first: &Diagnosis| {
                    !first.is_of_failures || sure == Sure::Possible || self.causes.iter().any(|cause| cause == scene.id)
                };
                first.is_some_and(names_it)
            }
            Says::Found(sure) => self.sure_of(scene.id) == Some(sure.name()),
            Says::Not => self.sure_of(scene.id).is_none(),
            Says::Healthy => !self.found.iter().any(|found| found.role == "cause" || found.role == "shape"),
        }
    }
}
