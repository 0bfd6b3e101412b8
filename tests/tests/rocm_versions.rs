//! What HIP 5.2.3, 5.7.1 and 6.4.3 answer, each over the simulated card, and what the simulated HIP of `tests/sim` does: the page
//! `docs/rocm-versions.md`. The recorder changes none of the answers, nor any request that a call makes to the kernel.

use std::fmt::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use gpuoom_tests::{Client, Finished, RocmRelease, ZOO_ON_ROCM, program, rocm_on_card};

/// Set to write the page anew.
const UPDATE: &str = "UPDATE_ROCM_VERSIONS";

const PAGE: &str = "docs/rocm-versions.md";

/// The sections of `tests/clients/zoo/hip_answers.c`, each a run of its own.
const SECTIONS: &[(&str, &str, &str)] = &[
    ("last-error", "The last error", "`hipMalloc` of 1 TiB was refused before each question."),
    (
        "refusals",
        "Refusals and odd requests",
        "First on an empty card, then with 15 blocks of 512 MiB on it. “and null” is a success that gave no memory.",
    ),
    ("pools", "Stream-ordered memory", "On a stream of the program's own, in this order."),
    ("null-stream", "Stream-ordered memory on the null stream", "In a process of its own."),
    (
        "vmm",
        "Virtual memory",
        "In this order. HIP 5.2 has the functions and refuses to create memory; 5.7 creates it, and maps and gives back none.",
    ),
    ("vmm-twice", "Virtual memory, released last", "In a process of its own."),
    (
        "ipc",
        "Memory of other processes",
        "Within one process; between two, 6.4.3 shares a block this way (`--test rocm6_shared`). With `HSA_ENABLE_IPC_MODE_LEGACY=0`: without it 6.4.3 makes a request \
         that Linux's `kfd_ioctl.h` does not have, and where that fails, answers hipErrorInvalidValue.",
    ),
    ("graphs", "Memory nodes of graphs", "A graph that takes and frees 64 MiB, launched three times."),
    (
        "captures",
        "Stream-ordered memory while a stream is captured",
        "The stream is the program's own; one block is freed on it before the capture ends, the other after the graph has run.",
    ),
    ("blocks", "Small blocks, copies, streams, reset", "The process's first GPU calls: its queues are in the numbers."),
    ("host", "Host memory and managed memory", "8 GiB of host memory for the card; no XNACK."),
];

/// Questions that the simulated HIP, as HIP 6.2, answers in another way than 6.4.3, and why it may.
const SIMULATED_OTHERWISE: &[(&str, &str)] = &[
    (
        "hipMallocArray, 512 MiB where less is free",
        "no kernel below, which would show that the array lies in host memory",
    ),
    ("granularity, minimum", "SIM_GRANULARITY, 2 MiB"),
    ("granularity, recommended", "SIM_GRANULARITY, 2 MiB"),
    ("hipMemAddressFree for the second time", "a crash is nothing to simulate"),
    ("hipMemUnmap for the second time", "a crash is nothing to simulate"),
    ("hipMemRelease for the second time", "HIP reads memory that it has freed: the answer is luck"),
    ("hipIpcGetMemHandle of pinned host memory", "only device memory is shared"),
    ("hipGraphInstantiate", "queues take no memory"),
    ("graph memory, ReservedMemCurrent after it", "no memory behind nodes of graphs"),
    ("graph memory, ReservedMemCurrent at the end", "no memory behind nodes of graphs"),
    ("hipGraphInstantiate of what was captured", "queues take no memory"),
    ("less free than before it, at rest", "no memory behind nodes of graphs"),
    ("hipMalloc of 1 byte, the second", "each block has granules of its own"),
    ("hipFree of the second", "each block has granules of its own"),
    ("hipMemcpy of 1 MiB to it, the first copy", "queues take no memory"),
    ("hipStreamCreate, for a copy that was waited for", "queues take no memory"),
    (
        "hipFree of its 64 MiB, then hipDeviceSynchronize, after a copy that was not waited for",
        "streams keep no blocks",
    ),
    ("hipHostRegister for the second time", "as CUDA"),
    ("hipHostMalloc of 1 GiB until it is refused", "nothing of the runtime's own is in the limit"),
    ("hipMallocManaged of 1 GiB, then", "managed and pinned memory have a limit each"),
];

const HEAD: &str = "\
# What three releases of HIP answer

The same program (`tests/clients/zoo/hip_answers.c`) on Debian's HIP 5.2.3, 5.7.1 and 6.4.3, unmodified, over the simulated card
of `tests/sim/amdgpu`: gfx1030, 8 GiB. So the answers are those of HIP, of HSA's runtime and of the thunk; what the real kernel
driver and a real card would add to them was not tried. `HSA_*` and `GPU_*` settings that change an answer are not set, but
`GPU_FORCE_BLIT_COPY_SIZE=0`.

An answer is the status, then the requests to the kernel that the call made, by the simulated kernel's own log, then by how
much `hipMemGetInfo`'s free memory changed. `failed` is a request that the kernel refused, `registered` host memory.
“same” is the answer in the column to the left.

Made with `UPDATE_ROCM_VERSIONS=1 cargo test --release -p gpuoom-tests --test rocm_versions`; the same test, without the
variable, holds the page true, and holds the answers with the recorder loaded to those without.
";

const ZOO_HEAD: &str = "
## Programs of the zoo

How a program of `tests/clients/zoo` ends, and the last line that it prints. Each is the same with the recorder, whose trace has
each of the kernel's requests once (`tests/tests/rocm6_zoo.rs`).

";

type Answers = Vec<(String, String)>;

/// The recorded run, of the first pair of runs that say the same. HIP 5.2.3 alone, without the recorder, was seen to make two requests
/// more than usual for a stream: one pair may differ for that, and three pairs in turn do not.
fn both_alike(client: &Client) -> Finished {
    for _ in 0..2 {
        let (plain, recorded) = (client.run_plain(), client.run_recorded());
        if (&plain.stdout, &plain.stderr, plain.status)
            == (&recorded.stdout, &recorded.program_stderr(), recorded.status)
        {
            return recorded;
        }
        eprintln!("two runs differ, and are made again:\n{}\nwith the recorder:\n{}", plain.stdout, recorded.stdout);
    }
    client.run_both()
}

/// The questions of a section and what was answered, up to the one that killed the process.
fn answers(client: &Client, section: &str, recorded_as_well: bool) -> Answers {
    let client = client.clone().arg(section).env("GPUOOM_PROBE", "off");
    let client = if section == "ipc" { client.env("HSA_ENABLE_IPC_MODE_LEGACY", "0") } else { client };
    let run = if recorded_as_well { both_alike(&client) } else { client.run_plain() };
    let mut answers = Answers::new();
    for line in run.stdout.lines() {
        let [_, what, answer] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("not an answer: {line}") };
        assert!(answers.iter().all(|(question, _)| question != what), "{section} asks twice: {what}");
        answers.push((what.to_owned(), answer.to_owned()));
    }
    match run.status.signal() {
        Some(signal) => answers.last_mut().expect("a question").1 = format!("the process dies of signal {signal}"),
        None => assert_eq!(run.exit_code(), 0, "{}", run.stderr),
    }
    answers
}

fn answer_to<'a>(answers: &'a Answers, what: &str) -> &'a str {
    answers.iter().find(|(question, _)| question == what).map_or("not asked", |(_, answer)| answer)
}

/// All questions, in the order of the release that was asked the most.
fn questions(of_releases: &[Answers]) -> Vec<&str> {
    let longest = of_releases.iter().max_by_key(|answers| answers.len()).expect("a release");
    let mut all: Vec<&str> = longest.iter().map(|(what, _)| what.as_str()).collect();
    for (what, _) in of_releases.iter().flatten() {
        if !all.contains(&what.as_str()) {
            all.push(what);
        }
    }
    all
}

fn table(page: &mut String, of_releases: &[Answers]) {
    let names = RocmRelease::ALL.map(RocmRelease::number);
    let _ = writeln!(page, "| | {} |\n|---|{}", names.join(" | "), "---|".repeat(names.len()));
    for what in questions(of_releases) {
        let cells: Vec<&str> = of_releases.iter().map(|answers| answer_to(answers, what)).collect();
        let cell = |i: usize| if i > 0 && cells[i] == cells[i - 1] { "same" } else { cells[i] };
        let cells: Vec<&str> = (0..cells.len()).map(cell).collect();
        let _ = writeln!(page, "| {what} | {} |", cells.join(" | "));
    }
}

fn ask(client: impl Fn() -> Option<Client>, recorded_as_well: bool) -> Option<Vec<Answers>> {
    let client = client()?;
    Some(SECTIONS.iter().map(|(section, ..)| answers(&client, section, recorded_as_well)).collect())
}

/// How each program of the zoo ends, and its last line.
fn ends_of_the_zoo(release: RocmRelease) -> Option<Answers> {
    let end = |program: &&str| {
        let run = rocm_on_card(release, program)?.env("GPUOOM_PROBE", "off").run_recorded();
        let last_line = run.stdout.lines().last().map_or(String::new(), |line| format!(", “{line}”"));
        let end = match run.status.signal() {
            Some(signal) => format!("the process dies of signal {signal}"),
            None => format!("exit {}", run.exit_code()),
        };
        Some(((*program).to_owned(), end + &last_line))
    };
    ZOO_ON_ROCM.iter().map(end).collect()
}

#[test]
fn the_page_is_what_the_releases_answer() {
    let asked: Option<Vec<_>> =
        RocmRelease::ALL.iter().map(|release| ask(|| rocm_on_card(*release, "hip_answers"), true)).collect();
    let Some(asked) = asked else { return };
    let mut page = HEAD.to_owned();
    for (i, (_, title, introduction)) in SECTIONS.iter().enumerate() {
        let of_releases: Vec<Answers> = asked.iter().map(|sections| sections[i].clone()).collect();
        let _ = write!(page, "\n## {title}\n\n{introduction}\n\n");
        table(&mut page, &of_releases);
    }
    let of_zoo: Option<Vec<Answers>> = RocmRelease::ALL.into_iter().map(ends_of_the_zoo).collect();
    page.push_str(ZOO_HEAD);
    table(&mut page, &of_zoo.expect("the zoo is built with the rest"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(PAGE);
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, page).expect("the page");
        return;
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = there.lines().zip(page.lines()).find(|(old, new)| old != new);
    assert!(there == page, "{PAGE} is out of date ({differs:?}); write it anew with {UPDATE}=1 and this test");
}

/// Without the requests to the kernel, which the simulated HIP does not make.
fn above_the_kernel(answer: &str) -> String {
    let parts: Vec<&str> = answer.split("; ").filter(|part| !part.starts_with("kernel: ")).collect();
    parts.join("; ")
}

#[test]
fn the_simulated_hip_answers_as_the_real_one() {
    let simulated = || {
        let client = Client::new(program("hip_answers.c")).without_env("SIM_LOG").env("SIM_CAPACITY", "8G");
        Some(
            client
                .env("SIM_PINNED_LIMIT", "8G")
                .env("SIM_MANAGED_LIMIT", "8G")
                .env("LD_LIBRARY_PATH", gpuoom_tests::sim_dir()),
        )
    };
    let Some(real) = ask(|| rocm_on_card(RocmRelease::V6_4, "hip_answers"), false) else { return };
    let simulated = ask(simulated, true).expect("the simulated HIP is always there");
    let mut otherwise = Vec::new();
    for (real, simulated) in real.iter().zip(&simulated) {
        for (what, answer) in real {
            let (real, simulated) = (above_the_kernel(answer), above_the_kernel(answer_to(simulated, what)));
            let known = SIMULATED_OTHERWISE.iter().any(|(question, _)| question == what);
            if (real == simulated) == known {
                otherwise.push(format!("{what}: really {real}, simulated {simulated}"));
            }
        }
    }
    assert!(otherwise.is_empty(), "{otherwise:#?}");
}
