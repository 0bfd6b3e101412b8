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
    let output = place.run(&given);
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
        assert!(String::from_utf8_lossy(&output.stdout).contains("MEMORY"), "{given:?}");
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
