//! What the recorder costs whole programs: each real client with and without it, in turns, compared in rounds.
//!
//! Run by `scripts/bench clients`, after `scripts/real-clients install` and `build`. With an argument, only the clients
//! whose names contain it.

use gpuoom_tests::{Client, llama_cuda_client, real_clients_dir, rocm_client, torch_client};

/// Ratios that the median is of.
const ROUNDS: usize = 15;

fn main() {
    println!(
        "| whole program, user time with the recorder over without | asked | median | pairs | with the kernel's time |"
    );
    println!("|---|---|---|---|---|");
    let model = real_clients_dir().join("llama.gguf");
    let decode = |client: Client| client.arg("--model").arg(model).env("SIMTHUNK_CAPACITY", "512M");
    measure("ROCm tour", rocm_client("hip_tour"), 8);
    measure("llama.cpp on HIP", rocm_client("llama_decode").map(decode), 8);
    measure("llama.cpp on CUDA", llama_cuda_client(), 3);
    measure("PyTorch training", torch_client("train.py").map(|client| client.arg("60")), 1);
}

/// A round is that many pairs of runs: the time of a short run is too coarse to be compared by itself.
fn measure(name: &str, client: Option<Client>, pairs: usize) {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    if !name.contains(&wanted) {
        return;
    }
    let Some(client) = client else {
        println!("| {name} | 1.02 | not installed | | |");
        return;
    };
    // The first run of each reads from the disk what all later ones have in memory.
    client.processor_time(false);
    client.processor_time(true);
    let (mut user, mut all) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (plain, recorded) = round(&client, pairs);
        user.push(recorded.0 / plain.0);
        all.push((recorded.0 + recorded.1) / (plain.0 + plain.1));
    }
    user.sort_by(f64::total_cmp);
    all.sort_by(f64::total_cmp);
    let [low, median, high] = [1, 2, 3].map(|quarter| user[ROUNDS * quarter / 4]);
    println!("| {name} | 1.02 | {median:.3} | {low:.3} to {high:.3} | {:.3} |", all[ROUNDS / 2]);
}

/// User and system time of the plain runs, and of the recorded ones.
fn round(client: &Client, pairs: usize) -> ((f64, f64), (f64, f64)) {
    let mut times = [(0.0, 0.0); 2];
    for pair in 0..pairs {
        // Whichever comes second may find the machine warmer: they take turns.
        for recorded in [pair % 2 == 1, pair % 2 == 0] {
            let (user, system) = client.processor_time(recorded);
            let time = &mut times[usize::from(recorded)];
            *time = (time.0 + user.as_secs_f64(), time.1 + system.as_secs_f64());
        }
    }
    (times[0], times[1])
}
