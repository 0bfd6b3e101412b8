//! Plays a run: writes the machine's files, starts the program under the recorder, and lets the analyzer read its trace.

use std::fs;
use std::path::Path;

use gpuoom_tests::{Client, Finished, Library, Report, plugin, program_with};

use crate::case::{Case, Sight};
use crate::script::{Op, each, write};

/// A run that has been played. Its files go with it.
pub(crate) struct Played {
    pub(crate) script: String,
    pub(crate) run: Finished,
    pub(crate) report: Report,
    /// What stood for `/`.
    _root: tempfile::TempDir,
}

/// Plays a run.
///
/// # Panics
///
/// Where the program can't be played to its end, or its trace can't be read.
pub(crate) fn play(case: &Case) -> Played {
    let machine = case.machine.build();
    let root = machine.root.path();
    let libraries = case.program.libraries.iter().map(|name| install(name, "caller.c", root));
    let nvml = case.has_nvml.then(|| install("libnvidia-ml.so.1", "nvml_cards.c", root));
    let loads: String = libraries.chain(nvml).map(|path| format!("load {path}\n")).collect();
    let script = write(&case.script()).replace("{lib}", &root.join(LIBRARIES).display().to_string());
    let file = root.join("script");
    fs::write(&file, format!("{loads}{script}")).expect("a file below the root");
    let (player, library) = case.platform.player();
    let sample = if case.sight == Sight::Full { "5ms" } else { "off" };
    let mut client = Client::new(program_with(player, library))
        .arg(format!("@{}", file.display()))
        .without_env("SIM_LOG")
        .env("GPUOOM_SYSROOT", root)
        .env("GPUOOM_SAMPLE", sample)
        .env("SIM_CAPACITY", case.card_bytes.to_string())
        .env("SIM_HIDDEN", case.context_bytes.to_string())
        .env("SIM_DEVICES", case.program.devices.to_string())
        .env("SIM_HIP_VERSION", case.hip_version.to_string())
        .env("SIM_PCI_BUS_ID", machine.pci_bus_id.clone().unwrap_or_default())
        .env("SIM_COPY_BYTES", "4096");
    if case.platform.is_hip() && case.sight != Sight::Blind {
        client = client
            .env("SIM_SYSFS", root)
            .env("SIM_SYSFS_CARD", machine.card.clone().unwrap_or_default())
            .env("SIM_SYSFS_GPU", machine.gpu.clone().unwrap_or_default());
    }
    if case.has_nvml || has_other_processes(case) {
        client = client.env("SIM_CARD_FILE", root.join("shared-card"));
    }
    for (name, value) in &case.settings {
        client = client.env(name, value);
    }
    let run = client.run_recorded();
    assert!(run.status.code() != Some(99), "the script can't be played: {}", run.stderr);
    let report = run.only_trace().report();
    Played { script, run, report, _root: machine.root }
}

const LIBRARIES: &str = "usr/lib/program";

/// A library of that name, made from that source.
fn install(name: &str, source: &str, root: &Path) -> String {
    let directory = root.join(LIBRARIES);
    fs::create_dir_all(&directory).expect("a directory below the root");
    let path = directory.join(name);
    fs::copy(plugin(source, Library::None), &path).expect("a library");
    path.display().to_string()
}

fn has_other_processes(case: &Case) -> bool {
    let mut found = false;
    each(&mut case.ops(), &mut |op| found |= matches!(op, Op::Process(..)));
    found
}
