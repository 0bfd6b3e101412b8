//! What is said of a trace says no more than is known of it.

use gpuoom_trace::metadata::Quantity::{RuntimeFree, RuntimeTotal};

use super::capacity::full_after_a_rise;
use super::scenes::at_failure;
use crate::conclusion::finding::Finding;
use crate::judgement::check::Confidence;
use crate::testing::{GIB, TraceBuilder, summary};

fn finding(trace: &TraceBuilder, id: &str) -> Finding {
    let findings = summary(trace).conclusion.findings;
    findings.into_iter().find(|finding| finding.id == id).unwrap_or_else(|| panic!("{id} is not found"))
}

#[test]
fn a_card_that_is_empty_is_not_called_full() {
    let mut trace = TraceBuilder::default().device(0, "card", 8 * GIB);
    trace.alloc(0x1000_0000_0000, GIB);
    let seq = trace.refuse(8 * GIB);
    at_failure(&mut trace, seq, [(RuntimeTotal, 8 * GIB), (RuntimeFree, 7 * GIB)]);
    let found = finding(&trace, "true-capacity");
    assert_eq!(found.confidence, Confidence::Possible);
    assert_eq!(found.title, "what this process holds and asked for is more than the card has");
}

#[test]
fn a_rise_that_is_shown_is_not_told_as_refuted() {
    let trace = full_after_a_rise(false).trace;
    assert_eq!(finding(&trace, "live-leak").confidence, Confidence::Possible);
    let full = finding(&trace, "true-capacity");
    let rise = full.refuters_checked.iter().find(|refuter| refuter.text.contains("rises from cycle to cycle"));
    assert!(rise.is_none_or(|rise| !rise.checked), "{full:?}");
    assert!(full.missing.iter().any(|reading| reading.contains("is meant")), "{:?}", full.missing);
}
