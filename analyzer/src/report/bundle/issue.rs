//! `issue.md`: a report for the tracker that the diagnosis belongs to, filled in as far as the bundle can.

use crate::bundle::issue::{Issue, Item, Place};
use crate::conclusion::Summary;
use crate::conclusion::finding::Finding;
use crate::passes::device::DeviceSummary;
use crate::passes::facts::ProcessSummary;
use crate::report::markdown::page::{Markdown, code, plain};
use crate::report::text::diagnoses::evidence;
use crate::words::{gib, gpu, runtime, runtime_version};

/// Libraries that are listed.
const MOST_LIBRARIES: usize = 24;
/// How the names of the variables begin that change how memory is given.
const SETTINGS: [&str; 12] =
    ["AMD_", "CUDA_", "GGML_", "GPU_", "HIP", "HSA", "LLAMA_", "NCCL_", "PYTORCH_", "ROCR_", "TF_", "XLA_"];

/// The page; `files` are the names of what is attached.
pub fn write(issue: &Issue<'_>, files: &[&str]) -> String {
    let mut page = Markdown::default();
    let summary = issue.summary;
    page.heading(1, &title(issue));
    places(&mut page, issue);
    page.heading(2, "What happened");
    page.paragraph(&plain(&summary.conclusion.verdict.sentences.join(" ")));
    let found = issue.finding.iter().map(|found| ("Diagnosis", found));
    let possible = issue.possible.iter().map(|possible| ("Not sure", possible));
    for (word, finding) in found.chain(possible).chain(issue.others.iter().map(|other| ("Also", other))) {
        page.paragraph(&format!(
            "{word}: {}, {}: {}: {}",
            code(finding.id),
            finding.confidence.name(),
            plain(&finding.title),
            plain(&evidence(finding))
        ));
        page.list(
            false,
            &finding.missing.iter().map(|text| format!("would settle it: {}", plain(text))).collect::<Vec<_>>(),
        );
    }
    page.heading(2, "Versions and hardware");
    page.table(&["", ""], &versions(summary));
    libraries(&mut page, &summary.facts.process);
    steps(&mut page, &summary.facts.process);
    for place in &issue.places {
        asked(&mut page, place);
    }
    page.heading(2, "Attached");
    page.list(false, &files.iter().map(|name| code(name)).collect::<Vec<_>>());
    page.paragraph(
        "`gpuoom-analyze report BUNDLE.tar.gz` shows all of it. `REDACTED.md` says which values were replaced, if any were.",
    );
    page.into_text()
}

fn title(issue: &Issue<'_>) -> String {
    let place = issue.summary.facts.devices.first().map(|device| format!(" on {}", card(device))).unwrap_or_default();
    let failed = issue.summary.facts.oom_count > 0;
    match (issue.finding, issue.possible) {
        (Some(finding), _) => format!("{}{place}", capital(finding)),
        (None, Some(possible)) if failed => format!("Out of GPU memory{place}; possible: {}", possible.title),
        (None, Some(possible)) => format!("GPU memory{place}; possible: {}", possible.title),
        (None, None) if failed => format!("Out of GPU memory{place}; why is not known"),
        (None, None) => format!("GPU memory{place}: no allocation ran out of memory"),
    }
}

fn capital(finding: &Finding) -> String {
    let mut letters = finding.title.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn card(device: &DeviceSummary) -> String {
    device.name.clone().unwrap_or_else(|| gpu(device.index))
}

fn places(page: &mut Markdown, issue: &Issue<'_>) {
    if issue.places.is_empty() {
        page.paragraph(match issue.finding {
            Some(_) => {
                "**Where to file: nowhere.** By the catalogue this is no defect of another project: `report.md` says what to do. \
                 If you ask for help in a forum, this page and the bundle say what people will ask."
            }
            None => "**Where to file: nowhere yet.** No diagnosis is sure enough; `report.md` says which reading would settle it.",
        });
        return;
    }
    page.paragraph("**Where to file** (look for one that is open already):");
    let items: Vec<String> =
        issue.places.iter().map(|place| format!("{}: {}", code(place.id), links(&place.place))).collect();
    page.list(false, &items);
}

/// The catalogue's own words: numbers of issues in it are meant to link.
fn links(place: &str) -> String {
    place.replace('<', "&lt;")
}

fn versions(summary: &Summary) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut row = |name: &str, value: Option<String>| {
        let value = value.unwrap_or_default();
        rows.push(vec![name.to_owned(), if value.is_empty() { "not known".to_owned() } else { plain(&value) }]);
    };
    for device in &summary.facts.devices {
        let architecture = device.architecture.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
        let total = device.total_bytes.map(|bytes| format!(", {}", gib(bytes))).unwrap_or_default();
        row(&gpu(device.index), Some(format!("{}{architecture}{total}", card(device))));
        let name = device.runtime.as_deref();
        let version =
            device.runtime_version.map(|version| format!("{} {}", runtime(name), runtime_version(name, version)));
        row("runtime", version);
    }
    let machine = &summary.facts.machine;
    row("software", Some(summary.facts.versions.words().join(", ")));
    if let Some(version) = &summary.facts.process.torch_version {
        row("PyTorch", Some(version.clone()));
    }
    let kernel = machine.kernel.clone().unwrap_or_else(|| summary.facts.process.kernel.clone());
    row("kernel", Some(kernel));
    row("distribution", machine.distribution.name.clone());
    let driver = machine.nvidia_driver.as_ref().map(|version| format!("NVIDIA {version}"));
    row("driver", driver.or_else(|| machine.amdgpu_version.as_ref().map(|version| format!("amdgpu {version}"))));
    row("RAM", machine.memory.total_bytes.map(gib));
    row("recorder", Some(format!("gpuoom {}", summary.facts.process.recorder_version)));
    rows
}

fn libraries(page: &mut Markdown, process: &ProcessSummary) {
    let lines: Vec<String> = process
        .libraries
        .iter()
        .take(MOST_LIBRARIES)
        .map(|library| format!("{}  {}", library.path, library.build_id.as_deref().unwrap_or("no build id")))
        .collect();
    if !lines.is_empty() {
        page.folded("GPU libraries and their build ids", &lines.join("\n"));
    }
}

fn steps(page: &mut Markdown, process: &ProcessSummary) {
    page.heading(2, "Steps");
    let settings: Vec<String> = process
        .environment
        .iter()
        .filter(|(name, _)| SETTINGS.iter().any(|begin| name.starts_with(begin)))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let set = match settings.is_empty() {
        true => "no variable of the runtimes or allocators is set".to_owned(),
        false => format!("set {}", settings.iter().map(|setting| code(setting)).collect::<Vec<_>>().join(", ")),
    };
    let run = match process.command_line.is_empty() {
        true => format!("run {}", code(&process.executable)),
        false => format!("run {}", code(&process.command_line.join(" "))),
    };
    page.list(true, &[set, run, "*say here what the program was doing when it happened*".to_owned()]);
}

fn asked(page: &mut Markdown, place: &Place) {
    if place.items.is_empty() {
        return;
    }
    page.heading(2, &format!("What is asked for with {}", place.id));
    let row = |item: &Item| {
        let (here, get) = match &item.have {
            Some(name) => (plain(name), String::new()),
            None => ("**missing**".to_owned(), plain(item.get)),
        };
        vec![item.what.to_owned(), here, get]
    };
    let rows: Vec<Vec<String>> = place.items.iter().map(row).collect();
    page.table(&["evidence", "here", "how to get it"], &rows);
}
