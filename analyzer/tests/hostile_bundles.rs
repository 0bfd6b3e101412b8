//! Archives that lie: each is refused in one sentence with exit status 3, and nothing of it is written anywhere.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use flate2::Compression;
use flate2::write::GzEncoder;
use gpuoom_analyze::testing::{GIB, MIB, TraceBuilder};
use tar::{EntryType, Header};

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Place(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuoom-analyze"));
        command.args(arguments).current_dir(self.0.path()).output().unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn trace() -> Vec<u8> {
    let mut trace = TraceBuilder::default().device(0, "card", 16 * GIB);
    trace.alloc(0x1000, 300 * MIB);
    trace.refuse(17 * GIB);
    trace.bytes()
}

/// An archive as bytes, below the checks of the library that writes them.
#[derive(Default)]
struct Raw(Vec<u8>);

impl Raw {
    fn entry(mut self, name: &[u8], kind: EntryType, content: &[u8]) -> Self {
        let mut header = Header::new_ustar();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name);
        header.set_mode(0o644);
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    fn file(self, name: &str, content: &[u8]) -> Self {
        self.entry(name.as_bytes(), EntryType::Regular, content)
    }

    fn tar(mut self) -> Vec<u8> {
        self.0.extend_from_slice(&[0; 1024]);
        self.0
    }

    fn packed(self) -> Vec<u8> {
        gzip(&self.tar())
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

const NAME: &str = "gpuoom-bundle/traces/01.trace.bin";

/// Refused by every command that takes a trace, with this in the message.
fn refused(bytes: &[u8], expected: &str) {
    let place = Place::new();
    place.file("b.tar.gz", bytes);
    for command in [&["report"][..], &["map"], &["events"], &["whatif", "--capacity", "16G"]] {
        let output = place.run(&[command, &["b.tar.gz"]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{command:?}: {said}");
        assert!(said.contains(expected), "{command:?}: {said}");
        assert_eq!(said.lines().count(), 1, "one sentence: {said}");
        assert!(output.stdout.is_empty(), "{command:?}");
    }
    assert_eq!(place.names(), ["b.tar.gz"], "nothing was unpacked");
}

#[test]
fn a_bundle_is_read_like_its_trace() {
    let place = Place::new();
    place.file("t.bin", &trace());
    place.file("b.tar.gz", &Raw::default().file(NAME, &trace()).file("gpuoom-bundle/report.json", b"lies").packed());
    for command in [
        &["report", "--full"][..],
        &["map"],
        &["events"],
        &["whatif", "--capacity", "16G"],
        &["report", "--format", "json"],
    ] {
        let read = |file: &str| {
            let output = place.run(&[command, &[file]].concat());
            assert_eq!(output.status.code(), Some(0), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        };
        let bundled = read("b.tar.gz").replace("b.tar.gz:traces/01.trace.bin", "t.bin").replace("b.tar.gz", "t.bin");
        assert_eq!(bundled, read("t.bin"), "{command:?}");
    }
}

#[test]
fn several_traces_are_a_job_and_one_can_be_named() {
    let place = Place::new();
    let second = "gpuoom-bundle/traces/02.trace.bin";
    place.file("b.tar.gz", &Raw::default().file(second, &trace()).file(NAME, &trace()).packed());
    let report = place.run(&["report", "--format", "json", "b.tar.gz"]);
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(report["traces"].as_array().unwrap().len(), 2);
    let output = place.run(&["map", "b.tar.gz"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3));
    assert!(said.contains("holds 2 traces") && said.contains("b.tar.gz:traces/01.trace.bin"), "{said}");
    assert_eq!(place.run(&["map", "b.tar.gz:traces/02.trace.bin"]).status.code(), Some(0));
    let output = place.run(&["map", "b.tar.gz:traces/03.trace.bin"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("it holds traces/01.trace.bin, traces/02.trace.bin"));
}

#[test]
fn what_is_no_bundle_is_named() {
    refused(b"", "the file is empty");
    refused(b"PK\x03\x04rest", "ZIP");
    refused(&Raw::default().file(NAME, &trace()).tar(), "not compressed");
    refused(&gzip(b"a text that somebody compressed"), "no tar archive");
    refused(&gzip(&trace()), "compressed trace");
    refused(&trace(), "this is a trace");
    refused(b"\x28\xb5\x2f\xfd....", "zstd");
    refused(b"plain text", "not compressed by gzip");
    refused(&Raw::default().packed(), "no trace is in this archive");
    refused(&Raw::default().file("gpuoom-bundle/report.md", b"x").packed(), "no trace is in this archive");
    refused(&Raw::default().file(NAME, b"no trace").packed(), "not a gpuoom trace");
}

#[test]
fn cut_and_damaged_archives_are_refused() {
    let whole = Raw::default().file(NAME, &trace()).packed();
    for length in [3, 12, 200, whole.len() / 2, whole.len() - 1] {
        refused(&whole[..length], "cut off or damaged");
    }
    let mut wrong = whole.clone();
    let last = wrong.len() - 6;
    wrong[last] ^= 0xff;
    refused(&wrong, "cut off or damaged");
    let tar = Raw::default().file(NAME, &trace()).tar();
    refused(&gzip(&tar[..512 + 700]), "before the end of an entry");
}

#[test]
fn paths_that_lead_out_are_refused() {
    for (name, why) in [
        ("/etc/passwd", "absolute"),
        ("../escape.trace.bin", "leads out"),
        ("gpuoom-bundle/../../escape", "leads out"),
        ("gpuoom-bundle/traces/../../../x.trace.bin", "leads out"),
        ("gpuoom-bundle//traces/01.trace.bin", "simple form"),
        ("gpuoom-bundle/./traces/01.trace.bin", "simple form"),
        ("gpuoom-bundle\\traces\\01.trace.bin", "characters"),
        ("gpuoom-bundle/\x1b[31m", "characters"),
    ] {
        refused(&Raw::default().file(NAME, &trace()).file(name, b"x").packed(), why);
    }
    let latin1 = Raw::default().file(NAME, &trace()).entry(b"gpuoom-bundle/\xe9", EntryType::Regular, b"x");
    refused(&latin1.packed(), "not UTF-8");
}

#[test]
fn links_devices_and_doubles_are_refused() {
    for (kind, why) in [
        (EntryType::Symlink, "a link"),
        (EntryType::Link, "a link"),
        (EntryType::Char, "a device"),
        (EntryType::Block, "a device"),
        (EntryType::Fifo, "a device or a pipe"),
        (EntryType::GNUSparse, "of a sort"),
        (EntryType::GNULongName, "of a sort"),
        (EntryType::new(b'Z'), "of a sort"),
    ] {
        let archive = Raw::default().file(NAME, &trace()).entry(b"gpuoom-bundle/x", kind, b"");
        refused(&archive.packed(), why);
    }
    refused(&Raw::default().file(NAME, &trace()).file(NAME, &trace()).packed(), "there twice");
}

#[test]
fn bombs_are_refused_before_they_go_off() {
    let zeros = vec![0; 80 << 20];
    let bomb = Raw::default().file(NAME, &zeros).packed();
    assert!(bomb.len() < 1 << 20, "small on the disk: {} bytes", bomb.len());
    refused(&bomb, "times its size");
    // Behind the archive's end, and in what nobody reads.
    let mut behind = Raw::default().file(NAME, &trace()).tar();
    behind.extend_from_slice(&zeros);
    refused(&gzip(&behind), "times its size");
    refused(&Raw::default().file("gpuoom-bundle/report.md", &zeros).packed(), "times its size");
    let mut many = Raw::default().file(NAME, &trace());
    for number in 0..10_001 {
        many = many.file(&format!("gpuoom-bundle/{number}"), b"");
    }
    refused(&many.packed(), "more than 10000 entries");
}

/// A header that claims more than there is, and one that claims more than there may be.
#[test]
fn sizes_that_lie_are_refused() {
    let claim = |size: u64| {
        let mut tar = Raw::default().file(NAME, b"").tar();
        let mut header = Header::new_ustar();
        header.as_mut_bytes().copy_from_slice(&tar[..512]);
        header.set_size(size);
        header.set_cksum();
        tar[..512].copy_from_slice(header.as_bytes());
        gzip(&tar)
    };
    refused(&claim(4 * GIB), "before the end of an entry");
    refused(&claim(u64::MAX / 4), "more than 16 GiB");
    let evidence = |size: u64| {
        let mut archive = Raw::default().file(NAME, &trace()).file("gpuoom-bundle/evidence/smi-01.txt", b"").tar();
        let at = archive.len() - 1024 - 512;
        let mut header = Header::new_ustar();
        header.as_mut_bytes().copy_from_slice(&archive[at..at + 512]);
        header.set_size(size);
        header.set_cksum();
        archive[at..at + 512].copy_from_slice(header.as_bytes());
        gzip(&archive)
    };
    refused(&evidence(GIB), "more than 512 MiB");
}

#[test]
fn other_archivers_notes_are_passed_over() {
    let place = Place::new();
    let pax = Raw::default().entry(b"pax_global_header", EntryType::XGlobalHeader, b"30 path=/etc/passwd\n");
    let archive = pax.entry(b"gpuoom-bundle/", EntryType::Directory, b"").file(&format!("./{NAME}"), &trace());
    let path = place.file("b.tgz", &archive.packed());
    assert_eq!(place.run(&["report", path.to_str().unwrap()]).status.code(), Some(0));
    assert!(Path::new(&path).exists());
}
