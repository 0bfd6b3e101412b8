//! `diff` as scripts and people call it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gpuoom_analyze::testing::{GIB, TraceBuilder};
use serde_json::Value;

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Place(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A run that holds so many bytes.
    fn trace(&self, name: &str, bytes: u64) {
        let mut trace = TraceBuilder::default().device(0, "card", 16 * GIB);
        trace.alloc(0x1000, bytes);
        trace.free(0x1000);
        trace.write(&self.path(name)).unwrap();
    }

    fn diff(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuoom-analyze"));
        command.arg("diff").args(arguments).current_dir(self.0.path()).output().unwrap()
    }

    fn stdout(&self, arguments: &[&str]) -> String {
        let output = self.diff(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn conditions_that_nobody_can_judge_are_told_in_each_format() {
    let place = Place::new();
    place.trace("run.bin", GIB);
    for (condition, says) in [
        ("growth_per_mark > 1M", "at least 6 are needed"),
        ("peak[process=serve] > 1", "NEW is of"),
        ("peak[device=3] > 1G", "no process used that device"),
        ("peak[site=*misspelt*] < 1G", "no call site fits"),
    ] {
        let of = |format| place.diff(&["run.bin", "run.bin", "--fail-on", condition, "--format", format]);
        for format in ["text", "markdown", "json"] {
            let output = of(format);
            assert_eq!(output.status.code(), Some(0));
            let out = String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(out.contains(says) && out.to_lowercase().replace('_', " ").contains("not judged"), "{out}");
            assert!(stderr(&output).contains("--fail-on was not judged"), "{}", stderr(&output));
        }
    }
    let output = place.diff(&["run.bin", "run.bin", "--fail-on", "peak[job] > 1"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("gpuoom-analyze check"), "{}", stderr(&output));
}

#[test]
fn each_format_says_the_same() {
    let place = Place::new();
    place.trace("base.bin", GIB);
    place.trace("new.bin", 2 * GIB);
    let text = place.stdout(&["base.bin", "new.bin"]);
    assert!(text.contains("The peak of GPU 0 grew by 1.00 GiB (+100.0 %), from 1.00 GiB to 2.00 GiB"), "{text}");
    let markdown = place.stdout(&["base.bin", "new.bin", "--format", "markdown"]);
    assert!(markdown.starts_with("### GPU memory: GPU 0 peak +1.00 GiB\n"), "{markdown}");
    let json = place.stdout(&["base.bin", "new.bin", "--format", "json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    for (pointer, expected) in [
        ("/schema", Value::from("gpuoom.diff/1")),
        ("/base/path", "base.bin".into()),
        ("/new/path", "new.bin".into()),
        ("/is_equal", false.into()),
        ("/places/0/place", "gpu0".into()),
        ("/places/0/base/peak_bytes", GIB.into()),
        ("/places/0/new/peak_bytes", (2 * GIB).into()),
        ("/sites/0/new/allocations", 1.into()),
    ] {
        assert_eq!(json.pointer(pointer), Some(&expected), "{pointer}");
    }
}

#[test]
fn the_result_can_go_to_a_file() {
    let place = Place::new();
    place.trace("base.bin", GIB);
    assert_eq!(place.stdout(&["base.bin", "base.bin", "-o", "out.txt"]), "");
    assert!(std::fs::read_to_string(place.path("out.txt")).unwrap().contains("The two runs do not differ"));
}

#[test]
fn the_threshold_can_be_moved() {
    let place = Place::new();
    place.trace("base.bin", GIB);
    place.trace("less.bin", 1000 << 20);
    place.trace("more.bin", 1020 << 20);
    assert!(place.stdout(&["less.bin", "more.bin"]).contains("grew by"));
    let folded = place.stdout(&["less.bin", "more.bin", "--threshold", "3%"]);
    let folded = folded.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        folded.contains("do not differ in what the program asked for by more than the threshold (1 MiB and 3.0 %)"),
        "{folded}"
    );
    place.trace("near.bin", GIB - 4096);
    assert!(!place.stdout(&["near.bin", "base.bin"]).contains("grew by"));
    assert!(place.stdout(&["near.bin", "base.bin", "--threshold", "0"]).contains("grew by 4 KiB"));
    // One byte more than a granule is noise; the granule is not.
    place.trace("over.bin", GIB + 1);
    let over = place.stdout(&["base.bin", "over.bin"]);
    assert!(
        over.contains("VERDICT  No peak changed by more than the threshold")
            && over.contains("Modelled: The padded peak of")
            && over.contains("grew by 256 MiB (+25.0 %)")
            && over.contains("peak, padded: 1.00 GiB, now 1.25 GiB"),
        "{over}"
    );
}

#[test]
fn what_can_not_be_read_or_understood_has_its_status() {
    let place = Place::new();
    place.trace("base.bin", GIB);
    std::fs::write(place.path("text.txt"), "no trace").unwrap();
    for (arguments, status, says) in [
        (&["base.bin", "missing.bin"][..], 3, "missing.bin"),
        (&["text.txt", "base.bin"], 3, "text.txt"),
        (&["base.bin"], 2, "<NEW>"),
        (&["base.bin", "base.bin", "base.bin"], 2, "unexpected argument"),
        (&["base.bin", "base.bin", "--threshold", "-5%"], 2, "unexpected argument"),
        (&["base.bin", "base.bin", "--threshold", "5 apples"], 2, "invalid size '5 apples'"),
    ] {
        let output = place.diff(arguments);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(says), "{arguments:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures").join(name)
}

/// Recorded runs, also of released format versions: each equals itself, and any can be set beside any other.
#[test]
fn recorded_runs_can_be_compared() {
    let place = Place::new();
    let names = [
        "format-1.0/rocm-5.2.3-llama-fits.trace.bin",
        "format-1.0/rocm-5.2.3-llama-compute-buffer.trace.bin",
        "format-1.3/llama-cuda-kv-cache.trace.bin",
    ];
    let paths = names.map(|name| fixture(name).to_str().unwrap().to_owned());
    for path in &paths {
        let same = place.stdout(&[path, path]);
        assert!(same.contains("The two runs do not differ"), "{path}: {same}");
    }
    let versions = place.stdout(&[&paths[0], &paths[2]]);
    assert!(versions.contains("BASE (format 1.0) does not tell who called"), "{versions}");
    let fails = place.stdout(&[&paths[0], &paths[1]]);
    assert!(fails.contains("1 more call runs out of"), "{fails}");
}

/// What a diff depends on can be set, and is told; what it does not depend on is refused.
#[test]
fn thresholds_of_the_analysis_reach_the_comparison() {
    let place = tempfile::tempdir().unwrap();
    let mut trace = gpuoom_analyze::testing::TraceBuilder::default().device(0, "card", 24 << 30);
    (0..8).for_each(|block| _ = trace.alloc(0x1000 + (block << 30), 300 << 20));
    let path = place.path().join("t.bin");
    std::fs::write(&path, trace.bytes()).unwrap();
    let run = |command: &str, arguments: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_gpuoom-analyze"))
            .arg(command)
            .args(arguments)
            .current_dir(place.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned() + &said)
    };
    let (status, page) = run("diff", &["--threshold", "model-granule=2M", "--threshold", "5%", "t.bin", "t.bin"]);
    assert_eq!(status, Some(0), "{page}");
    assert!(page.contains("model-granule=2 MiB (default: what the trace was recorded with)"), "{page}");
    let (status, said) = run("diff", &["--threshold", "gap-warning=2G", "t.bin", "t.bin"]);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("gap-warning: runs are not compared by it"), "{said}");
    // Padded to 256 MiB the blocks take 4 GiB, to 2 MiB no more than they asked for.
    std::fs::write(place.path().join("p.toml"), "[[budget]]\npeak_padded = \"3G\"\n").unwrap();
    let (status, page) = run("check", &["--policy", "p.toml", "t.bin"]);
    assert_eq!(status, Some(1), "{page}");
    let (status, page) = run("check", &["--policy", "p.toml", "--threshold", "model-granule=2M", "t.bin"]);
    assert_eq!(status, Some(0), "{page}");
    let (status, said) = run("check", &["--policy", "p.toml", "--threshold", "hang=2s", "t.bin"]);
    assert_eq!((status, said.contains("hang: runs are not compared by it")), (Some(2), true), "{said}");
}
