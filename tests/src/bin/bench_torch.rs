//! What it costs to know each block of a PyTorch program: by the recorder, and by PyTorch's own record of its allocator.
//!
//! Run by `scripts/bench torch [ROUNDS]`, after `scripts/real-clients install` and `build`. The same program, in turns; then a long run of
//! it, held against PyTorch's own totals.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use gpuoom_tests::{Client, analyzer, recorder, told_blocks, torch_client};
use gpuoom_trace::reader::TraceFile;

/// Steps of `toy.py`, of some 550 blocks each.
const STEPS: &str = "1500";

/// Steps of a run with ten million records.
const LONG: &str = "9200";

/// Steps of a run that is all start and end.
const SHORT: &str = "5";

struct Way {
    name: &'static str,
    client: fn(Client) -> Client,
    is_recorded: bool,
}

const WAYS: [Way; 3] = [
    Way { name: "neither", client: |client| client.arg(STEPS), is_recorded: false },
    Way { name: "gpuoom", client: |client| client.arg(STEPS), is_recorded: true },
    Way {
        name: "`torch.cuda.memory._record_memory_history()`",
        client: |client| client.arg(STEPS).args(["history", "history.pickle"]),
        is_recorded: false,
    },
];

/// What one run took.
#[derive(Clone, Copy)]
struct Cost {
    user_seconds: f64,
    most_memory_bytes: f64,
    file_bytes: f64,
}

fn main() {
    let rounds = std::env::args().nth(1).map_or(7, |text| text.parse().expect("ROUNDS is a number"));
    let mut runs: [Vec<Cost>; WAYS.len()] = Default::default();
    for round in 0..=rounds {
        for (way, runs) in WAYS.iter().zip(&mut runs) {
            let Some(client) = torch_client("toy.py") else { return };
            let cost = cost((way.client)(client), way.is_recorded);
            // The first run of each reads from the disk what all later ones have in memory.
            if round > 0 {
                runs.push(cost);
            }
        }
    }
    say_ways(rounds, &runs);
    say_long_run(rounds);
}

fn say_ways(rounds: usize, runs: &[Vec<Cost>; WAYS.len()]) {
    println!(
        "| each block of `toy.py {STEPS}`, medians of {rounds} | user time over neither | memory over neither | file |"
    );
    println!("|---|---|---|---|");
    let over = |runs: &[Cost], of: fn(&Cost) -> f64| median(runs.iter().map(of).collect());
    for (way, own) in WAYS.iter().zip(runs) {
        let ratio =
            median(own.iter().zip(&runs[0]).map(|(own, plain)| own.user_seconds / plain.user_seconds).collect());
        let memory = over(own, |cost| cost.most_memory_bytes) - over(&runs[0], |cost| cost.most_memory_bytes);
        let mib = |bytes: f64| bytes / f64::from(1 << 20);
        let file = over(own, |cost| cost.file_bytes);
        println!("| {} | {ratio:.2} | {:.0} MiB | {:.1} MiB |", way.name, mib(memory), mib(file));
    }
}

/// Ten million records of blocks: whether each total is PyTorch's, what they take on disk, and how fast they are read beside as many
/// calls of the runtime.
fn say_long_run(rounds: usize) {
    let Some(client) = torch_client("toy.py") else { return };
    let (_, directory) = client.arg(LONG).processor_time_and_files(true);
    let trace = files(directory.path(), "bin").pop().expect("a trace");
    let told = told_blocks(&trace);
    let events = told.given + told.taken;
    println!(
        "\n{events} records of blocks, {} totals of PyTorch's that differ, {} strange",
        told.mismatches, told.strange
    );
    let file = TraceFile::open(&trace).expect("a trace");
    let bytes = file.header.chunks_end - file.header.chunks_offset;
    println!("{:.2} bytes a record on disk", bytes as f64 / file.records_in_chunks() as f64);
    let calls = directory.path().join("calls");
    let synthesize = recorder().with_file_name("examples").join("synthesize");
    let made = Command::new(synthesize).arg(&calls).arg(file.records_in_chunks().to_string()).status();
    assert!(made.expect("synthesize starts").success());
    // What a report of this program takes whatever its length: names from PyTorch's libraries, some hundred megabytes of symbols.
    let Some(short) = torch_client("toy.py") else { return };
    let (_, short) = short.arg(SHORT).processor_time_and_files(true);
    let short = files(short.path(), "bin").pop().map(|trace| median((0..rounds).map(|_| seconds(&trace)).collect()));
    let short = short.expect("a trace");
    let times: Vec<[f64; 2]> = (0..rounds).map(|_| [seconds(&trace), seconds(&calls)]).collect();
    let ratio = |less: f64| median(times.iter().map(|[blocks, calls]| (blocks - less) / calls).collect());
    println!("their report takes {:.2} times as long as that of as many calls of the runtime;", ratio(0.0));
    println!("{:.2} times less what the report of {SHORT} steps takes", ratio(short));
}

fn seconds(trace: &Path) -> f64 {
    let began = Instant::now();
    let output = Command::new(analyzer()).args(["report", "--format", "json"]).arg(trace).output();
    assert!(output.expect("the analyzer starts").status.success());
    began.elapsed().as_secs_f64()
}

fn cost(client: Client, is_recorded: bool) -> Cost {
    let (time, directory) = client.processor_time_and_files(is_recorded);
    let size = |path: PathBuf| std::fs::metadata(path).map_or(0, |data| data.len());
    let kept = ["pickle", "bin"].map(|end| files(directory.path(), end)).concat();
    Cost {
        user_seconds: time.user().as_secs_f64(),
        most_memory_bytes: time.most_memory_bytes as f64,
        file_bytes: kept.into_iter().map(size).sum::<u64>() as f64,
    }
}

/// What a run left in the directory that it ran in and in that of its trace, by the end of its name.
fn files(directory: &Path, end: &str) -> Vec<PathBuf> {
    let entries = ["cwd", "trace"].map(|name| std::fs::read_dir(directory.join(name)).expect("a directory of the run"));
    let paths = entries.into_iter().flatten().map(|entry| entry.expect("a directory entry").path());
    paths.filter(|path| path.extension().is_some_and(|known| known == end)).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
