//! Random programs whose trouble is known, on simulated devices, under the real recorder, read by the real analyzer: how often
//! is the right diagnosis first, and how often is something said that is not true? See docs/truth.md.
//!
//! Run by `scripts/truth`, after a release build of the workspace.

mod case;
mod causes;
mod judge;
#[path = "../../../tests/diagnoses/machine.rs"]
#[allow(dead_code, reason = "shared with the scenes, which need more of it")]
mod machine;
mod matrix;
mod play;
mod programs;
mod rng;
mod script;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use case::{Case, Platform};
use causes::{Cause, Where};
use judge::{Judgement, judge};
use matrix::Matrix;
use rng::Rng;

const USAGE: &str = "usage: truth [--runs N] [--seed S] [--only N] [--cause PART] [--jobs N] [--markdown]";

struct Options {
    runs: u64,
    seed: u64,
    only: Option<u64>,
    cause: String,
    jobs: usize,
    markdown: bool,
}

fn options() -> Option<Options> {
    let jobs = std::thread::available_parallelism().map_or(2, |cores| cores.get() * 3);
    let mut options = Options { runs: 200, seed: 1, only: None, cause: String::new(), jobs, markdown: false };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match &argument[..] {
            "--runs" => options.runs = arguments.next()?.parse().ok()?,
            "--seed" => options.seed = arguments.next()?.parse().ok()?,
            "--only" => options.only = Some(arguments.next()?.parse().ok()?),
            "--cause" => options.cause = arguments.next()?,
            "--jobs" => options.jobs = arguments.next()?.parse().ok()?,
            "--markdown" => options.markdown = true,
            _ => return None,
        }
    }
    Some(options)
}

fn main() -> ExitCode {
    let Some(options) = options() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match options.only {
        Some(number) => show(&options, number),
        None => all(&options),
    }
}

/// The run of that number: its cause, and the run as it was made.
fn make(options: &Options, causes: &[Cause], number: u64) -> (&'static str, Case) {
    let mut rng = Rng::of(options.seed, number);
    let total: u64 = causes.iter().map(|cause| cause.weight).sum();
    let mut place = rng.within(0, total - 1);
    let cause = causes.iter().find(|cause| {
        let is_it = place < cause.weight;
        place = place.saturating_sub(cause.weight);
        is_it
    });
    let cause = cause.expect("a cause of any weight");
    let platforms: &[Platform] = match cause.where_from {
        Where::Anywhere => {
            &[Platform::Hip, Platform::Hip, Platform::CudaRuntime, Platform::CudaBoth, Platform::CudaDriver]
        }
        Where::Hip => &[Platform::Hip],
    };
    let (platform, purpose) = (rng.pick(platforms), rng.pick(cause.purposes));
    let mut case = Case::random(rng, platform, purpose, &cause.needs);
    (cause.inject)(&mut case);
    let conditions = case.conditions();
    case.truth.also.extend(conditions);
    (cause.name, case)
}

fn chosen(options: &Options) -> Vec<Cause> {
    let mut causes = causes::all();
    causes.retain(|cause| cause.name.contains(&options.cause));
    causes
}

/// Plays a run and judges its report; a run that can't be played counts as broken, and the others go on.
fn run(options: &Options, causes: &[Cause], number: u64) -> (&'static str, Judgement) {
    let made = catch_unwind(AssertUnwindSafe(|| make(options, causes, number)));
    let Ok((name, case)) = made else { return ("(not made)", broken("can't be made".to_owned())) };
    let judged = catch_unwind(AssertUnwindSafe(|| {
        let played = play::play(&case);
        judge(&case.truth, &played.report)
    }));
    let why = |panic: Box<dyn std::any::Any + Send>| match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(_) => "can't be played".to_owned(),
    };
    (name, judged.unwrap_or_else(|panic| broken(why(panic))))
}

fn broken(why: String) -> Judgement {
    Judgement { broken: Some(why), ..Judgement::default() }
}

fn all(options: &Options) -> ExitCode {
    let causes = chosen(options);
    if causes.is_empty() {
        eprintln!("no cause has '{}' in its name", options.cause);
        return ExitCode::from(2);
    }
    std::panic::set_hook(Box::new(|_| {}));
    let (next, matrix) = (AtomicU64::new(0), Mutex::new(Matrix::default()));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..options.jobs {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= options.runs {
                        break;
                    }
                    let (cause, judged) = run(options, &causes, number);
                    matrix.lock().expect("nobody panics with it").add(number, cause, &judged);
                    if number % 500 == 499 {
                        eprintln!("{} runs in {:.0} s", number + 1, began.elapsed().as_secs_f64());
                    }
                }
            });
        }
    });
    let seconds = began.elapsed().as_secs_f64();
    let matrix = matrix.into_inner().expect("nobody panics with it");
    print!("{}", matrix.markdown());
    if options.markdown {
        // The page has the table alone; which runs went wrong must not be lost with it.
        eprint!("{}", matrix.worst(options.seed));
    } else {
        print!("{}", matrix.worst(options.seed));
        println!("\n{} runs in {seconds:.1} s, {:.1} a second", options.runs, options.runs as f64 / seconds);
    }
    if matrix.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints everything of one run, and keeps its trace.
fn show(options: &Options, number: u64) -> ExitCode {
    let causes = chosen(options);
    let (name, case) = make(options, &causes, number);
    println!("run {number} of seed {}: {name}", options.seed);
    println!("{:?} {:?} {:?}, {} MiB", case.platform, case.program.purpose, case.sight, case.card_bytes >> 20);
    println!("NVML: {}; somebody tells who holds what: {}", case.has_nvml, case.sees_processes());
    println!(
        "settings {:?}, the runtime's own {} MiB, HIP {}",
        case.settings,
        case.context_bytes >> 20,
        case.hip_version
    );
    println!("{:#?}\n", case.truth);
    let played = play::play(&case);
    println!("{}", played.script);
    println!("{}", played.run.stderr);
    let trace = format!("truth-{}-{number}.trace.bin", options.seed);
    match std::fs::copy(&played.run.only_trace().path, &trace) {
        Ok(_) => println!("trace: {trace}"),
        Err(error) => println!("the trace is not kept: {trace}: {error}"),
    }
    for field in ["/ooms", "/diagnoses_excluded", "/diagnoses", "/growth"] {
        println!("{field}: {}", played.report.excerpt(field));
    }
    let judged = judge(&case.truth, &played.report);
    println!("{judged:#?}");
    ExitCode::SUCCESS
}
