//! Checks of a machine that need no run: limits, who holds memory now, options in the environment. Each check is a function
//! from what is known of the machine to findings; none prints, and none reads a file.

mod apu;
mod boot;
mod card;
mod environment;
pub mod finding;
mod holders;
mod limits;
mod software;
pub mod subject;

#[cfg(test)]
mod tests;

use serde::Serialize;

use crate::machine::Machine;
use finding::{Finding, Severity};
use subject::Subject;

/// The checks, in the order in which findings of one severity are shown.
const CHECKS: [fn(&Subject, &mut Vec<Finding>); 8] = [
    apu::check,
    boot::check,
    holders::check,
    card::check,
    limits::check,
    environment::check_allocator,
    environment::check_runtime,
    software::check,
];

/// What the checks came to.
#[derive(Clone, Debug, Serialize)]
pub struct Examination<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// Problems first.
    pub findings: Vec<Finding>,
    /// What could not be looked at, and what follows from it, a sentence each.
    pub not_read: Vec<String>,
}

impl Examination<'_> {
    /// How many findings have this severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }
}

/// Makes all checks.
pub fn examine(subject: &Subject) -> Examination<'_> {
    let mut findings = Vec::new();
    for check in CHECKS {
        check(subject, &mut findings);
    }
    findings.sort_by_key(|finding| finding.severity);
    Examination { machine: &subject.machine, findings, not_read: not_read(subject) }
}

fn not_read(subject: &Subject) -> Vec<String> {
    let machine = &subject.machine;
    let mut sentences = Vec::new();
    if !machine.has_gpu() {
        sentences.push("no GPU: nothing in /sys/class/drm, of KFD or of NVIDIA's driver".to_owned());
    }
    let needs_kfd = |card: &crate::machine::card::Card| card.is_amd() && machine.node_of(card).is_none();
    for card in machine.cards.iter().filter(|card| needs_kfd(card)) {
        sentences.push(format!(
            "KFD does not show {}: whether it shares the host's memory and who computes on it is not known",
            card.label()
        ));
    }
    if !machine.nvidia_gpus.is_empty() {
        sentences.push("who holds the memory of NVIDIA's GPUs: nvidia-smi tells".to_owned());
    }
    match &subject.graphics {
        None if machine.cards.iter().any(|card| card.is_amd()) => {
            sentences.push("memory of graphics clients: there are too many processes to look into".to_owned());
        }
        Some(graphics) if graphics.closed_processes > 0 => sentences.push(format!(
            "{} of other users could not be looked into for graphics memory; as root all can",
            crate::words::count(graphics.closed_processes, "process", "processes")
        )),
        _ => {}
    }
    if let Some(silent) = subject.graphics.as_ref().map(|graphics| graphics.silent_processes).filter(|count| *count > 0)
    {
        sentences.push(format!(
            "what {} with a card open {} there: the kernel does not say it",
            crate::words::count(silent, "process", "processes"),
            if silent == 1 { "holds" } else { "hold" }
        ));
    }
    if machine.memory.total_bytes.is_none() {
        sentences.push("/proc/meminfo: without it no limit can be compared with the RAM".to_owned());
    }
    sentences.extend(machine.unreadable.iter().map(|path| format!("{path}: not permitted")));
    if machine.cut {
        sentences.push("the machine has more files than are read of one".to_owned());
    }
    sentences
}
