//! Maps for people and for programs.

use std::io::{self, Write};

use serde::Serialize;

use crate::passes::map::{AddressMap, ArenaMap, DeviceMap, Run};
use crate::report::page::{Page, Paint};
use crate::report::shade::{LEGEND, Row, rows};
use crate::words::{count, gpu, moment, percent, size};

/// Name and version of the JSON.
pub const SCHEMA: &str = "gpuoom.map/1";
/// Rows of one map on a page of its own.
const MANY_ROWS: usize = 48;
/// Characters beside the cells of a row: indent, address, bytes in use.
const BESIDE_CELLS: usize = 36;
/// Rows that are drawn rather than folded.
const FEW: u64 = 2;

/// What the address map is and is not.
pub const ADDRESS_LEGEND: &str = "Address use: where the blocks lie in the program's address space. It never shows physical VRAM: drivers scatter a \
     buffer over it, and no trace can tell where.";
/// What the model map is and is not.
pub const MODEL_LEGEND: &str = "Model: the card as granules of this size, each block padded to whole granules and placed first fit. It was asked \
     for, not measured.";

/// A map as a document.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Document<'a> {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The trace file.
    pub trace: String,
    /// What was asked for: `peak`, `oom:N`, `end` or a time.
    pub moment: String,
    /// What the address map is.
    pub address_space_is: &'static str,
    /// What the model is.
    pub model_is: &'static str,
    /// One map per device.
    pub devices: &'a [DeviceMap],
}

/// `map --format json`.
pub fn write_json(out: &mut dyn Write, document: &Document<'_>) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, document)?;
    writeln!(out)
}

/// `map --format text`.
pub fn write_text(page: &mut Page, document: &Document<'_>) {
    if document.devices.is_empty() {
        page.indented("", "", "No device memory is known to have been held at that moment: there is nothing to draw.");
    }
    for device in document.devices {
        let at = format!("{} ({})", moment(device.at_ns), document.moment);
        let blocks = format!(
            "{} live, {} asked, {} padded",
            device.live_allocations,
            size(device.requested_bytes),
            size(device.padded_bytes)
        );
        page.headed(&format!("MAP  {}", gpu(device.device)), Paint::Bold, &format!("{at}: {blocks}"));
        page.gap();
        page.indented("  ", "  ", &format!("Address space, {} a cell", size(device.cell_bytes)));
        draw_addresses(page, &device.address_space, device.cell_bytes, MANY_ROWS);
        page.gap();
        match &device.model {
            Some(model) => {
                if device.managed_allocations > 0 {
                    let blocks = count(device.managed_allocations, "block", "blocks");
                    let text = format!(
                        "Not in the model: {} of managed memory in {blocks}, whose pages may lie in RAM",
                        size(device.managed_bytes)
                    );
                    page.indented("  ", "  ", &text);
                }
                page.indented("  ", "  ", &format!("Model of the card, {} a cell (modelled)", size(device.cell_bytes)));
                draw_model(page, model, device.cell_bytes, MANY_ROWS);
            }
            None => page.indented(
                "  ",
                "  ",
                "No model: the size of the card is not in the trace, or the cells are too small for it.",
            ),
        }
        page.gap();
    }
    page.indented("", "", LEGEND);
    page.indented("", "", ADDRESS_LEGEND);
    page.indented("", "", MODEL_LEGEND);
}

fn cells_in_row(page: &Page) -> u64 {
    let room = page.look.width.saturating_sub(BESIDE_CELLS);
    [64, 48, 32].into_iter().find(|cells| *cells <= room).unwrap_or(32) as u64
}

/// The address map as rows of cells.
pub fn draw_addresses(page: &mut Page, map: &AddressMap, cell_bytes: u64, most: usize) {
    if map.stretches.is_empty() {
        page.indented("    ", "    ", "no block has an address");
    }
    let mut room = most;
    let mut left_out = 0u64;
    for stretch in &map.stretches {
        let (rows, more) = rows(&stretch.runs, cell_bytes, cells_in_row(page), room);
        room -= rows.len().min(room);
        left_out = left_out.saturating_add(more);
        let label =
            |row: &Row| format!("{:#014x}", stretch.start.saturating_add(row.first_cell.saturating_mul(cell_bytes)));
        draw_rows(page, &rows, label);
    }
    say_left_out(page, left_out);
    if map.blocks_without_address > 0 {
        let text = format!(
            "{} more have handles instead of addresses (arrays, VMM memory) and are not drawn as blocks",
            map.blocks_without_address
        );
        page.indented("    ", "    ", &text);
    }
}

/// The model as rows of cells, and what the model says.
pub fn draw_model(page: &mut Page, map: &ArenaMap, cell_bytes: u64, most: usize) {
    let (rows, left_out) = rows(&map.runs, cell_bytes, cells_in_row(page), most);
    let width = size(map.capacity_bytes).len();
    draw_rows(page, &rows, |row| format!("{:>width$}", size(row.first_cell.saturating_mul(cell_bytes))));
    say_left_out(page, left_out);
    let stranded = map.free_bytes - map.largest_free_block_bytes.min(map.free_bytes);
    let free = match map.free_bytes {
        0 => "nothing free in the model".to_owned(),
        free => format!(
            "{} free in the model, the largest block {}; {} stranded outside it ({} of free)",
            size(free),
            size(map.largest_free_block_bytes),
            size(stranded),
            percent(stranded as f64 / free as f64)
        ),
    };
    let overflow = match map.overflow_blocks {
        0 => String::new(),
        blocks => {
            let blocks = count(blocks, "block", "blocks");
            format!("; {blocks} ({} padded) would not fit", size(map.overflow_bytes))
        }
    };
    page.indented("    ", "    ", &format!("{free}{overflow}"));
}

fn draw_rows(page: &mut Page, rows: &[Row], label: impl Fn(&Row) -> String) {
    for row in rows {
        let drawn = if row.folded > FEW { 0 } else { row.folded };
        let step = row.cells.chars().count() as u64;
        for number in 0..=drawn {
            let here = Row { first_cell: row.first_cell.saturating_add(number * step), ..row.clone() };
            page.line(&format!("    {}  {}  {}", label(&here), row.cells, size(row.used_bytes)));
        }
        if row.folded > FEW {
            page.line(&format!("    ⋮ {} more rows like this", row.folded));
        }
    }
}

fn say_left_out(page: &mut Page, rows: u64) {
    if rows > 0 {
        page.indented("    ", "    ", &format!("… {rows} more rows: a larger --granularity draws them together"));
    }
}

/// Whether a map has anything to show.
pub fn is_drawn(runs: &[Run]) -> bool {
    runs.iter().any(|run| run.used_bytes > 0)
}
