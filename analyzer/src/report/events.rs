//! The list of events: text for people, JSON lines, CSV.

use std::io::{self, Write};

use crate::passes::rows::EventRow;
use crate::report::page::Look;
use crate::report::text::stack::INFERRED;
use crate::symbols::key::label;
use crate::symbols::{Frame, FrameKind};
use crate::words::{clean, gpu, shorten, size, span};

/// Columns of the CSV.
const COLUMNS: [&str; 20] = [
    "seq",
    "at_ns",
    "duration_ns",
    "thread",
    "event",
    "api",
    "layer",
    "device",
    "kind",
    "address",
    "requested_bytes",
    "padded_bytes",
    "status_code",
    "status_name",
    "parent",
    "oom",
    "text",
    "site",
    "caller",
    "range",
];

/// Where the frames of a stack begin on their lines.
const STACK_INDENT: usize = 45;

/// One JSON object on a line.
pub fn write_json(out: &mut dyn Write, row: &EventRow) -> io::Result<()> {
    serde_json::to_writer(&mut *out, row)?;
    writeln!(out)
}

/// The first line of the CSV.
pub fn write_csv_head(out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", COLUMNS.join(","))
}

/// One line of the CSV.
pub fn write_csv(out: &mut dyn Write, row: &EventRow) -> io::Result<()> {
    let number = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
    let status = row.status.as_ref();
    let fields: [String; COLUMNS.len()] = [
        row.seq.to_string(),
        row.at_ns.to_string(),
        number(row.duration_ns),
        row.thread.to_string(),
        row.event.to_owned(),
        quoted(row.api.as_deref().unwrap_or_default()),
        row.layer.unwrap_or_default().to_owned(),
        number(row.device.map(u64::from)),
        row.kind.unwrap_or_default().to_owned(),
        row.address.clone().unwrap_or_default(),
        number(row.requested_bytes),
        number(row.padded_bytes),
        status.map(|status| status.code.to_string()).unwrap_or_default(),
        status.and_then(|status| status.name).unwrap_or_default().to_owned(),
        number(row.parent),
        number(row.oom),
        quoted(row.text.as_deref().unwrap_or_default()),
        number(row.site.map(u64::from)),
        quoted(row.caller.as_deref().unwrap_or_default()),
        row.range.unwrap_or_default().to_owned(),
    ];
    writeln!(out, "{}", fields.join(","))
}

fn quoted(text: &str) -> String {
    let text = clean(text);
    match text.contains(['"', ',']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

/// One line for people, as long as `look` allows (`None`: as long as it gets).
pub fn write_text(out: &mut dyn Write, row: &EventRow, look: Option<Look>) -> io::Result<()> {
    let mut write = |line: &str| match look {
        Some(look) => writeln!(out, "{}", shorten_end(line, look.width)),
        None => writeln!(out, "{line}"),
    };
    write(&line(row))?;
    let Some(stack) = &row.stack else { return Ok(()) };
    for frame in &stack.frames {
        write(&format!("{:STACK_INDENT$}{}", "", describe(frame)))?;
    }
    if stack.native_is_cut || stack.python_is_cut {
        write(&format!("{:STACK_INDENT$}(no further frames were recorded)", ""))?;
    }
    if stack.native_is_inferred {
        write(&format!("{:STACK_INDENT$}{INFERRED}", ""))?;
    }
    Ok(())
}

/// A frame on a line of its own.
fn describe(frame: &Frame) -> String {
    let place = frame.file.as_deref().map(clean).map(|file| match frame.line {
        Some(line) => format!("  {file}:{line}"),
        None => format!("  {file}"),
    });
    let inlined = if frame.inlined { "  inlined" } else { "" };
    match (frame.kind, &frame.function) {
        (FrameKind::Native, Some(function)) => {
            let module = frame.module.as_deref().map(clean).unwrap_or_default();
            format!("{}  {module}{}{inlined}", clean(function), place.unwrap_or_default())
        }
        (FrameKind::Python, function) => {
            let function = function.as_deref().map_or("unknown".to_owned(), clean);
            format!("Python: {function}{}", place.unwrap_or_default())
        }
        (FrameKind::Native, None) => format!("{}{}", clean(&label(frame)), place.unwrap_or_default()),
    }
}

fn line(row: &EventRow) -> String {
    let at = format!("{:.6} s", row.at_ns as f64 / 1e9);
    let name = match row.parent {
        Some(_) => format!("└ {}", name(row)),
        None => name(row),
    };
    format!("{:>8} {at:>14} {:>7}  {:<11} {name:<26} {}", row.seq, row.thread, row.event, details(row))
        .trim_end()
        .to_owned()
}

/// The function for people.
fn name(row: &EventRow) -> String {
    clean(row.api.as_deref().unwrap_or(row.event))
}

fn details(row: &EventRow) -> String {
    let mut parts = Vec::new();
    parts.extend(row.requested_bytes.map(size));
    parts.extend(
        row.padded_bytes
            .filter(|padded| Some(*padded) != row.requested_bytes)
            .map(|padded| format!("(padded {})", size(padded))),
    );
    parts.extend(row.device.map(|device| gpu(Some(device))));
    parts.extend(row.kind.filter(|kind| *kind != "device").map(str::to_owned));
    parts.extend(row.address.clone());
    parts.extend(row.status.as_ref().map(|status| match status.name {
        Some(name) => format!("{name} ({})", status.code),
        None => format!("status {}", status.code),
    }));
    parts.extend(row.duration_ns.filter(|ns| *ns > 0).map(span));
    parts.extend(row.range.map(str::to_owned));
    parts.extend(row.text.as_deref().map(|text| shorten(&clean(text), 60)));
    parts.extend(row.readings.iter().map(|reading| {
        let device = reading.device.map(|device| format!("[{device}]")).unwrap_or_default();
        format!("{}{device}={}", reading.quantity, reading.value)
    }));
    parts.extend((!row.marks.is_empty()).then(|| row.marks.join(" ")));
    parts.extend(row.parent.map(|parent| format!("inside {parent}")));
    parts.extend(row.caller.as_deref().map(|caller| format!("from {}", shorten(&clean(caller), 80))));
    parts.extend(row.oom.map(|number| format!("<- oom:{number}")));
    parts.join(" ")
}

fn shorten_end(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    let kept: String = line.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;
    use crate::intake::read_through;
    use crate::passes::rows::Rows;
    use crate::symbols::SymbolPlaces;
    use crate::testing::{MIB, TraceBuilder, open};

    fn all(builder: &TraceBuilder, write: fn(&mut Vec<u8>, &EventRow)) -> String {
        let mut trace = open(builder);
        let mut rows = Rows::new(&trace, &SymbolPlaces::default(), false);
        let mut out = Vec::new();
        let mut take = |row: EventRow| {
            write(&mut out, &row);
            ControlFlow::Continue(())
        };
        read_through(&mut trace, |_| {}, |batch| rows.batch(batch, &mut take));
        let _ = rows.finish(&mut take);
        String::from_utf8(out).unwrap()
    }

    /// Blocks of allocators above the runtime are allocations of a layer of their own; a pool's have names.
    #[test]
    fn blocks_in_all_formats() {
        let mut trace = TraceBuilder::new(MIB).device(0, "Card", 16 << 30);
        trace.segment(0x7f00_0000_0000, 20 * MIB);
        trace.tensor(0, 0x7f00_0000_0000, 2 * MIB);
        trace.free_tensor(0x7f00_0000_0000);
        trace.pool_alloc("arena, large", "kv cache", 0x7f00_0020_0000, MIB);
        trace.pool_free("arena, large", 0x7f00_0020_0000);
        trace.no_tensor(0, 64 * MIB);
        let text = all(&trace, |out, row| write_text(out, row, None).unwrap());
        let json = all(&trace, |out, row| write_json(out, row).unwrap());
        let csv = all(&trace, |out, row| write_csv(out, row).unwrap());
        insta::assert_snapshot!(format!("{text}\n{json}\n{csv}"));
    }
}
