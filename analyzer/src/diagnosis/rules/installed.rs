//! E. What is installed: versions with listed defects, and parts that do not belong together.

use super::{Ask, Rule, run};
use crate::diagnosis::case::Case;
use crate::judgement::check::{Check, Confidence, Holds, Judgement};
use crate::software::defects::{Concerns, DEFECTS, Defect};
use crate::software::{Platform, Program, RocmSource};

pub(super) const RULES: &[Rule] =
    &[run("known-bad-version", known_bad_version), run("version-mismatch", version_mismatch)];

/// Failures that are looked at for a sign.
const MOST_FAILURES: usize = 256;

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
        // It refuses no memory; expandable-with-max-split reports it.
        Concerns::SplitExpandable => Holds::No,
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
        if case.versions.rocm_by == Some(RocmSource::Inferred) {
            check.at_most(Confidence::Probable);
            check.would_settle("ROCm's own version (.info/version)");
        }
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
    let built_for = versions.torch_hip.zip(versions.hip);
    let differs = match (built_for, versions.has(Program::Torch)) {
        (Some((built_for, loaded)), _) => Holds::from(built_for != loaded),
        (None, true) => Holds::Unknown("the version of HIP that PyTorch was built for (torch/version.py)"),
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
        format!("PyTorch was built for HIP {built_for}, and HIP {loaded} is loaded")
    });
}
