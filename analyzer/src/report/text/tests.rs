//! The whole page for the stories that users meet.

use gpuoom_trace::metadata::{Module, Quantity, probe_skipped};
use gpuoom_trace::payload::{PythonFrame, stack_flag};
use gpuoom_trace::record::{Event, Kind, Record, flag, process};
use serde_json::Value;

use crate::conclusion::verdict::Verdict;
use crate::passes::map::{Moment, draw};
use crate::replay::Options;
use crate::report::page::{Look, Page};
use crate::symbols::SymbolPlaces;
use crate::symbols::compiled::Library;
use crate::testing::{At, GIB, MIB, TraceBuilder, at, gib, replay, summary, summary_with};

fn page(trace: &TraceBuilder) -> String {
    page_of(trace, 100)
}

fn page_of(trace: &TraceBuilder, width: usize) -> String {
    let maps = draw(&replay(trace, Options::default()), Moment::Peak, None);
    let text = super::write(&summary(trace), &maps, Look::new(width, false));
    assert!(text.lines().all(|line| line.chars().count() <= width.max(80)), "a line is too long:\n{text}");
    text
}

fn card() -> TraceBuilder {
    TraceBuilder::default().device(0, "AMD Radeon RX 7900 XTX", gib(23.98))
}

fn read(trace: &mut TraceBuilder, seq: u64, free: u64) {
    trace.read_at_failure(
        seq,
        &[
            (Quantity::RuntimeTotal as u16, gib(23.98)),
            (Quantity::RuntimeFree as u16, free),
            (Quantity::VramTotal as u16, gib(23.98)),
            (Quantity::VramUsed as u16, gib(23.98) - free + 40 * MIB),
            (Quantity::LargestAllocatable as u16, free - 4 * MIB),
        ],
    );
}

#[test]
fn a_full_card() {
    let mut trace = card();
    for number in 0..40u64 {
        trace.alloc(0x7f2a_0000_0000 + number * 600 * MIB, 560 * MIB);
    }
    trace.alloc_kind(Kind::HostPinned, "hipHostMalloc", 0x5500_0000_0000, 64 * MIB);
    let seq = trace.refuse(gib(1.41));
    trace.after(Event::ErrorQuery, "hipGetErrorString", 2, flag::ERROR_TEXT);
    read(&mut trace, seq, gib(0.62));
    trace.end(process::EXITS, 1);
    insta::assert_snapshot!(page(&trace));
}

/// PyTorch's error on a full card: its attempts are no failures of their own.
#[test]
fn an_error_of_pytorch() {
    let mut trace = card();
    trace.process.command_line = ["python", "train.py"].map(Into::into).into();
    trace.alloc(0x7f2a_0000_0000, gib(22.9));
    trace.tensor_on(crate::testing::THREAD, 0x7f2a_0000_0000, gib(22.8), [gib(22.8), gib(22.9)]);
    for _ in 0..2 {
        let seq = trace.refuse(gib(1.41));
        read(&mut trace, seq, gib(0.62));
        trace.after(Event::ErrorQuery, "hipGetLastError", 0, 0);
    }
    trace.framework_error(crate::testing::THREAD, gib(1.41), [gib(22.8), gib(22.9)]);
    let text = "HIP out of memory. Tried to allocate 1.41 GiB. GPU 0 has a total capacity of 23.98 GiB of which 634.88 MiB is free. \
                Of the allocated memory 22.80 GiB is allocated by PyTorch, and 102.40 MiB is reserved by PyTorch but unallocated.";
    trace.throws(crate::testing::THREAD, 0x5555_0000_1000, Some(text));
    trace.end(process::EXITS, 1);
    insta::assert_snapshot!(page(&trace));
}

/// A limit of the allocator's own: nobody below was asked.
#[test]
fn an_error_of_pytorch_without_an_attempt() {
    let mut trace = card();
    trace.alloc(0x7f2a_0000_0000, 6 * GIB);
    let seq = trace.framework_error(crate::testing::THREAD, 2 * GIB, [6 * GIB, 6 * GIB]);
    read(&mut trace, seq, 17 * GIB);
    trace.throws(crate::testing::THREAD, 0x5555_0000_1000, None);
    trace.end(process::EXITS, 1);
    insta::assert_snapshot!(page(&trace));
}

#[test]
fn a_failure_that_was_ignored() {
    let mut trace = card();
    trace.alloc(0x7f2a_0000_0000, GIB);
    let seq = trace.refuse(512 * MIB);
    read(&mut trace, seq, 12 * GIB);
    trace.after(Event::GpuWork, "hipLaunchKernel", 0, 0);
    trace.end(process::EXITS, 0);
    insta::assert_snapshot!(page(&trace));
}

#[test]
fn a_healthy_run() {
    let mut trace = card();
    trace.alloc(0x7f2a_0000_0000, gib(14.1));
    trace.free(0x7f2a_0000_0000);
    trace.end(process::EXITS, 0);
    insta::assert_snapshot!(page(&trace));
}

#[test]
fn a_killed_process() {
    let mut trace = card();
    trace.header.closed = 0;
    trace.in_ring = true;
    trace.alloc(0x7f2a_0000_0000, GIB);
    trace.under_way("hipMalloc", 2 * GIB);
    insta::assert_snapshot!(page(&trace));
}

#[test]
fn more_than_the_card_on_a_narrow_terminal() {
    let mut trace = card();
    trace.process.command_line = vec!["python".into(), format!("/home/{}/train.py", "deep/".repeat(40))];
    let seq = trace.refuse(40 * GIB);
    trace.read_at_failure(seq, &[(Quantity::ProbeSkipped as u16, probe_skipped::RUNTIME_UNVERIFIED)]);
    let record = trace.record(Event::Exception, Kind::None, "__cxa_throw");
    trace.with_text(record, "St9bad_alloc");
    trace.end(process::SIGNALS, libc::SIGABRT);
    insta::assert_snapshot!(page_of(&trace, 40));
}

#[test]
fn many_failures_are_folded() {
    let mut trace = card();
    for number in 0..30 {
        trace.refuse(GIB + number * MIB);
        match number % 3 {
            0 => trace.after(Event::GpuWork, "hipMemcpy", 0, 0),
            1 => trace.after(Event::GpuWork, "hipMemcpy", 0, flag::FAILED_POINTER),
            _ => trace.alloc(0x7f2a_0000_0000 + (number << 32), 2 * GIB),
        };
    }
    insta::assert_snapshot!(page(&trace));
}

/// A checkerboard that the model refuses, on a card that scatters: both sentences must be there.
#[test]
fn the_model_and_the_addresses_disagree() {
    let mut trace = TraceBuilder::default().device(0, "card", 16 * GIB);
    for number in 0..64u64 {
        trace.alloc(0x7f00_0000_0000 + number * 258 * MIB, 256 * MIB);
    }
    for number in (0..63).step_by(7) {
        trace.free(0x7f00_0000_0000 + number * 258 * MIB);
    }
    let seq = trace.refuse(512 * MIB);
    trace.read_at_failure(seq, &[(Quantity::RuntimeFree as u16, 2 * GIB)]);
    let text = page(&trace);
    assert!(text.contains("external fragmentation"), "{text}");
    assert!(text.contains("2 MiB inferred from the addresses"), "{text}");
    insta::assert_snapshot!(text);
}

/// The rounding vectors, by count and size of the buffers, with the percentage that must be printed.
#[test]
fn the_rounding_vectors() {
    for (buffers, padded, lost) in [
        (&[(1, 4_509_715_661u64), (1, 2_254_857_830)][..], "6.50 GiB padded", "3.2 % of requested"),
        (&[(1, 10_415_295_693), (1, 4_080_218_931)], "13.75 GiB padded", "1.9 % of requested"),
        (&[(1, 14_495_514_624)], "13.50 GiB padded", "0.0 % of requested"),
        (&[(75, 201_863_463)], "18.75 GiB padded", "33.0 % of requested"),
        (&[(76, 199_207_365)], "19.00 GiB padded", "34.8 % of requested"),
        (&[(37, 402_653_184), (1, 134_217_728)], "18.75 GiB padded", "33.9 % of requested"),
        (&[(30, 402_653_184)], "15.00 GiB padded", "33.3 % of requested"),
    ] {
        let mut trace = card();
        let mut address = 0x7f00_0000_0000;
        for (count, size) in buffers {
            for _ in 0..*count {
                trace.alloc(address, *size);
                address += size.next_multiple_of(2 * MIB);
            }
        }
        let text = page(&trace);
        assert!(text.contains(padded) && text.contains(lost), "{padded}, {lost}:\n{text}");
        assert!(!text.contains("18.9"), "{text}");
    }
}

#[test]
fn names_in_a_file_cannot_move_the_cursor() {
    let mut trace = card();
    trace.process.command_line = vec!["evil\x1b[2J".into()];
    let record = trace.record(Event::Alloc, Kind::Device, "hip\x1b[31mMalloc");
    trace.push(Record { status: 2, requested: GIB, ..record }, &[]);
    assert!(!page(&trace).contains('\x1b'));
}

#[test]
fn a_damaged_file_says_so() {
    let mut trace = card();
    trace.alloc(0x7f2a_0000_0000, GIB);
    trace.header.events_lost = 12;
    let mut summary = summary(&trace);
    summary
        .facts
        .damages
        .push(crate::passes::facts::DamageSummary { offset: 4096, reason: "the chunk is cut off".into() });
    summary.conclusion.verdict = Verdict::new(&summary.facts, &[], None, 0);
    insta::assert_snapshot!(super::write(&summary, &[], Look::new(100, false)));
}

/// The first sentence for each thing that the numbers can say.
#[test]
fn the_verdict_says_why() {
    let first = |build: fn(&mut TraceBuilder)| {
        let mut trace = TraceBuilder::default().device(0, "card", 16 * GIB);
        build(&mut trace);
        let text = page(&trace).replace("\n         ", " ");
        let verdict = text.lines().find(|line| line.starts_with("VERDICT")).map(str::to_owned);
        verdict.unwrap_or_default().split(". ").next().unwrap_or_default().to_owned()
    };
    let stories: [fn(&mut TraceBuilder); 7] = [
        |trace| {
            trace.alloc(0x7f00_0000_0000, GIB);
            let seq = trace.refuse(2 * GIB);
            trace.read_at_failure(seq, &[(Quantity::RuntimeFree as u16, GIB)]);
        },
        |trace| {
            trace.alloc(0x7f00_0000_0000, 15 * GIB);
            trace.refuse(2 * GIB);
        },
        |trace| {
            trace.alloc(0x7f00_0000_0000, 3 * GIB);
            trace.refuse(2 * GIB);
        },
        |trace| {
            let record = trace.record(Event::Alloc, Kind::HostPinned, "hipHostMalloc");
            trace.push(Record { status: 2, requested: 64 * GIB, ..record }, &[]);
        },
        |trace| {
            let record = trace.record(Event::Alloc, Kind::Device, "hipMalloc");
            let kind_flags = Kind::Device as u8 | flag::INJECTED;
            trace.push(Record { status: 2, requested: GIB, kind_flags, ..record }, &[]);
        },
        |trace| {
            let record = trace.record(Event::Alloc, Kind::Device, "hipMalloc");
            let kind_flags = Kind::Device as u8 | flag::FROM_RUNTIME;
            trace.push(Record { status: 2, requested: GIB, kind_flags, ..record }, &[]);
        },
        |trace| {
            trace.refuse(GIB);
            trace.alloc(0x7f00_0000_0000, GIB);
        },
    ];
    insta::assert_snapshot!(stories.map(first).join("\n"));
}

#[test]
fn all_kinds_of_memory_have_their_rows() {
    let mut trace = TraceBuilder::default().device(0, "card", 16 * GIB);
    let internal = trace.record(Event::Alloc, Kind::Device, "hipMalloc");
    let kind_flags = Kind::Device as u8 | flag::FROM_RUNTIME;
    trace.push(Record { address: 0x7b00_0000_0000, requested: 700 * MIB, kind_flags, ..internal }, &[]);
    trace.create_and_map(7, 0x7f00_0000_0000, 2 * GIB);
    trace.alloc_kind(Kind::Managed, "hipMallocManaged", 0x7e00_0000_0000, GIB);
    trace.alloc_kind(Kind::Pool, "hipMallocAsync", 0x7d00_0000_0000, 600 * MIB);
    trace.alloc_kind(Kind::Array, "hipMallocArray", 0x5555, 0);
    let reserve = trace.record(Event::Reserve, Kind::Reserved, "hipMemAddressReserve");
    trace.push(Record { address: 0x7f00_0000_0000, requested: 32 * GIB, ..reserve }, &[]);
    let import = trace.record(Event::Import, Kind::Imported, "hipIpcOpenMemHandle");
    trace.push(Record { address: 0x7c00_0000_0000, requested: GIB, ..import }, &[]);
    let text = page(&trace);
    let start = text.find("WHO HOLDS").unwrap();
    let end = text.find("FRAGMENTATION").unwrap();
    insta::assert_snapshot!(&text[start..end]);
}

/// Layers below each other, other users of the card, a library, code: each byte once, and all of it named.
#[test]
fn every_holder_has_its_row() {
    let mut trace = card().library("/opt/libggml-hip.so", 0x10_0000, 1);
    let hsa = "hsa_amd_memory_pool_allocate";
    let kfd = "AMDKFD_IOC_ALLOC_MEMORY_OF_GPU";
    trace.site = 1;
    for number in 1..=21u64 {
        let pointer = 0x7f00_0000_0000 + (number << 32);
        let rounded = GIB + 2 * MIB;
        trace.alloc_through(
            0,
            &[at("hipMalloc", pointer, GIB + 4096), at(hsa, pointer, GIB + 4096), at(kfd, number, rounded)],
        );
    }
    let pool = At { kind: Kind::Pool, ..at("hipMallocAsync", 0x7e00_0000_0000, 100 * MIB) };
    trace.alloc_through(0, &[pool, at(hsa, 0x7e00_0000_0000, 512 * MIB), at(kfd, 100, 512 * MIB)]);
    trace.site = 0;
    trace.alloc_through(flag::FROM_RUNTIME, &[at(kfd, 101, 140 * MIB)]);
    let load = trace.record(Event::Module, Kind::Code, "hsa_executable_load_agent_code_object");
    let load = Record { kind_flags: Kind::Code as u8 | flag::FROM_RUNTIME, ..load };
    trace.set_up_through(load, &[at(kfd, 102, 64 * MIB)]);
    let copies = At { kind: Kind::Registered, ..at("hsa_amd_memory_lock_to_pool", 0x5500_0000_0000, 32 * MIB) };
    trace.alloc_through(flag::FROM_RUNTIME, &[copies]);
    trace.alloc_kind(Kind::HostPinned, "hipHostMalloc", 0x5600_0000_0000, 256 * MIB);
    let seq = trace.refuse(gib(1.41));
    let used = 21 * (GIB + 2 * MIB) + (512 + 140 + 64 + 390 + 20) * MIB;
    let readings = [
        (Quantity::VramTotal, gib(23.98)),
        (Quantity::VramUsed, used),
        (Quantity::KfdProcessVram, used - 410 * MIB),
        (Quantity::GraphicsVram, 390 * MIB),
        (Quantity::RuntimeTotal, gib(23.98)),
        (Quantity::RuntimeFree, gib(23.98) - used + 390 * MIB),
    ];
    let readings: Vec<(u16, u64)> = readings.iter().map(|(quantity, value)| (*quantity as u16, *value)).collect();
    trace.read_at_failure(seq, &readings);
    trace.end(process::EXITS, 1);
    insta::assert_snapshot!(page(&trace));
}

#[test]
fn a_handle_that_found_no_memory() {
    let mut trace = card();
    trace.alloc(0x7f2a_0000_0000, gib(23.5));
    let record = trace.record(Event::Module, Kind::None, "hipblasCreate");
    let seq = trace.push(Record { status: 2, ..record }, &[]);
    read(&mut trace, seq, gib(0.1));
    trace.free(0xDEAD_0000);
    trace.end(process::EXITS, 1);
    insta::assert_snapshot!(page(&trace));
}

/// What PyTorch printed, beside a trace in which its segments are blocks.
#[test]
fn evidence_from_beside_the_trace() {
    use crate::evidence::torch_snapshot::{Segment, Snapshot};
    use crate::evidence::{Evidence, Given, kernel_log, smi, torch_message};

    const SMI: &str = "device,VRAM Total Memory (B),VRAM Total Used Memory (B),Card Series\n\
                       card0,25753026560,4294967296,Radeon RX 7900 XTX\n";
    const KERNEL: &str = "[   12.5] NVRM: Xid (PCI:0000:00:06): 31, pid=79749, name=exe, Ch 0000000a\n\
        [   13.5] Out of memory: Killed process 4711 (python3) total-vm:53312244kB, anon-rss:31451456kB, file-rss:0kB\n";

    let log = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 3.99 GiB. GPU 0 has a total capacity of 62.54 GiB \
               of which 668.07 MiB is free. Of the allocated memory 59.55 GiB is allocated by PyTorch, and 2.08 GiB is \
               reserved by PyTorch but unallocated.\n";
    let mut trace = card();
    trace.alloc(0x7f2a_0000_0000, 20 * MIB);
    trace.alloc(0x7f2b_0000_0000, 64 * MIB);
    let segment = Segment {
        device: 0,
        address: 0x7f2a_0000_0000,
        total_bytes: 20 * MIB,
        allocated_bytes: 3 * MIB,
        active_bytes: 3 * MIB,
        requested_bytes: None,
        stream: 0,
        small: false,
        expandable: false,
        pool: (0, 0),
        blocks: Vec::new(),
        stack: 0,
    };
    let setting = ("PYTORCH_HIP_ALLOC_CONF".to_owned(), "expandable_segments:True".to_owned());
    let snapshot = Snapshot { segments: vec![segment], allocator_settings: vec![setting], ..Snapshot::default() };
    let evidence = Evidence {
        torch_logs: vec![Given { path: "train.log".into(), content: torch_message::find_all(&log.repeat(3)) }],
        torch_snapshots: vec![Given { path: "snapshot.pickle".into(), content: snapshot }],
        smi: vec![Given { path: "smi.csv".into(), content: smi::read(SMI).unwrap() }],
        kernel_logs: vec![Given { path: "dmesg".into(), content: kernel_log::read(KERNEL) }],
        ..Evidence::default()
    };
    let mut page = Page::new(Look::new(100, false));
    super::evidence::write(&mut page, &summary_with(&trace, &evidence));
    insta::assert_snapshot!(page.into_text());
}

/// What was not measured by unwind tables alone says so, at the failure and among the callers.
#[test]
fn stacks_that_were_inferred_say_so() {
    let library = Library::compile("", &["-g"]);
    let mut trace = card();
    trace.modules.push(library.module());
    let (inner, outer) = (library.return_address_in("middle"), library.return_address_in("outer"));
    let guessed = stack_flag::NATIVE_WHOLE | stack_flag::NATIVE_GUESSED;
    trace.stack_with(guessed, 1, &[inner, outer], &[]).stack(2, &[outer], &[]);
    for (site, number, bytes) in [(1, 1, 12 * GIB), (2, 2, 4 * GIB)] {
        trace.site = site;
        trace.alloc(0x7f2a_0000_0000 + number * 0x10_0000_0000, bytes);
    }
    for site in [1, 2] {
        trace.site = site;
        trace.refuse(16 * GIB);
    }
    trace.evidence.symbols = SymbolPlaces::here(&[]);
    let text = page(&trace);
    let parts = [("asked by", "\nWHO HOLDS"), ("WHO ALLOCATED", "\n\n")].map(|(from, to)| {
        let part = &text[text.find(from).unwrap()..];
        part[..part.find(to).unwrap()].to_owned()
    });
    insta::assert_snapshot!(parts.join("\n...\n"));
    page_of(&trace, 80);
    let json = crate::testing::json(&summary(&trace));
    let at = |pointer: &str| json.pointer(pointer).and_then(Value::as_bool);
    assert_eq!((at("/ooms/0/stack_is_inferred"), at("/ooms/1/stack_is_inferred")), (Some(true), Some(false)));
    let row = |row: u8| at(&format!("/ledger/0/allocated_by/rows/{row}/stack_is_inferred"));
    assert_eq!((row(0), row(1)), (Some(true), Some(false)));
}

/// Who asked, natively and in Python: the frames of the failure, and the callers by what they hold.
#[test]
fn stacks_have_names() {
    let library = Library::compile("", &["-g"]);
    let mut trace = card();
    trace.modules.push(library.module());
    trace.modules.push(Module {
        path: "/gone/libengine.so.3".into(),
        build_id: "abcdef".into(),
        start: 0x5000_0000,
        end: 0x5100_0000,
        vendor: false,
    });
    let torch = "/venv/lib/python3.12/site-packages/torch/nn/modules/conv.py";
    trace.code(1, torch, "Conv2d.forward").code(2, "/home/me/train.py", "Model.forward");
    trace.code(3, "/home/me/train.py", "<module>");
    let (inner, outer) = (library.return_address_in("middle"), library.return_address_in("outer"));
    let line = |code, line| PythonFrame { code, line };
    trace.stack(1, &[inner, outer, 0x5000_1234], &[]);
    trace.stack(2, &[inner, outer], &[line(1, 554), line(2, 41), line(3, 90)]);
    trace.stack(3, &[inner, outer], &[line(1, 554), line(2, 44), line(3, 90)]);
    trace.stack(4, &[outer], &[]);
    trace.stack(5, &[0x5000_1234, outer], &[]);
    for (site, number, bytes) in
        [(1, 1, 12 * GIB), (2, 2, 4 * GIB), (3, 3, 3 * GIB), (4, 4, GIB), (5, 5, GIB), (0, 6, MIB)]
    {
        trace.site = site;
        trace.alloc(0x7f2a_0000_0000 + number * 0x10_0000_0000, bytes);
    }
    trace.site = 2;
    let seq = trace.refuse(4 * GIB);
    read(&mut trace, seq, GIB);
    trace.site = 1;
    trace.refuse(8 * GIB);
    trace.end(process::EXITS, 1);
    trace.evidence.symbols = SymbolPlaces::here(&[]);
    let text = page(&trace);
    let start = text.find("OUT OF MEMORY").unwrap();
    let end = text.find("FRAGMENTATION").unwrap();
    insta::assert_snapshot!(&text[start..end]);
    page_of(&trace, 80);

    let summary = summary(&trace);
    let json = serde_json::to_value(&summary.facts.ooms[0].stack).unwrap();
    let offset = format!("{:#x}", inner - library.module().start);
    assert_eq!(json[1]["offset"], offset.as_str());
    assert_eq!(
        (&json[0]["kind"], &json[0]["function"], &json[0]["line"]),
        (&"native".into(), &"inner".into(), &3.into())
    );
    assert_eq!(
        (&json[3]["kind"], &json[3]["file"], &json[3]["address"]),
        (&"python".into(), &torch.into(), &Value::Null)
    );
    let peak = summary.facts.ledger.iter().find(|ledger| ledger.moment == "peak").unwrap();
    let keys: Vec<_> = peak.allocated_by.rows.iter().map(|row| (row.key.as_str(), row.bytes / GIB, row.ways)).collect();
    assert_eq!(
        keys,
        [
            ("liblayers.so!middle < liblayers.so!outer < libengine.so!?", 12, 1),
            ("liblayers.so!middle < liblayers.so!outer < train.py!Model.forward < train.py!<module>", 7, 2),
            ("liblayers.so!outer", 1, 1),
            ("libengine.so!? < liblayers.so!outer", 1, 1),
        ]
    );
    assert_eq!(peak.allocated_by.unknown.bytes, MIB);
}

/// Managed memory may lie in RAM: neither its bytes nor its blocks are set beside the card, and no place on it is drawn.
#[test]
fn managed_memory_is_told_apart_everywhere() {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    (0..20).for_each(|block| _ = trace.alloc(0x2000_0000_0000 + block * 2 * GIB, GIB));
    (0..3).for_each(|block| {
        _ = trace.alloc_kind(Kind::Managed, "hipMallocManaged", 0x1000_0000_0000 + block * 16 * GIB, 8 * GIB)
    });
    let summary = summary(&trace);
    let page = page(&trace).split_whitespace().collect::<Vec<_>>().join(" ");
    let told = [
        "peak 44.00 GiB asked at",
        "in 23 blocks, 24.00 GiB of it in 3 blocks that may lie in RAM",
        "20.00 GiB asked, 20.00 GiB padded (24.00 GiB left out that may lie in RAM)",
    ];
    told.iter().for_each(|told| assert!(page.contains(told), "{told}: {page}"));
    assert!(!page.contains("had no room"), "{page}");
    let device = &summary.facts.devices[0];
    assert_eq!((device.fragmentation.overflow_blocks, device.fragmentation.free_bytes), (Some(0), Some(4 * GIB)));
    let callers = &summary.facts.ledger[0].allocated_by;
    let amounts = callers.rows.iter().map(|row| (row.bytes, row.blocks, row.managed_bytes, row.managed_blocks));
    let unknown = &callers.unknown;
    let unknown = (unknown.bytes, unknown.blocks, unknown.managed_bytes, unknown.managed_blocks);
    assert_eq!(amounts.chain([unknown]).max(), Some((20 * GIB, 20, 24 * GIB, 3)));
}

/// A PyTorch program whose allocator tells of its tensors.
fn training() -> TraceBuilder {
    let mut trace = card();
    let library = |path: &str| Module {
        path: path.into(),
        build_id: String::new(),
        start: 0x10_0000,
        end: 0x20_0000,
        vendor: false,
    };
    trace.modules.push(library("/venv/lib/python3.12/site-packages/torch/lib/libtorch_hip.so"));
    trace.modules.push(library("/usr/lib/libpython3.12.so.1.0"));
    trace.code(1, "/home/me/train.py", "train_step").code(2, "/home/me/model.py", "forward");
    for (site, code, line) in [(1, 1, 38), (2, 2, 7), (3, 2, 9), (4, 2, 11), (5, 2, 13), (6, 2, 15), (7, 2, 17)] {
        trace.stack(site, &[0x10 + u64::from(site)], &[PythonFrame { code, line }]);
    }
    trace
}

/// A package asks for tensors below two lines of a program, with more frames than are shown: rows, growth and the failure name the
/// program's lines.
#[test]
fn a_packages_tensors_are_the_programs() {
    let packages = "/venv/lib/python3.12/site-packages";
    let mut trace = training();
    trace.code(3, &format!("{packages}/transformers/modeling_utils.py"), "PreTrainedModel.from_pretrained");
    trace.code(4, &format!("{packages}/transformers/auto.py"), "_load");
    let line = |code, line| PythonFrame { code, line };
    for (site, own) in [(8, 31), (9, 44)] {
        let deep = (0..9).map(|depth| line(4, 10 + depth));
        let way: Vec<PythonFrame> = [line(3, 3789)].into_iter().chain(deep).chain([line(1, own)]).collect();
        trace.stack(site, &[0x10 + u64::from(site)], &way);
    }
    for (number, site) in [(0, 8), (1, 9), (2, 9)] {
        let segment = 0x7f00_0000_0000 + number * 4 * GIB;
        trace.site = site;
        trace.segment(segment, 4 * GIB);
        trace.tensor(0, segment, 3 * GIB);
    }
    let seq = trace.refuse(16 * GIB);
    read(&mut trace, seq, gib(2.0));
    trace.end(process::EXITS, 1);
    let text = page(&trace);
    let behind = " in transformers modeling_utils.py:3789 PreTrainedModel.from_pretrained";
    for own in [31, 44] {
        let row = format!("train_step (train.py:{own})");
        let lines: Vec<&str> = text.lines().collect();
        // A row that is too wide goes on below: the program's line comes first.
        let below = |(at, _): &(usize, &&str)| lines.get(at + 1).is_some_and(|line| line.contains(behind));
        let rows =
            lines.iter().enumerate().filter(|(_, line)| line.trim_start_matches("  tensors").trim().starts_with(&row));
        assert_eq!(rows.filter(below).count(), 2, "WHO HOLDS and WHO ALLOCATED, {own}: {text}");
    }
    let failure = &text[text.find("in Python").unwrap()..];
    let failure = failure.split("asked by").next().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(failure.contains("(4 frames between) train_step train.py:44"), "{failure}");
    page_of(&trace, 80);
    let rows = &summary(&trace).facts.ledger[0].allocated_by.rows;
    let lines: Vec<_> = rows.iter().map(|row| (row.frame.line, row.asked_by.as_ref().and_then(|by| by.line))).collect();
    assert_eq!(lines, [(Some(44), Some(3789)), (Some(31), Some(3789))]);
}

#[test]
fn tensors_fill_the_segments() {
    let mut trace = training();
    let segment = 0x7f00_0000_0000;
    for number in 0..10 {
        trace.segment(segment + number * 2 * GIB, 2 * GIB);
        trace.site = 1 + number as u32 % 7;
        trace.tensor(0, segment + number * 2 * GIB, gib(1.5));
        trace.tensor(0, segment + number * 2 * GIB + gib(1.625), gib(0.25));
        trace.site = 0;
    }
    trace.alloc(segment + 64 * GIB, GIB);
    let seq = trace.refuse(4 * GIB);
    read(&mut trace, seq, gib(2.0));
    trace.end(process::EXITS, 1);
    let page = page(&trace);
    let section = &page[page.find("WHO HOLDS").unwrap()..];
    insta::assert_snapshot!(section.split("\n\n").next().unwrap());
}

#[test]
fn buffers_of_ggml_are_told_apart() {
    let mut trace = card();
    let memory = 0x7f00_0000_0000;
    let tensors = "ggml_backend_alloc_ctx_tensors_from_buft";
    for (number, function, bytes) in [(0, "llama_model_load_from_file", 9 * GIB), (1, "llama_init_from_model", 4 * GIB)]
    {
        trace.scope(&[function, tensors]);
        trace.alloc(memory + number * 16 * GIB, bytes);
        trace.buffer(0x10 + number, memory + number * 16 * GIB, bytes);
    }
    trace.scope(&[]);
    trace.alloc(memory + 64 * GIB, GIB);
    trace.scope(&["llama_init_from_model", "ggml_backend_sched_reserve", "ggml_gallocr_reserve_n"]);
    let seq = trace.refuse(3 * GIB);
    read(&mut trace, seq, gib(1.5));
    trace.end(process::EXITS, 1);
    let page = page(&trace);
    let part = |from: &str| page[page.find(from).unwrap()..].split("\n\n").next().unwrap().to_owned();
    insta::assert_snapshot!(["VERDICT", "OUT OF MEMORY", "WHO HOLDS"].map(part).join("\n\n"));
}

#[test]
fn without_word_of_tensors_only_segments_are_known() {
    let mut trace = training();
    trace.alloc(0x7f00_0000_0000, 8 * GIB);
    let sentence = "segments only: which tensors fill them is not known";
    assert!(page(&trace).contains(sentence));
    trace.segment(0x7f10_0000_0000, GIB);
    trace.tensor(0, 0x7f10_0000_0000, GIB);
    assert!(!page(&trace).contains(sentence));
    let mut other = card();
    other.alloc(0x7f00_0000_0000, 8 * GIB);
    assert!(!page(&other).contains(sentence));
    let mut asynchronous = training();
    asynchronous.alloc_kind(Kind::Pool, "hipMallocAsync", 0x7f00_0000_0000, 8 * GIB);
    assert!(!page(&asynchronous).contains(sentence), "each tensor is a block there");
}

/// Pools that contradict themselves, and blocks of theirs that are on no card: told, and not counted.
#[test]
fn pools_that_cannot_be_so() {
    const BASE: u64 = 0x7f00_0000_0000;
    let mut trace = card();
    for number in 0..3 {
        trace.alloc(BASE + number * 16 * GIB, 2 * GIB);
    }
    trace.pool_alloc("arena", "weights", BASE, GIB);
    trace.pool_alloc("arena", "kv cache", BASE + GIB, 512 * MIB);
    trace.pool_alloc("broken", "", BASE + 16 * GIB, 3 * GIB);
    trace.pool_free("broken", 0x1234);
    trace.pool_free("broken", 0x5678);
    trace.pool_alloc("elsewhere", "", 0x1000, MIB);
    for name in 0..210u64 {
        trace.pool_alloc("many", &format!("tensor {name}"), BASE + 32 * GIB + name * MIB, MIB);
    }
    let text = page(&trace);
    trace.free(BASE + 32 * GIB);
    trace.header.events_lost = 1;
    let lost = page(&trace);
    let part = |text: &str| {
        let (start, end) = (text.find("WHO HOLDS").unwrap(), text.find("FRAGMENTATION").unwrap_or(text.len()));
        text[start..end].to_owned()
    };
    insta::assert_snapshot!(
        [part(&text), part(&lost)].join("-- after the memory of a pool went and a record was lost --\n")
    );
}

/// Its blocks are in the rows already, and no row is wrong by them.
#[test]
fn a_pool_in_the_blocks_of_another_allocator_is_told() {
    const BASE: u64 = 0x7f00_0000_0000;
    let mut trace = training();
    trace.segment(BASE, 8 * GIB);
    trace.tensor(0, BASE, 6 * GIB);
    let alone = page(&trace);
    trace.pool_alloc("cache", "keys", BASE, GIB);
    trace.pool_alloc("cache", "values", BASE + GIB, 512 * MIB);
    let nested = page(&trace);
    let rows = |text: &str| {
        let rows = text[text.find("WHO HOLDS").unwrap()..].split("\n\n").next().unwrap().to_owned();
        rows.lines().filter(|line| line.contains('%')).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(rows(&alone), rows(&nested));
    let nested = nested.split_whitespace().collect::<Vec<_>>().join(" ");
    let told = "in the memory above lie 2 blocks of the pool cache, 1.50 GiB, most of it keys (1.00 GiB)";
    assert!(nested.contains(told), "{nested}");
}

/// What was subtracted from too little is a huge number without its sign.
#[test]
fn a_size_below_zero_is_told_with_its_sign() {
    let mut trace = card();
    trace.alloc(0x7f00_0000_0000, GIB);
    trace.refuse(u64::MAX - (MIB - 1));
    let text = page(&trace);
    assert!(text.contains("read as a signed number, the size asked for is -1 MiB"), "{text}");
    let said = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("look at how the size is computed") && !said.contains("split it"), "{text}");
    assert!(text.contains("16.00 EiB") && !text.contains("17179869184"), "{text}");
}

#[test]
fn frees_that_failed_are_told() {
    let mut trace = card();
    trace.alloc(0x7f00_0000_0000, GIB);
    for _ in 0..2 {
        trace.free(0x7f00_0000_0100);
        trace.last_call_failed(1);
    }
    let text = page(&trace);
    assert!(text.contains("2 calls to give memory back failed: the block that their address lies in"), "{text}");
}
