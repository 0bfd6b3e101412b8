//! What an event with a native stack of 30 frames costs, beside other tools' allocations below the same stack, and what a block that
//! PyTorch tells of costs there.
//!
//! Run by `scripts/bench stacks`, after a release build of the workspace. All in one run and in turns, because machines
//! differ and are noisy; processor time of the allocating thread, less that of the same program without any tool.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpuoom_tests::recorder;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// How often each figure is measured; the median is printed.
const REPEATS: usize = 7;

fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("gpuoom-bench-stacks-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    let result = compile(&dir).and_then(|()| measure(&dir));
    fs::remove_dir_all(dir)?;
    result
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/bench")
}

fn compile(dir: &Path) -> Result<()> {
    let builds: [(&str, &[&str], &str); 7] = [
        ("null_hip.c", &["-shared", "-fPIC", "-Wl,-soname,libamdhip64.so.6"], "libamdhip64.so.6"),
        ("null_c10.c", &["-shared", "-fPIC", "-Wl,-soname,libc10.so"], "libc10.so"),
        ("stack_cost.c", &["-DTORCH", "-L.", "-lc10", "-l:libamdhip64.so.6"], "torch"),
        ("stack_cost.c", &["-DTORCH", "-shared", "-fPIC", "-L.", "-lc10", "-l:libamdhip64.so.6"], "libtorch_cost.so"),
        ("stack_cost.c", &["-DHIP", "-L.", "-l:libamdhip64.so.6"], "hip"),
        ("stack_cost.c", &[], "malloc"),
        ("stack_cost.c", &["-shared", "-fPIC"], "libmalloc.so"),
    ];
    for (source, arguments, output) in builds {
        // The source comes before the libraries that it needs.
        let mut command = Command::new("cc");
        command.args(["-O2", "-o", output]).arg(sources().join(source)).args(arguments).current_dir(dir);
        if !command.status()?.success() {
            return Err(format!("{command:?} failed").into());
        }
    }
    Ok(())
}

/// A program under a tool, and the same without.
struct Tool {
    name: &'static str,
    with: fn(&Path) -> Command,
    without: fn(&Path) -> Command,
}

const TOOLS: [Tool; 9] = [
    Tool {
        name: "gpuoom, GPUOOM_STACKS=off",
        with: |dir| gpuoom(dir, plain(dir, "./hip"), "off"),
        without: |dir| plain(dir, "./hip"),
    },
    Tool {
        name: "gpuoom, GPUOOM_STACKS=native",
        with: |dir| gpuoom(dir, plain(dir, "./hip"), "native"),
        without: |dir| plain(dir, "./hip"),
    },
    Tool {
        name: "gpuoom, as by default",
        with: |dir| gpuoom(dir, plain(dir, "./hip"), "native,python"),
        without: |dir| plain(dir, "./hip"),
    },
    Tool {
        name: "a block of PyTorch's, GPUOOM_STACKS=off",
        with: |dir| gpuoom(dir, plain(dir, "./torch"), "off"),
        without: |dir| plain(dir, "./torch"),
    },
    Tool {
        name: "a block of PyTorch's, GPUOOM_STACKS=native",
        with: |dir| gpuoom(dir, plain(dir, "./torch"), "native"),
        without: |dir| plain(dir, "./torch"),
    },
    Tool {
        name: "a block of PyTorch's, as by default, C program",
        with: |dir| gpuoom(dir, plain(dir, "./torch"), "native,python"),
        without: |dir| plain(dir, "./torch"),
    },
    Tool {
        name: "a block of PyTorch's, as by default, called by Python",
        with: |dir| gpuoom(dir, torch_in_python(dir), "native,python"),
        without: torch_in_python,
    },
    Tool { name: "heaptrack", with: heaptrack, without: |dir| plain(dir, "./malloc") },
    Tool { name: "memray run --native", with: |dir| memray(dir, true), without: |dir| memray(dir, false) },
];

fn plain(dir: &Path, program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(dir).env("LD_LIBRARY_PATH", dir);
    command
}

/// Python with the interpreter released during the call, as PyTorch has it.
fn torch_in_python(dir: &Path) -> Command {
    let mut command = plain(dir, "python3");
    command.arg(sources().join("stack_cost.py")).arg("./libtorch_cost.so").env("STACK_COST", "released");
    command
}

fn gpuoom(dir: &Path, mut command: Command, stacks: &str) -> Command {
    let _ = fs::remove_file(dir.join("trace"));
    command.env("LD_PRELOAD", recorder()).env("GPUOOM_TRACE", dir.join("trace")).env("GPUOOM_STACKS", stacks);
    command
}

fn heaptrack(dir: &Path) -> Command {
    let mut command = plain(dir, "heaptrack");
    command.args(["-o", "heaptrack", "./malloc"]);
    command
}

fn memray(dir: &Path, is_on: bool) -> Command {
    let mut command = plain(dir, &std::env::var("MEMRAY_PYTHON").unwrap_or_else(|_| "python3".into()));
    if is_on {
        command.args(["-m", "memray", "run", "--native", "-q", "-f", "-o", "memray"]);
    }
    command.arg(sources().join("stack_cost.py")).arg("./libmalloc.so");
    command
}

/// Nanoseconds per allocation as the program says, on a line of its own.
fn run(mut command: Command, kind: &str) -> Option<f64> {
    let output = command.arg(kind).output().ok().filter(|output| output.status.success())?;
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    text.lines().find_map(|line| line.trim().parse().ok())
}

fn measure(dir: &Path) -> Result<()> {
    println!("| an allocation below 30 frames, in processor time | known stack | new stack |\n|---|---|---|");
    let mut costs = [const { [const { Vec::new() }; 2] }; TOOLS.len()];
    for _ in 0..REPEATS {
        for (tool, costs) in TOOLS.iter().zip(&mut costs) {
            for (kind, costs) in ["known", "new"].into_iter().zip(costs) {
                if let (Some(with), Some(without)) = (run((tool.with)(dir), kind), run((tool.without)(dir), kind)) {
                    costs.push(with - without);
                }
            }
        }
    }
    for (tool, costs) in TOOLS.iter().zip(costs) {
        match costs.map(median) {
            [Some(known), Some(new)] => println!("| {} | {known:.0} ns | {new:.0} ns |", tool.name),
            _ => println!("| {} | it is not installed, or did not run | |", tool.name),
        }
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
