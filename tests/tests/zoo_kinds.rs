//! Every kind of memory, several devices, and a whole load.

use gpuoom_tests::{Client, Event, Library, MIB, program, program_with};

#[test]
fn every_kind_of_memory_is_recorded_once() {
    let run = Client::new(program("tour.c")).run_both();
    assert!(run.stdout.starts_with("0 of "), "{}", run.stdout);
    run.assert_trace_is_true();
    let trace = run.only_trace();
    let events = trace.events();
    for kind in ["device", "managed", "array", "host-pinned", "registered", "physical"] {
        assert!(events.iter().any(|event| event.is_allocation() && event.kind() == kind), "no {kind} in {events:#?}");
    }
    assert!(events.iter().any(|event| event.event() == "map"));
    assert!(events.iter().any(|event| event.event() == "unmap"));
    let pitched: Vec<_> =
        events.iter().filter(|event| event.api() == "hipMallocPitch" && event.is_allocation()).collect();
    assert_eq!(pitched.iter().map(|event| event.requested_bytes()).collect::<Vec<_>>(), [1024 * 333]);
    let report = trace.report();
    report.assert_exited(0);
    // managed, 3 pitched, 2 arrays, 3 stream-ordered, 1 physical; the address range is none.
    assert_eq!(report.number("/devices/0/allocations"), 10);
    assert_eq!(report.number("/devices/0/end/live_allocations"), 0);
    assert_eq!(report.number("/devices/0/end/requested_bytes"), 0);
    assert_eq!((report.number("/host/allocations"), report.number("/host/frees")), (2, 2));
}

#[test]
fn what_is_no_memory_is_named_and_not_counted() {
    let run = Client::new(program("tour.c")).run_recorded();
    let trace = run.only_trace();
    let events = trace.events();
    let calls = |api: &str| -> Vec<&Event> { events.iter().filter(|event| event.api() == api).collect() };
    let shown = |api: &str| -> Vec<_> {
        let row = |event: &&Event| (event.event().to_owned(), event.kind().to_owned(), event.device());
        calls(api).iter().map(|event| (row(event), event.requested_bytes())).collect()
    };
    let expected = |event: &str, kind: &str, device, bytes| ((event.to_owned(), kind.to_owned(), device), bytes);
    assert_eq!(shown("hipMemAdvise"), [expected("map", "managed", Some(0), 9 * MIB)]);
    let (there, back) = (expected("map", "managed", Some(0), 8 * MIB), expected("map", "managed", None, 8 * MIB));
    assert_eq!(shown("hipMemPrefetchAsync"), [there, back], "to the device, and back to the host");
    let node = expected("reserve", "pool", Some(0), 13 * MIB);
    assert_eq!(shown("hipGraphAddMemAllocNode"), [node.clone(), node]);
    assert_eq!(shown("hipGraphicsResourceGetMappedPointer"), [expected("map", "imported", Some(0), 4096)]);
    let nodes = calls("hipGraphAddMemAllocNode");
    let frees = [calls("hipGraphAddMemFreeNode")[0], calls("hipDrvGraphAddMemFreeNode")[0]];
    assert_eq!(frees.map(Event::address), [nodes[0].address(), nodes[1].address()]);
    let resource = calls("hipGraphicsMapResources")[0].address();
    assert!(resource.is_some() && calls("hipGraphicsUnmapResources")[0].address() == resource);
    assert_eq!(calls("hipDeviceSetLimit")[0].event(), "module");
    let report = trace.report();
    assert_eq!((report.number("/unmatched_frees"), report.number("/failed_frees")), (0, 0));
    assert_eq!(report.number("/devices/0/peak/requested_bytes"), 23 * MIB, "two blocks of stream-ordered memory");
    assert_eq!(report.number("/graph_node_bytes"), 2 * 13 * MIB);
    let text: Vec<String> = trace.report_text().split_whitespace().map(str::to_owned).collect();
    assert!(text.join(" ").contains("were added to graphs; they are not counted"), "{text:?}");
}

#[test]
fn a_handle_asked_for_by_address_holds_the_memory() {
    let run = Client::new(program("vmm_retained.c")).run_both();
    assert_eq!(run.stdout, format!("retained {0}\nmapped {0}\nneither 0\n", 64 * MIB));
    let report = run.only_trace().report();
    assert_eq!(report.number("/devices/0/end/live_allocations"), 0);
    assert_eq!((report.number("/devices/0/allocations"), report.number("/unmatched_frees")), (1, 0));
}

#[test]
fn mapped_memory_outlives_its_handle() {
    let run = Client::new(program("vmm_outlives_handle.c")).run_both();
    assert_eq!(run.stdout, format!("{} in use\n", 32 * MIB));
    run.assert_trace_is_true();
    let report = run.only_trace().report();
    assert_eq!(report.number("/devices/0/allocations"), 2);
    assert_eq!(report.number("/devices/0/peak/requested_bytes"), 96 * MIB, "32 GiB of addresses count as nothing");
    assert_eq!(report.number("/devices/0/end/live_allocations"), 1);
    assert_eq!(report.number("/devices/0/end/requested_bytes"), 32 * MIB);
}

#[test]
fn devices_are_counted_apart() {
    let client = Client::new(program("multi_device.c"))
        .env("SIM_DEVICES", "3")
        .env("SIM_CAPACITY", "1G")
        .env("GPUOOM_PROBE", "off");
    let run = client.run_both();
    run.assert_trace_is_true();
    let report = run.only_trace().report();
    let counts: Vec<_> = (0..report.count("/devices"))
        .map(|device| {
            let number = |field: &str| report.number(&format!("/devices/{device}/{field}"));
            (number("index"), number("allocations"), number("failures"), number("peak/requested_bytes"))
        })
        .collect();
    assert_eq!(counts, [(0, 2, 0, 30 * MIB), (1, 3, 1, 900 * MIB), (2, 1, 0, 50 * MIB)]);
    report.assert_only_oom("propagated", "status_checked");
    assert_eq!(report.number("/ooms/0/device"), 1);
    let events = run.only_trace().events();
    let on_two = events.iter().filter(|event| event.is_allocation() && event.device() == Some(2));
    let on_two: Vec<_> = on_two.map(Event::requested_bytes).collect();
    assert_eq!(on_two, [50 * MIB]);
}

#[test]
fn contexts_of_hip_choose_the_device() {
    let run = Client::new(program("hip_contexts.c")).env("SIM_DEVICES", "3").run_both();
    run.assert_trace_is_true();
    let report = run.only_trace().report();
    let held = |device: usize| report.number(&format!("/devices/{device}/end/requested_bytes"));
    assert_eq!(
        [held(0), held(1), held(2)],
        [110 * MIB, 50 * MIB, 50 * MIB],
        "the reset of a primary context takes nothing"
    );
}

#[test]
fn memory_nodes_are_named_whichever_function_adds_them() {
    for (source, library) in [
        ("graph_nodes.c", Library::Hip),
        ("cuda_graph_nodes.c", Library::CudaOverDriver),
        ("cuda_graph_nodes12.c", Library::Cuda),
    ] {
        let run = Client::new(program_with(source, library)).run_both();
        assert_eq!(run.exit_code(), 0, "{source}: {}", run.stderr);
        let said = run.stdout.strip_prefix("an address: 1\nno parameters: 1\n").expect(source);
        let trace = run.only_trace();
        let nodes = trace.events().iter().filter(|event| event.api().ends_with("GraphAddNode")).count();
        assert_eq!(nodes, 1, "{source}: nodes that take no memory are no events");
        let report = trace.report();
        assert_eq!(report.number("/graph_node_bytes"), 18 * MIB, "{source}");
        assert_eq!((report.number("/devices/0/allocations"), report.number("/unmatched_frees")), (1, 0), "{source}");
        // A graph that ran: what the program has read of its memory.
        if let Some(reserved) = said.strip_prefix("reserved ") {
            assert_eq!(report.number("/graph_reserved_bytes").to_string(), reserved.trim());
            assert!(report.number("/graph_reserved_bytes") >= 5 * MIB, "{said}");
            assert!(trace.report_text().contains("were reserved for them"));
        }
    }
}

#[test]
fn device_reset_takes_the_memory_away() {
    let run = Client::new(program("device_reset.c")).run_both();
    let report = run.only_trace().report();
    assert_eq!(report.number("/devices/0/allocations"), 5);
    assert_eq!(report.number("/devices/0/peak/requested_bytes"), 130 * MIB);
    assert_eq!(report.number("/devices/0/end/live_allocations"), 1);
    assert_eq!(report.number("/devices/0/end/requested_bytes"), 25 * MIB);
}

#[test]
fn bad_frees_take_nothing_away() {
    let run = Client::new(program("bad_frees.c")).run_both();
    assert_eq!(run.stdout, "null: 0\nonce: 0\ntwice: 1\nstack: 1\ninside: 1\nhost: 1\n");
    let report = run.only_trace().report();
    assert_eq!(report.number("/devices/0/allocations"), 2);
    assert_eq!(report.number("/devices/0/peak/requested_bytes"), 59 * MIB);
    assert_eq!(report.number("/devices/0/end/live_allocations"), 1);
    assert_eq!(report.number("/devices/0/end/requested_bytes"), 29 * MIB);
}

#[test]
fn llama_like_load_runs_into_the_wall_and_says_so() {
    let client = Client::new(program("../demo/llama_like.c"))
        .args(["--layers", "8"])
        .env("SIM_CAPACITY", "2G")
        .env("SIM_COPY_BYTES", "4K")
        .env("GPUOOM_PROBE", "off");
    let run = client.run_both();
    assert_eq!(run.exit_code(), 1);
    assert!(run.program_stderr().contains("KV cache on device 0: out of memory"), "{}", run.stderr);
    run.assert_trace_is_true();
    let report = run.only_trace().report();
    report.assert_exited(1);
    report.assert_only_oom("propagated", "error_reported");
    let failed = run.truth().into_iter().find(|line| line.event() == "failed").expect("the refusal");
    assert_eq!(report.number("/ooms/0/requested_bytes"), failed.requested_bytes());
    assert_eq!(report.text("/ooms/0/api"), failed.api());
}

/// What the README shows: a KV cache that grows with the context until the card is full is no leak.
#[test]
fn a_cache_that_fills_the_card_is_not_called_a_leak() {
    let client = Client::new(program("../demo/llama_like.c")).args(["--ctx", "8192"]);
    let report = client.env("SIM_CAPACITY", "8G").env("SIM_COPY_BYTES", "64K").run_recorded().only_trace().report();
    assert_eq!(report.causes(), ["true-capacity"]);
    let leak = report.diagnoses().into_iter().find(|found| found.id == "live-leak");
    assert!(leak.is_none_or(|leak| leak.confidence == "possible"));
}

#[test]
fn llama_like_load_that_fits_leaves_nothing_behind() {
    let client = Client::new(program("../demo/llama_like.c"))
        .args(["--layers", "4", "--ctx", "2048", "--tokens", "1500", "--loop", "3"])
        .env("SIM_COPY_BYTES", "4K");
    let run = client.run_both();
    assert_eq!(run.exit_code(), 0);
    run.assert_trace_is_true();
    let report = run.only_trace().report();
    report.assert_exited(0);
    assert_eq!(report.count("/ooms"), 0);
    assert_eq!(report.number("/devices/0/end/live_allocations"), 0);
    assert_eq!(report.number("/devices/0/allocations"), report.number("/devices/0/frees"));
}

#[test]
fn physical_memory_of_the_host_is_not_counted_on_the_card() {
    for unmaps in [false, true] {
        let client = Client::new(program("physical_on_host.c")).env("SIM_CAPACITY", "2G").env("GPUOOM_PROBE", "off");
        let run = if unmaps { client.arg("unmap") } else { client }.run_both();
        run.assert_trace_is_true();
        let report = run.only_trace().report();
        // Address ranges are of no device; nothing else is.
        let elsewhere = (1..report.count("/devices")).map(|index| format!("/devices/{index}/peak/requested_bytes"));
        assert_eq!(
            elsewhere.map(|path| report.number(&path)).sum::<u64>(),
            0,
            "memory of the host is of no unknown device"
        );
        assert_eq!(report.number("/devices/0/end/requested_bytes"), 512 * MIB);
        assert_eq!(report.number("/host/peak/requested_bytes"), 4 * 1024 * MIB);
        assert_eq!(report.number("/host/end/requested_bytes"), (if unmaps { 3 } else { 4 }) * 1024 * MIB);
    }
}

/// A pool may be of host memory, or of managed memory: neither fills the card.
#[test]
fn what_pools_take_elsewhere_is_not_counted_on_the_card() {
    let run = Client::new(program("pools_elsewhere.c")).env("SIM_CAPACITY", "2G").env("GPUOOM_PROBE", "off").run_both();
    run.assert_trace_is_true();
    let report = run.only_trace().report();
    let (asked, managed) = (report.number("/devices/0/peak/requested_bytes"), 5 * 512 * MIB);
    assert_eq!((asked, report.number("/devices/0/peak/managed_bytes")), (managed + 64 * MIB, managed));
    assert_eq!(report.number("/host/peak/requested_bytes"), 4 * 768 * MIB);
    let page = run.page();
    assert!(page.contains("own blocks held 64 MiB of 2.00 GiB, beside 2.50 GiB that may lie in RAM"), "{page}");
}
