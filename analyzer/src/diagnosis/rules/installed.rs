//! E. What is installed: versions with listed defects, and parts that do not belong together.

use super::{Rule, run};
use crate::diagnosis::case::Case;
use crate::judgement::check::{Check, Holds};
use crate::software::{Platform, Program, Release, Version};

pub(super) const RULES: &[Rule] =
    &[run("known-bad-version", known_bad_version), run("version-mismatch", version_mismatch)];

/// What a defect has to do with: it matters only to programs that use it.
#[derive(Clone, Copy)]
enum Concerns {
    Modules,
    ClosedImports,
    Exports,
    Imports,
    VirtualMemory,
    StreamOrdered,
}

/// A defect of a range of ROCm's releases: from the first up to, and without, the second.
struct Defect {
    from: Release,
    to: Option<Release>,
    concerns: Concerns,
    /// Its fixes in the catalogue are of this part.
    part: &'static str,
    what: &'static str,
}

const fn release(major: u32, minor: u32, patch: u32) -> Release {
    Release { version: Version { major, minor }, patch: Some(patch) }
}

/// Sources: those of the entry in the catalogue.
const DEFECTS: [Defect; 8] = [
    Defect {
        from: release(5, 6, 0),
        to: Some(release(5, 6, 1)),
        concerns: Concerns::Modules,
        part: "leak of modules",
        what: "the runtime leaks memory with each module (fixed in 5.6.1)",
    },
    Defect {
        from: release(0, 0, 0),
        to: Some(release(6, 2, 1)),
        concerns: Concerns::ClosedImports,
        part: "closed imports",
        what: "memory leaks when an IPC handle is closed (fixed in 6.2.1)",
    },
    Defect {
        from: release(6, 4, 0),
        to: Some(release(6, 4, 2)),
        concerns: Concerns::VirtualMemory,
        part: "virtual memory of 6.4",
        what: "virtual memory is not given back on release (fixed in 6.4.2)",
    },
    Defect {
        from: release(0, 0, 0),
        to: Some(release(7, 0, 0)),
        concerns: Concerns::StreamOrdered,
        part: "stream-ordered allocation",
        what: "stream-ordered allocation can run out of memory where hipMalloc would not (fixed in 7.0)",
    },
    Defect {
        from: release(7, 0, 0),
        to: None,
        concerns: Concerns::Exports,
        part: "exports of 7.0",
        what: "buffers that were exported by IPC stay pinned after their free",
    },
    Defect {
        from: release(7, 1, 0),
        to: Some(release(7, 2, 0)),
        concerns: Concerns::VirtualMemory,
        part: "virtual memory of 7.1",
        what: "access to virtual memory is set wrongly in some cases",
    },
    Defect {
        from: release(7, 14, 0),
        to: Some(release(7, 15, 0)),
        concerns: Concerns::VirtualMemory,
        part: "virtual memory of 7.14",
        what: "each handle of virtual memory takes a descriptor, and live memory was seen to read back zeros",
    },
    Defect {
        from: release(7, 15, 0),
        to: Some(release(7, 16, 0)),
        concerns: Concerns::Imports,
        part: "imports of 7.15",
        what: "access to imported memory fails (nightly builds)",
    },
];

impl Defect {
    fn is_in(&self, release: Release) -> Holds {
        let reached = release.is_at_least(self.from);
        match self.to.map(|to| release.is_at_least(to)) {
            None => reached,
            Some(Holds::Yes) => Holds::No,
            Some(Holds::No) => reached,
            Some(unknown) => reached.and(unknown),
        }
    }
}

/// Whether the program uses what a defect concerns.
fn uses(case: &Case<'_>, concerns: Concerns) -> Holds {
    let tracks = &case.replay.tracks;
    let imports = case.replay.imports > 0;
    match concerns {
        Concerns::Modules if tracks.modules.has_loads() => Holds::Yes,
        Concerns::Modules => match tracks.modules.above() {
            Ok(_) => Holds::No,
            Err(unknown) => Holds::Unknown(unknown.reason()),
        },
        Concerns::Imports | Concerns::ClosedImports => imports.into(),
        Concerns::Exports => match tracks.exports() {
            Ok(exports) => (exports.calls > 0).into(),
            Err(unknown) => Holds::Unknown(unknown.reason()),
        },
        Concerns::VirtualMemory => tracks.devices().any(|(_, track)| track.vmm_created_bytes > 0).into(),
        Concerns::StreamOrdered => tracks.devices().any(|(_, track)| track.pool.given > 0).into(),
    }
}

/// The installed version has a listed defect.
fn known_bad_version(case: &Case<'_>, check: &mut Check) {
    if !check.applies(case.versions.platform == Some(Platform::Rocm)) {
        return;
    }
    let mut any = half_cap_wheel(case, check);
    let Some(release) = case.versions.release() else {
        check.applies(any);
        return;
    };
    for defect in &DEFECTS {
        match (defect.is_in(release), uses(case, defect.concerns)) {
            (Holds::No, _) | (_, Holds::No) => {}
            (is_in, Holds::Yes) => {
                any = true;
                check.must(true, || format!("ROCm {release}: {}", defect.what));
                check.must(is_in, String::new);
                check.part(defect.part);
            }
            // A possible defect is worth a word only where something went wrong.
            (Holds::Yes, Holds::Unknown(reading)) if case.facts.oom_count > 0 => {
                check.would_settle(reading);
                check.note(true, || format!("ROCm {release} besides: {}", defect.what));
            }
            _ => {}
        }
    }
    check.applies(any);
}

/// PyTorch's wheels for RDNA4 of spring 2026.
fn half_cap_wheel(case: &Case<'_>, check: &mut Check) -> bool {
    let series = [Version { major: 2, minor: 12 }, Version { major: 2, minor: 13 }];
    let torch = case.versions.torch.filter(|torch| series.contains(torch));
    let rdna4 = case.facts.devices.iter().any(|device| case.target(device).is_some_and(|(major, ..)| major == 12));
    let Some(torch) = torch.filter(|_| rdna4) else { return false };
    check.must(true, || format!("PyTorch {torch} for ROCm on RDNA4: reports that only half of the card can be used"));
    check.part("wheels for RDNA4");
    true
}

/// PyTorch was built for another ROCm than the one that is loaded.
fn version_mismatch(case: &Case<'_>, check: &mut Check) {
    let versions = &case.versions;
    if !check.applies(versions.platform == Some(Platform::Rocm)) {
        return;
    }
    let copies = &versions.hip_runtimes;
    let built_for = versions.torch_rocm.zip(versions.rocm);
    let differs = match (built_for, versions.has(Program::Torch)) {
        (Some((built_for, loaded)), _) => Holds::from(built_for != loaded),
        (None, true) => Holds::Unknown("the ROCm version that PyTorch was built for (torch/version.py)"),
        (None, false) => Holds::No,
    };
    if copies.len() > 1 {
        check.must(true, || format!("two copies of the runtime are loaded: {}", copies.join(" and ")));
        if differs != Holds::Yes {
            return;
        }
    }
    check.must(differs, || {
        let (built_for, loaded) = built_for.unwrap_or_default();
        format!("PyTorch was built for ROCm {built_for}, and the runtime of ROCm {loaded} is loaded")
    });
}
