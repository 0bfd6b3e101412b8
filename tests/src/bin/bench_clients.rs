//! What the recorder costs whole programs: each real client with and without it, or with and without one of its layers, in turns,
//! compared in rounds.
//!
//! Run by `scripts/bench clients [NAME [ROUNDS]]`, after `scripts/real-clients install` and `build`. With a name, only the
//! clients whose names contain it.

use gpuoom_tests::{Client, ProcessorTime, llama_cuda_client, real_clients_dir, rocm_client, torch_client};

/// How a client is measured.
struct Plan {
    name: &'static str,
    /// The most that the ratio may be.
    asked: &'static str,
    client: Option<Client>,
    over: Over,
    /// Ratios that the median is of: more for short programs, in which the fixed costs of a start and an end count.
    rounds: usize,
    /// A round is that many pairs of runs: the time of a short run is too coarse to be compared by itself.
    pairs: usize,
}

/// What the recorded run is compared with.
#[derive(Clone, Copy, PartialEq)]
enum Over {
    /// The program without the recorder.
    Nothing,
    /// The program under the recorder, which leaves out the layer of allocators above the runtime.
    NoFramework,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let wanted = arguments.first().cloned().unwrap_or_default();
    let rounds: Option<usize> = arguments.get(1).map(|text| text.parse().expect("ROUNDS is a number"));
    let mut has_said_how = false;
    for plan in plans().into_iter().filter(|plan| plan.name.contains(&wanted)) {
        let rounds = rounds.unwrap_or(plan.rounds).max(1);
        let Some(client) = &plan.client else {
            println!("| {} | {} | not installed | | | |", plan.name, plan.asked);
            continue;
        };
        // The first run of each reads from the disk what all later ones have in memory.
        let first = [false, true].map(|recorded| client.processor_time(recorded))[0];
        if !std::mem::replace(&mut has_said_how, true) {
            say_how(&first);
        }
        measure(&plan, client, rounds);
    }
}

fn plans() -> [Plan; 8] {
    let model = real_clients_dir().join("llama.gguf");
    let decode = |client: Client| client.arg("--model").arg(model).env("SIMTHUNK_CAPACITY", "512M");
    let plan = |name, client, rounds, pairs| Plan { name, asked: "1.02", client, over: Over::Nothing, rounds, pairs };
    let training = || torch_client("train.py").map(|client| client.arg("600"));
    let toy = || torch_client("toy.py").map(|client| client.arg("1500"));
    [
        plan("ROCm tour", rocm_client("hip_tour"), 400, 1),
        plan("llama.cpp on HIP", rocm_client("llama_decode").map(decode), 120, 1),
        plan("llama.cpp on CUDA", llama_cuda_client(), 45, 1),
        plan("PyTorch training", torch_client("train.py").map(|client| client.arg("60")), 15, 1),
        Plan { asked: "1.03", ..plan("PyTorch long training", training(), 30, 1) },
        Plan {
            asked: "1.03",
            over: Over::NoFramework,
            ..plan("PyTorch long training, the layer alone", training(), 30, 1)
        },
        Plan { asked: "1.10", ..plan("PyTorch toy loop", toy(), 30, 1) },
        Plan { asked: "1.10", over: Over::NoFramework, ..plan("PyTorch toy loop, the layer alone", toy(), 30, 1) },
    ]
}

fn say_how(time: &ProcessorTime) {
    let how = match time.sampled_user {
        Some(_) => "sampled 4000 times a second (perf's processor clock)",
        None => "as the kernel accounts it, which may be by ticks: perf's processor clock can't be had here",
    };
    println!("User time: {how}. Time with the kernel's: exact. Recorded and plain runs take turns.\n");
    println!(
        "| whole program, user time with the recorder over without, or with its layer of frameworks over without that | asked | median of rounds | its 95% interval | half of the rounds | with the kernel's time |"
    );
    println!("|---|---|---|---|---|---|");
}

fn measure(plan: &Plan, client: &Client, rounds: usize) {
    let (mut user, mut total) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let [plain, recorded] = round(client, plan);
        user.push(recorded.0 / plain.0);
        total.push(recorded.1 / plain.1);
    }
    user.sort_by(f64::total_cmp);
    total.sort_by(f64::total_cmp);
    let [low, median, high] = [1, 2, 3].map(|quarter| user[rounds * quarter / 4]);
    let [from, to] = interval(&user);
    let name = plan.name;
    println!(
        "| {name} | {} | {median:.3} ({rounds} rounds of {} pairs) | {from:.3} to {to:.3} | {low:.3} to {high:.3} | {:.3} |",
        plan.asked,
        plan.pairs,
        total[rounds / 2]
    );
}

/// Where the true median lies with a probability of 95 %, by the ranks alone: whatever the spread looks like.
fn interval(sorted: &[f64]) -> [f64; 2] {
    let (count, last) = (sorted.len() as f64, sorted.len() - 1);
    let away = 0.98 * count.sqrt();
    let below = (count / 2.0 - away).max(0.0) as usize;
    let above = ((count / 2.0 + away).ceil() as usize).min(last);
    [sorted[below], sorted[above]]
}

/// User time and all processor time, in seconds: of the plain runs, and of the recorded ones.
fn round(client: &Client, plan: &Plan) -> [(f64, f64); 2] {
    let without = client.clone().env("GPUOOM_FRAMEWORK", "off");
    let mut times = [(0.0, 0.0); 2];
    for pair in 0..plan.pairs {
        // Whichever comes second may find the machine warmer: they take turns.
        for recorded in [pair % 2 == 1, pair % 2 == 0] {
            let taken = match plan.over {
                Over::NoFramework if !recorded => without.processor_time(true),
                _ => client.processor_time(recorded),
            };
            let time = &mut times[usize::from(recorded)];
            *time = (time.0 + taken.user().as_secs_f64(), time.1 + taken.total.as_secs_f64());
        }
    }
    times
}
