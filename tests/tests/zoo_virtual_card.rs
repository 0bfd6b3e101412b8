//! The virtual card (`GPUOOM_CAPACITY`): a program on a large simulated card with a smaller virtual one is told, byte for
//! byte, what it is told on a simulated card that really is so small.

use gpuoom_tests::{Client, Finished, Library, program_with};

const REFUSED: i32 = 3;

/// A card of the same granule, of that size.
fn on_card(client: Client, capacity: &str) -> Client {
    client.env("SIM_CAPACITY", capacity).env("SIM_GRANULARITY", "2M").env("GPUOOM_PROBE", "off")
}

/// The same walk on a small card and on a virtual one; answers the second run.
fn walk(source: &str, library: Library, settings: &[(&str, &str)], seed: &str) -> Finished {
    let client = || {
        let client = Client::new(program_with(source, library)).env("WALK_SEED", seed);
        settings.iter().fold(client, |client, (name, value)| client.env(name, *value))
    };
    let small = on_card(client(), "1G").run_plain();
    assert_eq!(small.exit_code(), REFUSED, "the walk must meet the end of the card: {}", small.stderr);
    // The virtual card finds the granularity out by itself.
    let large = on_card(client(), "16G").env("GPUOOM_CAPACITY", "1G").run_recorded();
    for (line, (on_virtual, on_small)) in large.stdout.lines().zip(small.stdout.lines()).enumerate() {
        assert_eq!(on_virtual, on_small, "{source}, seed {seed}, line {line}; {}", large.stderr);
    }
    assert_eq!((&large.stdout, large.status), (&small.stdout, small.status), "{}", large.stderr);
    let reached = large.truth().iter().filter(|line| line.event() == "failed" && line.status() == 2).count();
    assert_eq!(reached, 0, "a request that the virtual card refused reached the device");
    large.assert_trace_is_true();
    large
}

/// What the report says of the failures: all are ours.
fn assert_all_injected(run: &Finished) {
    let report = run.only_trace().report();
    let refused = run.stdout.lines().filter(|line| line.contains(" take ") && !line.contains(": 0 ")).count();
    assert_eq!(report.count("/ooms"), refused);
    for oom in 0..refused {
        assert_eq!(report.text(&format!("/ooms/{oom}/refused_by")), "injected");
        assert!(report.number_or_null(&format!("/ooms/{oom}/largest_allocatable_bytes")).is_none(), "not probed");
    }
}

/// Refusals are part of the recording: where it can't begin, whoever waits for them must be told.
#[test]
fn without_a_trace_nothing_is_refused_and_that_is_said() {
    let both = [("GPUOOM_CAPACITY", "1M"), ("GPUOOM_INJECT", "oom@1")];
    for (settings, said) in [
        (&both[..], "nothing is recorded, and GPUOOM_CAPACITY and GPUOOM_INJECT do not apply;"),
        (&both[..1], "nothing is recorded, and GPUOOM_CAPACITY does not apply;"),
        (&both[1..], "nothing is recorded, and GPUOOM_INJECT does not apply;"),
        (&[], "nothing is recorded;"),
    ] {
        let client = Client::new(program_with("linked.c", Library::Hip)).env("GPUOOM_TRACE", "/dev/null/run.bin");
        let run = settings.iter().fold(client, |client, (name, value)| client.env(name, *value)).run_recorded();
        assert!(run.recorder_lines().iter().any(|line| line.contains(said)), "{}", run.stderr);
        assert_eq!(run.exit_code(), 0, "{}", run.stderr);
    }
}

#[test]
fn hip_up_to_rocm_6() {
    for seed in ["1", "2"] {
        assert_all_injected(&walk("card_walk_hip.c", Library::Hip, &[], seed));
    }
}

#[test]
fn hip_since_rocm_7() {
    let settings = [("SIM_LAST_ERROR", "rocm7"), ("SIM_HIP_VERSION", "70051831")];
    for seed in ["3", "4"] {
        assert_all_injected(&walk("card_walk_hip.c", Library::Hip, &settings, seed));
    }
}

#[test]
fn cuda_runtime() {
    for (library, seed) in [(Library::Cuda, "7"), (Library::CudaOverDriver, "8"), (Library::CudaStatic, "9")] {
        assert_all_injected(&walk("card_walk_cuda.c", library, &[], seed));
    }
}

#[test]
fn cuda_driver() {
    for seed in ["10", "11"] {
        assert_all_injected(&walk("card_walk_driver.c", Library::CudaDriver, &[], seed));
    }
}

#[test]
fn hsa() {
    for seed in ["12", "13"] {
        assert_all_injected(&walk("card_walk_hsa.c", Library::Hsa, &[], seed));
    }
}

/// Memory counts on the device of the pool that gives it, and a reset empties one device.
#[test]
fn each_device_has_a_card_of_its_own() {
    let two = [("SIM_DEVICES", "2")];
    assert_all_injected(&walk("card_walk_hip.c", Library::Hip, &two, "30"));
    for (library, seed) in [(Library::Cuda, "31"), (Library::CudaOverDriver, "32")] {
        assert_all_injected(&walk("card_walk_cuda.c", library, &two, seed));
    }
    assert_all_injected(&walk("card_walk_driver.c", Library::CudaDriver, &two, "33"));
}

/// The runtime's primary context, references to it, one of the program's own, and resets in each.
#[test]
fn memory_goes_with_its_context() {
    walk("card_contexts.c", Library::CudaAndDriver, &[], "1");
}

#[test]
fn threads_never_hold_more_than_the_card_and_a_child_has_its_own() {
    let client = Client::new(program_with("card_threads.c", Library::Hip)).env("GPUOOM_PROBE", "off");
    let run = client.env("GPUOOM_CAPACITY", "24M").env("GPUOOM_GRANULARITY", "2M").run_recorded();
    let free = 24 << 20;
    assert_eq!(
        run.stdout.lines().collect::<Vec<_>>(),
        [format!("never more than there is, free {free} of {free}"), format!("child: 12, free 0 of {free}")],
        "{}",
        run.stderr
    );
    assert_eq!(run.exit_code(), 0);
}

/// 60 blocks of 20 MiB are 1.2 GiB: they fit a card of 4 GiB, whatever the record's model pads them to.
#[test]
fn blocks_count_as_on_the_real_card_unless_a_granule_is_set() {
    let list = || on_card(Client::new(program_with("alloc_list.c", Library::Hip)), "16G").arg("60x20971520");
    let run = list().env("GPUOOM_CAPACITY", "4G").run_recorded();
    assert_eq!((run.exit_code(), run.stdout.as_str()), (0, "60 held\n"), "{}", run.stderr);
    let report = run.only_trace().report();
    assert_eq!(report.number("/devices/0/peak/padded_bytes"), 60 * (256 << 20), "the record's model is another matter");
    let fewer = list().env("GPUOOM_CAPACITY", "1.15G").run_recorded();
    assert_eq!(refused_with(&fewer), (58, 2 << 20), "of 1177.6 MiB");
    let padded = list().env("GPUOOM_CAPACITY", "4G").env("GPUOOM_GRANULARITY", "256M").run_recorded();
    assert_eq!(refused_with(&padded), (16, 256 << 20));
}

/// Small blocks of a card that packs them: the granularity that its addresses show counts.
#[test]
fn a_smaller_granularity_is_seen() {
    let list = on_card(Client::new(program_with("alloc_list.c", Library::Hip)), "16G").arg("1000x65536");
    let run = list.env("SIM_GRANULARITY", "64K").env("GPUOOM_CAPACITY", "32M").run_recorded();
    // The first block counts as 2 MiB: of one address nothing can be told.
    assert_eq!(refused_with(&run), (1 + (30 << 20) / (64 << 10), 64 << 10));
}

/// How many blocks were had before the virtual card refused one, and what it rounded to by the trace, in JSON and in words.
fn refused_with(run: &Finished) -> (u64, u64) {
    let trace = run.only_trace();
    let report = trace.report();
    let granularity = report.number("/ooms/0/injected/granularity_bytes");
    let words = match granularity >> 20 {
        0 => format!("each counted in whole granules of {} KiB", granularity >> 10),
        mib => format!("each counted in whole granules of {mib} MiB"),
    };
    let text = trace.report_text().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(&words), "{text}");
    (report.number("/devices/0/allocations"), granularity)
}

/// The first call that a run on a smaller card would refuse, by `whatif` on a run with enough memory, is the first that the
/// virtual card refuses: two programs that know nothing of each other, one question.
#[test]
fn whatif_and_the_virtual_card_agree() {
    for (capacity, seed) in [("1G", "20"), ("700M", "21"), ("1500M", "22")] {
        let client =
            || on_card(Client::new(program_with("card_walk_hip.c", Library::Hip)), "16G").env("WALK_SEED", seed);
        let client = || client().env("GPUOOM_GRANULARITY", "2M");
        let (enough, smaller) = (client().run_recorded(), client().env("GPUOOM_CAPACITY", capacity).run_recorded());
        let enough_trace = enough.only_trace();
        // The virtual card has no room for the runtime; and a reading in the middle of so fast a walk is of another moment.
        let predicted = enough_trace.whatif(&["--capacity", capacity, "--granularity", "2M", "--overhead", "0"]);
        let smaller = smaller.only_trace().events();
        let refused = smaller.iter().find(|event| event.is_injected()).expect("the walk meets the end of the card");
        let calls_before = |events: &[gpuoom_tests::Event], at: u64| {
            events
                .iter()
                .filter(|event| event.event() == "alloc" && event.is_programs_own() && event.at_ns() < at)
                .count()
        };
        // Beside it may stand the recorded card, and each card again with the granule that the addresses show.
        let is_meant = |card: &usize| {
            let of = |field: &str| predicted.number(&format!("/devices/0/cards/{card}/{field}"));
            of("capacity_bytes") < 16 << 30 && of("granularity/bytes") == 2 << 20
        };
        let card = (0..predicted.count("/devices/0/cards")).find(is_meant).expect("the card that was asked for");
        let change = format!("/devices/0/cards/{card}/first_change");
        let at_ns = predicted.number(&format!("{change}/at_ns"));
        assert_eq!(predicted.text(&format!("{change}/api")), refused.api(), "{capacity}");
        // Of a pitched block that was refused nobody knows the pitch: the width that was asked for counts.
        let wider = predicted.number(&format!("{change}/requested_bytes")).checked_sub(refused.requested_bytes());
        assert!(wider.is_some_and(|bytes| bytes < 64 << 10), "{capacity}: {wider:?}");
        assert_eq!(calls_before(&enough_trace.events(), at_ns), calls_before(&smaller, refused.at_ns()), "{capacity}");
    }
}

#[test]
fn the_report_names_the_virtual_card_and_no_cause_in_the_machine() {
    let client = on_card(Client::new(program_with("card_walk_hip.c", Library::Hip)), "16G").env("WALK_SEED", "1");
    let run = client.env("GPUOOM_CAPACITY", "1G").env("GPUOOM_GRANULARITY", "2M").run_recorded();
    let trace = run.only_trace();
    let text = trace.report_text().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("refused by gpuoom itself (GPUOOM_CAPACITY=1G)"), "{text}");
    assert!(text.contains("Failures on request: GPUOOM_CAPACITY=1G"), "{text}");
    let report = trace.report();
    let causes = report.causes();
    // Each call that the virtual card refused has its own.
    assert!(
        !causes.is_empty() && causes.iter().all(|cause| *cause == "requested-refusal"),
        "not the machine: {causes:?}"
    );
    assert_eq!(report.text("/ooms/0/injected/reason"), "capacity");
    assert_eq!(report.text("/ooms/0/injected/setting"), "GPUOOM_CAPACITY=1G");
}

#[test]
fn bad_values_are_named_and_nothing_is_refused() {
    let client = Client::new(program_with("alloc_numbered.c", Library::Hip)).env("GPUOOM_INJECT", "oom@0");
    let run = client.env("GPUOOM_CAPACITY", "much").env("GPUOOM_SEED", "x").run_recorded();
    let lines = run.recorder_lines();
    for name in ["GPUOOM_INJECT=oom@0", "GPUOOM_CAPACITY=much", "GPUOOM_SEED=x"] {
        assert_eq!(lines.iter().filter(|line| line.contains(name)).count(), 1, "{lines:?}");
    }
    assert_eq!(run.stdout, "\n");
}
