//! Padding and fragmentation: the model that was asked for, beside what the addresses show.

use crate::conclusion::Summary;
use crate::passes::device::DeviceSummary;
use crate::passes::map::DeviceMap;
use crate::report::map::{draw_addresses, is_drawn};
use crate::report::page::{Page, Paint};
use crate::report::shade::LEGEND;
use crate::thresholds::Thresholds;
use crate::words::{count, gpu, moment, percent, size};

/// Rows of the small map.
const FEW_ROWS: usize = 6;

pub(in crate::report) fn write(page: &mut Page, summary: &Summary, maps: &[DeviceMap]) {
    for device in summary.facts.devices.iter().filter(|device| device.account.peak.live_allocations > 0) {
        let when = format!("{} at its peak, {}", gpu(device.index), moment(device.account.peak.at_ns));
        page.headed("FRAGMENTATION", Paint::Bold, &when);
        if page.look.full || !rounds_itself(summary, device) {
            item(page, "modelled", &modelled(device, &summary.facts.thresholds));
        }
        item(page, "inferred", &inferred(device));
        if let Some(map) = maps.iter().find(|map| map.device == device.index)
            && map.address_space.stretches.iter().any(|stretch| is_drawn(&stretch.runs))
        {
            let text = format!("address use, {} a cell ({LEGEND}); it never shows physical VRAM", size(map.cell_bytes));
            item(page, "map", &text);
            draw_addresses(page, &map.address_space, map.cell_bytes, FEW_ROWS);
        }
        page.gap();
    }
}

/// Whether an allocator of PyTorch's, whose own blocks are known, takes the memory in segments that it rounds by itself: what granules
/// that nobody asked for would add says nothing of that program.
pub(in crate::report) fn rounds_itself(summary: &Summary, device: &DeviceSummary) -> bool {
    let is_pytorch = device.tensors.as_ref().is_some_and(|tensors| tensors.framework == "pytorch");
    let is_asked_for = summary.facts.thresholds.model_granule().is_some()
        || summary.facts.process.environment.contains_key("GPUOOM_GRANULARITY");
    is_pytorch && !is_asked_for
}

fn item(page: &mut Page, name: &str, text: &str) {
    page.indented(&format!("  {name:<9} "), "            ", text);
}

fn modelled(device: &DeviceSummary, thresholds: &Thresholds) -> String {
    let peak = &device.account.peak;
    let fragmentation = &device.fragmentation;
    let mut text = format!(
        "{} granules{}: {} asked, {} padded",
        size(device.granularity_bytes),
        if thresholds.model_granule().is_some() { " (set by --threshold model-granule)" } else { "" },
        size(peak.on_card_bytes()),
        size(fragmentation.padded_bytes)
    );
    if peak.managed_allocations > 0 {
        text.push_str(&format!(" ({} left out that may lie in RAM)", size(peak.managed_bytes)));
    }
    if let Some(loss) = fragmentation.effective_loss {
        text.push_str(&format!(", {} of requested lost", percent(loss)));
    }
    let (Some(capacity), Some(free), Some(stranded), Some(largest), Some(external)) = (
        fragmentation.capacity_bytes,
        fragmentation.free_bytes,
        fragmentation.stranded_bytes,
        fragmentation.largest_free_block_bytes,
        fragmentation.external,
    ) else {
        text.push_str(match device.total_bytes {
            Some(total) if total < device.granularity_bytes => {
                "; no granule of this size fits the card, so nothing is said about free blocks"
            }
            Some(_) => "; the runtime did not say how large the card is, so nothing is said about free blocks",
            None => "; the size of the card is not in the trace, so nothing is said about free blocks",
        });
        return text;
    };
    match fragmentation.overflow_blocks {
        Some(blocks) if blocks > 0 => text.push_str(&format!(
            "; {} ({} padded) had no room on {} when they came",
            count(blocks, "block", "blocks"),
            size(fragmentation.overflow_bytes.unwrap_or(0)),
            size(capacity)
        )),
        _ => text.push_str(&format!("; fits {}", size(capacity))),
    }
    if free > 0 {
        text.push_str(&format!(
            "; largest free block {}, {} stranded outside it ({} of free)",
            size(largest),
            size(stranded),
            percent(external)
        ));
    }
    text
}

fn inferred(device: &DeviceSummary) -> String {
    let Some(observed) = &device.observed else {
        return "fewer than 8 blocks of plain device memory that share nothing with others: too few addresses to tell the \
                granularity of the driver"
            .to_owned();
    };
    let loss = observed.effective_loss.map_or(String::new(), |loss| format!(", {} of requested lost", percent(loss)));
    let shared = match observed.shared_blocks {
        0 => String::new(),
        blocks => format!(
            "; without {} ({} asked), of which the driver may put several into one piece",
            count(blocks, "smaller block", "smaller blocks"),
            size(observed.shared_bytes)
        ),
    };
    format!(
        "at most {} granules, from the addresses: {} asked, at most {} held{loss}{shared}; drivers scatter a block over physical \
         memory, so free memory is not stranded there",
        size(observed.granularity_bytes),
        size(observed.requested_bytes),
        size(observed.held_bytes)
    )
}
