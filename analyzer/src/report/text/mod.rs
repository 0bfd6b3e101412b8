//! `report --format text`: the verdict first, the evidence below.

mod advice;
mod callers;
mod coverage;
mod diagnoses;
mod evidence;
mod failures;
mod fragmentation;
mod growth;
mod head;
mod job;
mod ledger;
mod memory;
mod stack;
#[cfg(test)]
mod tests;
mod verdict;

pub use job::{reported, write_job};

use crate::passes::map::DeviceMap;
use crate::passes::summary::Summary;
use crate::passes::verdict::judge;
use crate::report::page::{Look, Page};

/// The report on one trace, with the maps of its devices at their peaks.
pub fn write(summary: &Summary, maps: &[DeviceMap], look: Look) -> String {
    let mut page = Page::new(look);
    let verdict = judge(summary);
    head::write(&mut page, summary);
    verdict::write(&mut page, summary, verdict);
    failures::write(&mut page, summary);
    diagnoses::write(&mut page, summary);
    memory::write(&mut page, summary);
    growth::write(&mut page, summary);
    ledger::write(&mut page, summary);
    callers::write(&mut page, summary);
    fragmentation::write(&mut page, summary, maps);
    evidence::write(&mut page, summary);
    advice::write(&mut page, summary, verdict);
    coverage::write(&mut page, summary);
    page.into_text()
}
