//! Requests to the kernel's drivers, against a stand-in below the recorder: what it did and what was recorded are the same,
//! in order.

use gpuoom_trace::reader::TraceFile;

use gpuoom_tests::{
    Client, Event, Finished, Library, MIB, SimKernel, TruthLine, assert_kernel_agrees, plain_program, plugin,
    program_with, zoo_source,
};

const ENOMEM: u64 = 12;

fn kfd(source: &str, cards: u32) -> (SimKernel, Client) {
    let kernel = SimKernel::new(cards);
    let client = kernel.client(Client::new(plain_program(source))).env("SIM_CAPACITY", "64M");
    (kernel, client)
}

#[test]
fn kfd_requests_are_recorded_as_they_happened() {
    let (_kernel, client) = kfd("kfd_client.c", 2);
    let run = client.run_both();
    let events = assert_kernel_agrees(&run);
    let flags: Vec<u64> = events
        .iter()
        .filter(|event| event.is_allocation())
        .map(|event| *event.numbers().last().unwrap_or(&0))
        .collect();
    assert!(flags.contains(&(1 | 1 << 27)), "twice the storage in addresses, and the flags say so: {flags:?}");
    let told: Vec<u64> = events.iter().filter_map(|event| event.reading("kfd_available_bytes")).collect();
    assert_eq!(told, [52 * MIB], "what the program was told is a reading");
    let locations: Vec<Vec<u64>> =
        events.iter().filter(|event| event.event() == "map" && !event.failed()).map(Event::numbers).collect();
    assert_eq!(locations, [[2, 2], [0, 0x5A00], [1, 0x5B11], [1, 0]], "two of two cards; then where ranges should lie");
    let failed: Vec<u64> = events.iter().filter(|event| event.failed()).map(Event::status).collect();
    assert_eq!(failed.iter().filter(|status| **status == ENOMEM).count(), 1, "{failed:?}");
    let report = run.only_trace().report();
    assert_eq!(report.count("/ooms"), 1);
    assert_eq!(report.text("/ooms/0/api"), "AMDKFD_IOC_ALLOC_MEMORY_OF_GPU");
}

#[test]
fn the_trace_tells_about_the_machine() {
    let (_kernel, client) = kfd("kfd_client.c", 2);
    let run = client.run_both();
    let trace = TraceFile::open(&run.only_trace().path).expect("a trace");
    let machine = &trace.metadata.machine;
    let text = |path: &str| machine.files.iter().find(|(known, _)| known == path).map(|(_, text)| text.as_str());
    assert_eq!(text("/sys/class/kfd/kfd/topology/nodes/1/properties"), Some("drm_render_minor 128\n"), "{machine:?}");
    let uevent = text("/sys/class/drm/card1/device/uevent");
    assert_eq!(uevent, Some("DRIVER=amdgpu\nPCI_SLOT_NAME=0000:01:00.0\n"), "{machine:?}");
    // What is of the kernel and the process is not below the simulated machine's root.
    assert!(text("/proc/meminfo").is_some_and(|text| text.starts_with("MemTotal:")), "{machine:?}");
    assert!(text("/proc/self/limits").is_some_and(|text| text.contains("Max open files")), "{machine:?}");
    assert!(!machine.cut);
}

#[test]
fn interrupted_requests_are_asked_again_and_recorded_once() {
    for every in ["2", "3"] {
        let (_kernel, client) = kfd("kfd_client.c", 2);
        assert_kernel_agrees(&client.env("SIM_INTERRUPT_EVERY", every).run_both());
    }
}

#[test]
fn malformed_requests_get_the_kernels_answer() {
    let (_kernel, client) = kfd("kfd_malformed.c", 1);
    let run = client.run_both();
    assert_eq!(run.exit_code(), 0);
    let events = assert_kernel_agrees(&run);
    let sizes: Vec<u64> = events.iter().filter(|event| event.is_allocation()).map(Event::requested_bytes).collect();
    assert_eq!(sizes, [2 * MIB, 2 * MIB, MIB]);
    // Looked at in vain, forwarded, and answered: nothing of the looking may be left.
    assert!(run.stdout.contains("write-only: 0, errno 123\n"), "{}", run.stdout);
}

#[test]
fn a_client_without_libraries_is_seen_from_python() {
    let (kernel, _) = kfd("kfd_client.c", 1);
    let client = kernel.client(Client::new("python3").arg(zoo_source("kfd_direct.py"))).env("SIM_CAPACITY", "64M");
    let run = client.run_both();
    assert_eq!(run.stdout, "Cannot allocate memory\ndone\n");
    assert_kernel_agrees(&run);
    run.assert_trace_is_true();
    assert_eq!(run.only_trace().report().number("/devices/0/end/requested_bytes"), 10 * MIB);
}

#[test]
fn cards_are_counted_as_the_program_counts() {
    let (_kernel, client) = kfd("kfd_client.c", 2);
    let run = client.env("ROCR_VISIBLE_DEVICES", "1").run_both();
    let events = run.only_trace().events();
    let devices: Vec<Option<u64>> =
        events.iter().filter(|event| event.is_allocation() && event.kind() == "device").map(Event::device).collect();
    assert_eq!(devices, [None, Some(0), Some(0), None]);
}

#[test]
fn programs_without_such_files_leave_no_trace() {
    let run = Client::new(plain_program("kfd_malformed.c")).run_both();
    assert!(run.traces().is_empty());
}

#[test]
fn amdgpu_buffers_are_recorded_as_they_happened() {
    let (_kernel, client) = kfd("drm_client.c", 2);
    // What does not fit on the card goes there.
    let run = client.env("SIM_GTT", "512M").run_both();
    assert_eq!(run.exit_code(), 0);
    let events = assert_kernel_agrees(&run);
    let sizes: Vec<(String, u64)> = events
        .iter()
        .filter(|event| event.event() == "alloc" && !event.failed())
        .map(|event| (event.kind().to_owned(), event.requested_bytes()))
        .collect();
    let device = |bytes| ("device".to_owned(), bytes);
    let host = ("host-pinned".to_owned(), 7 * MIB + 1);
    assert_eq!(sizes, [device(3 * MIB), device(5 * MIB), host, device(9 * MIB), device(2 * MIB)]);
    let report = run.only_trace().report();
    let ends = [0, 1].map(|device| report.number(&format!("/devices/{device}/end/requested_bytes")));
    assert_eq!(ends, [2 * MIB, 5 * MIB]);
}

#[test]
fn nvidias_objects_are_recorded_with_their_parents() {
    let (_kernel, client) = kfd("nvidia_client.c", 2);
    let run = client.run_both();
    assert_eq!(run.exit_code(), 0);
    let events = assert_kernel_agrees(&run);
    let refused: Vec<&Event> = events.iter().filter(|event| event.status() == 0x51).collect();
    assert_eq!(refused.iter().map(|event| event.requested_bytes()).collect::<Vec<_>>(), [1024 * MIB]);
    let report = run.only_trace().report();
    for device in 0..report.count("/devices") {
        assert_eq!(
            report.number(&format!("/devices/{device}/end/live_allocations")),
            0,
            "{}",
            run.only_trace().report_text()
        );
    }
    assert_eq!(report.number("/host/end/live_allocations"), 0);
    // What a freed object takes along lives below it: the parents are in the trace.
    let freed: Vec<u64> =
        events.iter().filter(|event| event.event() == "free" && !event.failed()).filter_map(Event::address).collect();
    let went_along = run.truth();
    let went_along = went_along.iter().filter(|line| line.event() == "goes along");
    let mut children = 0;
    for line in went_along {
        let made = events.iter().find(|event| event.is_allocation() && event.address() == Some(line.address()));
        let Some(made) = made else { continue };
        let parent = line.address() >> 32 << 32 | made.numbers()[0];
        let client = line.address() >> 32;
        assert!(freed.contains(&parent) || freed.contains(&(client << 32 | client)), "{made:?}");
        children += 1;
    }
    assert!(children >= 5, "{children}");
}

/// The most that the stand-in's card held, and what it held at the end.
fn most_and_last(run: &Finished) -> (u64, u64) {
    let used: Vec<u64> = run.truth().iter().filter(|line| line.card() == 0).map(TruthLine::device_used_bytes).collect();
    (used.iter().copied().max().unwrap_or(0), used.last().copied().unwrap_or(0))
}

#[test]
fn memory_of_nvidia_lives_until_its_last_handle_is_gone() {
    let (_kernel, client) = kfd("nvidia_dup.c", 1);
    let run = client.run_both();
    assert_eq!(run.exit_code(), 0);
    let events = assert_kernel_agrees(&run);
    let sources: Vec<(u64, u64)> = events
        .iter()
        .filter(|event| event.event() == "import" && !event.failed())
        .map(|event| (event.address().unwrap_or(0), event.numbers()[0]))
        .collect();
    let made = |address: u64| events.iter().any(|event| event.address() == Some(address) && event.event() != "free");
    assert_eq!(sources.len(), 4);
    assert!(sources.iter().all(|(handle, source)| handle != source && made(*source)), "{sources:x?}");
    let report = run.only_trace().report();
    let (most, last) = most_and_last(&run);
    assert_eq!(last, 7 * MIB, "the stand-in holds it by its second handle");
    assert_eq!(report.number("/devices/0/end/requested_bytes"), last, "{}", run.only_trace().report_text());
    assert_eq!(report.number("/devices/0/peak/requested_bytes"), most);
    assert_eq!(report.number("/devices/0/end/live_allocations"), 1);
}

#[test]
fn unified_memory_of_nvidia_is_recorded_in_each_layout() {
    const CARD: u64 = 0x0877_6655_4433_2211;
    const HOST: u64 = 0xA27B_D4D7_4E0F_5EA6;
    for version in ["535.54.03", "550.40.07", "580.65.06", "590.44.01"] {
        let kernel = SimKernel::new(1).nvidia_version(version);
        let client = kernel.client(Client::new(plain_program("nvidia_uvm.c"))).env("SIM_GTT", "64M");
        let run = client.run_both();
        assert_eq!(run.exit_code(), 0, "{version}");
        let events = assert_kernel_agrees(&run);
        let block =
            events.iter().find(|event| event.api() == "NV_ESC_RM_ALLOC").and_then(Event::address).expect("memory");
        let of = |api: &str| -> Vec<Vec<u64>> {
            events.iter().filter(|event| event.api() == api && !event.failed()).map(Event::numbers).collect()
        };
        assert_eq!(of("UVM_MAP_EXTERNAL_ALLOCATION"), [[block, 65536], [block, 65536]], "{version}");
        assert_eq!(of("UVM_ALLOC_DEVICE_P2P"), [[block, 0]], "{version}");
        assert_eq!(of("UVM_SET_PREFERRED_LOCATION"), [[0, CARD], [0, HOST]], "{version}");
        assert_eq!(of("UVM_MIGRATE"), [[1, CARD], [1, HOST]], "{version}");
        assert_eq!(of("UVM_MIGRATE_RANGE_GROUP"), [[1, CARD]], "{version}");
        let report = run.only_trace().report();
        assert_eq!(report.number("/devices/0/end/requested_bytes"), 4 * MIB, "a mapping is no memory");
        assert_eq!(report.number("/host/end/live_allocations"), 0);
        assert_eq!((report.count("/ooms"), report.text("/ooms/0/api")), (1, "UVM_ALLOC_SEMAPHORE_POOL"));
    }
}

#[test]
fn without_a_version_nothing_is_read_where_the_layout_is_not_known() {
    let kernel = SimKernel::new(1);
    let run = kernel.client(Client::new(plain_program("nvidia_uvm.c"))).env("SIM_GTT", "64M").run_both();
    let events = run.only_trace().events();
    let count = |api: &str| events.iter().filter(|event| event.api() == api).count();
    assert!(count("UVM_CREATE_EXTERNAL_RANGE") > 0 && count("UVM_MIGRATE") > 0);
    let depends = ["UVM_MAP_EXTERNAL_ALLOCATION", "UVM_FREE", "UVM_ALLOC_SEMAPHORE_POOL", "UVM_SET_PREFERRED_LOCATION"];
    assert_eq!(depends.map(count), [0; 4]);
}

#[test]
fn requests_belong_to_the_call_that_made_them() {
    let (_kernel, client) = kfd("kfd_below_hip.c", 1);
    // Copies, because the loader knows one file under one name only.
    let libraries = tempfile::tempdir().expect("a scratch directory");
    let copy = |name: &str| {
        let path = libraries.path().join(name);
        std::fs::copy(plugin("kfd_below_hip.c", Library::None), &path).expect("a copy of the plugin");
        path
    };
    let run = client.arg(copy("libamdhip64.so.6")).arg(copy("libdrm.so.2")).run_both();
    assert_eq!(run.stdout, "0\n1\n2\n");
    let trace = run.only_trace();
    let events = trace.events();
    let hip: Vec<u64> = events.iter().filter(|event| event.api() == "hipMalloc").map(Event::seq).collect();
    let requests: Vec<(u64, Option<u64>, bool)> = events
        .iter()
        .filter(|event| event.event() == "alloc" && event.api() != "hipMalloc")
        .map(|event| (event.requested_bytes(), event.parent(), event.is_programs_own()))
        .collect();
    let [first, second] = hip[..] else { panic!("two calls of hipMalloc: {events:#?}") };
    let below = |bytes, parent| (bytes, Some(parent), false);
    let expected = [
        (MIB, None, false),
        below(2 * MIB, first),
        below(4096, first),
        (3 * MIB, None, true),
        below(1024 * MIB, second),
        below(4096, second),
    ];
    assert_eq!(requests, expected);
    let report = trace.report();
    assert_eq!(report.count("/ooms"), 1);
    assert_eq!(report.text("/ooms/0/api"), "hipMalloc");
    assert_eq!(report.text("/ooms/0/refused_by"), "kernel");
}

#[test]
fn nvml_is_read_where_the_program_has_it() {
    let libraries = tempfile::tempdir().expect("a scratch directory");
    let nvml = libraries.path().join("libnvidia-ml.so.1");
    std::fs::copy(plugin("nvml_user.c", Library::None), &nvml).expect("a copy of the plugin");
    let client = || Client::new(program_with("nvml_user.c", Library::Cuda)).env("SIM_CAPACITY", "1G");
    let read = |run: &Finished| {
        let events = run.only_trace().events();
        let failure = events.iter().rfind(|event| event.event() == "reading").expect("the readings of the failure");
        ["nvml_total_bytes", "nvml_used_bytes", "nvml_reserved_bytes", "nvml_process_bytes", "nvml_others_bytes"]
            .map(|quantity| failure.reading(quantity).map(|bytes| bytes / MIB))
    };
    // The library lists processes by their numbers in the initial namespace, which not every machine runs tests in.
    let is_initial = std::fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.ends_with("pid:[4026531836]"));
    let run = client().arg(nvml).run_both();
    let listed = |mebibytes| is_initial.then_some(mebibytes);
    assert_eq!(read(&run), [Some(1024), Some(724), Some(24), listed(7), listed(55 + 11)]);
    assert_eq!(read(&client().run_both()), [None; 5]);
}

#[test]
fn threads_that_pass_handles_on_are_kept_in_order() {
    let (_kernel, client) = kfd("kfd_threads.c", 1);
    let run = client.env("SIM_CAPACITY", "1G").run_both();
    run.assert_trace_is_true();
    let report = run.only_trace().report();
    assert_eq!(report.number("/devices/0/end/live_allocations"), 0);
    assert_eq!(report.number("/devices/0/allocations") + report.number("/host/allocations"), 8 * 400);
}

/// Nothing is missing behind the end of the first thread, and a trace that begins only then has its name.
#[test]
fn a_process_whose_first_thread_has_ended_is_recorded_on() {
    for begins_before in [true, false] {
        let (_kernel, client) = kfd("kfd_first_thread_ends.c", 1);
        let client = if begins_before { client.arg("before") } else { client };
        let run = client.run_both();
        let events = assert_kernel_agrees(&run);
        let given = events.iter().filter(|event| event.is_allocation() && !event.failed()).count();
        assert_eq!(given, 5 + usize::from(begins_before), "{events:?}");
        assert_eq!(run.only_trace().report().count("/ooms"), 1);
    }
}
