//! What to do about one diagnosis: the fixes of its entry that suit what runs, cheapest first, with what they give back.

use super::finding::Fix;
use super::spelling;
use crate::catalogue::entry::{self, Entry};
use crate::catalogue::only::{Bound, Only, bounds};
use crate::diagnosis::case::Case;
use crate::judgement::check::{Holds, Parts};
use crate::software::{Platform, Program, Version};

/// Programs as the catalogue spells them.
const PROGRAMS: [(&str, Program); 5] = [
    ("torch", Program::Torch),
    ("llama.cpp", Program::LlamaCpp),
    ("ggml", Program::Ggml),
    ("jax", Program::Jax),
    ("tensorflow", Program::TensorFlow),
];

/// The fixes of an entry that may work here. What is known not to work is left out; where the trace can't tell, the
/// condition is told.
pub fn of(entry: &Entry, case: &Case<'_>, parts: &Parts, shortfall_bytes: Option<u64>) -> Vec<Fix> {
    let suits = |fix: &&entry::Fix| {
        suits(&fix.only, case, &parts.causes) != Holds::No && !spelling::is_moot(&fix.command, case)
    };
    let mut fixes: Vec<Fix> =
        entry.fixes.iter().filter(suits).map(|fix| describe(entry, fix, case, parts, shortfall_bytes)).collect();
    fixes.sort_by_key(|fix| fix.rung.unwrap_or(u8::MAX));
    fixes
}

/// All fixes of an entry, each with its condition: where no single run says what suits.
pub fn unconditional(entry: &Entry) -> Vec<Fix> {
    let plain = |fix: &entry::Fix| Fix {
        rung: fix.rungs.iter().copied().min(),
        command: fix.command.clone(),
        why: fix.text.clone(),
        cost: entry.cost.clone(),
        only_if: fix.condition(),
        gives_back_bytes: None,
        gives_back_basis: None,
        is_enough: None,
    };
    entry.fixes.iter().filter(|fix| !fix.only.windows).map(plain).collect()
}

fn describe(entry: &Entry, fix: &entry::Fix, case: &Case<'_>, parts: &Parts, shortfall_bytes: Option<u64>) -> Fix {
    let rung = fix.rungs.iter().copied().min();
    let back = parts.returns.iter().find(|back| Some(back.rung) == rung);
    let is_known = suits(&fix.only, case, &parts.causes) == Holds::Yes;
    Fix {
        rung,
        command: spelling::spelled(fix, case),
        why: fix.text.clone(),
        cost: entry.cost.clone(),
        only_if: open_condition(fix, case, is_known),
        gives_back_bytes: back.map(|back| back.bytes),
        gives_back_basis: back.map(|back| back.basis),
        is_enough: back.zip(shortfall_bytes).map(|(back, missing)| back.bytes >= missing),
    }
}

/// What of a fix's condition is not known to hold.
fn open_condition(fix: &entry::Fix, case: &Case<'_>, suits: bool) -> String {
    let only = if suits { String::new() } else { fix.only.words() };
    let spelling = fix.spelling.filter(|spelling| !spelling::is_known(*spelling, case));
    let parts = [only, fix.when.clone(), spelling.map_or(String::new(), |spelling| spelling.words().to_owned())];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

/// Whether a fix works on what runs.
fn suits(only: &Only, case: &Case<'_>, causes: &[&'static str]) -> Holds {
    // The recorder runs on Linux.
    if only.windows {
        return Holds::No;
    }
    let versions = &case.versions;
    let platform = only.platform.as_deref().map_or(Holds::Yes, |wanted| {
        versions.platform.map_or(Holds::Unknown("the platform"), |platform| (platform.name() == wanted).into())
    });
    let program = only.program.as_deref().map_or(Holds::Yes, |wanted| {
        PROGRAMS.iter().any(|(name, program)| *name == wanted && versions.has(*program)).into()
    });
    let torch = only.torch.as_deref().map_or(Holds::Yes, |range| within(versions.torch, range));
    let rocm = only.rocm.as_deref().filter(|_| versions.platform != Some(Platform::Cuda));
    let rocm = rocm.map_or(Holds::Yes, |range| within(versions.rocm, range));
    let part = only.part.as_deref().map_or(Holds::Yes, |part| match causes {
        [] => Holds::Unknown("which of its causes it is"),
        causes => causes.contains(&part).into(),
    });
    let variable = only.variable.as_deref().map_or(Holds::Yes, |wanted| is_set(case, wanted).into());
    let activity = only.activity.as_deref().map_or(Holds::Yes, |activity| does(case, activity));
    [platform, program, torch, rocm, part, variable, activity].into_iter().fold(Holds::Yes, Holds::and)
}

fn within(version: Option<Version>, range: &str) -> Holds {
    let Some(Version { major, minor }) = version else { return Holds::Unknown("the version") };
    let holds = |bound: Bound| match bound {
        Bound::From(from, least) => (major, minor) >= (from, least),
        Bound::Below(below, first) => (major, minor) < (below, first),
    };
    bounds(range).is_some_and(|bounds| bounds.into_iter().all(holds)).into()
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

/// Whether the program trains or infers: only where something that can is in the process. llama.cpp does not train; of a
/// framework nobody knows.
fn does(case: &Case<'_>, activity: &str) -> Holds {
    let has = |program| case.versions.has(program);
    match [Program::Torch, Program::Jax, Program::TensorFlow].into_iter().any(has) {
        true => Holds::Unknown("whether it trains or infers"),
        false => (has(Program::LlamaCpp) && activity == "inference").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_range_and_program_of_the_catalogue_is_understood() {
        for fix in crate::catalogue::entries().flat_map(|entry| &entry.fixes) {
            let only = &fix.only;
            for range in only.torch.iter().chain(&only.rocm) {
                assert!(bounds(range).is_some(), "{range}");
            }
            assert!(only.program.iter().all(|name| PROGRAMS.iter().any(|(known, _)| known == name)), "{only:?}");
            assert!(only.platform.iter().all(|name| name == "rocm" || name == "cuda"), "{only:?}");
            assert!(only.activity.iter().all(|name| name == "training" || name == "inference"), "{only:?}");
        }
    }

    #[test]
    fn versions_lie_in_ranges() {
        let torch = |minor| Some(Version { major: 2, minor });
        assert_eq!(within(torch(12), ">=2.12"), Holds::Yes);
        assert_eq!(within(torch(11), ">=2.12"), Holds::No);
        assert_eq!(within(torch(13), ">=2.12, <2.13"), Holds::No);
        assert!(matches!(within(None, ">=2.12"), Holds::Unknown(_)));
    }
}
