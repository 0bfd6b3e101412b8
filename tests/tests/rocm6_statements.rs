//! What a page says of runs on ROCm 6.4.3, where an earlier version said what is not so.

use std::ffi::OsString;

use gpuoom_tests::{
    Client, Event, Finished, RocmRelease, assert_kernel_agrees, real_clients_dir, recorder, rocm_on_card,
};

fn on_6_4(name: &str) -> Option<Client> {
    Some(rocm_on_card(RocmRelease::V6_4, name)?.env("GPUOOM_PROBE", "off"))
}

fn opencl() -> Option<Client> {
    Some(on_6_4("opencl_tour")?.env("SIM_CAPACITY", "1G").env("SIM_GTT", "1G"))
}

fn pinned() -> Option<Client> {
    Some(on_6_4("pinned")?.env("SIM_GTT", "1G"))
}

fn has_cause(run: &Finished, id: &str) -> bool {
    run.only_trace().report().diagnoses().iter().any(|found| found.id == id)
}

/// The page's section of that head, up to the next one.
fn section<'a>(page: &'a str, head: &str) -> &'a str {
    let rest = &page[page.find(head).unwrap_or_else(|| panic!("no {head} in\n{page}"))..];
    rest.split("\n\n").next().unwrap_or(rest)
}

/// 6.4.0 did not give virtual memory back, 6.4.2 does, and Debian's 6.4.3 shows it: by the program's own count nothing is
/// lost, and the kernel's free lies inside the release.
#[test]
fn virtual_memory_that_comes_back_shows_no_defect() {
    let Some(client) = on_6_4("vmm") else { return };
    let run = client.arg("full").run_both();
    assert!(run.stdout.starts_with("lost 0\n"), "{}", run.stdout);
    let events = assert_kernel_agrees(&run);
    let releases: Vec<u64> = events.iter().filter(|event| event.api() == "hipMemRelease").map(Event::seq).collect();
    let hsa = |event: &&Event| event.parent().is_some_and(|parent| releases.contains(&parent));
    let inside: Vec<u64> = events.iter().filter(hsa).map(Event::seq).collect();
    let freed = |event: &&Event| event.layer() == "kernel" && event.event() == "free";
    let freed = events.iter().filter(freed).filter(|event| event.parent().is_some_and(|at| inside.contains(&at)));
    assert_eq!((releases.len(), freed.count()), (2, 2));
    assert_eq!(run.only_trace().report().count("/ooms"), 1);
    assert!(!has_cause(&run, "known-bad-version"), "{}", run.only_trace().report_text());
}

/// What is free of the card is no part of a ledger of the host.
#[test]
fn the_hosts_ledger_knows_nothing_of_the_card() {
    let Some(client) = pinned() else { return };
    let run = client.run_both();
    assert_kernel_agrees(&run);
    let page = run.only_trace().report_text();
    let ledger = section(&page, "WHO HOLDS pinned host memory");
    for word in ["sysfs", "unattributed", "% of the card"] {
        assert!(!ledger.contains(word), "{ledger}");
    }
}

/// HIP takes managed memory out of pinned memory there: it is the program's, not the runtime's.
#[test]
fn managed_memory_is_the_programs_in_the_hosts_ledger_too() {
    let Some(client) = on_6_4("managed") else { return };
    let page = client.run_recorded().only_trace().report_text();
    let ledger = section(&page, "WHO HOLDS pinned host memory");
    let row = |start: &str| ledger.lines().find(|line| line.trim_start().starts_with(start));
    assert!(row("program          managed memory, 1 block").is_some_and(|row| row.contains("300.00")), "{ledger}");
    assert!(!ledger.contains("305.00"), "{ledger}");
}

/// The system's numbers of a failure are read before the recorder's probe: what it asks for makes HIP give up what a pool kept.
#[test]
fn what_a_pool_kept_is_there_when_the_failure_is_read() {
    let Some(client) = rocm_on_card(RocmRelease::V6_4, "kept_by_pool") else { return };
    let run = client.run_recorded();
    assert_eq!(run.stdout, "out of memory\nout of memory\n", "the probe changes nothing that the program has");
    assert!(!has_cause(&run, "sysfs-free-overreported"), "{}", run.page());
    let events = run.only_trace().events();
    let read = events.iter().find(|event| event.reading("largest_allocatable_bytes").is_some()).expect("a probe");
    let value = |name: &str| read.reading(name).unwrap_or_default();
    assert_eq!(value("runtime_free_bytes") + value("vram_used_bytes"), 8 << 30);
}

/// The recorder's probe asks HSA and not HIP, which would give up what its pools keep: the kernel's own log has the pool's block to the end.
#[test]
fn the_probe_leaves_what_a_pool_keeps() {
    let Some(client) = rocm_on_card(RocmRelease::V6_4, "kept_by_pool") else { return };
    let run = client.run_recorded();
    let events = run.only_trace().events();
    assert!(events.iter().any(|event| event.reading("largest_allocatable_bytes").is_some()), "it was probed");
    let pools = events.iter().find(|event| event.layer() == "kernel" && event.requested_bytes() >= 6 << 30);
    let pools = pools.expect("the pool's block").address();
    let second =
        events.iter().filter(|event| event.layer() == "runtime" && event.failed()).nth(1).expect("a second refusal");
    let freed = run.truth().iter().position(|line| line.event() == "free" && Some(line.address()) == pools);
    let refused = run.truth().iter().rposition(|line| line.event() == "failed").expect("what the kernel refused");
    assert!(freed.is_none_or(|freed| freed > refused), "{}", second.api());
}

/// What the recorder's probe measured at the first failure, and what HIP reported as free then.
fn probed_at_first_failure(run: &Finished) -> (u64, u64) {
    let events = run.only_trace().events();
    let read = events.iter().find(|event| event.reading("largest_allocatable_bytes").is_some()).expect("a probe");
    let value = |name: &str| read.reading(name).expect("a reading");
    (value("largest_allocatable_bytes"), value("runtime_free_bytes"))
}

/// HIP gives no block above a share of the card, and refuses it without asking HSA, which knows no such limit: the probe asks HIP then. More
/// than that was free, and less than the program had asked for.
#[test]
fn the_most_that_hip_gives_in_one_block_is_measured() {
    for variable in ["GPU_SINGLE_ALLOC_PERCENT", "GPU_MAX_HEAP_SIZE"] {
        let Some(client) = rocm_on_card(RocmRelease::V6_4, "hip_refusals") else { return };
        let run = client.arg("no smaller one").env(variable, "25").run_recorded();
        let (largest, free) = probed_at_first_failure(&run);
        assert!(largest == 2 << 30 && free > 3 << 30, "{variable}: {largest} of {free}");
    }
}

/// More than the whole card HIP refuses by itself as well. No limit of its own is in the way of what is left: it passes on a request that
/// is a little larger, HSA refuses that, and HIP never holds a block, whose free would wait.
#[test]
fn what_is_left_is_measured_where_hip_refuses_more_than_the_card() {
    let Some(client) = rocm_on_card(RocmRelease::V6_4, "hip_refusals") else { return };
    let run = client.arg("no smaller one").env("SIM_CAPACITY", "4608M").run_recorded();
    let (largest, free) = probed_at_first_failure(&run);
    assert_eq!(largest, free >> 21 << 21);
    let truth = run.truth();
    let given = truth.iter().filter(|line| line.event() == "alloc" && line.requested_bytes() >= largest);
    let weights = 8;
    assert_eq!(given.count(), weights + 1, "the probe of HSA alone");
}

#[test]
fn no_training_step_is_seen_where_there_is_no_training() {
    for client in [pinned(), opencl(), on_6_4("vmm").map(|client| client.arg("full"))] {
        let Some(client) = client else { return };
        assert!(!has_cause(&client.run_recorded(), "oom-optimizer-step"));
    }
}

/// OpenCL takes host memory where the card is full, and tells nobody.
#[test]
fn what_opencl_takes_instead_is_a_recovery() {
    let Some(client) = opencl() else { return };
    let report = client.run_recorded().only_trace().report();
    let outcomes: Vec<&str> = (0..3).map(|number| report.text(&format!("/ooms/{number}/outcome"))).collect();
    assert_eq!(outcomes, ["recovered"; 3]);
}

/// The kernel's row says that the compute driver refused host memory, so its limit is more than possible.
#[test]
fn the_drivers_limit_of_host_memory_is_named() {
    let Some(client) = pinned() else { return };
    let report = client.run_recorded().only_trace().report();
    let found = report.diagnoses().into_iter().find(|found| found.id == "kfd-system-memory-limit");
    let sure = found.map(|found| found.confidence);
    assert!(matches!(sure.as_deref(), Some("probable" | "proven")), "{sure:?}");
}

/// OpenCL asks for host memory once the card is full: that this is refused, too, is no story of its own.
#[test]
fn a_full_card_is_named_where_opencl_found_no_host_memory_either() {
    let Some(client) = opencl() else { return };
    let report = client.run_recorded().only_trace().report();
    assert_eq!(report.text("/verdict/cause"), "true-capacity");
    let last = report.count("/ooms") - 1;
    assert_eq!(report.text(&format!("/ooms/{last}/kind")), "device");
    assert_eq!(report.text(&format!("/ooms/{last}/same_call/0/kind")), "host-pinned");
}

/// Without HIP nobody in the process tells a size; the machine's only card has one by sysfs.
#[test]
fn a_card_has_its_size_without_hip() {
    let hsa = on_6_4("hsa_tour").map(|client| client.arg("--once").env("SIM_CAPACITY", "1G"));
    for client in [opencl(), hsa] {
        let Some(client) = client else { return };
        let report = client.run_recorded().only_trace().report();
        assert_eq!(report.number_or_null("/devices/0/total_bytes"), Some(1 << 30));
        assert_eq!(report.text("/devices/0/total_source"), "sysfs");
        assert!(report.text("/devices/0/architecture").starts_with("gfx"));
    }
}

/// A child that was forked after `hipInit`: ROCr refuses, and asks the kernel nothing.
#[test]
fn a_forked_child_is_told_from_a_full_card() {
    let Some(client) = on_6_4("fork_child") else { return };
    let run = client.run_recorded();
    let child = run.traces().into_iter().find(|trace| trace.report().count("/ooms") == 1).expect("the child's trace");
    let page = child.report_text();
    assert!(!(page.contains("how much was free was not measured") && page.contains("by sysfs")), "{page}");
    assert!(child.report().diagnoses().iter().any(|found| found.id.contains("fork")), "{page}");
}

#[test]
fn a_free_of_hsas_is_of_what_was_given() {
    let Some(client) = on_6_4("hsa_tour") else { return };
    let events = client.arg("--once").run_recorded().only_trace().events();
    let frees: Vec<&Event> = events.iter().filter(|event| event.api() == "hsa_amd_memory_pool_free").collect();
    assert!(!frees.is_empty());
    for free in frees {
        let given = events.iter().rfind(|event| {
            event.layer() == "hsa"
                && event.event() == "alloc"
                && event.address() == free.address()
                && event.seq() < free.seq()
        });
        let given = given.unwrap_or_else(|| panic!("nobody gave {free:?}"));
        assert_eq!((free.kind(), free.device()), (given.kind(), given.device()), "{free:?} of {given:?}");
    }
}

/// The thunk passes an address as the card's registers want it: its upper bits.
#[test]
fn scratch_lies_at_an_address() {
    let Some(client) = on_6_4("hsa_tour") else { return };
    let events = client.arg("--once").run_recorded().only_trace().events();
    let scratch = events.iter().find(|event| event.api() == "AMDKFD_IOC_SET_SCRATCH_BACKING_VA").expect("scratch");
    assert!(scratch.address().is_some_and(|address| address > 1 << 32 && address % 0x10000 == 0), "{scratch:?}");
}

/// Whoever answers the requests before the recorder sees them takes a layer away from it.
#[test]
fn a_layer_that_is_lost_is_said() {
    let Some(client) = on_6_4("hip_tour") else { return };
    let mut preload = OsString::from(real_clients_dir().join("rocm6/sim/libsimcard.so").canonicalize().unwrap());
    preload.push(":");
    preload.push(recorder());
    let run = client.args(["--then", "report"]).env("SIM_PRELOAD", preload).run_recorded();
    let trace = run.only_trace();
    assert!(
        trace.events().iter().all(|event| event.layer() != "kernel"),
        "the order was meant to hide the kernel's layer"
    );
    let page = trace.report_text();
    assert!(!page.contains("No sign that an interface was bypassed"), "{page}");
    let said = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("NOT SEEN: the kernel's requests, because ioctl leads to libsimcard.so"), "{page}");
    assert!(!said.contains("BYPASSED"), "whether it kept them or passed them on nobody saw: {page}");
}

/// In the usual order it stands behind the recorder, which sees all requests.
#[test]
fn a_library_behind_the_recorder_takes_nothing_away() {
    let Some(client) = on_6_4("hip_tour") else { return };
    let page = client.args(["--then", "report"]).run_recorded().only_trace().report_text();
    assert!(!page.contains("NOT SEEN: the kernel's requests"), "{page}");
}

/// On a card with room for everything but the code of its kernels, HIP says "no kernel image". The driver refused memory.
#[test]
fn code_that_finds_no_memory_is_a_failure() {
    let model = real_clients_dir().join("llama.gguf").canonicalize();
    let (Some(client), Ok(model)) = (on_6_4("llama_decode"), model) else { return };
    let run = client.arg("--model").arg(model).env("SIM_CAPACITY", "220M").run_recorded();
    assert_eq!(run.truth().iter().filter(|line| line.event() == "failed").count(), 2);
    assert!(run.stderr.contains("no kernel image is available"), "{}", run.stderr);
    let page = run.only_trace().report_text();
    assert!(!page.contains("No allocation failed"), "{page}");
    let report = run.only_trace().report();
    assert_eq!((report.count("/ooms"), report.number("/refused_below/count")), (0, 1));
    let text = |name: &str| report.text(&format!("/refused_below/{name}")).to_owned();
    assert_eq!((text("api"), text("layer")), ("AMDKFD_IOC_ALLOC_MEMORY_OF_GPU".to_owned(), "kernel".to_owned()));
    assert_eq!(text("inside"), "hsa_executable_load_agent_code_object");
    let sentence = report.text("/verdict/sentence");
    assert!(sentence.contains("the kernel's driver refused 608 KiB on GPU 0"), "{sentence}");
    assert!(sentence.contains("What the program made of that is not known."), "{sentence}");
}

/// A card that is full on purpose, memory that OpenCL takes elsewhere, a healthy run: what the program was refused is told as that, and
/// what was made up for is nothing.
#[test]
fn nothing_was_refused_below_where_code_and_queues_found_room() {
    for client in [on_6_4("vmm").map(|client| client.arg("full")), opencl(), pinned(), on_6_4("hip_tour")] {
        let Some(client) = client else { return };
        let run = client.run_recorded();
        let report = run.only_trace().report();
        assert!(report.value("/refused_below").is_null(), "{}", run.only_trace().report_text());
    }
}

/// Other threads' calls wait for the end of the recorder's probe, and not inside the runtime, whose locks it needs: without that six of
/// twelve such runs on 6.4 were refused memory.
#[test]
fn what_the_probe_holds_is_missing_to_nobody() {
    for release in [RocmRelease::V6_4, RocmRelease::V5_7] {
        for _ in 0..6 {
            let Some(client) = rocm_on_card(release, "while_probed") else { return };
            // More than is free, and less than the card: HIP passes it on, so HSA is asked, also where pools are used.
            let client = client.env("SIM_CAPACITY", "20992M");
            let client = if release == RocmRelease::V5_7 { client.arg("pools") } else { client };
            let run = client.run_recorded();
            assert_eq!(run.stdout, "out of memory; refused to others: 0\n", "{release:?}");
            let events = run.only_trace().events();
            assert!(events.iter().any(|event| event.reading("largest_allocatable_bytes").is_some()), "it was probed");
        }
    }
}
