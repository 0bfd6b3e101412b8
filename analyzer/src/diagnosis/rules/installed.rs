//! E. What is installed: versions with listed defects, and parts that do not belong together.

use super::{Ask, Rule, run};
use crate::diagnosis::case::Case;
use crate::judgement::check::{Check, Confidence, Holds, Judgement};
use crate::software::{Platform, Program, Release, Version};

pub(super) const RULES: &[Rule] =
    &[run("known-bad-version", known_bad_version), run("version-mismatch", version_mismatch)];

/// Failures that are looked at for a sign.
const MOST_FAILURES: usize = 256;

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
    /// Diagnoses that are its sign in a run; empty where no rule can see one.
    shown_by: &'static [&'static str],
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
        shown_by: &["hidden-runtime-memory", "model-swap-residual"],
    },
    Defect {
        from: release(0, 0, 0),
        to: Some(release(6, 2, 1)),
        concerns: Concerns::ClosedImports,
        part: "closed imports",
        what: "memory leaks when an IPC handle is closed (fixed in 6.2.1)",
        shown_by: &[],
    },
    Defect {
        from: release(6, 4, 0),
        to: Some(release(6, 4, 2)),
        concerns: Concerns::VirtualMemory,
        part: "virtual memory of 6.4",
        what: "virtual memory is not given back on release (fixed in 6.4.2)",
        shown_by: &["vmm-release-ineffective"],
    },
    Defect {
        from: release(0, 0, 0),
        to: Some(release(7, 0, 0)),
        concerns: Concerns::StreamOrdered,
        part: "stream-ordered allocation",
        what: "stream-ordered allocation can run out of memory where hipMalloc would not (fixed in 7.0)",
        shown_by: &["mallocasync-oom", "pool-failure-leak"],
    },
    Defect {
        from: release(7, 0, 0),
        to: None,
        concerns: Concerns::Exports,
        part: "exports of 7.0",
        what: "buffers that were exported by IPC stay pinned after their free",
        shown_by: &["ipc-export-pin"],
    },
    Defect {
        from: release(7, 1, 0),
        to: Some(release(7, 2, 0)),
        concerns: Concerns::VirtualMemory,
        part: "virtual memory of 7.1",
        what: "access to virtual memory is set wrongly in some cases",
        shown_by: &[],
    },
    Defect {
        from: release(7, 14, 0),
        to: Some(release(7, 15, 0)),
        concerns: Concerns::VirtualMemory,
        part: "virtual memory of 7.14",
        what: "each handle of virtual memory takes a descriptor, and live memory was seen to read back zeros",
        shown_by: &["vmm-fd-exhaustion"],
    },
    Defect {
        from: release(7, 15, 0),
        to: Some(release(7, 16, 0)),
        concerns: Concerns::Imports,
        part: "imports of 7.15",
        what: "access to imported memory fails (nightly builds)",
        shown_by: &[],
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

/// The installed version has a listed defect, and the run shows its sign. What a program merely could have met is not said of
/// it: most programs on such a version are well.
fn known_bad_version(case: &Case<'_>, check: &mut Check) {
    if !check.applies(case.versions.platform == Some(Platform::Rocm)) {
        return;
    }
    let mut any = half_cap_wheel(case, check);
    for defect in &DEFECTS {
        let Some(release) = case.versions.release() else { break };
        let is_in = defect.is_in(release);
        if is_in == Holds::No || uses(case, defect.concerns) != Holds::Yes {
            continue;
        }
        let Some((sign, sure)) = sign_of(case, defect) else { continue };
        any = true;
        check.must(true, || format!("ROCm {release}: {}", defect.what));
        check.must(is_in, String::new);
        check.must(true, || sign);
        check.at_most(sure);
        check.part(defect.part);
    }
    check.applies(any);
}

/// The sign of a defect in a run, and how sure it is.
fn sign_of(case: &Case<'_>, defect: &Defect) -> Option<(String, Confidence)> {
    if defect.shown_by.is_empty() {
        // No rule can see one. Worth a word only where something failed.
        let text = "memory was refused in this run; whether this is why can't be told".to_owned();
        return (case.facts.oom_count > 0).then_some((text, Confidence::Possible));
    }
    let shown = defect.shown_by.iter().filter_map(|id| Some((*id, found(case, id)?)));
    let (id, sure) = shown.max_by_key(|(_, sure)| *sure)?;
    let sign = match sure {
        Confidence::Possible => format!("what may be its sign is in this run: {id}, which is only possible"),
        _ => format!("its sign is in this run: {id}"),
    };
    Some((sign, sure))
}

/// How sure another rule is of this run.
fn found(case: &Case<'_>, id: &str) -> Option<Confidence> {
    let mut surest = None;
    let mut judge = |ask: &dyn Fn(&mut Check)| {
        let mut check = Check::default();
        ask(&mut check);
        if let Judgement::Found(sure) = check.judgement() {
            surest = surest.max(Some(sure));
        }
    };
    for rule in super::all().filter(|rule| rule.id == id) {
        match rule.ask {
            Ask::Run(ask) => judge(&|check| ask(case, check)),
            Ask::Device(ask) => {
                case.facts.devices.iter().for_each(|device| judge(&|check| ask(case, device, check)));
            }
            Ask::Failure(ask) => {
                case.failures().take(MOST_FAILURES).for_each(|failure| judge(&|check| ask(case, &failure, check)));
            }
        }
    }
    surest
}

/// PyTorch's wheels for RDNA4 of spring 2026, and a run that ends near half of the card.
fn half_cap_wheel(case: &Case<'_>, check: &mut Check) -> bool {
    let Some(torch) = case.versions.torch else { return false };
    let Some(sure) = found(case, "vram-half-cap") else { return false };
    check.must(true, || format!("PyTorch {torch} for ROCm on RDNA4: reports that only half of the card can be used"));
    check.at_most(sure);
    check.part("wheels for RDNA4");
    true
}

/// PyTorch was built for another ROCm than the one that is loaded.
fn version_mismatch(case: &Case<'_>, check: &mut Check) {
    let versions = &case.versions;
    // Of a program without PyTorch two copies of a runtime say nothing of one.
    if !check.applies(versions.platform == Some(Platform::Rocm) && versions.has(Program::Torch)) {
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
            check.only_as_seen();
            return;
        }
    }
    check.must(differs, || {
        let (built_for, loaded) = built_for.unwrap_or_default();
        format!("PyTorch was built for ROCm {built_for}, and the runtime of ROCm {loaded} is loaded")
    });
}
