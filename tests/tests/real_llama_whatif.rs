//! What `whatif` says of a smaller card, beside what a real run of llama.cpp on a card of that size does.

use gpuoom_tests::{Event, Finished, Trace, llama_cuda_client};

/// Enough for everything.
const LARGE: &str = "1G";

fn run(capacity: &str) -> Option<Finished> {
    Some(llama_cuda_client()?.env("SIM_CAPACITY", capacity).env("GPUOOM_PROBE", "off").run_recorded())
}

/// Of the two processes the one that takes memory.
fn main_trace(run: &Finished) -> Trace {
    let mut traces = run.traces();
    traces.retain(|trace| trace.events().iter().any(|event| event.event() == "alloc"));
    assert_eq!(traces.len(), 1, "{traces:?}");
    traces.remove(0)
}

/// What the program itself called; layers below repeat it.
fn own_events(trace: &Trace) -> Vec<Event> {
    trace.events().into_iter().filter(Event::is_programs_own).collect()
}

/// The first failure of a run: its function, its size, and how many allocations of device memory came before it.
fn first_failure(trace: &Trace) -> Option<(String, u64, usize)> {
    let events = own_events(trace);
    let at = events.iter().position(|event| event.event() == "alloc" && event.failed())?;
    let given = events[..at].iter().filter(|event| event.kind() == "device" && event.is_allocation()).count();
    Some((events[at].api().to_owned(), events[at].requested_bytes(), given))
}

/// Weights, cache and compute buffer: each is foretold to fail on the card on which it really fails, and none where none does.
#[test]
fn the_failure_of_a_smaller_card_is_foretold() {
    let Some(large) = run(LARGE) else { return };
    let trace = main_trace(&large);
    assert_eq!(first_failure(&trace), None);
    let events = own_events(&trace);
    for capacity in ["4M", "34M", "100M", "512M"] {
        let Some(small) = run(capacity) else { return };
        let really = first_failure(&main_trace(&small));
        let answer = trace.whatif(&["--capacity", capacity, "--granularity", "2M"]);
        let cards = answer.count("/devices/0/cards");
        for card in 0..cards {
            let field = |name: &str| format!("/devices/0/cards/{card}/{name}");
            if answer.flag(&field("is_recorded")) {
                continue;
            }
            let change = field("first_change");
            match &really {
                None => assert_eq!(answer.excerpt(&change), "null", "{capacity}"),
                Some((api, bytes, given)) => {
                    let said =
                        (answer.text(&format!("{change}/api")), answer.number(&format!("{change}/requested_bytes")));
                    assert_eq!(said, (api.as_str(), *bytes), "{capacity}");
                    // Where in the run: as many blocks had been given before.
                    let at_ns = answer.number(&format!("{change}/at_ns"));
                    let before = events
                        .iter()
                        .filter(|event| event.kind() == "device" && event.is_allocation() && event.at_ns() < at_ns);
                    assert_eq!(before.count(), *given, "{capacity}");
                    assert!(answer.number(&field("new_failures_least")) >= 1, "{capacity}");
                }
            }
        }
        assert!(cards > 0);
    }
}
