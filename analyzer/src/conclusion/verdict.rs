//! The verdict: which failure decides, which finding explains it, and both in a few sentences.

use serde::{Serialize, Serializer};

use super::finding::Finding;
use super::sentence::{self, Explained, What};
use crate::judgement::check::Confidence;
use crate::judgement::role::Role;
use crate::passes::facts::Facts;
use crate::passes::oom::{OomReport, deciding};
use crate::replay::blocks::Owner;
use crate::software::Program;
use gpuoom_trace::outcome::Outcome;

/// The diagnosis of a refusal that PyTorch made up for by giving back its cache.
const COPED: &str = "cache-greed";

/// What happened, as far as memory goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// At least one allocation ran out of memory; this one decides.
    OutOfMemory {
        /// Index in [`Facts::ooms`].
        oom: usize,
    },
    /// Nothing ran out of memory.
    Healthy {
        /// Index in [`Facts::devices`] of the device that was fullest.
        fullest: usize,
    },
    /// The program got no device memory at all, nor was it refused any.
    NothingAllocated,
}

impl Happened {
    /// What happened in a run.
    pub fn of(facts: &Facts) -> Self {
        if let Some(oom) = deciding(facts.ooms.iter().map(|oom| oom.outcome)) {
            return Happened::OutOfMemory { oom };
        }
        let fullest = (0..facts.devices.len()).max_by_key(|index| facts.devices[*index].account.peak.requested_bytes);
        match fullest {
            Some(fullest) if facts.devices[fullest].account.allocations + facts.host.allocations > 0 => {
                Happened::Healthy { fullest }
            }
            _ => Happened::NothingAllocated,
        }
    }

    /// The number of the failure that decides.
    pub fn decides(self, facts: &Facts) -> Option<u64> {
        match self {
            Happened::OutOfMemory { oom } => facts.ooms.get(oom).map(|oom| oom.number),
            _ => None,
        }
    }
}

/// The verdict on a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// What happened.
    #[serde(skip)]
    pub happened: Happened,
    /// What happened and why, sentence by sentence.
    #[serde(rename = "sentence", serialize_with = "joined")]
    pub sentences: Vec<String>,
    /// The sentence of it that says why.
    #[serde(skip)]
    pub why: String,
    /// Number of the failure that decides; null where nothing ran out of memory.
    pub oom: Option<u64>,
    /// Id of the diagnosis that decides; `None` where none is at least probable.
    pub cause: Option<&'static str>,
    /// How sure that is.
    pub confidence: Option<Confidence>,
    /// Where none decides: by so much more than the whole card is what the program held and asked for. That is certain, whatever
    /// the cause is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub too_much_bytes: Option<u64>,
}

fn joined<S: Serializer>(sentences: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&sentences.join(" "))
}

impl Verdict {
    /// The verdict on these facts, where `decides` is the one of the findings that explains them.
    /// `late_bytes`: what of the program's blocks came while the call that decides was under way, and maybe after it was refused.
    pub(crate) fn new(facts: &Facts, findings: &[Finding], decides: Option<&Finding>, late_bytes: u64) -> Self {
        let happened = Happened::of(facts);
        let explained = match (decides, happened) {
            (Some(finding), _) if !finding.role.explains() => {
                let all = if are_all_coped(facts, findings) { facts.ooms.len() as u64 } else { 1 };
                Explained::Coped(finding, all)
            }
            (Some(finding), _) => Explained::By(finding),
            (None, Happened::OutOfMemory { oom }) => by_numbers(facts, findings, &facts.ooms[oom], late_bytes),
            _ => Explained::Not,
        };
        // Who got the memory after all needs no other card.
        let too_much_bytes = match explained {
            Explained::TooMuch(bytes, what, _) if what != What::HeldThen => Some(bytes),
            _ => None,
        };
        Verdict {
            happened,
            too_much_bytes,
            sentences: sentence::all(facts, happened, explained),
            why: sentence::why(explained),
            oom: happened.decides(facts),
            cause: decides.map(|finding| finding.id),
            confidence: decides.map(|finding| finding.confidence),
        }
    }
}

/// What is known of a failure that no finding explains.
fn by_numbers<'f>(facts: &Facts, findings: &'f [Finding], oom: &OomReport, late_bytes: u64) -> Explained<'f> {
    if let Some(ram) = more_than_ram(facts, oom) {
        return Explained::MoreThanRam(ram);
    }
    match (too_much(facts, oom, late_bytes), perhaps(findings, Some(oom.number))) {
        // This says the same with its number.
        (Some((bytes, what)), Some(finding)) if finding.id == "true-capacity" => Explained::TooMuch(bytes, what, None),
        (Some((bytes, what)), possible) => Explained::TooMuch(bytes, what, possible),
        (None, Some(finding)) => Explained::Perhaps(finding),
        (None, None) => Explained::Not,
    }
}

/// All memory of the machine, where one request for pinned memory is more than that.
fn more_than_ram(facts: &Facts, oom: &OomReport) -> Option<u64> {
    let is_of_machine = matches!(oom.kind, "host-pinned" | "registered") && oom.refused_by != Some("injected");
    let ram = facts.machine.memory.total_bytes.filter(|ram| is_of_machine && !oom.unknown_size && *ram > 0)?;
    (oom.requested_bytes > ram).then_some(ram)
}

/// By how many bytes the program's own blocks and the request exceed the card, whatever else is there. Managed memory may lie in RAM.
fn too_much(facts: &Facts, oom: &OomReport, late_bytes: u64) -> Option<(u64, What)> {
    let is_of_card = oom.kind == "device" && oom.refused_by != Some("injected") && !oom.unknown_size;
    let device = facts.device_of(oom)?;
    let total = device.total_bytes.filter(|total| is_of_card && *total > 0)?;
    // What a cache holds and nothing uses is not what the program needs; of PyTorch's its blocks tell how much that is.
    let (cached, what) = match device.tensors.as_ref().filter(|tensors| tensors.owner == Owner::Torch) {
        Some(tensors) => (tensors.moment(&format!("oom:{}", oom.number))?.unused_bytes?, What::Tensors),
        None if facts.versions.has(Program::Torch) => return None,
        None => (0, What::Held),
    };
    let what = if oom.outcome == Outcome::Recovered { What::HeldThen } else { what };
    let held = oom.held_bytes.saturating_sub(oom.held_managed_bytes).saturating_sub(cached);
    if held > total {
        // The card is larger than it is said to be.
        return None;
    }
    let needed = held.saturating_sub(late_bytes).saturating_add(oom.asked_bytes);
    let more = needed.checked_sub(total).filter(|bytes| *bytes > 0)?;
    Some((more, what))
}

/// The most telling cause of a failure, or of a run without one, which is only possible. Where that is a guess from sizes and times, it
/// is not worth a place in a verdict, and what comes behind it is none either.
pub(super) fn perhaps(findings: &[Finding], number: Option<u64>) -> Option<&Finding> {
    let is_about = |ooms: &[u64]| number.map_or(ooms.is_empty(), |number| ooms.contains(&number));
    let found = findings.iter().find(|finding| finding.role == Role::Cause && is_about(&finding.ooms));
    found.filter(|finding| !finding.is_guess && finding.confidence == Confidence::Possible)
}

/// The finding that decides: the cause of the failure that decides; where all failures were recovered from, or there is none,
/// what explains how the run went or ended.
pub(super) fn deciding_finding<'f>(
    facts: &Facts,
    findings: &'f [Finding],
    causes: &[Option<&'static str>],
) -> Option<&'f Finding> {
    let sure = |finding: &&Finding| finding.confidence >= Confidence::Probable;
    let of_run = || findings.iter().filter(sure).find(|finding| finding.role == Role::Cause && finding.ooms.is_empty());
    let Happened::OutOfMemory { oom } = Happened::of(facts) else { return of_run() };
    let failure = &facts.ooms[oom];
    let of_failure = || {
        let cause = causes.get(oom).copied().flatten()?;
        findings.iter().find(|finding| finding.id == cause && finding.explains(failure.number))
    };
    let is_there = |finding: &&Finding| finding.device.is_none() || finding.device == failure.device;
    match failure.outcome {
        Outcome::Recovered => {
            of_run().filter(is_there).or_else(of_failure).or_else(|| coped(facts, findings, failure.number))
        }
        _ => of_failure(),
    }
}

/// Where each failure of the run was made up for by giving back the cache, or at least the one that decides, that is all there is to say
/// of why: it is no cause that anybody has to look for.
fn coped<'f>(facts: &Facts, findings: &'f [Finding], decides: u64) -> Option<&'f Finding> {
    let of_this = || made_up_for(findings).find(|finding| finding.ooms.contains(&decides));
    // The least sure of them speaks for all.
    let of_all =
        made_up_for(findings).min_by_key(|finding| finding.confidence).filter(|_| are_all_coped(facts, findings));
    of_all.or_else(of_this)
}

fn made_up_for(findings: &[Finding]) -> impl Iterator<Item = &Finding> {
    let is_it = |finding: &&Finding| finding.id == COPED && !finding.role.explains();
    findings.iter().filter(is_it).filter(|finding| finding.confidence >= Confidence::Probable)
}

fn are_all_coped(facts: &Facts, findings: &[Finding]) -> bool {
    let is_of_it = |oom: &OomReport| made_up_for(findings).any(|finding| finding.ooms.contains(&oom.number));
    let is_whole = facts.ooms.len() as u64 == facts.oom_count;
    is_whole && facts.ooms.iter().all(|oom| oom.outcome == Outcome::Recovered && is_of_it(oom))
}
