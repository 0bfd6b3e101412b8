//! `message` on error texts of public issues: what it must say of each, and what it must never claim.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use gpuoom_analyze::catalogue;
use gpuoom_analyze::message::{ErrorText, Limit, Source, Triage, triage};
use gpuoom_analyze::thresholds::Thresholds;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Index {
    text: Vec<Text>,
}

/// One text of the corpus.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    file: String,
    origin: String,
    /// Diagnoses that it must not claim.
    #[serde(default)]
    never: Vec<String>,
    #[serde(default)]
    error: Vec<Wanted>,
}

/// One error of it, in order. Without a limit it is not about memory.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    limit: Option<Limit>,
    /// `ID:CONFIDENCE`
    #[serde(default)]
    diagnoses: Vec<String>,
    requested: Option<u64>,
    #[serde(default = "once")]
    times: u64,
    purpose: Option<String>,
    #[serde(default)]
    excluded: Vec<String>,
}

fn once() -> u64 {
    1
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/messages")
}

fn index() -> Vec<Text> {
    let index: Index = toml::from_str(&read("index.toml")).unwrap();
    index.text
}

fn read(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn found(name: &str) -> Triage {
    triage(&[Source { name, text: &read(name) }], &Thresholds::default())
}

/// What is wrong with an error; empty: nothing.
fn faults(error: &ErrorText, wanted: &Wanted) -> Vec<String> {
    let told: Vec<String> =
        error.diagnoses.iter().map(|told| format!("{}:{}", told.id, told.confidence.name())).collect();
    let excluded: BTreeSet<&str> = error.excluded.iter().map(|excluded| excluded.what).collect();
    let checks = [
        (error.limit == wanted.limit, format!("limit {:?}, not {:?}", error.limit, wanted.limit)),
        ((error.is_memory == Some(true)) == wanted.limit.is_some(), format!("about memory: {:?}", error.is_memory)),
        (told == wanted.diagnoses, format!("diagnoses {told:?}, not {:?}", wanted.diagnoses)),
        (error.times == wanted.times, format!("{} times, not {}", error.times, wanted.times)),
        (error.purpose == wanted.purpose.as_deref(), format!("for {:?}, not {:?}", error.purpose, wanted.purpose)),
        (
            wanted.requested.is_none_or(|bytes| error.requested_bytes == Some(bytes)),
            format!("{:?} requested, not {:?}", error.requested_bytes, wanted.requested),
        ),
        (wanted.excluded.iter().all(|what| excluded.contains(what.as_str())), format!("excluded: {excluded:?}")),
    ];
    checks.into_iter().filter(|(is_right, _)| !is_right).map(|(_, fault)| fault).collect()
}

#[test]
fn each_text_is_explained_as_its_issue_was() {
    let mut wrong = Vec::new();
    for text in index() {
        let errors = found(&text.file).errors;
        if errors.len() != text.error.len() {
            let told: Vec<_> = errors.iter().map(|error| (error.line, error.wording)).collect();
            wrong.push(format!("{}: {} errors, not {}: {told:?}", text.file, errors.len(), text.error.len()));
        }
        for (error, wanted) in errors.iter().zip(&text.error) {
            let faults = faults(error, wanted);
            wrong.extend(faults.into_iter().map(|fault| format!("{}:{}: {fault}", text.file, error.line)));
        }
        for error in &errors {
            let claims = error.diagnoses.iter().filter(|told| text.never.iter().any(|never| never == told.id));
            wrong.extend(claims.map(|told| format!("{}: claims {}", text.file, told.id)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_corpus_is_real_and_large_enough() {
    let texts = index();
    let two = texts.iter().filter(|text| text.error.len() > 1).count();
    let no_memory = texts.iter().filter(|text| text.error.iter().any(|wanted| wanted.limit.is_none())).count();
    assert!(texts.len() >= 100 && two >= 9 && no_memory >= 15, "{} {two} {no_memory}", texts.len());
    let files: BTreeSet<&str> = texts.iter().map(|text| text.file.as_str()).collect();
    let there = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let there: BTreeSet<String> = there.filter(|name| name.ends_with(".txt")).collect();
    assert_eq!(there.iter().map(String::as_str).collect::<BTreeSet<_>>(), files);
    for text in &texts {
        let rest = text.origin.strip_prefix("https://github.com/").unwrap_or_else(|| panic!("{}", text.origin));
        assert!(rest.contains("/issues/") || rest.contains("/pull/"), "{}", text.origin);
        assert!(text.never.iter().all(|id| catalogue::find(id).is_some()), "{}", text.file);
    }
}

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Place(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.0.path().join(name), bytes).unwrap();
    }

    fn corpus(&self, name: &str) {
        self.file(name, read(name).as_bytes());
    }

    fn run(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuoom-analyze"));
        command.arg("message").args(arguments).current_dir(self.0.path()).env_remove("GPUOOM_TRACE");
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.spawn().unwrap();
        // Where the arguments are wrong nobody reads.
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    }

    fn page(&self, arguments: &[&str], input: &[u8]) -> String {
        let output = self.run(arguments, input);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn pages_that_people_read() {
    let place = Place::new();
    for name in [
        "torch-framepack-369",
        "torch-mgfn-35",
        "torch-strix-3",
        "torch-175431",
        "llama-20431",
        "vllm-175666",
        "not-illegal-4164",
        "two-tf-30912",
        "kill-qaconv-19",
    ] {
        let file = format!("{name}.txt");
        place.corpus(&file);
        insta::assert_snapshot!(name, place.page(&[&file], b""));
    }
    let unknown = place.page(&[], b"hello\nthe frobnicator is out of memory\n");
    insta::assert_snapshot!("unknown", unknown);
}

#[test]
fn one_error_takes_at_most_25_lines() {
    let place = Place::new();
    for text in index().iter().filter(|text| text.error.len() == 1) {
        place.corpus(&text.file);
        let page = place.page(&[&text.file], b"");
        assert!(page.lines().count() <= 25, "{}: {page}", text.file);
        assert!(page.lines().all(|line| line.chars().count() <= 100), "{}: {page}", text.file);
    }
}

#[test]
fn the_contract_of_the_json() {
    let place = Place::new();
    place.corpus("llama-11476.txt");
    let json: serde_json::Value =
        serde_json::from_str(&place.page(&["--format", "json", "llama-11476.txt"], b"")).unwrap();
    assert_eq!(json["schema"], "gpuoom.message/1");
    let errors = json["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 1);
    let error = &errors[0];
    assert!(error["text"].as_str().unwrap().contains("cudaMalloc failed"));
    assert_eq!((error["source"].as_str(), error["line"].as_u64()), (Some("llama-11476.txt"), Some(1)));
    assert!(error["diagnoses"].is_array() && error["missing"].is_array() && error["origin"].is_array());
    assert_eq!(error["sizes"]["requested"]["bytes"], 10_345_253_120_u64);
    insta::assert_snapshot!("json", place.page(&["--format", "json", "llama-11476.txt"], b""));
}

#[test]
fn standard_input_and_several_files_are_told_apart() {
    let place = Place::new();
    place.corpus("torch-mgfn-35.txt");
    let page = place.page(&["torch-mgfn-35.txt", "-"], b"x\nOSError: [Errno 24] Too many open files\n");
    assert!(page.contains("torch-mgfn-35.txt:1") && page.contains("standard input:2"), "{page}");
    assert!(page.contains("not a GPU out-of-memory error"), "{page}");
}

/// PyTorch prints the same message on each rank, and a traceback repeats it.
#[test]
fn equal_repeats_are_counted() {
    let place = Place::new();
    let message = read("torch-mgfn-35.txt");
    let log: String = (0..8).map(|rank| format!("[rank{rank}]: {message}")).collect();
    let json: serde_json::Value = serde_json::from_str(&place.page(&["--format", "json"], log.as_bytes())).unwrap();
    let errors = json["errors"].as_array().unwrap();
    assert_eq!((errors.len(), errors[0]["times"].as_u64()), (1, Some(8)));
}

#[test]
fn what_is_no_text_is_refused_with_a_sentence() {
    let place = Place::new();
    place.file("run.trace.bin", &[&gpuoom_trace::header::MAGIC[..], &[0; 4000]].concat());
    place.file("program", b"\x7fELF\x02\x01\x01\0\0\0");
    place.file("bundle.tar.gz", &[0x1f, 0x8b, 8, 0, 0]);
    place.file("noise", &(0..4096u32).map(|byte| (byte.wrapping_mul(2_654_435_761) >> 13) as u8).collect::<Vec<_>>());
    for (name, says) in [
        ("run.trace.bin", "gpuoom-analyze report"),
        ("program", "this is a program"),
        ("bundle.tar.gz", "compressed"),
        ("noise", "not a text"),
        ("absent", "No such file"),
        (".", "directory"),
    ] {
        let output = place.run(&[name], b"");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(3), true), "{name}: {said}");
        assert!(said.contains(says) && said.lines().count() == 1, "{name}: {said}");
    }
    assert_eq!(place.run(&["--wrong"], b"").status.code(), Some(2));
}

/// The page of the book shows what the tool prints.
#[test]
fn the_example_of_the_book_is_real() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let book = std::fs::read_to_string(root.join("docs/message.md")).unwrap();
    let (_, example) = book.split_once("```console\n$ gpuoom-analyze ").unwrap();
    let (command, shown) = example.split_once("```").unwrap().0.split_once('\n').unwrap();
    let mut tool = Command::new(env!("CARGO_BIN_EXE_gpuoom-analyze"));
    let output = tool.args(command.split(' ')).current_dir(root).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), shown);
}
