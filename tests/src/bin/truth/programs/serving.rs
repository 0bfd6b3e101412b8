//! Programs that wait for others: services, language models, hosts of plugins.

use super::{GIB, MIB, Program};
use crate::rng::Rng;
use crate::script::{Kind, Op, Part, alloc, free, raw};

/// What a service was started with.
struct Service {
    workers: u64,
    largest: u64,
    /// Entries that its cache holds.
    cached: u64,
    entry: u64,
}

/// Answers requests of different sizes.
pub(super) fn service(program: &mut Program, rng: &mut Rng) {
    let states = rng.within(1, 6);
    let state: u64 = rng.size(GIB, 8 * GIB);
    for number in 0..states {
        let name = format!("s{number}");
        let made = vec![alloc(&*name, Kind::Device, rng.about(state / states, 0.5)), Op::Copy(name)];
        program.setup.push(Op::At("start_up", made));
    }
    let service = Service {
        workers: rng.pick(&[0, 0, 1, 2, 4]),
        largest: rng.size(200 * MIB, 4 * GIB),
        cached: if rng.chance(0.4) { rng.within(3, 20) } else { 0 },
        entry: rng.size(MIB, 128 * MIB),
    };
    let requests = rng.within(15, 90);
    program.has_varying_temporaries = true;
    for number in 0..requests {
        let handled = Op::At("handle", request(&service, number, program.temporary, rng));
        let step = match service.workers {
            0 => handled,
            workers => Op::Worker(format!("worker-{}", rng.within(0, workers - 1)), vec![handled]),
        };
        program.steps.push(vec![Op::Part(Part::Work), step]);
    }
    for number in 0..service.cached.min(requests) {
        program.end.push(free(format!("c{number}")));
    }
    if rng.chance(0.5) {
        (0..states).for_each(|number| program.end.push(free(format!("s{number}"))));
    }
}

fn request(service: &Service, number: u64, temporary: Kind, rng: &mut Rng) -> Vec<Op> {
    let mut body = Vec::new();
    let buffers = rng.within(1, 4);
    for buffer in 0..buffers {
        let size = rng.size(service.largest / 64, service.largest / buffers);
        body.push(alloc(format!("r{buffer}"), temporary, size));
    }
    body.extend([Op::Copy("r0".into()), Op::Launch]);
    if temporary == Kind::Async || rng.chance(0.3) {
        body.push(Op::Sync);
    }
    body.push(Op::Fetch("r0".into()));
    (0..buffers).rev().for_each(|buffer| body.push(free(format!("r{buffer}"))));
    if temporary == Kind::Async {
        body.push(Op::Sync);
    }
    let Service { cached, entry, .. } = *service;
    if number < cached {
        let grows = vec![alloc(format!("c{number}"), Kind::Device, rng.about(entry, 0.6))];
        body.push(Op::At("remember", grows));
    } else if cached > 0 && rng.chance(0.4) {
        let old = format!("c{}", rng.within(0, cached - 1));
        body.push(Op::At("remember", vec![free(&*old), alloc(&*old, Kind::Device, rng.about(entry, 0.6))]));
    }
    body
}

/// Loads a language model and makes tokens.
pub(super) fn llama(program: &mut Program, rng: &mut Rng) {
    let buffers = rng.within(1, 8);
    let weights = rng.size(2 * GIB, 16 * GIB);
    program.setup.push(Op::Part(Part::Load));
    if rng.chance(0.5) {
        program.setup.push(alloc("host", Kind::Host, rng.size(64 * MIB, GIB)));
    }
    let load = (0..buffers).flat_map(|i| {
        [alloc(format!("w{i}"), Kind::Device, rng.about(weights / buffers, 0.2)), Op::Copy(format!("w{i}"))]
    });
    let load: Vec<Op> = load.collect();
    program.setup.push(Op::At("load_tensors", load));
    program.setup.push(Op::Part(Part::KvCache));
    let caches = rng.pick(&[1, 1, 2, 4]);
    let cache = (weights as f64 * rng.between(0.05, 0.8)) as u64 / caches;
    let made = (0..caches).map(|i| alloc(format!("k{i}"), Kind::Device, cache & !0xFFFF));
    program.setup.push(Op::At("kv_cache", made.collect()));
    let compute = rng.size(64 * MIB, 2 * GIB);
    program.setup.push(Op::At("reserve", vec![alloc("c0", Kind::Device, compute)]));
    for _ in 0..rng.within(10, 60) {
        let mut token = vec![Op::Launch; rng.within(1, 6) as usize];
        token.push(Op::Fetch("c0".into()));
        if rng.chance(0.2) {
            token.extend([alloc("t0", Kind::Device, rng.size(MIB, 64 * MIB)), Op::Launch, free("t0")]);
        }
        program.steps.push(vec![Op::Part(Part::Work), Op::At("decode", token)]);
    }
    if rng.chance(0.6) {
        program.libraries.extend(["libllama.so", "libggml-hip.so"]);
    }
}

/// Libraries of the program that others wrote.
const PLUGINS: [&str; 3] = ["libfilter.so", "libdetect.so", "librender.so"];

/// Libraries that others wrote do the work.
pub(super) fn plugins(program: &mut Program, rng: &mut Rng) {
    program.libraries = PLUGINS.to_vec();
    for (number, library) in PLUGINS.iter().enumerate() {
        let own = vec![
            raw(format!("through {{lib}}/{library}")),
            alloc(format!("p{number}"), Kind::Device, rng.size(64 * MIB, 2 * GIB)),
            Op::Copy(format!("p{number}")),
        ];
        program.setup.push(Op::At("load_plugin", own));
    }
    let largest = rng.size(100 * MIB, 3 * GIB);
    program.has_varying_temporaries = true;
    for _ in 0..rng.within(15, 80) {
        let library = rng.pick(&PLUGINS);
        let mut body =
            vec![raw(format!("through {{lib}}/{library}")), alloc("x", Kind::Device, rng.size(largest / 40, largest))];
        if rng.chance(0.5) {
            body.extend([alloc("y", Kind::Device, rng.size(largest / 40, largest)), Op::Launch, free("y")]);
        }
        body.extend([Op::Launch, Op::Fetch("x".into()), free("x")]);
        program.steps.push(vec![Op::Part(Part::Work), Op::At("run_plugin", body)]);
    }
}
