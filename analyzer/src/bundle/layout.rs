//! Where things lie in a bundle. Both sides use it.

use crate::evidence::Source;

/// The directory that holds everything.
pub const ROOT: &str = "gpuoom-bundle";
/// Directory of the traces, below [`ROOT`].
pub const TRACES: &str = "traces/";
/// How the name of a trace ends.
pub const TRACE_END: &str = ".trace.bin";
/// The thresholds that its report was made with, below [`ROOT`]: a line `NAME=VALUE` each. Only where some were set.
pub const THRESHOLDS: &str = "thresholds.txt";
/// What could not be read of the original traces, below [`ROOT`]: a line `TRACE OFFSET REASON` each, because the copies hold what
/// could be read and are whole. Only where there was any.
pub const DAMAGES: &str = "damages.txt";
/// Directory of other evidence, below [`ROOT`].
pub const EVIDENCE: &str = "evidence/";

/// Beginning and end of the names of other evidence.
const SOURCES: [(Source, &str, &str); 5] = [
    (Source::TorchLog, "torch-log-", ".txt"),
    (Source::TorchSnapshot, "torch-snapshot-", ".pickle"),
    (Source::Smi, "smi-", ".txt"),
    (Source::KernelLog, "kernel-log-", ".txt"),
    (Source::ModelFacts, "model-facts-", ".toml"),
];

/// Name of a trace, counted from 1, below [`ROOT`].
pub fn trace_name(number: usize) -> String {
    format!("{TRACES}{number:02}{TRACE_END}")
}

/// Name of a piece of other evidence, counted from 1 within its sort, below [`ROOT`].
pub fn evidence_name(source: Source, number: usize) -> String {
    let (_, begin, end) = SOURCES[SOURCES.iter().position(|(known, ..)| *known == source).unwrap_or(0)];
    format!("{EVIDENCE}{begin}{number:02}{end}")
}

/// What an entry is, by its name below [`ROOT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A trace.
    Trace,
    /// Other evidence.
    Evidence(Source),
    /// Thresholds.
    Thresholds,
    /// What could not be read of the original traces.
    Damages,
    /// Something for people.
    Else,
}

/// What an entry with this name is.
pub fn content(name: &str) -> Content {
    if let Some(trace) = name.strip_prefix(TRACES) {
        return if trace.ends_with(TRACE_END) && !trace.contains('/') { Content::Trace } else { Content::Else };
    }
    if name == THRESHOLDS {
        return Content::Thresholds;
    }
    if name == DAMAGES {
        return Content::Damages;
    }
    let Some(file) = name.strip_prefix(EVIDENCE) else { return Content::Else };
    let known = SOURCES.iter().find(|(_, begin, end)| file.starts_with(begin) && file.ends_with(end));
    known.map_or(Content::Else, |(source, ..)| Content::Evidence(*source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_they_are() {
        assert_eq!(trace_name(1), "traces/01.trace.bin");
        assert_eq!(content(&trace_name(1234)), Content::Trace);
        for source in [Source::TorchLog, Source::TorchSnapshot, Source::Smi, Source::KernelLog, Source::ModelFacts] {
            assert_eq!(content(&evidence_name(source, 3)), Content::Evidence(source));
        }
        assert_eq!(content(THRESHOLDS), Content::Thresholds);
        assert_eq!(content(DAMAGES), Content::Damages);
        for other in ["report.md", "traces/a/b.trace.bin", "evidence/x.txt", "machine.json"] {
            assert_eq!(content(other), Content::Else, "{other}");
        }
    }
}
