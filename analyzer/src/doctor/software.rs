//! Installed versions: listed defects, and several copies of a runtime.

use super::finding::Finding;
use super::subject::Subject;
use crate::judgement::check::Confidence;
use crate::software::Version;
use crate::words::clean;

/// A listed defect: from this version on, up to this one, each as major, minor and patch; what it is, which entry of the
/// catalogue explains it.
type Defect = ([u32; 3], [u32; 3], &'static str, &'static str);

/// Sources: the entries that they name.
const DEFECTS: [Defect; 9] = [
    ([5, 6, 0], [5, 6, 0], "unloading a module leaks (fixed in 5.6.1)", "model-swap-residual"),
    ([5, 0, 0], [6, 2, 0], "closing an IPC handle leaks (fixed in 6.2.1)", "ipc-export-pin"),
    ([6, 4, 0], [6, 4, 1], "releasing virtual memory does not give it back", "vmm-release-ineffective"),
    ([5, 0, 0], [6, 99, 99], "hipMallocAsync can fail where hipMalloc would not (fixed in 7.0)", "mallocasync-oom"),
    ([7, 0, 0], [99, 0, 0], "buffers exported to other processes stay pinned after free", "ipc-export-pin"),
    ([7, 1, 0], [7, 1, 99], "giving access to mapped virtual memory can fail", "expandable-hazard"),
    ([7, 14, 0], [7, 14, 99], "each virtual-memory handle holds a file descriptor", "vmm-fd-exhaustion"),
    (
        [7, 14, 0],
        [7, 14, 99],
        "memory can read zeros with expandable segments and max_split_size_mb",
        "expandable-with-max-split",
    ),
    ([7, 15, 0], [7, 15, 99], "memory imported from another process can be refused", "expandable-hazard"),
];

pub(super) fn check(subject: &Subject, findings: &mut Vec<Finding>) {
    findings.extend(defects(subject));
    findings.extend(copies(subject));
}

fn numbers(version: &str) -> Option<[u32; 3]> {
    let Version { major, minor } = Version::parse(version)?;
    let patch = version.split('.').nth(2).unwrap_or_default();
    let digits: String = patch.chars().take_while(char::is_ascii_digit).take(6).collect();
    Some([major, minor, digits.parse().unwrap_or(0)])
}

fn defects(subject: &Subject) -> Option<Finding> {
    let mut evidence = Vec::new();
    let mut seen: Vec<[u32; 3]> = Vec::new();
    for rocm in &subject.machine.rocm {
        let Some(version) = numbers(&rocm.version).filter(|version| !seen.contains(version)) else { continue };
        seen.push(version);
        let listed = DEFECTS.iter().filter(|(from, to, ..)| (*from..=*to).contains(&version));
        evidence.extend(listed.map(|(_, _, what, id)| format!("ROCm {}: {what} ({id})", clean(&rocm.version))));
    }
    let mut finding = (!evidence.is_empty())
        .then(|| Finding::notice("known-bad-version", "the installed ROCm has listed defects of GPU memory"))?;
    finding.evidence = evidence;
    Some(
        finding
            .because("PyTorch's wheels bring a ROCm of their own, for which this says nothing")
            .fix("each matters only to programs that use what it names: `gpuoom-analyze explain ID` tells"),
    )
}

fn copies(subject: &Subject) -> Option<Finding> {
    let versions: Vec<Option<Version>> =
        subject.runtimes.iter().map(|runtime| runtime.version.as_deref().and_then(Version::parse)).collect();
    let known: Vec<Version> = versions.into_iter().flatten().collect();
    if !known.iter().any(|version| *version != known[0]) {
        return None;
    }
    let mut finding = Finding::notice("version-mismatch", "there are several versions of HIP's runtime")
        .with_confidence(Confidence::Possible);
    for runtime in subject.runtimes.iter().take(8) {
        let version = runtime.version.as_deref().unwrap_or("unknown version");
        finding = finding.because(format!(
            "{} ({}, by {})",
            clean(&runtime.path.to_string_lossy()),
            clean(version),
            runtime.by
        ));
    }
    Some(
        finding
            .because("which of them a program gets, only a run can tell: its trace lists the loaded libraries")
            .fix("take directories of another version out of LD_LIBRARY_PATH; PyTorch's wheels need none of them"),
    )
}
