//! One number, one source: what ledger, verdict, rules, map, what-if and diff say of one quantity at one moment is equal.

use super::all;
use crate::conclusion::Summary;
use crate::diagnosis::case::Case;
use crate::passes::ledger::DeviceLedger;
use crate::passes::map::{Moment, draw};
use crate::passes::oom::OomReport;
use crate::passes::profile::{Figure, Place};
use crate::replay::{Options, Until};
use crate::testing::{self, TraceBuilder};
use crate::whatif::{Question, ask};
use gpuoom_trace::record::Kind;

/// A quantity at a moment, and what each part of the report says of it, in bytes.
struct Said {
    what: String,
    by: Vec<(&'static str, u64)>,
}

impl Said {
    fn differs(&self) -> bool {
        self.by.windows(2).any(|pair| pair[0].1 != pair[1].1)
    }
}

/// What the callers of a ledger's moment add up to.
fn own_bytes(ledger: &DeviceLedger) -> u64 {
    let callers = &ledger.allocated_by;
    callers.rows.iter().map(|row| row.bytes).sum::<u64>() + callers.left_out.bytes + callers.unknown.bytes
}

fn at_failures(trace: &TraceBuilder, summary: &Summary) -> Vec<Said> {
    let file = testing::open(trace);
    let replay = testing::replay(trace, trace.evidence.thresholds.replay_options());
    let case = Case::new(&file, &replay, &summary.facts, &trace.evidence);
    let on_device = |oom: &&OomReport| oom.device.is_some() && !matches!(oom.kind, "host-pinned" | "registered");
    let failures = summary.facts.ooms.iter().filter(on_device).take(3);
    let said = failures.map(|oom| {
        let ordinal = replay.failures.listed[oom.number as usize - 1].ordinal;
        let until = Options { until: Until::Refusal(ordinal), ..Options::default() };
        let maps = draw(&testing::replay(trace, until), Moment::Now, oom.device);
        let ledgers = summary.facts.ledger.iter();
        let ledger = ledgers.filter(|ledger| ledger.device == oom.device);
        let ledger = ledger.filter(|ledger| ledger.moment == format!("oom:{}", oom.number)).map(own_bytes);
        let rules = case.failures().nth(oom.number as usize - 1).map(|failure| failure.own_bytes());
        let on_card = oom.held_bytes - oom.held_managed_bytes;
        let by = [("verdict", on_card)]
            .into_iter()
            .chain(rules.map(|bytes| ("rules", bytes)))
            .chain(ledger.map(|bytes| ("ledger", bytes)))
            // A map shows addresses, of managed memory too.
            .chain(maps.iter().map(|map| ("map", map.requested_bytes - oom.held_managed_bytes)));
        Said { what: format!("held at failure {}", oom.number), by: by.collect() }
    });
    said.collect()
}

fn over_the_run(trace: &TraceBuilder, summary: &Summary) -> Vec<Said> {
    let profile = testing::profile(trace);
    let whatif = ask(&mut testing::open(trace), &Question::default(), |_| {});
    let maps = draw(&testing::replay(trace, Options::default()), Moment::Peak, None);
    let has_managed = trace.records().any(|record| record.kind() == Kind::Managed);
    let mut said = Vec::new();
    let known = summary.facts.devices.iter().filter(|device| device.account.allocations > 0);
    for (device, index) in known.filter_map(|device| Some((device, device.index?))) {
        let figure = |figure: Figure| {
            let place = profile.places.iter().find(|place| place.place == Place::Gpu(index));
            place.map(|place| ("diff", place.figures[figure]))
        };
        let ledger = |moment: &str| {
            let here = summary.facts.ledger.iter().filter(|ledger| ledger.device == Some(index));
            here.filter(|ledger| ledger.moment == moment)
                .map(|ledger| ("ledger", own_bytes(ledger)))
                .collect::<Vec<_>>()
        };
        let map = maps.iter().find(|map| map.device == Some(index)).map(|map| ("map", map.requested_bytes));
        let whatif = whatif.devices.iter().find(|answer| answer.index == Some(index));
        let whatif = whatif.and_then(|answer| Some(("whatif", answer.needs.first()?.peak_requested_bytes)));
        let requested =
            [("report", device.account.peak.requested_bytes)].into_iter().chain(figure(Figure::Peak)).chain(map);
        said.push(Said { what: format!("requested at the peak of GPU {index}"), by: requested.collect() });
        // Managed memory is requested on a device, and is not known to be on its card.
        let held = ledger("peak").into_iter().chain(whatif).collect();
        said.push(Said { what: format!("held on the card at the peak of GPU {index}"), by: held });
        let end = [("report", device.account.end.requested_bytes)].into_iter().chain(figure(Figure::End));
        let moves = has_managed || device.account.end.managed_bytes > 0;
        let end = if moves { end.collect() } else { end.chain(ledger("end")).collect() };
        said.push(Said { what: format!("requested at the end on GPU {index}"), by: end });
    }
    said
}

#[test]
fn everybody_says_the_same_number() {
    let (mut compared, mut wrong) = (0, Vec::new());
    for labelled in all() {
        let trace = (labelled.scene)().trace;
        let summary = testing::summary(&trace);
        let said: Vec<Said> = at_failures(&trace, &summary).into_iter().chain(over_the_run(&trace, &summary)).collect();
        compared += said.len();
        let differing = said.iter().filter(|said| said.differs());
        wrong.extend(
            differing.map(|said| format!("{} ({}): {}: {:?}", labelled.id, labelled.story, said.what, said.by)),
        );
    }
    println!("{compared} quantities, {} differ", wrong.len());
    assert!(wrong.is_empty(), "{} of {compared} differ:\n{}", wrong.len(), wrong.join("\n"));
}
