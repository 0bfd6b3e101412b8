//! Which program, which machine.

use super::page::{Markdown, code, plain};
use crate::conclusion::Summary;
use crate::report::text::head::{describe, end, machine, place, started};

pub(super) fn write(page: &mut Markdown, summary: &Summary, level: usize) {
    let process = &summary.facts.process;
    let program = match process.executable.rsplit('/').next() {
        Some(name) if !name.is_empty() => name,
        _ => "a program whose name was not recorded",
    };
    page.heading(level, &format!("GPU memory: {program}"));
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String| {
        if !value.is_empty() {
            rows.push(vec![name.to_owned(), value]);
        }
    };
    row("command", code(&process.command_line.join(" ")));
    row("process", plain(&format!("{}, {}, {}", place(process), started(summary), end(summary))));
    for device in &summary.facts.devices {
        row("device", plain(&describe(device, process)));
    }
    row("machine", plain(&machine(summary)));
    row("trace", format!("{}, format {}", code(&summary.facts.trace.path), plain(&summary.facts.trace.format_version)));
    page.table(&["", ""], &rows);
}
