//! What the recorder and the analyzer cost: ratios within one run, because machines differ and are noisy.
//!
//! Run by `scripts/bench`, after a release build of the workspace.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use gpuoom_tests::{analyzer, program, recorder, sim_dir};
use gpuoom_trace::reader::TraceFile;
use serde_json::Value;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// How often each figure is measured; the median is printed.
const REPEATS: usize = 5;

struct Bench {
    dir: PathBuf,
}

fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("gpuoom-bench-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    let bench = Bench { dir: dir.clone() };
    let result = bench.run_all();
    fs::remove_dir_all(dir)?;
    result
}

impl Bench {
    fn run_all(&self) -> Result<()> {
        self.compile_null_runtime()?;
        println!("| measure | asked | measured |\n|---|---|---|");
        self.hot_path(1, "1.00")?;
        self.hot_path(2, "1.25")?;
        self.look_up()?;
        self.full_speed()?;
        self.bytes_per_event()?;
        self.report_speed()
    }

    fn compile_null_runtime(&self) -> Result<()> {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/bench");
        let compile = |arguments: &[&str], source: &str, output: &str| -> Result<()> {
            let mut command = Command::new("cc");
            command.arg("-O2").arg("-o").arg(self.dir.join(output)).arg(sources.join(source)).args(arguments);
            succeeded(command.current_dir(&self.dir).output()?).map(drop)
        };
        compile(&["-shared", "-fPIC", "-Wl,-soname,libamdhip64.so.6"], "null_hip.c", "libamdhip64.so.6")?;
        for program in ["hot_path", "full_speed", "look_up"] {
            compile(&["-L.", "-l:libamdhip64.so.6", "-lpthread"], &format!("{program}.c"), program)?;
        }
        Ok(())
    }

    /// A program on the runtime that does nothing, under the recorder; its trace is `NAME.trace.bin`.
    fn recorded(&self, name: &str, arguments: &[&str]) -> Result<String> {
        let trace = self.dir.join(format!("{name}.trace.bin"));
        let _ = fs::remove_file(&trace);
        let mut command = Command::new(self.dir.join(name));
        command.args(arguments).current_dir(&self.dir).env("LD_LIBRARY_PATH", &self.dir);
        command.env("LD_PRELOAD", recorder()).env("GPUOOM_TRACE", trace);
        Ok(String::from_utf8(succeeded(command.output()?)?.stdout)?)
    }

    fn hot_path(&self, threads: u32, asked: &str) -> Result<()> {
        let mut runs = Vec::new();
        for _ in 0..REPEATS {
            runs.push(serde_json::from_str::<Value>(&self.recorded("hot_path", &[&threads.to_string()])?)?);
        }
        let figure = |name: &str| median(runs.iter().map(|run| run[name].as_f64().unwrap_or(f64::NAN)).collect());
        println!(
            "| an event of a burst on {threads} thread(s), without the drainer, over the floor (two reads of the monotonic clock, \
             claim, publish) | {asked} | alloc {:.2}, free {:.2} |",
            figure("malloc_to_floor"),
            figure("free_to_floor"),
        );
        println!("| the same over a floor with the cycle counter | | alloc {:.2} |", figure("malloc_to_floor_cycles"));
        println!(
            "| watched call over the direct one, nothing watched | 2 ns | {:.2} ns |",
            figure("watched_over_direct_ns")
        );
        Ok(())
    }

    fn look_up(&self) -> Result<()> {
        let mut runs = Vec::new();
        for _ in 0..REPEATS {
            runs.push(serde_json::from_str::<Value>(&self.recorded("look_up", &[])?)?);
        }
        if runs.iter().any(|run| run["hooked"] != 1) {
            return Err("dlsym was not hooked".into());
        }
        let figure = |name: &str| median(runs.iter().map(|run| run[name].as_f64().unwrap_or(f64::NAN)).collect());
        println!(
            "| `dlsym` of a name that is not ours, over the C library's | 10 ns | {:.1} ns; {:.1} ns where it begins alike |",
            figure("other_ns"),
            figure("similar_ns")
        );
        Ok(())
    }

    fn full_speed(&self) -> Result<()> {
        let made: u64 = self.recorded("full_speed", &["2", "10"])?.trim().parse()?;
        let mut trace = TraceFile::open(&self.dir.join("full_speed.trace.bin"))?;
        let mut found = 0u64;
        trace.for_each_batch(|batch| -> std::result::Result<(), Box<dyn Error>> {
            found += batch.records.iter().filter(|record| record.call != 0).count() as u64;
            Ok(())
        })?;
        let lost = trace.header.events_lost;
        println!("| events lost, two threads at full speed for 10 s | 0 | {lost} lost, {found} of {made} found |");
        println!("| bytes per event on disk, random sizes | 16 | {:.2} |", bytes_per_event(&trace));
        Ok(())
    }

    fn bytes_per_event(&self) -> Result<()> {
        let path = self.dir.join("llama_like.trace.bin");
        let mut command = Command::new(program("../demo/llama_like.c"));
        command.args(["--ctx", "2048", "--loop", "100"]).current_dir(&self.dir).env("GPUOOM_TRACE", &path);
        command.env("LD_PRELOAD", recorder()).env("LD_LIBRARY_PATH", sim_dir()).env("SIM_COPY_BYTES", "4K");
        succeeded(command.output()?)?;
        let trace = TraceFile::open(&path)?;
        println!("| bytes per event on disk, llama.cpp-like load | 8 | {:.2} |", bytes_per_event(&trace));
        Ok(())
    }

    fn report_speed(&self) -> Result<()> {
        const EVENTS: u64 = 10_000_000;
        let path = self.dir.join("large.trace.bin");
        let synthesize = recorder().with_file_name("examples").join("synthesize");
        succeeded(Command::new(synthesize).arg(&path).arg(EVENTS.to_string()).output()?)?;
        let heap = self.heaptrack_recording(EVENTS)?;
        let timed = |command: &mut Command| -> Result<f64> {
            let began = Instant::now();
            succeeded(command.output()?)?;
            Ok(began.elapsed().as_secs_f64())
        };
        let (mut seconds, mut ratios) = (Vec::new(), Vec::new());
        for _ in 0..REPEATS {
            let ours = timed(Command::new(analyzer()).args(["report", "--format", "json"]).arg(&path))?;
            seconds.push(ours);
            if let Some(heap) = &heap {
                ratios.push(timed(Command::new("heaptrack_print").arg("-f").arg(heap))? / ours);
            }
        }
        let rate = EVENTS as f64 / median(seconds) / 1e6;
        println!(
            "| `report --format json`, 10 million events, this machine today | 12 million/s | {rate:.1} million/s |"
        );
        if heap.is_some() {
            let rate = median(ratios);
            println!(
                "| the same, over the events a second of `heaptrack_print` on as many events of the heap | | {rate:.2} |"
            );
        }
        Ok(())
    }

    /// A recording of so many events by heaptrack, where that is installed.
    fn heaptrack_recording(&self, events: u64) -> Result<Option<PathBuf>> {
        let is_there =
            |name: &str| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success());
        if !is_there("heaptrack") || !is_there("heaptrack_print") {
            return Ok(None);
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/bench/malloc_events.c");
        let program = self.dir.join("malloc_events");
        succeeded(Command::new("cc").arg("-O2").arg("-o").arg(&program).arg(source).output()?)?;
        let mut command = Command::new("heaptrack");
        command.arg("-o").arg(self.dir.join("heap")).arg(&program).arg(events.to_string()).current_dir(&self.dir);
        succeeded(command.output()?)?;
        let mut files = fs::read_dir(&self.dir)?.filter_map(|entry| Some(entry.ok()?.path()));
        let is_recording =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("heap."));
        Ok(files.find(is_recording))
    }
}

fn bytes_per_event(trace: &TraceFile) -> f64 {
    (trace.header.chunks_end - trace.header.chunks_offset) as f64 / trace.records_in_chunks() as f64
}

fn succeeded(output: Output) -> Result<Output> {
    if output.status.success() {
        return Ok(output);
    }
    Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)).into())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
