//! Bundles, from a trace and back: nothing that is nobody's business gets in, and no number changes.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use flate2::read::GzDecoder;
use gpuoom_analyze::testing::{GIB, MIB, TraceBuilder};
use gpuoom_trace::chunk::{CHUNK_HEADER_BYTES, ChunkHeader};
use gpuoom_trace::header::{HEADER_BYTES, Header};
use gpuoom_trace::metadata::{Bypass, Module, Quantity};
use gpuoom_trace::record::{Event, Kind, NO_DEVICE, Record, flag, process};
use serde_json::Value;

/// What must not be in a bundle: user, host, directories, values, labels, names in code, serials and addresses.
const SECRETS: [&str; 14] = [
    "alice",
    "borealis",
    "acme",
    "grumpycat",
    "sesame",
    "checkpoint7",
    "phase-zebra",
    "whisper_fn",
    "SN4711X",
    "10.20.30.40",
    "hunter2",
    "example.net",
    "GPU-0b7e1d4c",
    "quokka",
];

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Place(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn output(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuoom-analyze"));
        for name in ["USER", "LOGNAME", "SUDO_USER"] {
            command.env_remove(name);
        }
        command.args(arguments).current_dir(self.0.path()).output().unwrap()
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.run(arguments)).unwrap()
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.path().join(name)).unwrap()
    }
}

/// The files of a bundle.
fn unpack(bundle: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut archive = tar::Archive::new(GzDecoder::new(bundle));
    let files = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        assert_eq!((entry.header().mtime().unwrap(), entry.header().uid().unwrap()), (0, 0));
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        (entry.path().unwrap().to_str().unwrap().strip_prefix("gpuoom-bundle/").unwrap().to_owned(), bytes)
    });
    files.collect()
}

fn text(files: &[(String, Vec<u8>)], name: &str) -> String {
    let file = files.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("no {name} in the bundle"));
    String::from_utf8(file.1.clone()).unwrap()
}

/// All bytes of a file, those of a trace's chunks decompressed.
fn laid_open(name: &str, bytes: &[u8]) -> Vec<u8> {
    let mut open = bytes.to_vec();
    if name.ends_with(".trace.bin") {
        let header: Header = bytemuck::pod_read_unaligned(&bytes[..HEADER_BYTES]);
        let (mut at, end) = (header.chunks_offset as usize, header.chunks_end as usize);
        assert_eq!(end, bytes.len(), "nothing lies behind the chunks");
        while at < end {
            let chunk: ChunkHeader = bytemuck::pod_read_unaligned(&bytes[at..at + CHUNK_HEADER_BYTES]);
            let stored = &bytes[at + CHUNK_HEADER_BYTES..][..chunk.stored_bytes as usize];
            open.extend(chunk.payload(stored).expect("a whole chunk"));
            at += CHUNK_HEADER_BYTES + stored.len();
        }
    }
    open
}

fn holds(bytes: &[u8], secret: &str) -> bool {
    bytes.windows(secret.len()).any(|window| window.eq_ignore_ascii_case(secret.as_bytes()))
}

/// A program with something private in every place that a trace has for texts.
fn private() -> TraceBuilder {
    let mut trace = TraceBuilder::default().device(0, "Radeon RX 7900 XTX", 24 * GIB);
    let home = "/home/alice/acme";
    let process = &mut trace.process;
    process.executable = format!("{home}/bin/acme-trainer");
    process.command_line = [
        "bin/acme-trainer",
        "--data",
        "grumpycat",
        "--batch-size",
        "32",
        "--hf-token=sesame",
        "acme.run=grumpycat",
        "-Pgrumpycat",
        "/home/alice/acme/checkpoint7.pt",
    ]
    .map(Into::into)
    .into();
    process.environment = [
        ("GPUOOM_TRACE", "/home/alice/acme/borealis-%p.bin"),
        ("LD_LIBRARY_PATH", "/opt/rocm/lib:/home/alice/acme/lib"),
        ("LLAMA_ARG_ALIAS", "grumpycat"),
        ("NCCL_COMM_ID", "10.20.30.40:29500"),
        ("PYTORCH_HIP_ALLOC_CONF", "expandable_segments:True"),
        ("ROCR_VISIBLE_DEVICES", "GPU-0b7e1d4c-1111-2222-3333-444455556666"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    process.hostname = "borealis.example.net".into();
    process.kernel = "6.12.0 #1 SMP alice@borealis".into();
    process.notes = vec!["GPUOOM_SAMPLE=grumpycat: expected a time; the default is used".into()];
    let module = |path: &str, vendor| Module { path: path.into(), build_id: "ab12".into(), start: 0, end: 0, vendor };
    trace.modules = vec![
        module("/home/alice/acme/lib/libacme.so.3", false),
        module("/home/alice/acme/.venv/lib/python3.11/site-packages/torch/lib/libtorch_hip.so", true),
        module("/opt/rocm-6.4.1/lib/libamdhip64.so.6.4.60401", true),
    ];
    trace.bypasses = vec![Bypass {
        caller: "/home/alice/acme/lib/libacme.so.3".into(),
        function: "hipMalloc".into(),
        target: "/opt/rocm-6.4.1/lib/libamdhip64.so.6".into(),
        functions: 2,
    }];
    trace.machine = [
        ("/proc/self/cgroup", "0::/user.slice/acme-job.scope\n"),
        ("/sys/fs/cgroup/user.slice/acme-job.scope/memory.max", "68719476736\n"),
        ("/proc/meminfo", "MemTotal: 65000000 kB\n"),
        ("/proc/sys/kernel/osrelease", "6.12.0\n"),
        (
            "/home/alice/acme/.venv/lib/python3.11/site-packages/torch/version.py",
            "__version__ = '2.9.1+rocm6.4'\nhip = '6.4.43482'\n",
        ),
        ("/sys/class/drm/card0/device/mem_info_vram_total", "25753026560\n"),
    ]
    .map(|(path, text)| (path.to_owned(), text.to_owned()))
    .into();
    trace
}

/// The same with events.
fn eventful(in_ring: bool) -> TraceBuilder {
    let mut trace = private().library("/home/alice/acme/lib/libacme.so.3", 0x10_0000, 7);
    trace.in_ring = in_ring;
    trace.site = 7;
    let mark = |trace: &mut TraceBuilder, label: &str| {
        let record = trace.record(Event::Mark, Kind::None, "gpuoom_mark");
        trace.with_text(Record { device: NO_DEVICE, ..record }, label);
    };
    let code = trace.record(Event::Code, Kind::None, "gpuoom_reading");
    trace.with_text(Record { site: 1, ..code }, "/home/alice/acme/src/quokka.py\0Whisper.whisper_fn");
    for step in 0..6u64 {
        mark(&mut trace, if step % 2 == 0 { "phase-zebra" } else { "x" });
        for number in 0..3 {
            trace.alloc(0x7f00_0000_0000 + (step * 3 + number) * 2 * GIB, GIB + number * 3 * MIB);
        }
        trace.free(0x7f00_0000_0000 + step * 6 * GIB);
    }
    let seq = trace.refuse(16 * GIB);
    let read = [
        (Quantity::RuntimeTotal as u16, 24 * GIB),
        (Quantity::RuntimeFree as u16, 9 * GIB),
        (Quantity::VramUsed as u16, 15 * GIB),
    ];
    trace.read_at_failure(seq, &read);
    trace.after(Event::GpuWork, "hipLaunchKernel", 0, flag::FAILED_POINTER);
    let thrown = trace.record(Event::Exception, Kind::None, "__cxa_throw");
    trace.with_text(thrown, "N3c1016OutOfMemoryErrorE");
    trace.under_way("hipMalloc", 3 * GIB);
    trace.end(process::EXITS, 1);
    trace
}

const TORCH_LOG: &str = "loading the model of acme for alice\npassword: hunter2\ntorch.OutOfMemoryError: HIP out of memory. Tried to \
    allocate 16.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 9.00 GiB is free. Of the allocated memory 12.00 GiB is \
    allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.\n  File \"/home/alice/acme/src/quokka.py\", line 7, \
    in whisper\n    model(quokka)\n";
const KERNEL_LOG: &str = "Nov 20 14:03:11 borealis kernel: usb 1-1: SerialNumber: SN4711X\nNov 20 14:03:12 borealis kernel: Out of \
    memory: Killed process 4711 (acme-trainer) total-vm:100kB, anon-rss:50kB, file-rss:0kB, shmem-rss:0kB, UID:1000\n";
const SMI: &str = "[{\"gpu\": 0, \"serial\": \"SN4711X\", \"mem_usage\": {\"total_vram\": {\"value\": 24560, \"unit\": \"MB\"}, \
    \"used_vram\": {\"value\": 15000, \"unit\": \"MB\"}, \"free_vram\": {\"value\": 9560, \"unit\": \"MB\"}}}]\n";

/// Every number, word of the tool and place in the structure is the same; only texts of the program may differ.
fn same_numbers(one: &Value, other: &Value, at: &str) {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let keys = |map: &serde_json::Map<String, Value>| map.keys().cloned().collect::<Vec<_>>();
            assert_eq!(keys(one), keys(other), "{at}");
            one.iter().for_each(|(key, value)| same_numbers(value, &other[key], &format!("{at}/{key}")));
        }
        (Value::Array(one), Value::Array(other)) => {
            assert_eq!(one.len(), other.len(), "{at}: {one:?} {other:?}");
            one.iter()
                .zip(other)
                .enumerate()
                .for_each(|(index, (one, other))| same_numbers(one, other, &format!("{at}/{index}")));
        }
        (Value::String(_), Value::String(_)) => {}
        (one, other) => assert_eq!(one, other, "{at}"),
    }
}

/// A bundle, made anew.
fn bundle(place: &Place, arguments: &[&str]) -> Vec<(String, Vec<u8>)> {
    let _ = std::fs::remove_file(place.0.path().join("b.tar.gz"));
    place.run(&[&["bundle", "-o", "b.tar.gz"], arguments].concat());
    unpack(&place.read("b.tar.gz"))
}

#[test]
fn no_secret_gets_into_a_bundle_and_no_number_changes() {
    for in_ring in [false, true] {
        let place = Place::new();
        place.file("t.bin", eventful(in_ring).bytes());
        place.file("run.log", TORCH_LOG);
        place.file("kernel.log", KERNEL_LOG);
        place.file("smi.json", SMI);
        let beside = ["--torch-log", "run.log", "--kernel-log", "kernel.log", "--amd-smi", "smi.json"];
        let files = bundle(&place, &[&["t.bin"], &beside[..]].concat());
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "REDACTED.md",
                "evidence/kernel-log-01.txt",
                "evidence/smi-01.txt",
                "evidence/torch-log-01.txt",
                "issue.md",
                "machine.json",
                "report.json",
                "report.md",
                "traces/01.trace.bin"
            ]
        );
        for (name, bytes) in &files {
            let open = laid_open(name, bytes);
            // The key of a pair is the name of an option, which stays.
            let open = String::from_utf8_lossy(&open).replace("acme.run=", "");
            for secret in SECRETS {
                assert!(!holds(open.as_bytes(), secret), "{secret} is in {name}");
            }
        }
        let before = place.json(&[&["report", "--format", "json", "t.bin"], &beside[..]].concat());
        let after = place.json(&["report", "--format", "json", "b.tar.gz"]);
        same_but_positions(&before, &after);
        let kept: Value = serde_json::from_str(&text(&files, "report.json")).unwrap();
        same_but_positions(&after, &kept);
        let lines = |file: &str| place.run(&["events", "--format", "json", file]);
        let (before, after) = (lines("t.bin"), lines("b.tar.gz"));
        assert_eq!(before.lines().count(), after.lines().count());
        for (one, other) in before.lines().zip(after.lines()) {
            same_numbers(&serde_json::from_str(one).unwrap(), &serde_json::from_str(other).unwrap(), "event");
        }
    }
}

/// Lines of a log that are left out move the others: line numbers and offsets in logs are not compared.
fn same_but_positions(one: &Value, other: &Value) {
    let strip = |value: &Value| {
        let mut value = value.clone();
        for log in value
            .pointer_mut("/other_evidence")
            .into_iter()
            .flat_map(|other| other.as_object_mut().unwrap().values_mut())
        {
            strip_positions(log);
        }
        value
    };
    same_numbers(&strip(one), &strip(other), "");
}

fn strip_positions(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.remove("line");
            map.remove("offset_bytes");
            map.values_mut().for_each(strip_positions);
        }
        Value::Array(list) => list.iter_mut().for_each(strip_positions),
        _ => {}
    }
}

#[test]
fn what_people_read_in_a_bundle() {
    let place = Place::new();
    let mut trace = eventful(false);
    trace.header.minor = 3;
    place.file("t.bin", trace.bytes());
    let files = bundle(&place, &["t.bin"]);
    insta::assert_snapshot!("redacted", text(&files, "REDACTED.md"));
    insta::assert_snapshot!("issue", text(&files, "issue.md"));
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let place = Place::new();
    place.file("t.bin", eventful(false).bytes());
    place.run(&["bundle", "-o", "a.tar.gz", "t.bin"]);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    place.run(&["bundle", "-o", "b.tar.gz", "t.bin"]);
    assert_eq!(place.read("a.tar.gz"), place.read("b.tar.gz"));
}

/// The bundle that lies there may be the only one of another run.
#[test]
fn an_older_bundle_is_not_replaced() {
    let place = Place::new();
    place.file("t.bin", eventful(false).bytes());
    place.file("b.tar.gz", "older");
    let output = place.output(&["bundle", "-o", "b.tar.gz", "t.bin"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("b.tar.gz: there is a file of this name already; choose another name with -o"), "{said}");
    assert_eq!(place.read("b.tar.gz"), b"older");
    place.run(&["bundle", "-o", "/dev/null", "t.bin"]);
}

#[test]
fn each_word_of_keep_leaves_its_own_sort() {
    let place = Place::new();
    place.file("t.bin", eventful(false).bytes());
    let all = |files: &[(String, Vec<u8>)]| -> Vec<u8> {
        files.iter().flat_map(|(name, bytes)| laid_open(name, bytes)).collect()
    };
    for (keep, stays, goes) in [
        ("user", "/home/alice", "borealis"),
        ("host", "borealis.example.net", "alice"),
        ("paths", "libacme.so.3", "alice"),
        ("arguments", "grumpycat", "alice"),
        ("environment", "grumpycat", "checkpoint7"),
        ("marks", "phase-zebra", "grumpycat"),
        ("paths,user", "/home/alice/acme/lib", "borealis"),
    ] {
        let bytes = all(&bundle(&place, &["--keep", keep, "t.bin"]));
        assert!(holds(&bytes, stays), "--keep {keep} keeps {stays}");
        assert!(!holds(&bytes, goes), "--keep {keep} does not keep {goes}");
    }
    let kept = bundle(&place, &["--keep", "all", "t.bin"]);
    assert!(
        text(&kept, "REDACTED.md").contains("`user`, `host`, `paths`, `arguments`, `environment`, `marks`, `evidence`")
    );
    let mut before = place.json(&["report", "--format", "json", "t.bin"]);
    let mut after = place.json(&["report", "--format", "json", "b.tar.gz"]);
    // What is secret by its form goes in any case.
    for report in [&mut before, &mut after] {
        report["trace"]["path"] = Value::Null;
        report["process"]["environment"]["ROCR_VISIBLE_DEVICES"] = Value::Null;
        report["process"]["command_line"][5] = Value::Null;
    }
    assert_eq!(before, after);
}

#[test]
fn several_traces_and_a_bundle_of_a_bundle() {
    let place = Place::new();
    let mut other = private();
    other.header.pid = 4712;
    (other.process.pid, other.process.rank, other.process.hostname) = (4712, 1, "quokka".into());
    other.alloc(0x1000, GIB);
    place.file("1.bin", eventful(false).bytes());
    place.file("2.bin", other.bytes());
    let files = bundle(&place, &["1.bin", "2.bin"]);
    assert!(files.iter().any(|(name, _)| name == "traces/02.trace.bin"));
    let before = place.json(&["report", "--format", "json", "1.bin", "2.bin"]);
    same_numbers(&before, &place.json(&["report", "--format", "json", "b.tar.gz"]), "");
    place.run(&["bundle", "-o", "again.tar.gz", "b.tar.gz"]);
    same_numbers(&before, &place.json(&["report", "--format", "json", "again.tar.gz"]), "");
}

#[test]
fn a_snapshot_stays_out_unless_it_is_asked_for() {
    let place = Place::new();
    place.file("t.bin", eventful(false).bytes());
    // {'segments': [], 'device_traces': []} by protocol 2.
    place.file("s.pickle", b"\x80\x02}(X\x08\x00\x00\x00segments]X\x0d\x00\x00\x00device_traces]u.");
    let files = bundle(&place, &["--torch-snapshot", "s.pickle", "t.bin"]);
    assert!(!files.iter().any(|(name, _)| name.contains("snapshot")));
    assert!(text(&files, "REDACTED.md").contains("memory snapshots of PyTorch"));
    let files = bundle(&place, &["--torch-snapshot", "s.pickle", "--keep", "evidence", "t.bin"]);
    assert!(files.iter().any(|(name, _)| name == "evidence/torch-snapshot-01.pickle"));
    place.run(&["report", "b.tar.gz"]);
}

#[test]
fn damage_of_the_original_is_named() {
    let place = Place::new();
    let mut bytes = eventful(false).bytes();
    let last = bytes.len() - 3;
    bytes[last] ^= 0xff;
    place.file("t.bin", bytes);
    let output = place.output(&["bundle", "-o", "b.tar.gz", "t.bin"]);
    assert_eq!(output.status.code(), Some(3), "the copy is of a part");
    let files = unpack(&place.read("b.tar.gz"));
    assert!(text(&files, "REDACTED.md").contains("offset"), "{}", text(&files, "REDACTED.md"));
    let damages = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap()["damages"].clone();
    let of_trace = damages(&place.output(&["report", "--format", "json", "t.bin"]).stdout);
    assert!(!of_trace.as_array().unwrap().is_empty());
    assert_eq!(damages(text(&files, "report.json").as_bytes()), of_trace);
    // The copy is whole, and must not pass for the whole run.
    for name in ["b.tar.gz", "c.tar.gz"] {
        let output = place.output(&["report", "--format", "json", name]);
        assert_eq!((output.status.code(), damages(&output.stdout)), (Some(3), of_trace.clone()), "{name}");
        place.file("keep.toml", "[budget]\npeak = \"900 GiB\"\n");
        let again = if name == "b.tar.gz" { "c.tar.gz" } else { "d.tar.gz" };
        let status = place.output(&["bundle", "-o", again, "b.tar.gz"]).status;
        assert_eq!(status.code(), Some(3), "a bundle of a bundle");
    }
}

#[test]
fn what_can_not_be_read_makes_no_bundle_or_is_said() {
    let place = Place::new();
    place.file("t.bin", eventful(false).bytes());
    place.file("x.bin", "no trace");
    let output = place.output(&["bundle", "-o", "b.tar.gz", "x.bin"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(!place.0.path().join("b.tar.gz").exists());
    let output = place.output(&["bundle", "-o", "b.tar.gz", "x.bin", "t.bin"]);
    assert_eq!(output.status.code(), Some(3), "one of two is there, and the status says that one is missing");
    place.run(&["report", "b.tar.gz"]);
    assert_eq!(place.output(&["bundle", "t.bin"]).status.code(), Some(2), "a bundle needs a name");
    assert_eq!(place.output(&["bundle", "-o", "b.tar.gz", "--keep", "nonsense", "t.bin"]).status.code(), Some(2));
}

#[test]
fn facts_of_the_model_travel_along() {
    let place = Place::new();
    place.file("t.bin", eventful(false).bytes());
    let files = bundle(&place, &["--model", "layers=32,kv_heads=8,head_dim=128,context=8192,kv_type=f16", "t.bin"]);
    assert!(text(&files, "evidence/model-facts-01.toml").contains("layers = 32"));
    let kept: Value = serde_json::from_str(&text(&files, "report.json")).unwrap();
    same_but_positions(&kept, &place.json(&["report", "--format", "json", "b.tar.gz"]));
}

/// Recorded runs of released versions, through a bundle and back.
#[test]
fn recorded_runs_return() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
    let mut count = 0;
    for folder in std::fs::read_dir(fixtures).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        for trace in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let place = Place::new();
            let trace = trace.to_str().unwrap();
            bundle(&place, &[trace]);
            // Without the libraries of this machine: where it has one of the run's, the original shows inlined functions
            // that the redacted copy, whose private modules lost their names, can't.
            let report = |file: &str| place.json(&["report", "--no-local-symbols", "--format", "json", file]);
            same_numbers(&report(trace), &report("b.tar.gz"), trace);
            let events = |file: &str| place.run(&["events", "--format", "csv", file]).lines().count();
            assert_eq!(events(trace), events("b.tar.gz"), "{trace}");
            count += 1;
        }
    }
    assert!(count >= 4, "{count} traces");
}

/// The report in a bundle and the report on it are made with the thresholds that were given when it was made.
#[test]
fn thresholds_travel_along() {
    let place = Place::new();
    place.file("t.bin", eventful(false).bytes());
    let files =
        bundle(&place, &["--threshold", "model-granule=256M", "--threshold", "capacity-high-share=0.123", "t.bin"]);
    assert_eq!(text(&files, "thresholds.txt"), "capacity-high-share=0.123\nmodel-granule=268435456\n");
    let kept: Value = serde_json::from_str(&text(&files, "report.json")).unwrap();
    assert_eq!(kept["thresholds_changed"].as_array().unwrap().len(), 2, "{}", kept["thresholds_changed"]);
    same_but_positions(&kept, &place.json(&["report", "--format", "json", "b.tar.gz"]));
    let page = place.run(&["report", "--full", "b.tar.gz"]).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains("capacity-high-share=0.123 (default 0.9)"), "{page}");
    assert!(page.contains("model-granule=256 MiB (default: what the trace was recorded with)"), "{page}");
    assert!(page.contains("256 MiB granules (set by --threshold"), "{page}");
    // What is given now counts before them, and a bundle of the bundle has them still.
    let given = place.run(&["report", "--full", "--threshold", "capacity-high-share=0.5", "b.tar.gz"]);
    assert!(given.contains("capacity-high-share=0.5 (default 0.9)"), "{given}");
    place.run(&["bundle", "-o", "again.tar.gz", "b.tar.gz"]);
    assert_eq!(text(&unpack(&place.read("again.tar.gz")), "thresholds.txt"), text(&files, "thresholds.txt"));
    // Without a setting there is no file, and nothing to be told.
    assert!(!bundle(&place, &["t.bin"]).iter().any(|(name, _)| name == "thresholds.txt"));
    let output = place.output(&["bundle", "-o", "b.tar.gz", "--threshold", "nonsense=1", "t.bin"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn bundles_that_were_made_with_different_thresholds_are_not_mixed() {
    let place = Place::new();
    place.file("t.bin", eventful(false).bytes());
    place.run(&["bundle", "-o", "a.tar.gz", "--threshold", "swaps=4", "t.bin"]);
    place.run(&["bundle", "-o", "b.tar.gz", "--threshold", "swaps=5", "t.bin"]);
    let output = place.output(&["report", "a.tar.gz", "b.tar.gz"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("a.tar.gz was made with swaps=4 (default 3), and b.tar.gz with swaps=5"), "{said}");
    place.run(&["report", "--threshold", "swaps=6", "a.tar.gz", "b.tar.gz"]);
}

/// What the reader says of the model counts before what the bundle says; what the reader does not say stays.
#[test]
fn facts_that_are_given_count_before_the_bundles() {
    let place = Place::new();
    place.file("t.bin", eventful(false).bytes());
    bundle(&place, &["--model", "layers=32,kv_heads=8,head_dim=128,context=8192,kv_type=f16", "t.bin"]);
    let facts = |file: &str, arguments: &[&str]| {
        let report = place.json(&[&["report", "--format", "json", file], arguments].concat());
        let model = &report["other_evidence"]["model"];
        (model["facts"]["context"].as_u64(), model["kv_cache"]["bytes"].as_u64(), model["facts"]["layers"].as_u64())
    };
    assert_eq!(facts("b.tar.gz", &[]), (Some(8192), Some(1 << 30), Some(32)));
    assert_eq!(facts("b.tar.gz", &["--model", "context=4096"]), (Some(4096), Some(1 << 29), Some(32)));
    place.run(&["bundle", "-o", "again.tar.gz", "--model", "context=4096", "b.tar.gz"]);
    assert_eq!(facts("again.tar.gz", &[]), (Some(4096), Some(1 << 29), Some(32)));
}

/// A library whose name was replaced is found in the reader's directory by its build id.
#[test]
fn symbols_of_the_reader_name_functions_of_a_bundle() {
    const BUILD_ID: &str = "00112233445566778899aabbccddeeff00112233";
    let place = Place::new();
    let source =
        place.file("acme.c", "__attribute__((noinline)) int load_all(int v) { __asm__(\"\"); return v * 3; }\n");
    let library = place.0.path().join("keep/libacme.so.3");
    std::fs::create_dir(library.parent().unwrap()).unwrap();
    let status = Command::new("cc")
        .args(["-O1", "-g", "-shared", "-fPIC", &format!("-Wl,--build-id=0x{BUILD_ID}"), "-o"])
        .args([&library, &source])
        .status();
    assert!(status.unwrap().success());
    let listing = Command::new("nm").arg(&library).output().unwrap();
    let listing = String::from_utf8(listing.stdout).unwrap();
    let line = listing.lines().find(|line| line.ends_with(" load_all")).unwrap();
    let start = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();

    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    let (first, end) = (0x7f00_0000_0000, 0x7f00_0010_0000);
    let path = "/home/alice/acme/lib/libacme.so.3".to_owned();
    trace.modules.push(Module { path, build_id: BUILD_ID.into(), start: first, end, vendor: false });
    trace.stack(1, &[first + start + 2], &[]);
    trace.site = 1;
    trace.alloc(0x1000, GIB);
    place.file("t.bin", trace.bytes());
    let files = bundle(&place, &["t.bin"]);
    assert!(!files.iter().any(|(name, bytes)| holds(&laid_open(name, bytes), "libacme")));
    let page =
        |arguments: &[&str]| place.run(&[&["report", "--full", "--no-local-symbols", "b.tar.gz"], arguments].concat());
    assert!(page(&["--symbols", "keep"]).contains("load_all"), "{}", page(&["--symbols", "keep"]));
    assert!(!page(&[]).contains("load_all"));

    let output = place.output(&["bundle", "-o", "c.tar.gz", "--symbols", "keep", "t.bin"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("whoever reads the bundle gives --symbols"), "{said}");
}
