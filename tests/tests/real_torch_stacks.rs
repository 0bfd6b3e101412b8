//! Which Python line asked PyTorch for the memory that a failing call could not give.

use gpuoom_tests::{Finished, PythonLine, StackedCall, torch_client};
use gpuoom_trace::payload::stack_flag;
use gpuoom_trace::record::Event;

/// The card is full after some blocks of 64 MiB.
fn run(mode: &str) -> Option<Finished> {
    let client = torch_client("oom.py")?.arg(mode).env("SIM_CAPACITY", "1G").env("GPUOOM_PROBE", "off");
    let run = client.run_recorded();
    assert_eq!(run.exit_code(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("OutOfMemoryError"), "{}", run.stderr);
    Some(run)
}

/// The program's own line that is innermost; what is further in belongs to PyTorch.
fn programs_line(call: &StackedCall) -> &PythonLine {
    let own = call.python.iter().find(|line| line.file.ends_with("clients/torch/oom.py"));
    own.unwrap_or_else(|| panic!("{call:?}"))
}

fn assert_line_is_named(run: &Finished) {
    let source = include_str!("../clients/torch/oom.py");
    let text = |line: &PythonLine| source.lines().nth(line.line as usize - 1).unwrap_or_default().trim();
    let trace = run.traces().pop().expect("a trace");
    let calls = trace.stacked_calls();
    let is_device =
        |call: &&StackedCall| call.record.event() == Some(Event::Alloc) && call.record.requested >= 64 << 20;
    let blocks: Vec<_> = calls.iter().filter(is_device).collect();
    let failed = blocks.iter().filter(|call| call.record.status != 0).count();
    assert!(failed > 0 && blocks.len() > failed + 10, "{} blocks, {failed} failed", blocks.len());
    for call in blocks {
        let stack = call.stack.as_ref().expect("a stack");
        // On a machine that is busy elsewhere an allocation may go on without its frames; a failure waits longer.
        if call.record.status == 0 && !stack.has(stack_flag::PYTHON_SEEN) {
            continue;
        }
        let line = programs_line(call);
        assert_eq!(
            (line.function.as_str(), text(line)),
            ("uncaught", "blocks.append(torch.empty(BLOCK, dtype=torch.uint8, device=\"cuda\"))")
        );
        assert!(stack.has(stack_flag::PYTHON_SEEN | stack_flag::NATIVE_WHOLE), "{stack:?}");
        assert!(stack.native.len() > 20, "{stack:?}");
        let outermost = call.python.last().expect("frames");
        assert_eq!(outermost.function, "<module>");
    }
}

#[test]
fn the_line_that_asked_for_the_failing_block_is_named() {
    let Some(run) = run("uncaught") else { return };
    assert_line_is_named(&run);
}

#[test]
fn the_line_is_named_in_a_forked_child() {
    let Some(run) = run("forked") else { return };
    assert_line_is_named(&run);
}
