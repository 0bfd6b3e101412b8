//! `report --format markdown`: the same report for a place that shows Markdown. The verdict first, tables below; what is
//! long is folded away.

mod advice;
mod callers;
mod diagnoses;
mod failures;
mod head;
mod job;
mod ledger;
mod memory;
pub mod page;
mod rest;
#[cfg(test)]
mod tests;

pub use job::{write_job, write_runs};

use crate::conclusion::Summary;
use crate::passes::map::DeviceMap;
use page::Markdown;

/// The report on one trace, with the maps of its devices at their peaks. `level` is that of its heading.
pub fn write(summary: &Summary, maps: &[DeviceMap], level: usize) -> String {
    let mut page = Markdown::default();
    head::write(&mut page, summary, level);
    page.paragraph(&format!("**{}**", page::plain(&summary.conclusion.verdict.sentences.join(" "))));
    failures::write(&mut page, summary, level + 1);
    diagnoses::write(&mut page, summary, level + 1);
    advice::write(&mut page, summary, level + 1);
    memory::write(&mut page, summary, level + 1);
    ledger::write(&mut page, summary, level + 1);
    callers::write(&mut page, summary, level + 1);
    rest::write(&mut page, summary, maps, level + 1);
    page.into_text()
}
