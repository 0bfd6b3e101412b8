//! The first lines: which program, which machine.

use crate::conclusion::Summary;
use crate::passes::device::{DeviceSummary, TotalSource};
use crate::passes::facts::ProcessSummary;
use crate::passes::oom::OomReport;
use crate::report::page::Page;
use crate::thresholds::Change;
use crate::words::{clean, gib, moment, runtime, runtime_version, shorten, signal, size, span};

/// Settings by which the recorder itself refuses calls.
const FAULTS: [&str; 3] = ["GPUOOM_CAPACITY", "GPUOOM_INJECT", "GPUOOM_SEED"];

pub(super) fn write(page: &mut Page, summary: &Summary) {
    let process = &summary.facts.process;
    let program = match process.command_line.is_empty() {
        false => process.command_line.join(" "),
        true if process.executable.is_empty() => "(a program whose name was not recorded)".to_owned(),
        true => process.executable.clone(),
    };
    page.two_sides(&clean(&program), &format!("{}, {}", place(process), end(summary)));
    let started = started(summary);
    let room = page.look.width.saturating_sub(started.chars().count() + 2);
    page.line(&format!("{}, {started}", shorten(&clean(&summary.facts.trace.path), room)));
    if let Some(forked) = process.forked() {
        page.line(&forked);
    }
    for device in &summary.facts.devices {
        page.line(&describe(device, process));
    }
    let requested = FAULTS.iter().filter_map(|name| process.environment.get_key_value(*name));
    let requested: Vec<String> = requested.map(|(name, value)| format!("{name}={}", clean(value))).collect();
    if !requested.is_empty() {
        page.line(&format!("Failures on request: {}", requested.join(", ")));
    }
    let machine = machine(summary);
    if !machine.is_empty() {
        page.line(&machine);
    }
    if let Some(text) = set_by_hand(summary) {
        page.indented("", "  ", &text);
    }
    page.gap();
}

/// Which thresholds the user set: what they decide is not what it is elsewhere.
pub(in crate::report) fn set_by_hand(summary: &Summary) -> Option<String> {
    let changed: Vec<String> = summary.facts.thresholds_changed.iter().map(Change::words).collect();
    (!changed.is_empty()).then(|| format!("thresholds set by hand (--threshold): {}", changed.join(", ")))
}

/// What runs beside the GPUs: frameworks, drivers, the host.
pub(in crate::report) fn machine(summary: &Summary) -> String {
    let machine = &summary.facts.machine;
    let mut parts: Vec<String> = summary.facts.versions.words().iter().map(|name| clean(name)).collect();
    parts.extend(machine.kernel.as_ref().map(|release| format!("kernel {}", clean(release))));
    parts.extend(machine.nvidia_driver.as_ref().map(|version| format!("NVIDIA driver {}", clean(version))));
    parts.extend(machine.memory.total_bytes.map(|bytes| format!("{} of RAM", gib(bytes))));
    parts.join(", ")
}

pub(in crate::report) fn place(process: &ProcessSummary) -> String {
    match process.hostname.is_empty() {
        true => format!("pid {}", process.pid),
        false => format!("pid {} on {}", process.pid, clean(&process.hostname)),
    }
}

pub(in crate::report) fn started(summary: &Summary) -> String {
    let started = summary.facts.trace.started_at.replace('T', " ");
    format!("started {} UTC", started.split('.').next().unwrap_or(&started))
}

pub(in crate::report) fn end(summary: &Summary) -> String {
    let ran = format!("ran {}{}", moment(summary.facts.trace.duration_ns), held_up(&summary.facts.ooms));
    match (summary.facts.process.exit_code, summary.facts.process.signal) {
        // Something stopped the process in its exit handlers, or before the recorder's own.
        (Some(code), _) if !summary.facts.trace.clean_close => format!("{ran}, exit({code}) called, end not recorded"),
        (Some(code), _) => format!("{ran}, exit {code}"),
        (_, Some(number)) => format!("{ran}, ended by {}", signal(number)),
        _ => format!("{ran}, end not seen"),
    }
}

/// How much of a run the recorder's readings at failures made it longer: of one thread its sum, of several nobody knows how they
/// lie beside each other.
fn held_up(ooms: &[OomReport]) -> String {
    let held_up: Vec<&OomReport> = ooms.iter().filter(|oom| oom.held_up_ns > 0).collect();
    let Some(first) = held_up.first() else { return String::new() };
    match held_up.iter().all(|oom| oom.thread == first.thread) {
        true => {
            let ns = held_up.iter().fold(0u64, |sum, oom| sum.saturating_add(oom.held_up_ns));
            format!(" ({} of it readings)", span(ns))
        }
        false => " (readings included)".to_owned(),
    }
}

pub(in crate::report) fn describe(device: &DeviceSummary, process: &ProcessSummary) -> String {
    let Some(index) = device.index else { return "memory of a device that the trace does not name".to_owned() };
    let label = device.name.as_deref().map_or("name not known".into(), clean);
    let architecture = device.architecture.as_deref().map_or(String::new(), |name| format!(" ({})", clean(name)));
    let mut parts = vec![format!("GPU {index}  {label}{architecture}")];
    let source = device.total_source.map_or("", |TotalSource::Sysfs| " by sysfs");
    parts.push(device.total_bytes.map_or("size not known".to_owned(), |total| size(total) + source));
    let name = device.runtime.as_deref();
    if let Some(version) = device.runtime_version {
        parts.push(format!("{} {}", runtime(name), runtime_version(name, version)));
    }
    let mut libraries = process.libraries.iter().filter_map(|library| library.path.rsplit('/').next());
    let of_runtime = |file: &&str| match name {
        Some("hip") => file.contains("amdhip"),
        Some("cuda") => file.contains("cudart") || file.starts_with("libcuda.so"),
        _ => false,
    };
    parts.extend(libraries.find(of_runtime).map(clean));
    parts.join(", ")
}
