//! The page of `whatif`.

use gpuoom_trace::metadata::Quantity;

use crate::report::page::{Look, Page};
use crate::testing::{GIB, MIB, TraceBuilder, gib, open};
use crate::whatif::{Question, ask};

fn page(trace: &TraceBuilder, question: &Question) -> String {
    let answer = ask(&mut open(trace), question, |_| {});
    let mut page = Page::new(Look::new(100, false));
    super::write_text(&mut page, &answer);
    let text = page.into_text();
    assert!(text.lines().all(|line| line.chars().count() <= 100), "a line is too long:\n{text}");
    text
}

fn full_card() -> TraceBuilder {
    let mut trace = TraceBuilder::default().device(0, "AMD Radeon RX 7900 XTX", gib(23.98));
    for number in 0..40u64 {
        trace.alloc(0x7f2a_0000_0000 + number * 600 * MIB, 560 * MIB);
    }
    let seq = trace.refuse(gib(1.41));
    trace.read_at_failure(
        seq,
        &[(Quantity::RuntimeTotal as u16, gib(23.98)), (Quantity::RuntimeFree as u16, gib(0.62))],
    );
    trace.refuse(gib(3.0));
    trace
}

#[test]
fn several_cards_and_granules() {
    let question = Question {
        capacities_bytes: vec![16 * GIB, 26 * GIB, 32 * GIB],
        granularities_bytes: vec![2 * MIB, 256 * MIB],
        ..Question::default()
    };
    insta::assert_snapshot!(page(&full_card(), &question));
}

#[test]
fn no_card_is_asked_for() {
    insta::assert_snapshot!(page(&full_card(), &Question::default()));
}

#[test]
fn nothing_is_known_of_the_card() {
    let mut trace = TraceBuilder::default();
    trace.alloc(0x1000_0000_0000, GIB);
    insta::assert_snapshot!(page(&trace, &Question::default()));
}

#[test]
fn no_device_memory() {
    let mut trace = TraceBuilder::default();
    trace.alloc_kind(gpuoom_trace::record::Kind::HostPinned, "hipHostMalloc", 0x1000, GIB);
    insta::assert_snapshot!(page(&trace, &Question::default()));
}
