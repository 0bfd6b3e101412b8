//! Waits for the device that say something: after a deferred free, of any thread, and before a failure.

use gpuoom_tests::{Client, Event, Finished, Library, TruthLine, program, program_with};

/// Waits of the device's own log that come behind a deferred free, with those left out that repeat one since the last one.
fn expected(truth: &[TruthLine]) -> Vec<(u64, String)> {
    let mut pending = false;
    let mut seen: Vec<(u64, String, u64)> = Vec::new();
    let mut waits = Vec::new();
    for line in truth {
        match line.event() {
            "free" if line.api().contains("FreeAsync") => {
                pending = true;
                seen.clear();
            }
            "sync" if pending => {
                // The streams without a handle are a thread's own, a device is everybody's.
                let whose = if line.api().contains("Stream") && line.address() == 0 { line.thread() } else { 0 };
                let what = (whose, line.api().to_owned(), line.address());
                if !seen.contains(&what) {
                    seen.push(what);
                    waits.push((line.thread(), line.api().to_owned()));
                }
            }
            _ => {}
        }
    }
    waits
}

fn assert_waits(run: &Finished) -> Vec<Event> {
    let trace = run.only_trace();
    let events = trace.events();
    let failed = events.iter().position(|event| event.failed()).expect("the failure");
    let syncs: Vec<_> = events[..failed].iter().filter(|event| event.event() == "sync").collect();
    let recorded: Vec<_> = syncs.iter().map(|event| (event.thread(), event.api().to_owned())).collect();
    let expected = expected(&run.truth());
    assert_eq!(
        expected.len(),
        4,
        "a stream, the null stream, an event, and the device by another thread: {expected:?}"
    );
    assert_eq!(recorded, expected);
    assert_ne!(recorded[0].0, recorded[3].0, "another thread");
    events
}

#[test]
fn the_first_wait_after_a_deferred_free_is_recorded() {
    assert_waits(&Client::new(program("waits.c")).run_both());
}

#[test]
fn cuda_has_an_old_name_for_it() {
    let run = Client::new(program_with("cuda_waits.c", Library::Cuda)).run_both();
    let events = assert_waits(&run);
    assert!(events.iter().any(|event| event.api() == "cudaThreadSynchronize"));
}

#[test]
fn waits_of_a_program_without_deferred_frees_are_not_recorded() {
    let events = Client::new(program("linked.c")).run_recorded().only_trace().events();
    assert!(events.iter().all(|event| event.event() != "sync"), "{events:?}");
}
