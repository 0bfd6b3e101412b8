//! `doctor`: what the checks found, for people and for programs.

use std::io::{self, Write};

use serde::Serialize;

use super::page::{Page, Paint};
use crate::doctor::Examination;
use crate::doctor::finding::{Finding, Fix, Severity};
use crate::machine::Machine;
use crate::machine::card::Card;
use crate::words::{clean, count, gib, grouped, size};

/// Name and version of the JSON.
pub const SCHEMA: &str = "gpuoom.doctor/1";

/// Where the machine and the environment come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Origin {
    /// Directory that stands for `/`.
    pub root: String,
    /// Whether that is this machine.
    pub is_this_machine: bool,
}

/// For people.
pub fn write(page: &mut Page, examination: &Examination, origin: &Origin) {
    let problems = examination.count(Severity::Problem) as u64;
    let notices = examination.count(Severity::Notice) as u64;
    let verdict = match problems {
        0 if is_unknown(examination.machine) => "nothing could be checked of the machine".to_owned(),
        // Without a GPU most checks had nothing to look at.
        0 if !examination.machine.has_gpu() => "no GPU was found; nothing else is wrong".to_owned(),
        0 => "nothing is wrong".to_owned(),
        _ => count(problems, "problem", "problems"),
    };
    let more = match notices {
        0 => String::new(),
        _ => format!(", {} worth knowing", count(notices, "thing", "things")),
    };
    page.headed("DOCTOR", Paint::Bold, &format!("{verdict}{more}"));
    if !origin.is_this_machine {
        let root = clean(&origin.root);
        page.indented(
            "  ",
            "  ",
            &format!("the machine is the one below {root}; the environment is that of this command"),
        );
    }
    page.gap();
    machine(page, examination.machine);
    for finding in &examination.findings {
        write_finding(page, finding);
    }
    if !examination.not_read.is_empty() {
        page.headed("NOT READ", Paint::Bold, "what these could tell is missing above");
        examination.not_read.iter().for_each(|sentence| page.indented("  -  ", "     ", &clean(sentence)));
        page.gap();
    }
    let text =
        "`gpuoom-analyze explain ID` tells more about an id; all sizes were read on the machine, nothing is modelled";
    page.indented("", "", text);
}

/// Whether nothing is known by which limits or cards could be judged, as below an empty directory.
fn is_unknown(machine: &Machine) -> bool {
    machine.memory.total_bytes.is_none() && machine.cards.is_empty() && machine.nvidia_gpus.is_empty()
}

fn machine(page: &mut Page, machine: &Machine) {
    let name = machine.distribution.name.as_deref().unwrap_or("unknown distribution");
    let kernel = machine.kernel.as_deref().unwrap_or("not known");
    page.headed("MACHINE", Paint::Bold, &format!("{}, kernel {}", clean(name), clean(kernel)));
    let memory = &machine.memory;
    if let Some(total) = memory.total_bytes {
        let available = memory.available_bytes.map_or(String::new(), |bytes| format!(", {} available", gib(bytes)));
        row(page, "RAM", &format!("{}{available}", gib(total)));
    }
    for card in machine.cards.iter().filter(|card| card.is_amd() || machine.node_of(card).is_some()) {
        row(page, &format!("card{}", card.number), &describe(machine, card));
    }
    for gpu in &machine.nvidia_gpus {
        let model = gpu.model.as_deref().unwrap_or("NVIDIA GPU");
        let number = gpu.minor.map_or_else(|| "nvidia".to_owned(), |minor| format!("nvidia{minor}"));
        row(page, &number, &format!("{} ({})", clean(model), clean(&gpu.pci_bus_id)));
    }
    if let Some(driver) = &machine.nvidia_driver {
        row(page, "driver", &format!("NVIDIA {}", clean(driver)));
    }
    if let Some((ttm, limit)) = machine.ttm.and_then(|ttm| Some((ttm, ttm.limit_bytes()?))) {
        let pages = grouped(ttm.pages_limit.unwrap_or(0));
        row(page, "TTM limit", &format!("{} ({pages} pages; system memory for GPUs)", gib(limit)));
    }
    for rocm in machine.rocm.iter().take(8) {
        row(page, "ROCm", &format!("{} in {}", clean(&rocm.version), clean(&rocm.directory)));
    }
    page.gap();
}

fn row(page: &mut Page, name: &str, text: &str) {
    page.indented(&format!("  {name:<10} "), &" ".repeat(13), text);
}

fn describe(machine: &Machine, card: &Card) -> String {
    let node = machine.node_of(card);
    let mut parts = Vec::new();
    parts.extend(card.pci_bus_id.as_deref().map(clean));
    parts.extend(node.and_then(|node| node.target_name()));
    let integrated = machine.is_integrated(card);
    parts.extend((integrated == Some(true)).then(|| "shares the host's memory".to_owned()));
    let vram = if integrated == Some(true) { "carve-out" } else { "VRAM" };
    if let Some(total) = card.vram_total_bytes {
        let used = card.vram_used_bytes.map_or(String::new(), |used| format!(" ({} in use)", size(used)));
        parts.push(format!("{vram} {}{used}", size(total)));
    }
    parts.extend(card.gtt_total_bytes.map(|bytes| format!("GTT {}", gib(bytes))));
    let offered = node.map(|node| node.local_bytes()).filter(|bytes| *bytes > 0);
    parts.extend(offered.map(|bytes| format!("KFD offers {}", gib(bytes))));
    let modes = [&card.compute_partition, &card.memory_partition];
    parts.extend(modes.into_iter().flatten().map(|mode| clean(mode)));
    parts.join(", ")
}

fn write_finding(page: &mut Page, finding: &Finding) {
    let (word, paint) = match finding.severity {
        Severity::Problem => ("PROBLEM", Paint::Failure),
        Severity::Notice => ("NOTICE", Paint::Bold),
    };
    page.headed(word, paint, &clean(&finding.title));
    let id = finding.id.map_or(String::new(), |id| format!(": {id}"));
    page.indented("  ", "  ", &format!("{}{id}", finding.confidence.name()));
    finding.evidence.iter().for_each(|evidence| page.indented("  -  ", "     ", evidence));
    for (number, fix) in (1..).zip(&finding.fixes) {
        write_fix(page, number, fix);
    }
    page.gap();
}

fn write_fix(page: &mut Page, number: u32, fix: &Fix) {
    let colon = if fix.commands.is_empty() { "" } else { ":" };
    page.indented(&format!("{number:>3}  "), "     ", &format!("{}{colon}", fix.text));
    // A command stays one line, however long: it is there to be copied.
    fix.commands.iter().for_each(|command| page.verbatim(&format!("       {command}")));
}

#[derive(Serialize)]
struct Json<'a> {
    schema: &'static str,
    origin: &'a Origin,
    problems: usize,
    #[serde(flatten)]
    examination: &'a Examination<'a>,
}

/// For programs.
pub fn write_json(out: &mut dyn Write, examination: &Examination, origin: &Origin) -> io::Result<()> {
    let problems = examination.count(Severity::Problem);
    serde_json::to_writer_pretty(&mut *out, &Json { schema: SCHEMA, origin, problems, examination })?;
    writeln!(out)
}
