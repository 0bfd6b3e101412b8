//! Maps for people and for programs.

use std::io::{self, Write};

use serde::Serialize;

use crate::passes::map::{AddressMap, ArenaMap, DeviceMap, Run};
use crate::passes::segments::{AllocatorMap, MOST_CELLS, SegmentMap, keep_most_unused};
use crate::replay::blocks::Owner;
use crate::report::page::{Page, Paint};
use crate::report::shade::{LEGEND, Row, rows, shade};
use crate::words::{clean, count, gpu, moment, percent, size};

/// Name and version of the JSON.
pub const SCHEMA: &str = "gpuoom.map/1";
/// Rows of one map on a page of its own.
const MANY_ROWS: usize = 48;
/// Characters beside the cells of a row: indent, address, bytes in use.
const BESIDE_CELLS: usize = 36;
/// Sizes of unused pieces that are told of one segment.
const MOST_PIECES: usize = 4;
/// A moment that is so much later than the device's is said, in nanoseconds.
const LATER_NS: u64 = 10_000_000;
/// Rows that are drawn rather than folded.
const FEW: u64 = 2;

/// What the address map is and is not.
pub const ADDRESS_LEGEND: &str = "Address use: where the blocks lie in the program's address space. It never shows physical VRAM: drivers scatter a \
     buffer over it, and no trace can tell where.";
/// What the model map is and is not.
pub const MODEL_LEGEND: &str = "Model: the card as granules of this size, each block padded to whole granules and placed first fit. It was asked \
     for, not measured.";

/// What the shades of segments are.
pub const SEGMENTS_LEGEND: &str = "Segments: what an allocator above the runtime took from it. There █ is all in blocks (tensors), ▓ more than 2/3, ▒ \
     more than 1/3, ░ less, and · unused: in no block, and free for nobody but the allocator.";

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
                    let text =
                        format!("Not in the model: {} in {blocks} that may lie in RAM", size(device.managed_bytes));
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
        device.allocators.iter().for_each(|allocator| draw_segments(page, allocator, device.at_ns));
    }
    page.indented("", "", LEGEND);
    if document.devices.iter().flat_map(|device| &device.allocators).any(|allocator| allocator.segments.is_some()) {
        page.indented("", "", SEGMENTS_LEGEND);
    }
    page.indented("", "", ADDRESS_LEGEND);
    page.indented("", "", MODEL_LEGEND);
}

/// The segments of an allocator, a row each.
fn draw_segments(page: &mut Page, map: &AllocatorMap, device_at_ns: u64) {
    let whose = match &map.owner {
        Owner::Torch => "PyTorch's allocator".to_owned(),
        Owner::Ggml => "ggml's buffers".to_owned(),
        Owner::Pool(name) => format!("the pool {}", clean(name)),
    };
    let blocks = count(map.blocks, "block", "blocks");
    let Some(segments) = &map.segments else {
        let text = format!(
            "Segments of {whose}: it has {} in {blocks}; which memory they fill is not known, because its own totals, its blocks and \
             the recorded calls do not agree, or records are missing",
            size(map.allocated_bytes)
        );
        page.indented("  ", "  ", &text);
        return page.gap();
    };
    let sums = map.sums();
    let later = map.at_ns.saturating_sub(device_at_ns) >= LATER_NS;
    let when = if later { format!(" at {}, when most of it was in use", moment(map.at_ns)) } else { String::new() };
    let text = format!(
        "Segments of {whose}{when}, {} a cell: {} in {}, of which {} in {blocks}; {}",
        size(map.cell_bytes),
        size(sums.bytes),
        count(sums.segments, "segment", "segments"),
        size(map.allocated_bytes),
        unused(sums.unused_bytes, sums.unused_pieces, &[])
    );
    page.indented("  ", "  ", &text);
    let mut shown = segments.clone();
    let mut rest = map.left_out;
    rest.join(&keep_most_unused(&mut shown, MANY_ROWS));
    shown.iter().for_each(|segment| draw_segment(page, segment, map.cell_bytes));
    if rest.segments > 0 {
        let more = count(rest.segments, "more segment", "more segments");
        let text = format!("… {more} with less unused: {}, {} of it unused", size(rest.bytes), size(rest.unused_bytes));
        page.indented("    ", "    ", &text);
    }
    page.gap();
}

fn draw_segment(page: &mut Page, segment: &SegmentMap, cell_bytes: u64) {
    let cells = cells_of(segment, cell_bytes);
    let wide = MOST_CELLS as usize;
    let head = format!("    {:#014x} {:>9}  {cells:<wide$}  ", segment.address, size(segment.bytes));
    let indent = " ".repeat(head.chars().count());
    let text = format!(
        "{}, {}",
        count(segment.blocks, "block", "blocks"),
        unused(segment.unused_bytes, segment.unused_pieces, &segment.unused_piece_bytes)
    );
    page.indented(&head, &indent, &text);
}

/// The cells of a segment. What of the last one lies beyond the segment is nobody's and counts for no shade.
fn cells_of(segment: &SegmentMap, cell_bytes: u64) -> String {
    let used = segment.runs.iter().flat_map(|run| (0..run.cells).map(|_| run.used_bytes));
    let starts = (0..MOST_CELLS).map(|cell| cell.saturating_mul(cell_bytes));
    starts.zip(used).map(|(start, used)| shade(used, cell_bytes.min(segment.bytes.saturating_sub(start)))).collect()
}

/// What is unused, and the sizes of its pieces, the largest first.
fn unused(bytes: u64, pieces: u64, sizes: &[u64]) -> String {
    if pieces == 0 {
        return "nothing unused".to_owned();
    }
    let listed: Vec<String> = sizes.iter().take(MOST_PIECES).map(|bytes| size(*bytes)).collect();
    let more = if pieces > listed.len() as u64 { ", ..." } else { "" };
    let sizes = match listed.len() {
        0 => String::new(),
        1 if pieces == 1 => String::new(),
        _ => format!(": {}{more}", listed.join(", ")),
    };
    format!("{} unused in {}{sizes}", size(bytes), count(pieces, "piece", "pieces"))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::map::{Moment, draw};
    use crate::passes::segments::of_device;
    use crate::replay::Options;
    use crate::report::page::Look;
    use crate::testing::{GIB, MIB, TraceBuilder, replay};

    const SEGMENT: u64 = 0x7f00_0000_0000;

    fn page(trace: &TraceBuilder, moment: Moment) -> String {
        let replay = replay(trace, Options::default());
        let mut devices = draw(&replay, moment, None);
        devices[0].allocators = of_device(&replay, 0, moment, true);
        let document = Document {
            schema: SCHEMA,
            trace: "trace.bin".into(),
            moment: "peak".into(),
            address_space_is: ADDRESS_LEGEND,
            model_is: MODEL_LEGEND,
            devices: &devices,
        };
        let mut page = Page::new(Look::new(100, false));
        write_text(&mut page, &document);
        page.into_text()
    }

    #[test]
    fn segments_of_pytorch_and_of_a_pool() {
        let mut trace = TraceBuilder::new(MIB).device(0, "Card", GIB);
        for number in 0..3 {
            trace.segment(SEGMENT + number * 64 * MIB, 40 * MIB);
            trace.tensor(0, SEGMENT + number * 64 * MIB, (10 + number * 15) * MIB);
        }
        trace.segment(SEGMENT + GIB, 2 * MIB);
        trace.tensor(0, SEGMENT + GIB + MIB, MIB / 2);
        trace.tensor(0, SEGMENT + 20 * MIB, 5 * MIB);
        trace.alloc(SEGMENT + 2 * GIB, 16 * MIB);
        trace.pool_alloc("arena", "kv", SEGMENT + 2 * GIB + MIB, 3 * MIB);
        insta::assert_snapshot!(page(&trace, Moment::Peak));
        // Another total than the sum of the blocks: nothing is drawn of PyTorch's.
        trace.hostile_tensor(false, 0, SEGMENT + 30 * MIB, MIB, Some([GIB, GIB]));
        let page = page(&trace, Moment::Now);
        let section = &page[page.find("  Segments of PyTorch").unwrap()..];
        insta::assert_snapshot!(section.split("\n\n").next().unwrap());
    }

    /// The cell that a segment does not fill is shaded by the part that is the segment's: it was drawn as half in use where
    /// nothing was unused.
    #[test]
    fn a_segment_smaller_than_a_cell_is_shaded_by_its_own_bytes() {
        let run = |cells, used_bytes| Run { cells, used_bytes };
        let segment = |bytes, runs| SegmentMap {
            address: SEGMENT,
            bytes,
            kind: "device",
            blocks: 0,
            allocated_bytes: 0,
            unused_bytes: 0,
            unused_pieces: 0,
            unused_piece_bytes: Vec::new(),
            runs,
        };
        assert_eq!(cells_of(&segment(2 * MIB, vec![run(1, 2 * MIB)]), 4 * MIB), "█");
        assert_eq!(cells_of(&segment(10 * MIB, vec![run(1, 4 * MIB), run(1, 0), run(1, MIB)]), 4 * MIB), "█·▒");
        let absurd = segment(u64::MAX, vec![run(u64::MAX, u64::MAX)]);
        assert_eq!(cells_of(&absurd, 1).chars().count() as u64, MOST_CELLS);
    }

    #[test]
    fn many_segments_are_summed_up() {
        let mut trace = TraceBuilder::new(MIB).device(0, "Card", 64 * GIB);
        for number in 0..100 {
            trace.segment(SEGMENT + number * GIB, 20 * MIB);
            trace.tensor(0, SEGMENT + number * GIB, MIB * (1 + number % 10));
        }
        let text = page(&trace, Moment::Now);
        assert!(text.contains("100 segments") && text.contains("… 52 more segments with less unused"), "{text}");
        assert!(text.lines().count() < 200);
    }
}
