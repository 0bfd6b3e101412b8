//! The card itself: what the processor reaches of it, and partitions.

use super::finding::Finding;
use super::subject::Subject;
use crate::judgement::check::Confidence;
use crate::machine::card::{Card, SMALL_BAR_BYTES};
use crate::words::{clean, size};

pub(super) fn check(subject: &Subject, findings: &mut Vec<Finding>) {
    let machine = &subject.machine;
    for card in &machine.cards {
        if machine.is_integrated(card) != Some(true) {
            findings.extend(window(card, subject.thresholds.visible_slack_bytes));
        }
        findings.extend(partition(card));
    }
}

/// `slack_bytes`: what may be missing of the window without anybody losing by it.
fn window(card: &Card, slack_bytes: u64) -> Option<Finding> {
    let finding = |reached: u64| {
        Finding::notice("bar-visible-limit", format!("the processor reaches {} of {}", size(reached), card.label()))
    };
    let fix = "in the BIOS turn on \"Above 4G decoding\" and \"Resizable BAR\" (Smart Access Memory), turn off CSM";
    let limits =
        "this limits host access, peer access and some mapped memory; hipMalloc and cudaMalloc get the whole card";
    match (card.visible_vram_total_bytes, card.vram_total_bytes, card.largest_bar_bytes) {
        (Some(visible), Some(total), _) if visible.saturating_add(slack_bytes) < total => Some(
            finding(visible)
                .because(format!("CPU-visible {} of {} (mem_info_vis_vram_total)", size(visible), size(total)))
                .because(limits)
                .fix(fix),
        ),
        (None, _, Some(bar)) if bar <= SMALL_BAR_BYTES && card.driver.as_deref() == Some("nvidia") => Some(
            finding(bar)
                .with_confidence(Confidence::Probable)
                .because(format!("its largest PCI window is {}: the size without resizable BAR", size(bar)))
                .because(limits)
                .fix(fix),
        ),
        _ => None,
    }
}

/// Accelerator partitions (Linux `amdgpu_gfx.c`, AMD's documentation of the MI300 series).
fn partition(card: &Card) -> Option<Finding> {
    let mode = card.compute_partition.as_deref().filter(|mode| *mode != "SPX")?;
    let slices = match mode {
        "DPX" => "two devices",
        "TPX" => "three devices",
        "QPX" => "four devices",
        "CPX" => "a device per compute die",
        _ => "several devices",
    };
    let memory = card.memory_partition.as_deref().map(|mode| format!("memory partition mode {}", clean(mode)));
    let whole = card.compute_partitions.iter().any(|mode| mode == "SPX");
    let finding = Finding::notice(
        "partition-slice",
        format!("{} is split: programs see {slices} of a part of its memory", card.label()),
    )
    .because(format!("compute partition mode {}", clean(mode)))
    .because_of(memory)
    .because_of(
        card.partition_memory.as_deref().map(|mode| format!("its partitions share memory in mode {}", clean(mode))),
    )
    .because_of(card.vram_total_bytes.map(|bytes| format!("the whole card has {}", size(bytes))));
    if !whole {
        return Some(finding.fix("plan with the size of one part"));
    }
    let path = format!("/sys/class/drm/card{}/device/current_compute_partition", card.number);
    Some(
        finding
            .type_in("if one device is wanted, and nobody uses the card", vec![format!("echo SPX | sudo tee {path}")]),
    )
}
