//! Unknown is never zero and never "no": a run of which less is known is never judged more surely.
//!
//! Each labelled trace is judged again without one reading, one event, one file about the machine or one piece of evidence.
//! `GPUOOM_REMOVE=all cargo test --release -p gpuoom-analyze --lib removals` takes away every event but for long series of like
//! calls (`testing::removals`), not a sample of each trace's; `GPUOOM_REMOVE=every` those, too, but in traces that are very long,
//! where each removal judges all of it again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Labelled, all};
use crate::conclusion::Summary;
use crate::judgement::check::Confidence;
use crate::testing::removals::{ALIKE, Removal};
use crate::testing::{TraceBuilder, summary};

/// Events that are taken away from each trace, one at a time, where not all are.
const SAMPLE: usize = 6;

/// Records above which a trace is so long that not every one of many like calls is taken away: a trace of 120,000 would take hours.
const LONG: usize = 8192;
/// Of like calls of such a trace so many are.
const ALIKE_OF_LONG: usize = 1024;

/// How sure each diagnosis of a device, of a failure or of the run is, and whether it says that something is missing.
type Sureness = BTreeMap<(&'static str, Option<u8>, Vec<u64>), (Confidence, bool)>;

fn sureness(summary: &Summary) -> Sureness {
    let findings = summary.conclusion.findings.iter();
    findings
        .map(|finding| {
            let key = (finding.id, finding.device, finding.ooms.clone());
            (key, (finding.confidence, !finding.missing.is_empty()))
        })
        .collect()
}

/// Evidence that contradicts other evidence: without it, what it speaks against is surer, as it must be. Label and story's start.
const CONTRADICTIONS: [(&str, &str); 1] = [("caching-fragmentation", "snapshot and message disagree")];
/// The same of readings.
const OF_READINGS: [(&str, &str); 2] = [
    ("other-process-on-gpu", "a tool's list has another process, and NVML"),
    ("true-capacity", "NVML and the runtime contradict each other"),
];

fn contradicts(labelled: &Labelled, removal: Removal) -> bool {
    let is_it = |(id, story): &(&str, &str)| labelled.id == *id && labelled.story.starts_with(story);
    let is_reading = matches!(removal, Removal::Readings(_) | Removal::ReadingRecord(_));
    if is_reading && OF_READINGS.iter().any(is_it) {
        return true;
    }
    let is_given = matches!(removal, Removal::Evidence(_));
    is_given && CONTRADICTIONS.iter().any(is_it)
}

/// What is said more surely with less known.
fn violations(whole: &Summary, less: &Summary) -> Vec<String> {
    let before = sureness(whole);
    // A failure that is gone changes the numbers of those after it: what is said of an id counts then.
    let surest = |id: &str| before.iter().filter(|((other, ..), _)| *other == id).map(|(_, (sure, _))| *sure).max();
    let mut wrong = Vec::new();
    for ((id, ..), (confidence, says_what_is_missing)) in sureness(less) {
        match surest(id) {
            Some(known) if confidence > known => wrong.push(format!("{id} rises from {known:?} to {confidence:?}")),
            // What a missing reading could refute may appear, if the finding says what is missing.
            None if confidence == Confidence::Proven => wrong.push(format!("{id} becomes proven")),
            None if confidence == Confidence::Probable && !says_what_is_missing => {
                wrong.push(format!("{id} becomes probable, and says of nothing that it is missing"));
            }
            _ => {}
        }
    }
    let was_ruled_out = |id: &str| whole.conclusion.excluded.iter().any(|known| known.id == id);
    let ruled_out = less.conclusion.excluded.iter().filter(|out| !was_ruled_out(out.id));
    wrong.extend(ruled_out.map(|out| format!("{} is ruled out: {}", out.id, out.by)));
    wrong
}

/// What a trace's removals bring, all cores at it: one trace may have as many events as all others together.
fn violations_of(labelled: &Labelled, events: usize, alike: usize) -> (usize, Vec<String>) {
    let next = AtomicUsize::new(0);
    let work = || {
        let trace = (labelled.scene)().trace;
        let whole = summary(&trace);
        let mut removals = trace.removals(events, alike);
        removals.retain(|removal| !contradicts(labelled, *removal));
        // Relaxed: each place of the list is taken once, and nothing else is shared.
        let take = || removals.get(next.fetch_add(1, Ordering::Relaxed));
        let of = |removal: &Removal| {
            let found = violations(&whole, &summary(&trace.without(*removal)));
            let tell = |what| format!("{} ({}) without {removal:?}: {what}", labelled.id, labelled.story);
            found.into_iter().map(tell).collect::<Vec<_>>()
        };
        let wrong: Vec<String> = std::iter::from_fn(take).flat_map(of).collect();
        (removals.len(), wrong)
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let found = workers.into_iter().map(|worker| worker.join().expect("a worker ends"));
        found.reduce(|(tried, wrong), (_, more)| (tried, [wrong, more].concat())).unwrap_or_default()
    })
}

/// Each removal makes and drops a whole trace: memory that goes back to the system each time costs four times the test itself.
fn keep_freed_memory() {
    // SAFETY: sets numbers of this process's allocator, which holds a lock for that.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 30);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 1 << 30);
        libc::mallopt(libc::M_TOP_PAD, 1 << 26);
    }
}

#[test]
fn less_evidence_is_never_more_certainty() {
    keep_freed_memory();
    let wanted = std::env::var("GPUOOM_REMOVE").unwrap_or_default();
    let (mut traces, mut tried, mut left_out, mut wrong) = (0, 0, 0, Vec::new());
    for labelled in all() {
        let trace = (labelled.scene)().trace;
        let (events, alike) = match wanted.as_str() {
            "every" if trace.records().count() > LONG => (usize::MAX, ALIKE_OF_LONG),
            "every" => (usize::MAX, usize::MAX),
            "all" => (usize::MAX, ALIKE),
            _ => (SAMPLE, ALIKE),
        };
        let (removals, found) = violations_of(labelled, events, alike);
        println!("{removals:>6} {:>2} {} ({})", found.len(), labelled.id, labelled.story);
        traces += 1;
        tried += removals;
        left_out += trace.removals(usize::MAX, usize::MAX).len().saturating_sub(removals);
        wrong.extend(found);
    }
    println!("{traces} traces, {tried} removals, {left_out} left out, {} violations", wrong.len());
    assert!(wrong.is_empty(), "{} of {tried} removals:\n{}", wrong.len(), wrong.join("\n"));
}

/// The test itself sees a loss: an event that is gone is one that the report counts.
#[test]
fn an_event_that_is_taken_away_is_lost() {
    let mut trace = TraceBuilder::default().device(0, "card", 1 << 34);
    trace.alloc(0x1000_0000, 1 << 30);
    let removal = *trace.removals(10, ALIKE).iter().find(|removal| matches!(removal, Removal::Event(_))).unwrap();
    let less = summary(&trace.without(removal));
    assert_eq!((less.facts.trace.events_lost, less.facts.devices[0].account.allocations), (1, 0));
    assert!(!less.facts.are_whole());
}
