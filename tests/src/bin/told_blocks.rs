//! Prints what PyTorch's allocator told in each of the given traces, held against its own totals; fails where they differ.

use std::path::Path;
use std::process::ExitCode;

use gpuoom_tests::told_blocks;

fn main() -> ExitCode {
    let mut differ = false;
    for path in std::env::args_os().skip(1) {
        let told = told_blocks(Path::new(&path));
        let share = |count: u64| 100.0 * count as f64 / told.given.max(1) as f64;
        println!(
            "{}: {} blocks given, {} taken back, {} errors; {} totals differ, {} strange; {} call sites; {:.2} % with Python frames, \
             {:.2} % with native ones; {} live at the end, {} bytes",
            Path::new(&path).display(),
            told.given,
            told.taken,
            told.errors,
            told.mismatches,
            told.strange,
            told.sites,
            share(told.with_python),
            share(told.with_native),
            told.live.len(),
            told.live.values().sum::<u64>(),
        );
        differ |= told.mismatches + told.strange > 0;
    }
    ExitCode::from(u8::from(differ))
}
