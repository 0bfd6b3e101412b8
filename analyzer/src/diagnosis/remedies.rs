//! What to do: the fixes of an entry that suit what runs, cheapest first, with what they would give back.

use super::check::Returns;
use super::finding::Fix;
use super::versions::Versions;
use crate::catalogue::entry::{self, Entry};

/// The fixes of an entry.
pub fn of(entry: &Entry, _versions: &Versions, returns: &[Returns], shortfall_bytes: Option<u64>) -> Vec<Fix> {
    let mut fixes: Vec<Fix> = entry.fixes.iter().map(|fix| describe(entry, fix, returns, shortfall_bytes)).collect();
    fixes.sort_by_key(|fix| fix.rung.unwrap_or(u8::MAX));
    fixes
}

fn describe(entry: &Entry, fix: &entry::Fix, returns: &[Returns], shortfall_bytes: Option<u64>) -> Fix {
    let rung = fix.rungs.iter().copied().min();
    let back = returns.iter().find(|back| Some(back.rung) == rung);
    Fix {
        rung,
        command: fix.command.clone(),
        why: fix.text.clone(),
        cost: entry.cost.clone(),
        only_if: fix.when.clone(),
        gives_back_bytes: back.map(|back| back.bytes),
        gives_back_basis: back.map(|back| back.basis),
        is_enough: back.zip(shortfall_bytes).map(|(back, missing)| back.bytes >= missing),
    }
}
