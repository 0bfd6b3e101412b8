//! What the report prints as a fix follows what runs: versions, drivers, options that are set.

use gpuoom_trace::metadata::Quantity::{RuntimeFree, RuntimeTotal};
use gpuoom_trace::payload::PythonFrame;
use gpuoom_trace::record::{Event, Kind};

use super::capacity::full_after_a_rise;
use super::machines::{AmdMachine, CARD, HALF, STRIX_HALO};
use super::scenes::{at_failure, full, set, torch, with_log};
use crate::testing::{GIB, MIB, THREAD, TraceBuilder, gib, summary};

/// The commands of a diagnosis, each with the condition that is told.
fn commands(trace: &TraceBuilder, id: &str) -> Vec<(String, String)> {
    let summary = summary(trace);
    let found = summary.conclusion.findings.iter().find(|finding| finding.id == id);
    let found = found.unwrap_or_else(|| panic!("{id}: {:?}", summary.conclusion.findings));
    let fixes = found.fix.iter().filter(|fix| !fix.command.is_empty());
    fixes.map(|fix| (fix.command.clone(), fix.only_if.clone())).collect()
}

/// PyTorch's cache is in pieces: 3.97 GiB in tensors, 9.27 unused (ROCm/TheRock#2844).
fn fragmented(torch_version: &str, hip: i32) -> TraceBuilder {
    let total = gib(15.92);
    let mut trace = torch(TraceBuilder::default().device(0, "card", total).runtime_version(hip));
    let file = "/usr/lib/python3/torch/version.py".to_owned();
    trace.machine.push((file, format!("__version__ = '{torch_version}'\n")));
    (0..26).for_each(|segment| _ = trace.alloc(0x10_0000_0000 + segment * GIB, 500 * MIB));
    let seq = trace.refuse(gib(8.54));
    full(&mut trace, seq, total, 13 * GIB, 0);
    let log = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 8.54 GiB. GPU 0 has a total capacity of 15.92 GiB of \
        which 0 bytes is free. Of the allocated memory 3.97 GiB is allocated by PyTorch, and 9.27 GiB is reserved by PyTorch but \
        unallocated.";
    with_log(trace, log).trace
}

fn allocator_commands(trace: &TraceBuilder) -> Vec<String> {
    let all = commands(trace, "caching-fragmentation").into_iter().map(|(command, _)| command);
    all.filter(|command| command.contains("ALLOC_CONF")).collect()
}

#[test]
fn options_of_the_allocator_are_spelled_by_version_and_only_where_they_work() {
    let (old, new) = (fragmented("2.11.0+rocm7.0", 70_051_831), fragmented("2.13.0+rocm7.0", 70_051_831));
    assert_eq!(allocator_commands(&old), ["PYTORCH_HIP_ALLOC_CONF=max_split_size_mb:N"]);
    assert_eq!(allocator_commands(&new), ["PYTORCH_ALLOC_CONF=expandable_segments:True"]);
    // Another allocator does the work: native options are not looked at.
    let with = |mut trace: TraceBuilder, name: &str, value: &str| {
        set(&mut trace, name, value);
        allocator_commands(&trace)
    };
    assert_eq!(with(old, "PYTORCH_HIP_ALLOC_CONF", "backend:hipMallocAsync"), [""; 0]);
    // What is set already is no advice.
    assert_eq!(with(new.clone(), "PYTORCH_ALLOC_CONF", "expandable_segments:True"), [""; 0]);
    assert_eq!(with(new, "PYTORCH_ALLOC_CONF", "expandable_segments:False").len(), 1);
}

/// 44 tensors with 24 MiB between them, 1.03 GiB in all, and 1.25 GiB free when more was asked for; the last `kept` tensors came one by one,
/// each in a step of its own.
fn tensors_with_pieces_between(asked_bytes: u64, kept: u64) -> TraceBuilder {
    let (total, tensors, segment) = (24 * GIB, 44, 0x7f00_0000_0000);
    let mut trace = torch(TraceBuilder::default().device(0, "card", total).runtime_version(70_051_831));
    let file = "/usr/lib/python3/torch/version.py".to_owned();
    trace.machine.push((file, "__version__ = '2.13.0+rocm7.0'\n".to_owned()));
    trace.segment(segment, tensors * 512 * MIB);
    for number in 0..tensors {
        if number + kept >= tensors {
            let mark = trace.record(Event::Mark, Kind::None, "gpuoom_mark");
            trace.with_text(mark, &format!("step {number}"));
        }
        trace.tensor(0, segment + number * 512 * MIB, 488 * MIB);
    }
    for _ in 0..2 {
        let seq = trace.refuse(asked_bytes);
        full(&mut trace, seq, total, total - 5 * GIB / 4, 5 * GIB / 4);
        trace.after(Event::ErrorQuery, "hipGetLastError", 0, 0);
    }
    trace.framework_error(THREAD, asked_bytes, [tensors * 488 * MIB, tensors * 512 * MIB]);
    trace.throws(THREAD, 0x5555_0000_1000, None);
    trace
}

/// Fewer pieces help where that is room for more than the next moment.
#[test]
fn fewer_pieces_are_advised_only_where_the_program_would_go_on() {
    let is_advised = |asked_bytes, kept| {
        let advice = commands(&tensors_with_pieces_between(asked_bytes, kept), "true-capacity");
        advice.iter().any(|(command, _)| command.contains("expandable_segments:True"))
    };
    let room = 44 * 24 * MIB + 5 * GIB / 4;
    assert!(is_advised(3 * GIB / 2, 0));
    // Segments that grow take whole pages of 20 MiB, of which the last lies open.
    assert!(is_advised(room - 20 * MIB, 0));
    assert!(!is_advised(room - 4 * MIB, 0));
    // Four more of what each step keeps would fill it.
    assert!(!is_advised(3 * GIB / 2, 30));
}

/// Every step of advice for a full card of this program, with its condition; `files`: what the way to its failure leads through.
fn advised(files: &[&str]) -> Vec<(String, String)> {
    advised_by(&files.iter().map(|file| (*file, "called")).collect::<Vec<_>>())
}

/// The same with the functions on that way, the innermost first.
fn advised_by(way: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut trace = torch(TraceBuilder::default().device(0, "card", 24 * GIB));
    let mut python = Vec::new();
    for (code, (file, function)) in (1..).zip(way) {
        trace.code(code, &format!("/usr/lib/python3/dist-packages/{file}"), function);
        python.push(PythonFrame { code, line: 10 });
    }
    trace.stack(20, &[0x7000_0000], &python);
    trace.site = 20;
    trace.alloc(0x10_0000_0000, 22 * GIB);
    let seq = trace.refuse(3 * GIB);
    full(&mut trace, seq, 24 * GIB, 22 * GIB, 2 * GIB);
    let summary = summary(&trace);
    let found = summary.conclusion.findings.iter().find(|finding| finding.id == "true-capacity").expect("a full card");
    found.fix.iter().map(|fix| (fix.why.clone(), fix.only_if.clone())).collect()
}

/// What is on the ways to its calls is used; the platform and the framework are known anyway.
#[test]
fn only_what_the_trace_leaves_open_is_a_condition() {
    let condition = |fixes: &[(String, String)], text: &str| {
        fixes.iter().find(|(why, _)| why.contains(text)).map(|(_, only_if)| only_if.clone())
    };
    let unknown = advised(&["numpy/core.py"]);
    assert_eq!(condition(&unknown, "activation checkpointing").as_deref(), Some("training"));
    let transformers = Some("transformers, eager attention");
    assert_eq!(condition(&unknown, "in place of eager attention").as_deref(), transformers);

    let seen = advised(&["transformers/trainer.py", "torch/optim/optimizer.py"]);
    assert_eq!(condition(&seen, "activation checkpointing").as_deref(), Some(""));
    assert_eq!(condition(&seen, "in place of eager attention").as_deref(), Some("eager attention"));

    let checkpointing = advised(&["torch/utils/checkpoint.py"]);
    assert_eq!(condition(&checkpointing, "activation checkpointing"), None, "it does so already");
    assert!(condition(&checkpointing, "micro-batches").is_some());
}

/// In the optimizer's step activations are gone: what makes them fewer frees nothing there. What its foreach implementation needs at once
/// is another matter.
#[test]
fn what_an_optimizers_step_does_not_hold_is_no_advice_there() {
    let (file, outer) = ("torch/optim/adam.py", ("torch/optim/optimizer.py", "wrapper"));
    let says = |fixes: &[(String, String)], text: &str| fixes.iter().any(|(why, _)| why.contains(text));
    let of_activations =
        ["micro-batches", "autocast", "activation checkpointing", "eager attention", "shorter sequences"];
    let foreach = advised_by(&[(file, "_multi_tensor_adam"), (file, "Adam.step"), outer]);
    assert!(of_activations.iter().all(|text| !says(&foreach, text)), "{foreach:?}");
    assert!(says(&foreach, "one parameter after the other") && says(&foreach, "8-bit"), "{foreach:?}");
    let single = advised_by(&[(file, "_single_tensor_adam"), (file, "Adam.step"), outer]);
    assert!(!says(&single, "one parameter after the other"), "{single:?}");
    let own = advised_by(&[("mine/optim.py", "_multi_tensor_adam")]);
    assert!(!says(&own, "one parameter after the other"), "{own:?}");
    assert!(of_activations.iter().all(|text| says(&own, text)), "{own:?}");
}

/// An APU whose kernel gives half of the RAM; 60 GiB live, and 4 more are refused.
fn limited(machine: Vec<(String, String)>) -> TraceBuilder {
    let mut trace = TraceBuilder::default().device(0, "AMD Radeon Graphics", HALF);
    trace.machine = machine;
    (0..60).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB));
    let seq = trace.refuse(4 * GIB);
    at_failure(&mut trace, seq, [(RuntimeFree, 2 * GIB), (RuntimeTotal, HALF)]);
    trace
}

/// 30,690,696 pages keep 8 GiB of this RAM (user document 002, corrected).
#[test]
fn kernel_parameters_have_the_drivers_prefix_and_the_machines_pages() {
    let in_tree = commands(&limited(STRIX_HALO.files()), "uma-ttm-limit");
    let first = ("ttm.pages_limit=30690696".to_owned(), String::new());
    assert_eq!(in_tree[0], first);
    assert!(in_tree.iter().any(|(command, only)| {
        command == "grubby --update-kernel=ALL --args=\"ttm.pages_limit=30690696 ttm.page_pool_size=30690696\""
            && only == "the distribution has grubby"
    }));
    let files = STRIX_HALO.files().into_iter();
    let dkms = files.map(|(path, text)| (path.replace("/module/ttm/", "/module/amdttm/"), text)).collect();
    assert_eq!(commands(&limited(dkms), "uma-ttm-limit")[0].0, "amdttm.pages_limit=30690696");
}

/// The fixes of a diagnosis in words.
fn advice(trace: &TraceBuilder, id: &str) -> Vec<String> {
    let summary = summary(trace);
    let found = summary.conclusion.findings.iter().find(|finding| finding.id == id);
    found.map(|found| found.fix.iter().map(|fix| fix.why.clone()).collect()).unwrap_or_default()
}

/// A wait gives back what a stream has freed from HIP 6 on (docs/rocm-versions.md).
#[test]
fn what_brings_pending_memory_back_depends_on_the_version() {
    let of = |version: i32| {
        let trace = TraceBuilder::default().device(0, "card", 24 * GIB).runtime_version(version);
        advice(&super::pending::freed_on_stream_of(trace, true, false).trace, "async-free-pending").concat()
    };
    assert!(of(60_443_483).contains("synchronise the stream") && !of(60_443_483).contains("hipMemPoolTrimTo"));
    assert!(of(50_731_921).contains("hipMemPoolTrimTo") && !of(50_731_921).contains("synchronise the stream"));
}

/// Less that is pinned costs no reboot.
#[test]
fn what_takes_a_reboot_comes_last_at_its_price() {
    let advice = advice(&super::platform::pins(30, 34).trace, "kfd-system-memory-limit");
    assert!(advice[0].starts_with("pin and register less"), "{advice:?}");
    assert!(advice.last().is_some_and(|last| last.contains("then reboot")), "{advice:?}");
    for entry in crate::catalogue::entries() {
        let says = |text: &str| text.contains("then reboot") || text.contains("and reboot") || text == "reboot";
        assert!(entry.fixes.iter().all(|fix| fix.reboot == says(&fix.text)), "{}", entry.id);
    }
}

/// KFD's cap is none of TTM's.
#[test]
fn the_limit_that_decides_is_the_one_to_raise() {
    let advised = |ttm: u64| {
        let mut trace = super::platform::pins(30, 34).trace;
        trace.machine = AmdMachine { ttm, ..CARD }.files();
        let commands = commands(&trace, "kfd-system-memory-limit").into_iter();
        commands.map(|(command, _)| command.split('=').next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(advised(32 * GIB), ["ttm.pages_limit"]);
    assert_eq!(advised(64 * GIB), ["amdgpu.no_system_mem_limit"]);
}

/// Another device is no advice on a machine with one.
#[test]
fn another_device_is_advised_where_there_is_one() {
    let trace = |second: bool| {
        let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
        trace.machine = AmdMachine { ..CARD }.files();
        if second {
            let node = "/sys/class/kfd/kfd/topology/nodes/2";
            trace.machine.push((format!("{node}/gpu_id"), "51313\n".to_owned()));
            let properties = "simd_count 80\nlocation_id 1024\ndomain 0\ngfx_target_version 110000\n";
            trace.machine.push((format!("{node}/properties"), properties.to_owned()));
        }
        trace.alloc(0x10_0000_0000, GIB);
        let seq = trace.refuse(8 * GIB);
        use gpuoom_trace::metadata::Quantity::{KfdOthersVram, KfdProcessVram, VramTotal, VramUsed};
        let read = [
            (RuntimeFree, 2 * GIB),
            (VramTotal, 24 * GIB),
            (VramUsed, 22 * GIB),
            (KfdProcessVram, GIB),
            (KfdOthersVram, 20 * GIB),
        ];
        at_failure(&mut trace, seq, read);
        commands(&trace, "other-process-on-gpu").iter().any(|(command, _)| command.starts_with("ROCR_VISIBLE_DEVICES"))
    };
    assert_eq!((trace(false), trace(true)), (false, true));
}

#[test]
fn a_leak_of_a_program_without_pytorch_gets_no_advice_of_pytorchs() {
    let summary = summary(&full_after_a_rise(true).trace);
    let leak = summary.conclusion.findings.iter().find(|finding| finding.id == "live-leak").expect("the leak");
    assert!(!leak.fix.is_empty());
    let texts: Vec<&str> = leak.fix.iter().map(|fix| fix.why.as_str()).collect();
    assert!(texts.iter().all(|text| !text.contains("detach")), "{texts:?}");
    assert!(leak.missing.iter().all(|reading| !reading.contains("PYTORCH")), "{:?}", leak.missing);
}

#[test]
fn a_program_with_ggml_alone_gets_no_options_of_llama_cpp() {
    let commands_of = |executable: &str| {
        let mut trace =
            TraceBuilder::default().device(0, "card", 24 * GIB).library("/usr/lib/libggml-hip.so", 0x1000, 1);
        trace.process.executable = executable.into();
        (0..22).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB));
        let seq = trace.refuse(4 * GIB);
        full(&mut trace, seq, 24 * GIB, 22 * GIB, GIB);
        let commands = commands(&trace, "true-capacity").into_iter().map(|(command, _)| command);
        commands.filter(|command| command.starts_with('-')).count()
    };
    assert_ne!(commands_of("/usr/bin/llama-cli"), 0);
    assert_eq!(commands_of("/usr/bin/whisper-cli"), 0);
}
