//! Installed versions: listed defects, and several copies of a runtime.

use super::finding::Finding;
use super::subject::Subject;
use crate::judgement::check::{Confidence, Holds};
use crate::software::defects::DEFECTS;
use crate::software::{Release, Version};
use crate::words::clean;

pub(super) fn check(subject: &Subject, findings: &mut Vec<Finding>) {
    findings.extend(defects(subject));
    findings.extend(copies(subject));
}

fn defects(subject: &Subject) -> Option<Finding> {
    let mut evidence = Vec::new();
    let mut seen: Vec<Release> = Vec::new();
    for rocm in &subject.machine.rocm {
        let Some(release) = Release::parse(&rocm.version).filter(|release| !seen.contains(release)) else { continue };
        seen.push(release);
        let listed = DEFECTS.iter().filter(|defect| defect.is_in(release) == Holds::Yes);
        evidence
            .extend(listed.map(|defect| format!("ROCm {}: {} ({})", clean(&rocm.version), defect.what, defect.entry)));
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
