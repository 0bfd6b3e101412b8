//! What the recorder costs whole programs: each real client with and without it, in turns, compared pair by pair.
//!
//! Run by `scripts/bench clients`, after `scripts/real-clients install` and `build`. With an argument, only the clients
//! whose names contain it.

use gpuoom_tests::{Client, llama_cuda_client, real_clients_dir, rocm_client, torch_client};

/// Pairs of each client: more for short runs, whose times are coarser.
const PAIRS_OF_SHORT: usize = 61;
const PAIRS_OF_LONG: usize = 15;

fn main() {
    println!(
        "| whole program, user time with the recorder over without | asked | median | pairs | with the kernel's time |"
    );
    println!("|---|---|---|---|---|");
    let model = real_clients_dir().join("llama.gguf");
    let decode = |client: Client| client.arg("--model").arg(model).env("SIMTHUNK_CAPACITY", "512M");
    measure("ROCm tour", rocm_client("hip_tour"), PAIRS_OF_SHORT);
    measure("llama.cpp on HIP", rocm_client("llama_decode").map(decode), PAIRS_OF_SHORT);
    measure("llama.cpp on CUDA", llama_cuda_client(), PAIRS_OF_SHORT);
    measure("PyTorch training", torch_client("train.py").map(|client| client.arg("60")), PAIRS_OF_LONG);
}

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
    for pair in 0..pairs {
        // Whichever comes second in a pair may find the machine warmer: they take turns.
        let recorded_first = pair % 2 == 1;
        let first = client.processor_time(recorded_first);
        let second = client.processor_time(!recorded_first);
        let (recorded, plain) = if recorded_first { (first, second) } else { (second, first) };
        user.push(recorded.0.as_secs_f64() / plain.0.as_secs_f64());
        all.push((recorded.0 + recorded.1).as_secs_f64() / (plain.0 + plain.1).as_secs_f64());
    }
    user.sort_by(f64::total_cmp);
    all.sort_by(f64::total_cmp);
    let [low, median, high] = [1, 2, 3].map(|quarter| user[pairs * quarter / 4]);
    println!("| {name} | 1.02 | {median:.3} of {pairs} | {low:.3} to {high:.3} | {:.3} |", all[pairs / 2]);
}
