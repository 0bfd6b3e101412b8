//! What to do about one diagnosis: the fixes of its entry that suit what runs, cheapest first, with what they give back.

use super::finding::Fix;
use super::{conditions, spelling};
use crate::catalogue::entry::{self, Entry, Filing};
use crate::diagnosis::case::Case;
use crate::judgement::check::{Holds, Parts};
use crate::software::Platform;

/// The fixes of an entry that may work here. What is known not to work is left out; where the trace can't tell, the
/// condition is told.
pub fn of(entry: &Entry, case: &Case<'_>, parts: &Parts, shortfall_bytes: Option<u64>) -> Vec<Fix> {
    let suits = |fix: &&entry::Fix| {
        conditions::suits(&fix.only, case, &parts.causes) != Holds::No && !spelling::is_moot(&fix.command, case)
    };
    let mut fixes: Vec<Fix> =
        entry.fixes.iter().filter(suits).map(|fix| describe(entry, fix, case, parts, shortfall_bytes)).collect();
    fixes.sort_by_key(Fix::price);
    fixes
}

/// Where it may be somebody's defect, by what runs; what the trace can't tell of the condition is told.
pub fn places_to_report(entry: &Entry, case: &Case<'_>, parts: &Parts) -> Vec<Filing> {
    let suits = |filing: &&Filing| conditions::suits(&filing.only, case, &parts.causes) != Holds::No;
    let open = |filing: &Filing| Filing { only: conditions::open(&filing.only, case, &parts.causes), ..filing.clone() };
    entry.file.iter().filter(suits).map(open).collect()
}

/// All fixes of an entry, each with its condition: where no single run says what suits.
pub fn unconditional(entry: &Entry) -> Vec<Fix> {
    let plain = |fix: &entry::Fix| Fix {
        rung: fix.rungs.iter().copied().min(),
        reboot: fix.reboot,
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
    Fix {
        rung,
        reboot: fix.reboot,
        command: spelling::spelled(fix, case),
        why: fix.text.clone(),
        cost: entry.cost.clone(),
        only_if: open_condition(fix, case, &parts.causes),
        gives_back_bytes: back.map(|back| back.bytes),
        gives_back_basis: back.map(|back| back.basis),
        is_enough: back.zip(shortfall_bytes).map(|(back, missing)| back.bytes >= missing),
    }
}

/// What of a fix's condition is not known to hold.
fn open_condition(fix: &entry::Fix, case: &Case<'_>, causes: &[&'static str]) -> String {
    let only = conditions::open(&fix.only, case, causes).words();
    let on_rocm = if case.versions.platform == Some(Platform::Cuda) { "" } else { &fix.on_rocm };
    let spelling = fix.spelling.filter(|spelling| !spelling::is_known(*spelling, case));
    let spelling = spelling.map_or("", |spelling| spelling.words());
    entry::joined(&[&only, &fix.when, on_rocm, spelling])
}
