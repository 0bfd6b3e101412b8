//! Threads, signals, jumps, and the state that a hook has to leave alone.

use std::collections::{HashMap, HashSet};
use std::process::Command;

use gpuoom_tests::{Client, Library, MIB, plugin, program, recorder};
use gpuoom_trace::record::Event;

/// The first caller makes the file, which may take long; the others wait for it.
#[test]
fn no_call_is_missed_while_a_busy_disk_makes_room() {
    let slow = plugin("slow_disk.c", Library::None);
    let preload = format!("{} {}", recorder().display(), slow.display());
    let run = Client::new(program("eight_threads.c")).env("LD_PRELOAD", preload).run_recorded();
    assert_eq!(run.exit_code(), 0);
    run.assert_trace_is_true();
    run.only_trace().report().assert_nothing_lost();
}

/// What the first threads ask while the recorder's own thread is being made waits for it.
#[test]
fn the_card_is_known_whichever_thread_came_first() {
    for _ in 0..8 {
        let run = Client::new(program("threads_begin.c")).run_recorded();
        let report = run.only_trace().report();
        assert!(!report.text("/devices/0/name").is_empty(), "{}", report.excerpt("/devices/0"));
        assert!(report.number("/devices/0/total_bytes") > 0, "{}", report.excerpt("/devices/0"));
    }
}

#[test]
fn eight_threads_are_told_apart() {
    let run = Client::new(program("eight_threads.c")).run_both();
    run.assert_trace_is_true();
    let events = run.only_trace().events();
    let mut by_thread: HashMap<u64, usize> = HashMap::new();
    for event in events.iter().filter(|event| event.is_allocation()) {
        *by_thread.entry(event.thread()).or_default() += 1;
    }
    assert_eq!(by_thread.into_values().collect::<Vec<_>>(), [200; 8]);
    let report = run.only_trace().report();
    report.assert_nothing_lost();
    assert_eq!((report.number("/devices/0/allocations"), report.number("/devices/0/frees")), (1600, 1600));
    assert_eq!(report.number("/devices/0/end/requested_bytes"), 0);
}

#[test]
fn address_that_changes_hands_alternates() {
    let run = Client::new(program("address_reuse.c")).run_both();
    // Four threads, each of which holds one block at most: 2000 allocations share four addresses.
    let truth = run.truth();
    let addresses: HashSet<_> = truth.iter().map(|line| line.address()).collect();
    assert!(addresses.len() <= 4, "{} addresses: nothing was reused", addresses.len());
    run.assert_trace_is_true();
    assert_eq!(run.only_trace().report().number("/devices/0/allocations"), 2000);
}

#[test]
fn memory_of_threads_that_have_left_stays_counted() {
    let run = Client::new(program("threads_leave.c")).run_both();
    run.assert_trace_is_true();
    let report = run.only_trace().report();
    report.assert_exited(0);
    assert_eq!((report.number("/devices/0/allocations"), report.number("/devices/0/frees")), (12, 6));
    assert_eq!(report.number("/devices/0/end/live_allocations"), 6);
    assert_eq!(report.number("/devices/0/end/requested_bytes"), 24 * MIB);
}

fn first_thread_leaves(what: &str) -> Client {
    Client::new(program("first_thread_leaves.c")).arg(what)
}

/// A process whose first thread has left ends with its last one: the recorder's own threads keep nothing alive, and the exit handlers run
/// as they would have.
#[test]
fn a_process_ends_with_the_programs_last_thread() {
    for (what, allocations) in [("alone", 2), ("workers", 5), ("chain", 2), ("late", 4), ("signal", 2)] {
        for sample in ["1s", "off", "1h"] {
            let run = first_thread_leaves(what).env("GPUOOM_SAMPLE", sample).run_both();
            assert!(
                run.stdout.ends_with("handler: 3 MiB of stack, SIGTERM held 0, SIGUSR1 held 1\n"),
                "{}",
                run.stdout
            );
            run.assert_trace_is_true();
            let report = run.only_trace().report();
            report.assert_exited(0);
            assert_eq!(report.number("/devices/0/allocations"), allocations, "{what}");
        }
    }
}

/// The thread that forks is the child's first, whichever it was before.
#[test]
fn a_forked_child_ends_with_its_last_thread() {
    let run = first_thread_leaves("child").run_both();
    assert!(run.stdout.contains("child: 0\n"), "{}", run.stdout);
    let traces = run.traces();
    assert_eq!(traces.len(), 2);
    traces.iter().for_each(|trace| trace.report().assert_exited(0));
}

/// Where the first thread ends past the C library, nobody calls `exit`: the process ends when its last thread has.
#[test]
fn a_process_ends_without_exit_where_it_would_have() {
    let run = first_thread_leaves("raw").env("GPUOOM_SAMPLE", "1h").run_both();
    assert_eq!(run.stdout, "", "what was never flushed");
    run.assert_trace_is_true();
}

/// A thread of the recorder that hangs in the vendor's library keeps the process for some seconds, and not for good.
#[test]
fn a_probe_that_hangs_keeps_no_process() {
    let client = first_thread_leaves("refused").env("SIM_SLOW_AT", "3").env("SIM_SLOW_US", "2000000000");
    let run = client.run_both();
    assert_eq!(run.only_trace().report().count("/ooms"), 1);
}

#[test]
fn handlers_that_allocate_in_a_signal_storm_are_recorded() {
    let run = Client::new(program("signal_storm.c")).run_both();
    assert_eq!(run.exit_code(), 0);
    run.assert_trace_is_true();
    let events = run.only_trace().events();
    let from_handlers = events.iter().filter(|event| event.is_allocation() && event.requested_bytes() == 4 * MIB);
    assert!(from_handlers.count() >= 300, "a handler's allocation is missing");
    run.only_trace().report().assert_nothing_lost();
}

#[test]
fn hook_fits_a_small_signal_stack() {
    let run = Client::new(program("small_signal_stack.c")).run_both();
    assert_eq!(run.exit_code(), 0);
    run.assert_trace_is_true();
    assert_eq!(run.only_trace().report().number("/devices/0/allocations"), 2);
}

fn assert_jump_leaves_no_trap(out_of: &str) {
    let client =
        Client::new(program("longjmp_out.c")).arg(out_of).env("SIM_SLOW_AT", "2").env("SIM_SLOW_US", "20000000");
    let run = client.run_both();
    assert_eq!(run.exit_code(), 0);
    run.assert_trace_is_true();
    let events = run.only_trace().events();
    let later: Vec<_> =
        events.iter().filter(|event| event.event() == "alloc" && event.requested_bytes() >= 20 * MIB).collect();
    assert_eq!(later.len(), 10);
    assert!(later.iter().all(|event| event.parent().is_none()), "enclosed by a call that never returned: {later:?}");
    let report = run.only_trace().report();
    assert_eq!((report.number("/devices/0/allocations"), report.number("/devices/0/frees")), (11, 11));
}

#[test]
fn jump_out_of_an_allocation_leaves_no_trap() {
    assert_jump_leaves_no_trap("malloc");
}

#[test]
fn jump_out_of_a_synchronisation_leaves_no_trap() {
    assert_jump_leaves_no_trap("sync");
}

#[test]
fn errno_is_left_as_the_call_left_it() {
    let run = Client::new(program("errno_kept.c")).run_both();
    assert_eq!(run.exit_code(), 0);
    assert_eq!(run.stdout.matches("errno 4711").count(), 11);
    assert_eq!(run.only_trace().report().count("/ooms"), 1);
}

fn assert_last_error_is_kept(semantics: &str) {
    let client = Client::new(program("last_error.c"))
        .env("SIM_LAST_ERROR", semantics)
        // Everything that might make the recorder call the library.
        .env("GPUOOM_PROBE", "all")
        .env("GPUOOM_SAMPLE", "1ms");
    let run = client.run_both();
    assert!(run.stdout.contains("after a failure: peek 2, get 2, get 0"), "{}", run.stdout);
    assert_eq!(run.only_trace().report().count("/ooms"), 4);
}

#[test]
fn last_error_of_rocm_6_is_kept() {
    assert_last_error_is_kept("rocm6");
}

#[test]
fn last_error_of_rocm_7_is_kept() {
    assert_last_error_is_kept("rocm7");
}

/// Where nothing is left, the C library ends a process whose thread-local is to be destroyed: none of the recorder's is registered.
#[test]
fn no_thread_local_of_the_recorder_is_registered() {
    let output = Command::new("nm").args(["-D", "--undefined-only"]).arg(recorder()).output().unwrap();
    let imports = String::from_utf8(output.stdout).unwrap();
    assert!(imports.contains("malloc") && !imports.contains("thread_atexit"), "{imports}");
}

/// A thread that has no heap yet gets nothing from `malloc` where no mapping is left, and Rust would end the process for that: the
/// recorder's threads begin just then.
#[test]
fn a_process_at_its_limit_of_mappings_is_not_ended_by_the_recorder() {
    for left in (4..=84).step_by(8) {
        let client = Client::new(program("few_mappings.c")).arg(left.to_string()).env("SIM_REAL_MAPPINGS", "1");
        let run = client.run_both();
        assert_eq!(run.exit_code(), 0, "{left} mappings left: {}", run.stderr);
    }
}

/// A name is what the thread is called when its call fails, whatever it was called before. It is no phase where there is no PyTorch.
#[test]
fn a_failure_says_what_its_thread_is_called() {
    let run = Client::new(program("thread_names.c")).env("GPUOOM_PROBE", "off").run_both();
    run.assert_trace_is_true();
    let trace = run.only_trace();
    let told: Vec<String> = trace.told(&[Event::Thread]).into_iter().map(|told| told.text).collect();
    assert_eq!(told.len(), 4, "{told:?}: each name once");
    assert_eq!(told[1..], ["pt_data_pin", "before", "pt_autograd_0"]);
    let report = trace.report();
    let of = |number: u32, field: &str| report.value(&format!("/ooms/{number}/{field}")).as_str().map(str::to_owned);
    let failures: Vec<_> = (0..3).map(|number| (of(number, "thread_name"), of(number, "phase"))).collect();
    let named = |name: &str| (Some(name.to_owned()), None);
    assert_eq!(failures, [named("pt_data_pin"), named("pt_autograd_0"), named(&told[0])]);
    let page = trace.report_text();
    assert!(!page.contains("backward"), "{page}");
}
