//! Evidence from beside the trace, as people give it: files, exit statuses, messages.

use std::path::PathBuf;
use std::process::{Command, Output};

use gpuoom_analyze::testing::{GIB, MIB, TraceBuilder};
use serde_json::Value;

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Place(tempfile::tempdir().unwrap());
        let mut trace = TraceBuilder::default().device(0, "card", 16 * GIB);
        trace.alloc(0x7f00_0000_0000, 20 * MIB);
        trace.write(&place.path("trace.bin")).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), bytes).unwrap();
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuoom-analyze"));
        command.args(arguments).arg("trace.bin").current_dir(self.0.path()).output().unwrap()
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const MESSAGE: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.54 GiB. GPU 0 has a total capacity of \
                       15.92 GiB of which 0 bytes is free. Of the allocated memory 3.97 GiB is allocated by PyTorch, and 9.27 \
                       GiB is reserved by PyTorch but unallocated.\n";

#[test]
fn a_log_is_in_the_json_and_on_the_page() {
    let place = Place::new();
    place.file("one.log", MESSAGE);
    place.file("two.log", format!("epoch 1\n{MESSAGE}"));
    let given = ["--torch-log", "one.log", "--torch-log", "two.log"];
    let output = place.run(&[&given[..], &["--format", "json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let message = &report["other_evidence"]["torch_logs"][1]["messages"][0];
    assert_eq!((&message["line"], &message["findings"][0]["id"]), (&2.into(), &"caching-fragmentation".into()));
    let output = place.run(&[&["--full"], &given[..]].concat());
    assert!(String::from_utf8_lossy(&output.stdout).contains("OTHER EVIDENCE"));
    let output = place.run(&["--format", "json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report.get("other_evidence"), None, "nothing was given");
}

/// The trace is reported all the same.
#[test]
fn what_can_not_be_used_is_named_with_place_and_reason() {
    let place = Place::new();
    place.file("quiet.log", "all is well\n");
    place.file("evil.pickle", b"\x80\x04cos\nsystem\n.");
    place.file("cut.xml", "<nvidia_smi_log>");
    place.file("cut.pickle", b"\x80\x04}(\x8c\x08segm");
    for (given, expected) in [
        (["--torch-log", "none.log"], "none.log: No such file"),
        (["--torch-log", "quiet.log"], "quiet.log: no out-of-memory message of PyTorch is in it"),
        (["--torch-snapshot", "evil.pickle"], "evil.pickle: offset 2: the opcode GLOBAL makes Python look up or call"),
        (["--amd-smi", "quiet.log"], "quiet.log: this is no output that is known; expected one of: amd-smi"),
        (["--nvidia-smi", "cut.xml"], "cut.xml: offset 16: the file ends in the middle"),
        (["--kernel-log", "quiet.log"], "quiet.log: this is no log of the kernel; give the output of dmesg"),
        (["--torch-snapshot", "cut.pickle"], "cut.pickle: offset 4: the file ends in the middle"),
    ] {
        let output = place.run(&given);
        assert_eq!(output.status.code(), Some(3), "{given:?}");
        assert!(stderr(&output).contains(expected), "{given:?}: {}", stderr(&output));
        assert!(String::from_utf8_lossy(&output.stdout).contains("MORE"), "{given:?}");
    }
}

#[test]
fn tools_and_the_kernel_are_in_the_json() {
    let place = Place::new();
    place.file("smi.csv", "index, memory.total [MiB], memory.used [MiB]\n0, 24564 MiB, 564 MiB\n");
    place.file("dmesg", "[   12.5] amdgpu: SVM mapping failed, exceeds resident system memory limit\n");
    place.file("quiet", "[    0.1] Linux version 6.12\n");
    let given = ["--nvidia-smi", "smi.csv", "--kernel-log", "dmesg", "--kernel-log", "quiet", "--format", "json"];
    let output = place.run(&given);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let other = &report["other_evidence"];
    assert_eq!(other["smi"][0]["cards"][0]["free_bytes"], 24_000 * MIB);
    assert_eq!(other["kernel_logs"][0]["lines"][0]["kind"], "svm_mapping");
    assert_eq!(other["kernel_logs"][1]["lines"].as_array().map(Vec::len), Some(0), "a quiet log is no error");
}

fn confidence(arguments: &[&str]) -> Option<String> {
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/format-1.3/llama-cuda-kv-cache.trace.bin");
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuoom-analyze"));
    let output = command.args(["report", "--format", "json"]).args(arguments).arg(fixture).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = report["diagnoses"].as_array().unwrap().iter().find(|found| found["id"] == "kv-cache-prealloc");
    found.map(|found| found["confidence"].as_str().unwrap().to_owned())
}

/// A recorded run of llama.cpp: 6 layers, 8 heads of 32 elements, 8192 tokens.
#[test]
fn the_facts_of_a_model_prove_its_cache_or_refute_it() {
    assert_eq!(confidence(&[]), None, "by its place alone it is a guess, and something surer explains it");
    let known = "layers=6,kv_heads=8,head_dim=32,context=8192";
    assert_eq!(confidence(&["--model", known]).as_deref(), Some("proven"));
    assert_eq!(confidence(&["--model", known, "--model", "context=4096"]), None);
    assert_eq!(confidence(&["--model", known, "--model", "kv_type=q8_0"]), None);
    // Another tolerance.
    let wide = ["--threshold", "model-share=60%", "--model", known, "--model", "kv_type=q8_0"];
    assert_eq!(confidence(&wide).as_deref(), None);
    let wider = ["--threshold", "model-share=1", "--model", known, "--model", "kv_type=q8_0"];
    assert_eq!(confidence(&wider).as_deref(), Some("proven"));
}

/// What was given, from where, what it predicts, and what the trace has of that.
#[test]
fn the_model_is_other_evidence() {
    let place = Place::new();
    place.file("facts.toml", "layers = 5\nkv_heads = 8\nhead_dim = 32\nweights = \"20M\"\n");
    let given = ["--model-facts", "facts.toml", "--model", "context=4096"];
    let text = place.run(&[&["--full"], &given[..]].concat());
    let page = String::from_utf8_lossy(&text.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    for said in [
        "facts.toml, --model context=4096: facts of the model: layers=5",
        "KV cache for 4096 tokens: 20 MiB by the facts; the trace has a block of 20 MiB",
        "weights: 20 MiB by the facts",
        "the program's blocks came to 20 MiB at most on one device",
    ] {
        assert!(page.contains(said), "{said}: {page}");
    }
    let json = place.run(&[&given[..], &["--format", "json"]].concat());
    let report: Value = serde_json::from_slice(&json.stdout).unwrap();
    let model = &report["other_evidence"]["model"];
    assert_eq!((&model["kv_cache"]["bytes"], &model["kv_cache"]["is_near"]), (&(20 * MIB).into(), &true.into()));
    assert_eq!((&model["facts"]["layers"], &model["from"][0]), (&5.into(), &"facts.toml".into()));
}

#[test]
fn facts_and_thresholds_that_cannot_be_used_are_said() {
    let place = Place::new();
    place.file("facts.toml", "layers = 32\nheads = \"many\"\n");
    place.file("model.gguf", "GGUFxxxx");
    for (arguments, said) in [
        (["--model", "layer=3"], "no such fact"),
        (["--threshold", "gap-waning=1G"], "did you mean gap-warning?"),
        (["--threshold", "gap-warning=lots"], "such as 1.5G"),
        (["--threshold", "count-share=3"], "a share from 0 to 1"),
        (["--model-facts", "facts.toml"], "heads='many'"),
        (["--gguf", "model.gguf"], "no GGUF file"),
    ] {
        let output = place.run(&[&["report"], &arguments[..]].concat());
        assert!(stderr(&output).contains(said), "{arguments:?}: {}", stderr(&output));
        let status = if arguments[0].ends_with("facts") || arguments[0].ends_with("gguf") { 3 } else { 2 };
        assert_eq!(output.status.code(), Some(status), "{arguments:?}");
    }
}

#[test]
fn what_was_changed_is_on_the_page_and_in_the_json() {
    let place = Place::new();
    let output = place.run(&["report", "--threshold", "capacity_high_share=85%"]);
    let page = String::from_utf8_lossy(&output.stdout).into_owned();
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains("thresholds set by hand (--threshold): capacity-high-share=0.85 (default 0.9)"), "{page}");
    let output = place.run(&["report", "--format", "json", "--threshold", "hang=2min"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["thresholds_changed"][0]["name"], "hang");
    assert_eq!(report["thresholds_changed"][0]["value"], 120e9);
}

/// Whatever a user takes for a log ends in a sentence or in a right result.
#[test]
fn odd_files_are_read_or_named() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    std::fs::write(at("t.bin"), gpuoom_analyze::testing::TraceBuilder::default().bytes()).unwrap();
    let message = "step 1\r\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of \
        8.00 GiB of which 1.00 GiB is free. Of the allocated memory 5.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by \
        PyTorch but unallocated.\r\n";
    let utf16: Vec<u8> = message.encode_utf16().flat_map(u16::to_le_bytes).collect();
    std::fs::write(at("crlf.log"), message).unwrap();
    std::fs::write(at("utf16.log"), [&b"\xff\xfe"[..], &utf16].concat()).unwrap();
    // A log that was cut while its program went on writing: zeros, and then text.
    let sparse = std::fs::File::create(at("sparse.log")).unwrap();
    std::os::unix::fs::FileExt::write_at(&sparse, message.as_bytes(), 100 << 20).unwrap();
    std::fs::File::create(at("zeros.log")).unwrap().set_len(1 << 30).unwrap();
    std::fs::write(at("empty.log"), "").unwrap();
    std::fs::write(at("binary.log"), (0..=255u8).cycle().take(100_000).collect::<Vec<_>>()).unwrap();
    std::fs::create_dir(at("directory.log")).unwrap();
    let run = |option: &str, file: &str| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_gpuoom-analyze"))
            .args(["report", "--format", "json", option, file, "t.bin"])
            .current_dir(place.path())
            .output()
            .unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let messages = report["other_evidence"]["torch_logs"][0]["messages"].as_array().cloned().unwrap_or_default();
        (output.status.code(), messages, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (file, offset) in [("crlf.log", 32), ("utf16.log", 32), ("sparse.log", (100 << 20) + 32)] {
        let (status, messages, said) = run("--torch-log", file);
        assert_eq!((status, messages.len()), (Some(0), 1), "{file}: {said}");
        assert_eq!(messages[0]["offset_bytes"], offset, "{file}: {}", messages[0]);
    }
    for (file, says) in [
        ("zeros.log", "nothing but zeros"),
        ("empty.log", "the file is empty"),
        ("binary.log", "no out-of-memory message of PyTorch is in it"),
        ("directory.log", "this is a directory; name the file in it"),
        ("/dev/null", "the file is empty"),
        ("missing.log", "No such file"),
    ] {
        for option in ["--torch-log", "--amd-smi", "--kernel-log", "--model-facts"] {
            let (status, _, said) = run(option, file);
            assert_eq!(status, Some(3), "{option} {file}: {said}");
            assert!(said.starts_with(&format!("gpuoom-analyze: {file}: ")) && said.lines().count() == 1, "{said}");
            let is_too_large = said.contains("give the part that matters") && file == "zeros.log";
            assert!(said.contains(says) || file == "binary.log" || is_too_large, "{option} {file}: {said}");
        }
    }
}
