//! 200 runs killed by SIGKILL at random moments while four threads allocate and free: every call that had returned is
//! in the trace, once, in its thread's order.

use std::fs;
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::{Duration, SystemTime};

use gpuoom_tests::{Client, Event, Trace, assert_addresses_alternate, program};

const RUNS: u64 = 200;
const THREADS: usize = 4;
const CALLS: usize = 1 << 16;
const WORDS_PER_CALL: usize = 3;
const WORDS_PER_THREAD: usize = 2 + CALLS * WORDS_PER_CALL;

/// What the client notes of one call after it has returned, and what the trace says of one.
#[derive(Debug, PartialEq)]
enum Call {
    Alloc { address: u64, size: u64 },
    Free { address: u64 },
}

/// A small generator of our own: a failing run can be repeated from its seed alone.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % limit
    }
}

/// GPUOOM_TEST_SEED, or one of the clock's.
fn seed() -> u64 {
    let from_clock = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_nanos() as u64;
    let seed = std::env::var("GPUOOM_TEST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(from_clock);
    // Zero is the one state that the generator never leaves.
    seed.max(1)
}

fn word(bytes: &[u8], index: usize) -> u64 {
    let at = index * 8;
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The notes of each thread that had begun: its kernel number and its calls.
fn read_notes(path: &Path) -> Vec<(u64, Vec<Call>)> {
    let bytes = fs::read(path).unwrap_or_default();
    let mut all = Vec::new();
    for number in 0..THREADS {
        let start = number * WORDS_PER_THREAD;
        if bytes.len() < (start + WORDS_PER_THREAD) * 8 || word(&bytes, start) == 0 {
            continue;
        }
        let count = word(&bytes, start + 1) as usize;
        let calls = (0..count).map(|index| {
            let at = start + 2 + index * WORDS_PER_CALL;
            let (is_free, address, size) = (word(&bytes, at), word(&bytes, at + 1), word(&bytes, at + 2));
            if is_free == 0 { Call::Alloc { address, size } } else { Call::Free { address } }
        });
        all.push((word(&bytes, start), calls.collect()));
    }
    all
}

fn calls_of(events: &[Event], thread: u64) -> Vec<Call> {
    let of_thread = events.iter().filter(|event| event.thread() == thread);
    let calls = of_thread.filter(|event| event.is_allocation() || event.is_free());
    calls
        .map(|event| {
            let address = event.address().expect("both kinds have one");
            if event.is_free() {
                Call::Free { address }
            } else {
                Call::Alloc { address, size: event.requested_bytes() }
            }
        })
        .collect()
}

/// Every noted call is in the trace, in order, and at most the one under way is there beyond them.
fn assert_nothing_missing(events: &[Event], notes: &[(u64, Vec<Call>)]) {
    for (thread, noted) in notes {
        let traced = calls_of(events, *thread);
        let first_difference = noted.iter().zip(&traced).position(|(noted, traced)| noted != traced);
        if let Some(at) = first_difference {
            panic!("call {at} of thread {thread}: {:?} returned, the trace has {:?}", noted[at], traced[at]);
        }
        assert!(
            traced.len() >= noted.len() && traced.len() <= noted.len() + 1,
            "thread {thread}: {} calls returned, {} are in the trace",
            noted.len(),
            traced.len()
        );
    }
}

/// A note says that the threads are at work.
fn wait_until_begun(child: &mut Child, notes: &Path) {
    while read_notes(notes).iter().all(|(_, calls)| calls.is_empty()) {
        let ended = child.try_wait().expect("the client is ours");
        assert!(ended.is_none(), "the client ended by itself: {ended:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// One run; answers how many calls were compared.
fn kill_one(random: &mut Random) -> usize {
    // Most runs pause between calls, so that many moments differ; some go at full speed.
    let pause_us = if random.below(10) == 0 { "0" } else { "20" };
    let client = Client::new(program("killed.c")).arg("notes").arg(pause_us);
    let (mut child, scratch) = client.without_env("SIM_LOG").spawn_recorded();
    let notes_file = scratch.path().join("cwd/notes");
    // A third is killed wherever it is, start-up included; the others when they are at work.
    let (from_begin, limit_us) = if random.below(3) == 0 { (true, 30_000) } else { (false, 8_000) };
    if !from_begin {
        wait_until_begun(&mut child, &notes_file);
    }
    thread::sleep(Duration::from_micros(random.below(limit_us)));
    child.kill().expect("the client is ours");
    child.wait().expect("the killed client");

    let notes = read_notes(&notes_file);
    let traces: Vec<_> = fs::read_dir(scratch.path().join("trace")).expect("the trace directory").collect();
    let noted: usize = notes.iter().map(|(_, calls)| calls.len()).sum();
    let Some(entry) = traces.into_iter().next() else {
        assert_eq!(noted, 0, "calls had returned, and there is no trace");
        return 0;
    };
    let trace = Trace::new(entry.expect("a trace").path());
    if noted == 0 {
        // Killed while the file was being made: there may be nothing in it yet, and the analyzer has to say so.
        let code = trace.analyze_anyway(&["report", "--format", "json"]).status.code();
        assert!(matches!(code, Some(0 | 3)), "the analyzer died of it: {code:?}");
        return 0;
    }
    let events = trace.events();
    assert_addresses_alternate(&events);
    assert_nothing_missing(&events, &notes);
    let report = trace.report();
    assert_eq!((report.text("/process/end"), report.flag("/trace/clean_close")), ("unknown", false));
    assert_eq!(report.number("/trace/events_lost"), 0);
    noted
}

#[test]
fn every_call_that_had_returned_is_in_the_trace() {
    let seed = seed();
    eprintln!("GPUOOM_TEST_SEED={seed}");
    let mut random = Random(seed);
    let compared: usize = (0..RUNS).map(|_| kill_one(&mut random)).sum();
    eprintln!("{compared} calls compared in {RUNS} runs");
    assert!(compared > RUNS as usize, "only {compared} calls in {RUNS} runs: nothing was at work when it was killed");
}
