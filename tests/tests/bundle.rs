//! A real run through a bundle: what the recorder put into its trace is taken out again, and the events return. The program
//! is killed, so that its events still lie in the ring.

use std::fs;
use std::path::Path;
use std::process::Command;

use gpuoom_tests::{Client, Trace, analyzer, copy_program, program};
use gpuoom_trace::chunk::{CHUNK_HEADER_BYTES, ChunkHeader};
use gpuoom_trace::header::{HEADER_BYTES, Header};

/// Names that the run has in its paths, on its command line and in its environment.
const SECRETS: [&str; 4] = ["zorro", "quixotic", "grumpycat", "dulcinea"];

fn run(command: &mut Command) {
    let output = command.output().expect("the command starts");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// All bytes of a trace, with its chunks decompressed.
fn laid_open(path: &Path) -> Vec<u8> {
    let bytes = fs::read(path).expect("a trace");
    let header: Header = bytemuck_read(&bytes[..HEADER_BYTES]);
    let (mut open, mut at) = (bytes.clone(), header.chunks_offset as usize);
    while at < header.chunks_end as usize {
        let chunk: ChunkHeader = bytemuck_read(&bytes[at..at + CHUNK_HEADER_BYTES]);
        let stored = &bytes[at + CHUNK_HEADER_BYTES..][..chunk.stored_bytes as usize];
        open.extend(chunk.payload(stored).expect("a whole chunk"));
        at += CHUNK_HEADER_BYTES + stored.len();
    }
    open
}

fn bytemuck_read<T: bytemuck::AnyBitPattern>(bytes: &[u8]) -> T {
    bytemuck::pod_read_unaligned(bytes)
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window.eq_ignore_ascii_case(text.as_bytes()))
}

#[test]
fn a_killed_run_returns_from_a_bundle_without_its_secrets() {
    let place = tempfile::tempdir().expect("a directory");
    let project = place.path().join("home/zorro/quixotic");
    fs::create_dir_all(&project).expect("a project");
    let own = project.join("quixotic-trainer");
    copy_program(&program("marks.c"), &own);
    let client = Client::new(own).args(["--name", "grumpycat", "-c", "8192"]);
    let recorded = client.env("LLAMA_ARG_ALIAS", "dulcinea").env("PYTORCH_ALLOC_CONF", "backend:native").run_recorded();
    let trace = recorded.only_trace();
    let path = trace.path.clone();
    for secret in SECRETS {
        assert!(
            holds(&laid_open(&path), secret),
            "{secret} is in the recorded trace: the test looks for the right thing"
        );
    }

    let bundle = place.path().join("b.tar.gz");
    run(Command::new(analyzer()).arg("bundle").arg("-o").arg(&bundle).arg(&path));
    run(Command::new("tar").arg("-xzf").arg(&bundle).arg("-C").arg(place.path()));
    let unpacked = place.path().join("gpuoom-bundle");
    let copy = unpacked.join("traces/01.trace.bin");
    let uname = Command::new("uname").arg("-n").output().expect("uname").stdout;
    let host = String::from_utf8_lossy(&uname).trim().to_owned();
    for name in ["REDACTED.md", "issue.md", "machine.json", "report.json", "report.md", "traces/01.trace.bin"] {
        let file = unpacked.join(name);
        let bytes = if file == copy { laid_open(&file) } else { fs::read(&file).expect(name) };
        for secret in SECRETS {
            assert!(!holds(&bytes, secret), "{secret} is in {name}");
        }
        // The names of build machines can be short or words of the subject; then they stand in no field of their own either.
        assert!(host.len() < 6 || host == "localhost" || !holds(&bytes, &host), "{host} is in {name}");
    }

    let open = laid_open(&copy);
    assert!(holds(&laid_open(&path), "before") && !holds(&open, "before"), "marks are names of the program's own");
    assert!(holds(&open, "mark a1") && holds(&open, "mark b2"));

    let again = Trace::new(bundle);
    let numbers = |trace: &Trace| -> Vec<_> {
        let events = trace.events();
        events
            .iter()
            .map(|event| (event.seq(), event.at_ns(), event.thread(), event.api().to_owned(), event.kind().to_owned()))
            .collect()
    };
    assert_eq!(numbers(&trace), numbers(&again));
    let (before, after) = (trace.report(), again.report());
    for pointer in [
        "/trace/events",
        "/trace/events_lost",
        "/trace/torn_events",
        "/trace/duration_ns",
        "/process/pid",
        "/devices/0/peak/requested_bytes",
    ] {
        assert_eq!(before.number(pointer), after.number(pointer), "{pointer}");
    }
    assert_eq!(before.number("/devices/0/peak/requested_bytes"), 34 << 20);
    assert_eq!(after.text("/process/hostname"), "host-1");
    assert_eq!(after.text("/process/command_line/2"), "***1");
    assert_eq!(after.text("/process/command_line/4"), "8192");
    assert_eq!(after.text("/process/environment/PYTORCH_ALLOC_CONF"), "backend:native");
}
