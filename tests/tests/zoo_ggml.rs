//! Buffers of ggml: what they are for, and inside which functions memory is asked for. Programs with ggml's names do what ggml does,
//! and worse; what they print is the same with the recorder as without.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;

use gpuoom_tests::{Client, Finished, Library, MIB, Report, Trace, plain_program, plugin};
use gpuoom_trace::payload;
use gpuoom_trace::reader::TraceFile;
use gpuoom_trace::record::{Event, Kind};

const TOLD: [Event; 4] = [Event::Block, Event::BlockFree, Event::BlockUse, Event::Scope];

fn ggml(what: &str) -> Client {
    let client = Client::new(plain_program("ggml_buffers.c")).arg(plugin("ggml_buffers.c", Library::Hip)).arg(what);
    client.env("GPUOOM_PROBE", "off")
}

fn mib(parts: &[(&str, u64)]) -> BTreeMap<String, u64> {
    parts.iter().map(|(kind, mib)| ((*kind).to_owned(), mib * MIB)).collect()
}

fn events(run: &Finished, wanted: Event) -> usize {
    run.only_trace().told(&[wanted]).len()
}

fn calls(report: &Report) -> [u64; 4] {
    ["allocations", "frees", "failures", "peak/requested_bytes"]
        .map(|name| report.number(&format!("/devices/0/{name}")))
}

#[test]
fn buffers_are_told_apart_by_what_they_are_for() {
    let run = ggml("all").run_both();
    assert_eq!(run.exit_code(), 0, "{}", run.stderr);
    let report = run.only_trace().report();
    report.assert_nothing_lost();
    assert_eq!(report.text("/devices/0/tensors/framework"), "ggml");
    // At the peak the graph's buffer has grown from 4 MiB to 6, and one of 1 MiB is there that is for nothing in particular.
    let at_peak = mib(&[("weights", 8), ("kv-cache", 16), ("compute", 6), ("", 1)]);
    assert_eq!(report.buffers(0, "peak"), at_peak);
    assert_eq!(report.buffers(0, "end"), mib(&[]));
    assert_eq!(report.number("/devices/0/peak/requested_bytes"), 31 * MIB, "counted once, by the calls");
    // Nothing is told of a hundred calls that ask for no memory, of fifty empty buffers, or of memory of the processor's.
    assert_eq!((events(&run, Event::Block), events(&run, Event::BlockFree)), (7, 7));
    assert!(events(&run, Event::Scope) < 10, "{}", events(&run, Event::Scope));
}

#[test]
fn counts_and_outcomes_are_those_of_the_calls_alone() {
    for (what, capacity) in [("all", "1G"), ("many", "1G"), ("smaller", "36M"), ("all", "30M")] {
        let run = |setting: &str| {
            let run = ggml(what).env("GPUOOM_FRAMEWORK", setting).env("SIM_CAPACITY", capacity).run_both();
            let report = run.only_trace().report();
            let outcomes: Vec<_> = (0..report.count("/ooms"))
                .map(|number| {
                    ["outcome", "because"].map(|name| report.text(&format!("/ooms/{number}/{name}")).to_owned())
                })
                .collect();
            (calls(&report), outcomes, run)
        };
        let (on, off) = (run("on"), run("off"));
        assert_eq!((on.0, &on.1), (off.0, &off.1), "{what}");
        assert!(TOLD.iter().all(|event| events(&off.2, *event) == 0), "{what}: turned off, nothing is told");
        assert!(events(&on.2, Event::Scope) > 0);
    }
}

#[test]
fn a_failure_says_which_of_the_three_did_not_fit() {
    for (capacity, purpose, by, phase) in [
        ("6M", Some("weights"), "llama_model_load_from_file", Some("loading")),
        ("20M", Some("kv-cache"), "llama_init_from_model", None),
        ("26M", Some("compute"), "ggml_gallocr_reserve_n", None),
        ("29M", Some("compute"), "ggml_gallocr_reserve_n", Some("forward")),
    ] {
        let run = ggml("all").env("SIM_CAPACITY", capacity).run_both();
        let report = run.only_trace().report();
        assert_eq!(report.count("/ooms"), 1, "{capacity}");
        assert_eq!(report.value("/ooms/0/purpose").as_str(), purpose, "{capacity}");
        assert_eq!(report.text("/ooms/0/purpose_by"), by, "{capacity}");
        assert_eq!(report.value("/ooms/0/phase").as_str(), phase, "{capacity}");
    }
}

#[test]
fn buffers_of_another_sort_are_not_guessed_at() {
    let run = ggml("many").run_both();
    assert_eq!(run.exit_code(), 0);
    let report = run.only_trace().report();
    // One in two pieces is not told apart, nor one of whose parts no hook saw a call, and memory of the host is no device's. What others are made of is their own.
    assert_eq!(report.buffers(0, "peak"), mib(&[("weights", 6), ("", 5)]));
    assert_eq!(report.number("/devices/0/peak/requested_bytes"), 24 * MIB);
}

#[test]
fn each_thread_is_inside_its_own_functions() {
    let run = ggml("threads").run_recorded();
    assert_eq!(run.exit_code(), 0, "{}", run.stderr);
    let report = run.only_trace().report();
    let at_peak = report.buffers(0, "peak");
    // All that any of the threads may hold then: whole buffers of the three sorts.
    let [weights, cache, compute] = ["weights", "kv-cache", "compute"].map(|kind| *at_peak.get(kind).unwrap_or(&0));
    assert!(weights % (8 * MIB) == 0 && cache % (16 * MIB) == 0 && compute % (2 * MIB) == 0, "{at_peak:?}");
    // A thread may be in the middle of one more: its memory is there, and the function that tells what for has not returned. What
    // is missing is such buffers and nothing else.
    let all: u64 = at_peak.values().sum();
    let peak = report.number("/devices/0/peak/requested_bytes");
    let explained = untold_at(&run.only_trace(), peak).iter().any(|untold| is_sum_of_some(peak - all, untold));
    assert!(all > 0 && explained, "{} of {peak} beside {at_peak:?}", peak - all);
}

/// At each moment when the program held as much, the sizes of memory that no buffer was told of then.
fn untold_at(trace: &Trace, held_bytes: u64) -> Vec<Vec<u64>> {
    let (mut live, mut buffers, mut found) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    let mut file = TraceFile::open(&trace.path).expect("a trace");
    let read = file.for_each_batch(|batch| {
        for (record, payload) in batch.iter() {
            match (record.event(), record.kind()) {
                (Some(Event::Alloc), Kind::Device) if record.status == 0 => {
                    live.insert(record.address, record.requested);
                }
                (Some(Event::Free), Kind::Device) => drop(live.remove(&record.address)),
                (Some(Event::Block), _) => {
                    let base = payload::unpack_numbers(payload).next().expect("where it lies");
                    buffers.insert(record.address, base);
                }
                (Some(Event::BlockFree), _) => drop(buffers.remove(&record.address)),
                _ => continue,
            }
            if live.values().sum::<u64>() == held_bytes {
                let untold = live.iter().filter(|(base, _)| !buffers.values().any(|of| of == *base));
                found.push(untold.map(|(_, size_bytes)| *size_bytes).collect());
            }
        }
        Ok::<_, ()>(())
    });
    read.expect("the sink refuses nothing");
    found
}

fn is_sum_of_some(total: u64, parts: &[u64]) -> bool {
    (0..1u32 << parts.len()).any(|chosen| {
        parts.iter().enumerate().filter(|(at, _)| chosen >> at & 1 == 1).map(|(_, part)| part).sum::<u64>() == total
    })
}

#[test]
fn retries_at_a_smaller_size_are_for_the_same() {
    let run = ggml("smaller").env("SIM_CAPACITY", "36M").run_both();
    assert_eq!(run.exit_code(), 0, "{}", run.stderr);
    let report = run.only_trace().report();
    let purposes: Vec<_> = (0..report.count("/ooms")).map(|at| report.text(&format!("/ooms/{at}/purpose"))).collect();
    assert_eq!(purposes, ["kv-cache", "kv-cache"], "64 MiB, 32 MiB; 16 MiB fit");
    assert_eq!(report.buffers(0, "peak"), mib(&[("weights", 8), ("kv-cache", 16), ("compute", 4)]));
}

#[test]
fn an_abort_inside_leaves_what_was_known() {
    let run = ggml("aborts").env("SIM_CAPACITY", "26M").run_both();
    assert_eq!(run.status.signal(), Some(libc::SIGABRT));
    let report = run.only_trace().report();
    assert_eq!(report.text("/ooms/0/purpose"), "compute");
    assert_eq!(report.buffers(0, "oom:1"), mib(&[("weights", 8), ("kv-cache", 16)]));
    assert!(run.stderr.contains("ggml-cuda.cu:7: no memory"), "{}", run.stderr);
}

#[test]
fn what_comes_after_a_jump_out_of_a_function_is_not_inside_it() {
    let run = ggml("jumps").run_both();
    assert_eq!(run.exit_code(), 0);
    let report = run.only_trace().report();
    assert!(report.value("/ooms/0/purpose").is_null() && report.value("/ooms/0/phase").is_null());
    let scopes = run.only_trace().told(&[Event::Scope]);
    assert!(scopes.iter().all(|scope| scope.text.is_empty()), "inside nothing: {scopes:?}");
}

#[test]
fn arguments_at_the_very_end_of_a_stack_are_passed_on() {
    let run = ggml("fiber").run_both();
    assert_eq!((run.exit_code(), run.stdout.as_str()), (0, "decoded 5\n"), "{}", run.stderr);
}

#[test]
fn a_process_that_calls_none_of_them_has_no_such_record() {
    let run = ggml("plain").run_both();
    assert!(TOLD.iter().all(|event| events(&run, *event) == 0));
    assert!(run.only_trace().report().value("/devices/0/tensors").is_null());
}

/// A virtual card refuses in the runtime's place, inside the same functions.
#[test]
fn a_refusal_on_request_says_so_too() {
    let run = ggml("all").env("GPUOOM_CAPACITY", "20M").run_recorded();
    let report = run.only_trace().report();
    assert_eq!((report.text("/ooms/0/refused_by"), report.text("/ooms/0/purpose")), ("injected", "kv-cache"));
}
