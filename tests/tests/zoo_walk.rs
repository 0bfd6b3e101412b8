//! Random walks over everything that takes and gives memory back, mistakes included: the account against the device's own log.

use std::collections::{BTreeMap, HashMap};

use gpuoom_tests::{Client, Finished, Library, Report, TruthLine, program_with};

/// A device's number, or none for the host.
type Place = Option<u64>;

/// Blocks and bytes by place.
type Held = BTreeMap<Place, (u64, u64)>;

/// Physical memory: how often it must be released and how often it is mapped.
#[derive(Default)]
struct Physical {
    place: Place,
    bytes: u64,
    references: u64,
    mappings: u64,
}

/// What the log says: what lives, and the most bytes that lived at once.
#[derive(Default)]
struct Device {
    blocks: HashMap<u64, (Place, u64)>,
    physical: HashMap<u64, Physical>,
    held: Held,
    peaks: BTreeMap<Place, u64>,
}

impl Device {
    fn of(run: &Finished) -> Self {
        let mut device = Device::default();
        let truth = run.truth();
        let parent = truth.first().expect("the device was used").pid();
        let own =
            truth.iter().filter(|line| line.pid() == parent && line.kind() != "context" && line.event() != "failed");
        own.for_each(|line| device.follow(line));
        device
    }

    fn follow(&mut self, line: &TruthLine) {
        if line.kind() == "physical" {
            return self.follow_physical(line);
        }
        let on_host = ["host-pinned", "registered"].contains(&line.kind());
        match line.event() {
            "alloc" => {
                let place = (!on_host).then(|| line.device());
                let before = self.blocks.insert(line.address(), (place, line.requested_bytes()));
                assert_eq!(before, None, "two blocks at one address: {line:?}");
                self.comes(place, line.requested_bytes());
            }
            "free" => {
                let (place, bytes) = self.blocks.remove(&line.address()).expect("it lives");
                self.goes(place, bytes);
            }
            _ => {}
        }
    }

    fn follow_physical(&mut self, line: &TruthLine) {
        let memory = self.physical.entry(line.handle()).or_default();
        match line.event() {
            "alloc" => {
                let place = Some(line.device());
                *memory = Physical { place, bytes: line.requested_bytes(), references: 1, mappings: 0 };
                return self.comes(place, line.requested_bytes());
            }
            "retain" => memory.references += 1,
            "free" if line.api().ends_with("DeviceReset") => memory.references = 0,
            "free" => memory.references -= 1,
            "map" => memory.mappings += 1,
            "unmap" => memory.mappings -= 1,
            other => panic!("{other}: {line:?}"),
        }
        let (place, bytes) = (memory.place, memory.bytes);
        if memory.references + memory.mappings == 0 {
            self.physical.remove(&line.handle());
            self.goes(place, bytes);
        }
    }

    fn comes(&mut self, place: Place, bytes: u64) {
        let held = self.held.entry(place).or_default();
        *held = (held.0 + 1, held.1 + bytes);
        let peak = self.peaks.entry(place).or_default();
        *peak = held.1.max(*peak);
    }

    fn goes(&mut self, place: Place, bytes: u64) {
        let held = self.held.entry(place).or_default();
        *held = (held.0 - 1, held.1 - bytes);
    }
}

/// Each place with where the report has its account.
fn accounts(report: &Report) -> Vec<(Place, String)> {
    let devices = (0..report.count("/devices")).map(|index| format!("/devices/{index}"));
    let numbered = devices.map(|base| (Some(report.number(&format!("{base}/index"))), base));
    numbered.chain([(None, "/host".to_owned())]).collect()
}

fn held_by_account(report: &Report) -> Held {
    let held = |base: &str| {
        (report.number(&format!("{base}/end/live_allocations")), report.number(&format!("{base}/end/requested_bytes")))
    };
    accounts(report).into_iter().map(|(place, base)| (place, held(&base))).collect()
}

fn walk(source: &str, library: Library, seed: usize, threads: usize, steps: usize, parts: usize) {
    let arguments = [seed, threads, steps, parts].map(|number| number.to_string());
    let client = Client::new(program_with(source, library)).args(arguments.each_ref().map(String::as_str));
    let run = client.env("SIM_DEVICES", "2").env("GPUOOM_PROBE", "off").env("GPUOOM_STACKS", "off").run_recorded();
    assert_eq!(run.exit_code(), 0, "{source} {arguments:?}: {}", run.stderr);
    let report = run.only_trace().report();
    report.assert_nothing_lost();
    let (truth, mut account) = (Device::of(&run), held_by_account(&report));
    if threads == 1 {
        for (place, base) in accounts(&report) {
            let peak = truth.peaks.get(&place).copied().unwrap_or(0);
            assert_eq!(report.number(&format!("{base}/peak/requested_bytes")), peak, "{source} {arguments:?}: {base}");
        }
    }
    account.retain(|place, held| held.0 > 0 || truth.held.contains_key(place));
    assert_eq!(account, truth.held, "{source} {arguments:?}");
}

/// Further seeds, as many as `WALKS` says.
fn more() -> impl Iterator<Item = usize> {
    let count = std::env::var("WALKS").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    1000..1000 + count
}

/// One thread makes the mistakes that are races with several: it frees again what it has just freed.
#[test]
fn alone_with_every_mistake() {
    for (seed, steps) in [(1, 40), (2, 150), (3, 400), (4, 900)] {
        walk("walk.c", Library::Hip, seed, 1, steps, 1);
    }
    more().for_each(|seed| walk("walk.c", Library::Hip, seed, 1, 100 + seed % 700, 1));
}

#[test]
fn several_threads_with_resets_and_forks_between() {
    for (seed, parts) in [(11, 1), (12, 2), (13, 4)] {
        walk("walk.c", Library::Hip, seed, 4, 250, parts);
    }
    more().for_each(|seed| walk("walk.c", Library::Hip, seed, 2 + seed % 6, 50 + seed % 300, 1 + seed % 4));
}

#[test]
fn the_cuda_runtime_with_its_device_in_itself_and_over_the_driver() {
    for (source, library) in [("cuda_walk.c", Library::Cuda), ("cuda_walk13.c", Library::CudaOverDriver)] {
        // Without the driver's calls nobody can tell whether pinned memory was in the context: the report says so.
        let parts = |most: usize| if library == Library::Cuda { 1 } else { most };
        walk(source, library, 21, 1, 500, 1);
        walk(source, library, 22, 4, 200, 1);
        walk(source, library, 23, 4, 150, parts(3));
        more().for_each(|seed| walk(source, library, seed, 1 + seed % 7, 50 + seed % 300, parts(1 + seed % 4)));
    }
}

#[test]
fn hsa_with_pins_shutdowns_and_virtual_memory() {
    for (seed, threads, parts) in [(31, 1, 1), (32, 1, 3), (33, 4, 3)] {
        walk("walk_hsa.c", Library::Hsa, seed, threads, 300, parts);
    }
    more().for_each(|seed| walk("walk_hsa.c", Library::Hsa, seed, 1 + seed % 7, 50 + seed % 300, 1 + seed % 3));
}

#[test]
fn the_cuda_driver_with_contexts_that_come_and_go() {
    for (seed, threads, parts) in [(41, 1, 1), (42, 1, 2), (43, 4, 1), (44, 4, 3)] {
        walk("walk_driver.c", Library::CudaDriver, seed, threads, 400, parts);
    }
    more()
        .for_each(|seed| walk("walk_driver.c", Library::CudaDriver, seed, 1 + seed % 5, 50 + seed % 500, 1 + seed % 3));
}
