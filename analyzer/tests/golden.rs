//! Traces of released format versions: still readable, and explained as agreed.

use std::path::{Path, PathBuf};
use std::process::Command;

fn traces() -> Vec<PathBuf> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
    let folders = std::fs::read_dir(fixtures).expect("the fixtures").map(|entry| entry.expect("a folder").path());
    let mut traces: Vec<PathBuf> = folders
        .filter(|path| path.is_dir())
        .flat_map(|folder| std::fs::read_dir(folder).expect("a folder of traces"))
        .map(|entry| entry.expect("a trace").path())
        .collect();
    traces.sort();
    traces
}

fn analyze(trace: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuoom-analyze"));
    let name = trace.file_name().expect("a file name");
    command.current_dir(trace.parent().expect("a folder")).args(arguments).arg(name);
    let output = command.env_remove("COLUMNS").output().expect("the analyzer starts");
    assert!(output.status.success(), "{}: {}", trace.display(), String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("the analyzer writes UTF-8")
}

#[test]
fn reports_are_as_agreed() {
    let traces = traces();
    assert!(traces.len() >= 4, "{traces:?}");
    for trace in traces {
        let version = trace.parent().and_then(Path::file_name).expect("a folder per version").to_string_lossy();
        let name = trace.file_name().expect("a file name").to_string_lossy();
        let name = format!("{version}-{}", name.trim_end_matches(".trace.bin"));
        insta::assert_snapshot!(name.clone(), analyze(&trace, &["report", "--full", "--no-local-symbols"]));
        insta::assert_snapshot!(format!("{name}.short"), analyze(&trace, &["report", "--no-local-symbols"]));
    }
}

/// Every event of every trace can be written as JSON, and the report counts the same events.
#[test]
fn every_event_is_there() {
    for trace in traces() {
        let events = analyze(&trace, &["events", "--format", "json"]);
        let report: serde_json::Value =
            serde_json::from_str(&analyze(&trace, &["report", "--format", "json"])).expect("JSON");
        assert_eq!(report["trace"]["events"].as_u64(), Some(events.lines().count() as u64), "{}", trace.display());
    }
}
