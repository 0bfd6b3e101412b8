//! `report --full`: the verdict first, why and what to do, then what that rests on. The short answer is [`crate::report::short`].

pub(in crate::report) mod advice;
#[cfg(test)]
mod became;
pub(in crate::report) mod callers;
pub(in crate::report) mod coverage;
pub(in crate::report) mod diagnoses;
pub(in crate::report) mod evidence;
pub(in crate::report) mod failures;
pub(in crate::report) mod fragmentation;
pub(in crate::report) mod growth;
pub(in crate::report) mod head;
pub(in crate::report) mod job;
pub(in crate::report) mod ledger;
mod memory;
pub(in crate::report) mod pools;
pub(in crate::report) mod stack;
pub(in crate::report) mod tensors;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod true_sentences;
pub(in crate::report) mod verdict;

pub use job::{reported, write_job, write_runs};

use crate::conclusion::Summary;
use crate::passes::map::DeviceMap;
use crate::report::page::{Look, Page};

/// The report on one trace, with the maps of its devices at their peaks.
pub fn write(summary: &Summary, maps: &[DeviceMap], look: Look) -> String {
    let mut page = Page::new(look);
    head::write(&mut page, summary);
    verdict::write(&mut page, summary);
    diagnoses::write(&mut page, summary);
    advice::write(&mut page, summary);
    failures::write(&mut page, summary);
    ledger::write(&mut page, summary);
    growth::write(&mut page, summary);
    memory::write(&mut page, summary);
    pools::write(&mut page, summary);
    callers::write(&mut page, summary);
    fragmentation::write(&mut page, summary, maps);
    evidence::write(&mut page, summary);
    coverage::write(&mut page, summary);
    page.into_text()
}
