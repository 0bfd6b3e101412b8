//! Stacks in the trace, against what the C library says of the same calls.

use gpuoom_tests::{Client, Finished, Library, MIB, Trace, plain_program, plugin, program};
use gpuoom_trace::payload::{MAX_NATIVE_FRAMES, Stack, stack_flag};
use gpuoom_trace::record::Event;

fn allocations(trace: &Trace) -> Vec<(u64, Stack)> {
    let taken = trace.stacked_calls().into_iter().filter(|call| call.record.event() == Some(Event::Alloc));
    taken.map(|call| (call.record.requested / MIB, call.stack.expect("an allocation has a stack"))).collect()
}

/// Lines of a size and return addresses.
fn truth(stdout: &str) -> Vec<(u64, Vec<u64>)> {
    let address = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("an address");
    let lines = stdout.lines().filter(|line| !line.starts_with("plugin"));
    lines
        .map(|line| {
            let (size, frames) = line.split_once(' ').expect("a size");
            (size.parse().expect("a size"), frames.split(' ').map(address).collect())
        })
        .collect()
}

/// Sizes that `stacks.c` allocates on a stack of its own.
const FIBERS: [u64; 2] = [14, 15];

/// Asserts that the stacks of a trace are those that the program printed, in order.
fn assert_stacks(trace: &Trace, expected: &[(u64, Vec<u64>)]) {
    let found = allocations(trace);
    assert_eq!(found.len(), expected.len());
    for ((size, stack), (expected_size, frames)) in found.iter().zip(expected) {
        assert_eq!(size, expected_size);
        let ours = &stack.native;
        let theirs = &frames[..frames.len().min(MAX_NATIVE_FRAMES)];
        let context = format!("{size} MiB, flags {:x}:\n{ours:x?}\n{theirs:x?}", stack.flags);
        assert_eq!(ours.len(), theirs.len(), "{context}");
        assert!(ours[0].abs_diff(theirs[0]) < 4096, "{context}");
        // Of an interrupted instruction backtrace() gives the address itself.
        let same = ours[1..].iter().zip(&theirs[1..]).all(|(our, their)| our == their || *our == their + 1);
        assert!(same, "{context}");
        let is_cut = frames.len() > MAX_NATIVE_FRAMES;
        assert_eq!(stack.has(stack_flag::NATIVE_CUT), is_cut, "{context}");
        // Where a context of makecontext() begins, there is no call frame information.
        let is_fibers = FIBERS.contains(size);
        assert_eq!(stack.has(stack_flag::NATIVE_WHOLE), !is_cut && !is_fibers, "{context}");
        assert!(!stack.has(stack_flag::NATIVE_GUESSED), "{context}");
    }
}

fn run_stacks() -> Finished {
    run_stacks_by(Client::new(program("stacks.c")))
}

fn run_stacks_by(client: Client) -> Finished {
    let plugins = ["stacks.c", "stacks_other.c"].map(|source| plugin(source, Library::Hip));
    let client = plugins.into_iter().fold(client, Client::arg);
    let run = client.run_recorded();
    assert_eq!(run.exit_code(), 0, "{}", run.stderr);
    run
}

#[test]
fn stacks_of_every_sort_are_those_of_the_c_library() {
    assert_stacks_of_every_sort(&run_stacks());
}

/// As in containers that forbid a process to read memory by the kernel.
#[test]
fn stacks_are_the_same_where_the_kernel_refuses_reads() {
    for refusal in [libc::EPERM, libc::ENOSYS] {
        let client = Client::new(plain_program("without_reads.c")).arg(refusal.to_string());
        assert_stacks_of_every_sort(&run_stacks_by(client.arg(program("stacks.c"))));
    }
}

fn assert_stacks_of_every_sort(run: &Finished) {
    let truth = truth(&run.stdout);
    let traces = run.traces();
    assert_eq!(traces.len(), 2, "parent and child");
    // The child forks after 12 and takes 13, 18 and the fibers' before the parent goes on.
    let fork = truth.iter().position(|(size, _)| *size == 13).expect("the child's");
    let (before, rest) = truth.split_at(fork);
    let (child, after) = rest.split_at(6);
    let parent: Vec<_> = before.iter().chain(after).cloned().collect();
    for trace in &traces {
        let is_child = allocations(trace)[0].0 == 13;
        assert_stacks(trace, if is_child { child } else { &parent });
    }
}

#[test]
fn a_plugin_that_comes_to_the_place_of_another_has_its_own_stacks() {
    let run = run_stacks();
    let places: Vec<_> = run.stdout.lines().filter_map(|line| line.strip_prefix("plugin ")).collect();
    assert_eq!(places.len(), 4);
    assert!(places[0] == places[2] && places[1] == places[3], "the loader chose other places: {places:?}");
}

#[test]
fn stacks_through_cpp_are_whole() {
    let run = Client::new(program("stacks_cpp.cpp")).run_recorded();
    assert_eq!(run.exit_code(), 0, "{}", run.stderr);
    assert_stacks(&run.only_trace(), &truth(&run.stdout));
}

#[test]
fn equal_stacks_are_one_site_and_frees_have_none() {
    let run = run_stacks();
    let parent = run.traces().into_iter().find(|trace| allocations(trace)[0].0 == 1).expect("the parent's");
    let calls = parent.stacked_calls();
    let repeated: Vec<_> = calls.iter().filter(|call| call.record.requested == 2 * MIB).collect();
    assert_eq!(repeated.len(), 3);
    assert!(repeated.iter().all(|call| call.record.site == repeated[0].record.site));
    let frees: Vec<_> = calls.iter().filter(|call| call.record.event() == Some(Event::Free)).collect();
    assert!(frees.len() > 10 && frees.iter().all(|call| call.stack.is_none()));
}

#[test]
fn stacks_can_be_turned_off() {
    for (setting, has_stack) in [("off", false), ("python", false), ("native", true)] {
        let run = Client::new(program("stacks_cpp.cpp")).env("GPUOOM_STACKS", setting).run_recorded();
        let calls = run.only_trace().stacked_calls();
        let taken: Vec<_> = calls.iter().filter(|call| call.record.event() == Some(Event::Alloc)).collect();
        assert_eq!(taken.len(), 8, "{setting}");
        assert!(taken.iter().all(|call| call.stack.is_some() == has_stack), "{setting}");
    }
}

#[test]
fn code_without_frame_information_is_passed_only_by_its_frame_pointer() {
    let run = Client::new(program("stacks_jit.c")).run_recorded();
    assert_eq!(run.exit_code(), 0, "{}", run.stderr);
    let address = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("an address");
    let [through, main] = run.stdout.split(' ').take(2).map(address).collect::<Vec<_>>()[..] else { panic!() };
    let has = |stack: &Stack, function: u64| stack.native.iter().any(|at| (function..function + 256).contains(at));
    let found = allocations(&run.only_trace());
    let [(1, kept), (2, changed), (3, plain)] = &found[..] else { panic!("{found:?}") };
    assert!(kept.has(stack_flag::NATIVE_GUESSED | stack_flag::NATIVE_WHOLE), "{kept:?}");
    assert!(has(kept, through) && has(kept, main), "{kept:x?}");
    assert!(!changed.has(stack_flag::NATIVE_GUESSED) && !changed.has(stack_flag::NATIVE_WHOLE), "{changed:?}");
    assert_eq!(changed.native.len(), 2, "the call, and the code that nobody knows: {changed:x?}");
    assert_eq!(plain.flags & !stack_flag::PYTHON_SEEN, stack_flag::NATIVE_WHOLE);
}

const INFERRED: &str = "inferred from frame pointers";

#[test]
fn what_was_inferred_is_labelled_wherever_a_stack_is_shown() {
    let run = Client::new(program("stacks_jit.c")).run_recorded();
    let trace = run.only_trace();
    let report = trace.report();
    let rows = report.value("/ledger/0/allocated_by/rows").as_array().expect("callers").clone();
    let inferred: Vec<_> = rows.iter().filter(|row| row["stack_is_inferred"] == true).collect();
    // Only the first of the three goes through code that keeps a frame pointer and has no unwind tables.
    assert_eq!((rows.len(), inferred.len()), (3, 1), "{rows:?}");
    assert_eq!(inferred[0]["bytes"], MIB);
    let text = trace.report_text();
    assert!(text.lines().any(|line| line.starts_with("  ~ take")) && text.contains(INFERRED), "{text}");
    let events = String::from_utf8(trace.analyze_anyway(&["events", "--stacks"]).stdout).expect("UTF-8");
    assert_eq!(events.matches(INFERRED).count(), 1, "{events}");

    // The first call fails: there is a failure to tell of.
    let run = Client::new(program("stacks_jit.c")).env("SIM_CAPACITY", "1K").run_recorded();
    let trace = run.only_trace();
    assert_eq!(trace.report().value("/ooms/0/stack_is_inferred"), true);
    let text = trace.report_text();
    assert_eq!(text.matches(INFERRED).count(), 1, "{text}");
    let markdown = String::from_utf8(trace.analyze_anyway(&["report", "--format", "markdown"]).stdout).expect("UTF-8");
    assert_eq!(markdown.matches(INFERRED).count(), 1, "{markdown}");
}
