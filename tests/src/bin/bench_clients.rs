//! What the recorder costs whole programs: each real client with and without it, in turns, compared in rounds.
//!
//! Run by `scripts/bench clients [NAME [ROUNDS]]`, after `scripts/real-clients install` and `build`. With a name, only the
//! clients whose names contain it.

use gpuoom_tests::{Client, ProcessorTime, llama_cuda_client, real_clients_dir, rocm_client, torch_client};

/// How a client is measured.
struct Plan {
    name: &'static str,
    client: Option<Client>,
    /// Ratios that the median is of: more for short programs, in which the fixed costs of a start and an end count.
    rounds: usize,
    /// A round is that many pairs of runs: the time of a short run is too coarse to be compared by itself.
    pairs: usize,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let wanted = arguments.first().cloned().unwrap_or_default();
    let rounds: Option<usize> = arguments.get(1).map(|text| text.parse().expect("ROUNDS is a number"));
    let mut has_said_how = false;
    for plan in plans().into_iter().filter(|plan| plan.name.contains(&wanted)) {
        let rounds = rounds.unwrap_or(plan.rounds).max(1);
        let Some(client) = &plan.client else {
            println!("| {} | 1.02 | not installed | | | |", plan.name);
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

fn plans() -> [Plan; 4] {
    let model = real_clients_dir().join("llama.gguf");
    let decode = |client: Client| client.arg("--model").arg(model).env("SIMTHUNK_CAPACITY", "512M");
    let plan = |name, client, rounds, pairs| Plan { name, client, rounds, pairs };
    [
        plan("ROCm tour", rocm_client("hip_tour"), 400, 1),
        plan("llama.cpp on HIP", rocm_client("llama_decode").map(decode), 120, 1),
        plan("llama.cpp on CUDA", llama_cuda_client(), 45, 1),
        plan("PyTorch training", torch_client("train.py").map(|client| client.arg("60")), 15, 1),
    ]
}

fn say_how(time: &ProcessorTime) {
    let how = match time.sampled_user {
        Some(_) => "sampled 4000 times a second (perf's processor clock)",
        None => "as the kernel accounts it, which may be by ticks: perf's processor clock can't be had here",
    };
    println!("User time: {how}. Time with the kernel's: exact. Recorded and plain runs take turns.\n");
    println!(
        "| whole program, user time with the recorder over without | asked | median of rounds | its 95% interval | half of the rounds | with the kernel's time |"
    );
    println!("|---|---|---|---|---|---|");
}

fn measure(plan: &Plan, client: &Client, rounds: usize) {
    let (mut user, mut total) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let [plain, recorded] = round(client, plan.pairs);
        user.push(recorded.0 / plain.0);
        total.push(recorded.1 / plain.1);
    }
    user.sort_by(f64::total_cmp);
    total.sort_by(f64::total_cmp);
    let [low, median, high] = [1, 2, 3].map(|quarter| user[rounds * quarter / 4]);
    let [from, to] = interval(&user);
    let name = plan.name;
    println!(
        "| {name} | 1.02 | {median:.3} ({rounds} rounds of {} pairs) | {from:.3} to {to:.3} | {low:.3} to {high:.3} | {:.3} |",
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
fn round(client: &Client, pairs: usize) -> [(f64, f64); 2] {
    let mut times = [(0.0, 0.0); 2];
    for pair in 0..pairs {
        // Whichever comes second may find the machine warmer: they take turns.
        for recorded in [pair % 2 == 1, pair % 2 == 0] {
            let taken = client.processor_time(recorded);
            let time = &mut times[usize::from(recorded)];
            *time = (time.0 + taken.user().as_secs_f64(), time.1 + taken.total.as_secs_f64());
        }
    }
    times
}
