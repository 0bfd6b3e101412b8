//! Whether the condition of a fix holds for what runs, part by part: what the trace decides is not told.

use crate::catalogue::only::{Bound, Only, Used, bounds, used};
use crate::diagnosis::case::Case;
use crate::judgement::check::Holds;
use crate::passes::oom::{OomReport, deciding};
use crate::passes::phase::{Phase, table};
use crate::passes::shape::of_blocks::OfBlocks;
use crate::software::{Platform, Program, Release, Version};
use crate::symbols::Sources;
use crate::thresholds::share;

/// Programs as the catalogue spells them.
const PROGRAMS: [(&str, Program); 5] = [
    ("torch", Program::Torch),
    ("llama.cpp", Program::LlamaCpp),
    ("ggml", Program::Ggml),
    ("jax", Program::Jax),
    ("tensorflow", Program::TensorFlow),
];

/// Whether a fix works on what runs.
pub(super) fn suits(only: &Only, case: &Case<'_>, causes: &[&'static str]) -> Holds {
    // The recorder runs on Linux.
    if only.windows {
        return Holds::No;
    }
    let unused = only.unless_uses.as_deref().map_or(Holds::Yes, |name| (!is_seen(case, name)).into());
    let parts = [
        platform(only, case),
        program(only, case),
        torch(only, case),
        rocm(only, case),
        linux(only, case),
        family(only, case),
        part(only, causes),
        variable(only, case),
        activity(only, case),
        uses(only, case),
        at(only, case),
        unused,
    ];
    parts.into_iter().fold(Holds::Yes, Holds::and)
}

/// What of a condition is not known to hold.
pub(super) fn open(only: &Only, case: &Case<'_>, causes: &[&'static str]) -> Only {
    let unless = |holds: Holds, part: &Option<String>| part.clone().filter(|_| holds != Holds::Yes);
    Only {
        platform: unless(platform(only, case), &only.platform),
        program: unless(program(only, case), &only.program),
        torch: unless(torch(only, case), &only.torch),
        rocm: unless(rocm(only, case), &only.rocm),
        linux: unless(linux(only, case), &only.linux),
        family: unless(family(only, case), &only.family),
        part: unless(part(only, causes), &only.part),
        variable: unless(variable(only, case), &only.variable),
        // What is advised for a model says so itself.
        activity: unless(activity(only, case), &only.activity).filter(|name| name != MODEL),
        uses: unless(uses(only, case), &only.uses),
        unless_uses: None,
        at: None,
        windows: only.windows,
    }
}

fn platform(only: &Only, case: &Case<'_>) -> Holds {
    only.platform.as_deref().map_or(Holds::Yes, |wanted| match case.versions.platform {
        Some(platform) => (platform.name() == wanted).into(),
        None => Holds::Unknown("the platform"),
    })
}

fn program(only: &Only, case: &Case<'_>) -> Holds {
    only.program.as_deref().map_or(Holds::Yes, |wanted| {
        PROGRAMS.iter().any(|(name, program)| *name == wanted && case.versions.has(*program)).into()
    })
}

fn torch(only: &Only, case: &Case<'_>) -> Holds {
    let release = || case.versions.torch.map(|version: Version| Release { version, patch: None });
    only.torch.as_deref().map_or(Holds::Yes, |range| within(release(), range))
}

fn rocm(only: &Only, case: &Case<'_>) -> Holds {
    let range = only.rocm.as_deref().filter(|_| case.versions.platform != Some(Platform::Cuda));
    range.map_or(Holds::Yes, |range| within(case.versions.release(), range))
}

fn linux(only: &Only, case: &Case<'_>) -> Holds {
    let release = || case.machine.kernel.as_deref().and_then(Release::parse);
    only.linux.as_deref().map_or(Holds::Yes, |range| within(release(), range))
}

/// Of all devices. What is no RDNA need be no Instinct.
fn family(only: &Only, case: &Case<'_>) -> Holds {
    const TARGET: Holds = Holds::Unknown("the family of the GPU (KFD's topology)");
    let Some(wanted) = only.family.as_deref() else { return Holds::Yes };
    let are_rdna = case.facts.devices.iter().map(|device| case.is_rdna(device));
    let known: Option<Vec<bool>> = are_rdna.collect();
    match known.filter(|known| !known.is_empty()) {
        Some(known) if known.iter().all(|is_rdna| *is_rdna) => (wanted == "rdna").into(),
        Some(known) if wanted == "rdna" && !known.contains(&true) => Holds::No,
        _ => TARGET,
    }
}

fn part(only: &Only, causes: &[&'static str]) -> Holds {
    only.part.as_deref().map_or(Holds::Yes, |part| match causes {
        [] => Holds::Unknown("which of its causes it is"),
        causes => causes.contains(&part).into(),
    })
}

fn variable(only: &Only, case: &Case<'_>) -> Holds {
    only.variable.as_deref().map_or(Holds::Yes, |wanted| is_set(case, wanted).into())
}

fn within(release: Option<Release>, range: &str) -> Holds {
    let Some(release) = release else { return Holds::Unknown("the version") };
    let holds = |bound: Bound| match bound {
        Bound::From(least) => release.is_at_least(least),
        Bound::Below(first) => match release.is_at_least(first) {
            Holds::Yes => Holds::No,
            Holds::No => Holds::Yes,
            unknown => unknown,
        },
    };
    bounds(range).map_or(Holds::No, |bounds| bounds.into_iter().map(holds).fold(Holds::Yes, Holds::and))
}

/// Whether a variable is set whose name may have one `*` in it; `NAME=VALUE` to this value.
fn is_set(case: &Case<'_>, wanted: &str) -> bool {
    if let Some((name, value)) = wanted.split_once('=') {
        return case.variable(name).is_some_and(|set| set.trim() == value);
    }
    let (start, end) = wanted.split_once('*').unwrap_or((wanted, ""));
    let matches = |name: &String| match wanted.contains('*') {
        true => name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end),
        false => name == wanted,
    };
    case.environment().iter().any(|(name, value)| matches(name) && !value.is_empty())
}

/// Where PyTorch's optimizers are, and how those of their functions begin that work on all parameters at once.
const OPTIMIZERS: &str = "torch/optim/";
const FOREACH: &str = "_multi_tensor_";

/// What a program with modules runs.
const MODEL: &str = "a model";

/// Whether the program trains or infers: only where something that can is in the process. llama.cpp does not train; of a
/// framework an optimizer or a backward pass tells; that there is none, ways to all blocks on which lies no module.
fn activity(only: &Only, case: &Case<'_>) -> Holds {
    let Some(activity) = only.activity.as_deref() else { return Holds::Yes };
    let has = |program| case.versions.has(program);
    match [Program::Torch, Program::Jax, Program::TensorFlow].into_iter().any(has) {
        true if activity == "training" && trains(case) => Holds::Yes,
        true if activity == "training" && only_loads(case) => Holds::No,
        true if ["training", MODEL].contains(&activity) && has_no_model(case) => Holds::No,
        true if activity == MODEL && is_seen(case, "modules") => Holds::Yes,
        true if activity == MODEL => Holds::Unknown("whether it runs a model"),
        true => Holds::Unknown("whether it trains or infers"),
        false => (has(Program::LlamaCpp) && activity == "inference").into(),
    }
}

fn trains(case: &Case<'_>) -> bool {
    let failed = || case.facts.ooms.iter().filter_map(|oom| oom.phase_entry.as_ref());
    is_seen(case, "optimizer")
        || case.replay.blocks.devices().any(|device| !device.steps.backward().0.steps().is_empty())
        || failed().any(|at| matches!(at.phase, Phase::Backward | Phase::Optimizer))
}

/// Whether all failures came while a model was brought to the card: what only a training has is not there yet.
fn only_loads(case: &Case<'_>) -> bool {
    let is_load = |oom: &OomReport| oom.phase_entry.as_ref().is_some_and(|at| at.phase == Phase::Load);
    !case.facts.ooms.is_empty() && case.facts.ooms.iter().all(is_load)
}

/// Whether no block of PyTorch's came by way of a module, a backward pass or an optimizer, and frames were looked for on all ways.
fn has_no_model(case: &Case<'_>) -> bool {
    are_ways_known(case) && !is_seen(case, "modules")
}

/// Whether frames were looked for on the ways of all blocks of PyTorch's, at each failure.
fn are_ways_known(case: &Case<'_>) -> bool {
    let mut told = case.shapes.all().map(|facts| facts.told.as_ref()).peekable();
    told.peek().is_some() && told.all(|told| told.is_some_and(|told| told.is_whole))
}

/// What is on the way to blocks wherever it is used.
const AROUND_BLOCKS: [&str; 4] = ["transformers", "trainer", "fsdp", "vllm"];

/// What was not seen may be used for all that: only what asks for memory is on a recorded way.
fn uses(only: &Only, case: &Case<'_>) -> Holds {
    only.uses.as_deref().map_or(Holds::Yes, |name| match is_seen(case, name) {
        true => Holds::Yes,
        false if AROUND_BLOCKS.contains(&name) && are_ways_known(case) => Holds::No,
        false => Holds::Unknown("whether the program uses it"),
    })
}

/// Whether the failure that decides came there. A run without one has no such place.
fn at(only: &Only, case: &Case<'_>) -> Holds {
    let Some(place) = only.at.as_deref() else { return Holds::Yes };
    let decides = deciding(case.facts.ooms.iter().map(|oom| oom.outcome));
    let oom = decides.map(|index| &case.facts.ooms[index]);
    let is_of_outputs = || oom.is_some_and(|oom| puts_outputs_together(oom, case));
    let phase = oom.and_then(|oom| oom.phase_entry.as_ref()).map(|entry| entry.phase);
    let holds = match place {
        "foreach" => oom.is_some_and(is_of_foreach),
        "outputs" => is_of_outputs(),
        "file" => oom.is_some_and(|oom| holds_a_file(oom, case)),
        "gradients" => !oom.is_some_and(|oom| runs_without_gradients(oom, case)),
        "state" => !is_of_outputs() && !oom.is_some_and(|oom| has_little_state(oom, case)),
        "training" => !is_of_outputs(),
        // By the optimizer's step activations are gone.
        _ => {
            // What a forward pass asks for is one itself.
            let is_forward = matches!(phase, Some(Phase::Forward | Phase::Evaluation));
            let is_too_late = || !is_forward && oom.is_some_and(|oom| has_few_activations(oom, case));
            phase != Some(Phase::Optimizer) && !is_of_outputs() && !is_too_late()
        }
    };
    holds.into()
}

/// Whether an optimizer of PyTorch's that works on all parameters at once is on the way to a failure.
fn is_of_foreach(oom: &OomReport) -> bool {
    let is_it = |name: &str| name.starts_with(FOREACH);
    let is_there = |path: &str| path.starts_with(OPTIMIZERS);
    oom.stack.iter().any(|frame| {
        frame.package_path.as_deref().is_some_and(is_there) && frame.function.as_deref().is_some_and(is_it)
    })
}

/// What PyTorch's blocks were at a failure.
fn told<'a>(oom: &OomReport, case: &'a Case<'_>) -> Option<&'a OfBlocks> {
    case.shapes.failure((oom.number - 1) as usize)?.told.as_ref()
}

/// Whether a failure lies in a function that is decorated so, or in an evaluation of which hardly anything lives: with gradients each
/// layer's result would.
fn runs_without_gradients(oom: &OomReport, case: &Case<'_>) -> bool {
    let of_evaluation = told(oom, case).filter(|told| told.is_whole).and_then(|told| told.of_evaluation.as_ref());
    let keeps_few = of_evaluation.is_some_and(|place| place.blocks < case.thresholds.passes_blocks);
    keeps_few || oom.stack.iter().any(table::is_without_gradients)
}

/// Whether little of what PyTorch held at a failure is an optimizer's state, by the ways of all blocks, and none was being made.
fn has_little_state(oom: &OomReport, case: &Case<'_>) -> bool {
    let is_made = oom.phase_entry.as_ref().is_some_and(|at| matches!(at.phase, Phase::Optimizer | Phase::State));
    let Some(told) = told(oom, case).filter(|told| told.is_whole && !is_made) else {
        return false;
    };
    share(told.live_bytes(&[Phase::Optimizer, Phase::State]), told.all_bytes()) < case.thresholds.others_share
}

/// Whether little of what PyTorch held at a failure came in a forward pass, by the ways of all blocks.
fn has_few_activations(oom: &OomReport, case: &Case<'_>) -> bool {
    let Some(told) = told(oom, case).filter(|told| told.is_whole) else { return false };
    share(told.live_bytes(&[Phase::Forward]), told.all_bytes()) < case.thresholds.others_share
}

/// Whether much of what PyTorch held at a failure came from a file that was loaded onto the card.
fn holds_a_file(oom: &OomReport, case: &Case<'_>) -> bool {
    let Some(told) = told(oom, case) else { return false };
    share(told.live_bytes(&[Phase::File]), told.all_bytes()) >= case.thresholds.others_share
}

/// Whether a failure lies in an evaluation, in no forward pass of it, and blocks of the evaluation live.
fn puts_outputs_together(oom: &OomReport, case: &Case<'_>) -> bool {
    let Some(told) = told(oom, case) else { return false };
    let phase = oom.phase_entry.as_ref().map(|entry| entry.phase);
    let evaluates = told.evaluates.is_some() || phase == Some(Phase::Evaluation);
    evaluates && told.evaluates_a_model && !told.is_in_a_pass && told.of_evaluation.is_some()
}

/// Whether a function of one of these files was on the way to a call.
fn is_seen(case: &Case<'_>, name: &str) -> bool {
    let Some(Used { files, .. }) = used(name) else { return false };
    let sources = Sources::of_trace(case.trace);
    let lies =
        |path: &str| files.iter().any(|file| if file.ends_with('/') { path.starts_with(file) } else { path == *file });
    case.replay.sites.code_files().any(|file| sources.package_path(file).is_some_and(lies))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::only::PLACES;

    #[test]
    fn every_range_and_program_of_the_catalogue_is_understood() {
        for fix in crate::catalogue::entries().flat_map(|entry| &entry.fixes) {
            let only = &fix.only;
            for range in only.torch.iter().chain(&only.rocm).chain(&only.linux) {
                assert!(bounds(range).is_some(), "{range}");
            }
            assert!(only.program.iter().all(|name| PROGRAMS.iter().any(|(known, _)| known == name)), "{only:?}");
            let families = ["rdna", "instinct"];
            assert!(only.family.iter().all(|name| families.contains(&&**name)), "{only:?}");
            assert!(only.uses.iter().chain(&only.unless_uses).all(|name| used(name).is_some()), "{only:?}");
            assert!(only.at.iter().all(|name| PLACES.iter().any(|(known, _)| known == name)), "{only:?}");
            assert!(only.platform.iter().all(|name| name == "rocm" || name == "cuda"), "{only:?}");
            assert!(only.activity.iter().all(|name| ["training", "inference", MODEL].contains(&&**name)), "{only:?}");
        }
    }

    #[test]
    fn versions_lie_in_ranges() {
        assert_eq!(within(Release::parse("2.12"), ">=2.12"), Holds::Yes);
        assert_eq!(within(Release::parse("2.11"), ">=2.12"), Holds::No);
        assert_eq!(within(Release::parse("2.13"), ">=2.12, <2.13"), Holds::No);
        assert_eq!(within(Release::parse("6.4.1"), ">=6.4, <6.4.2"), Holds::Yes);
        assert_eq!(within(Release::parse("6.4.2"), ">=6.4, <6.4.2"), Holds::No);
        assert_eq!(within(Release::parse("6.5"), ">=6.4, <6.4.2"), Holds::No);
        assert!(matches!(within(Release::parse("6.4"), ">=6.4, <6.4.2"), Holds::Unknown(_)), "which 6.4 nobody says");
        assert!(matches!(within(None, ">=2.12"), Holds::Unknown(_)));
    }
}
