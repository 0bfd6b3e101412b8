//! What the tools print for people: `nvidia-smi`, `amd-smi metric` and `process`, `rocm-smi --showmeminfo vram`.

use super::{Card, CardProcess, SmiError, SmiReport, named, size};

const MIB: u64 = 1 << 20;

pub(super) fn read(text: &str) -> Option<Result<SmiReport, SmiError>> {
    let report = match () {
        () if text.contains("NVIDIA-SMI ") => nvidia(text),
        () if text.contains("GPU[") && (text.contains("VRAM Total") || text.contains("PCI Bus:")) => rocm(text),
        () if text.lines().any(|line| line.starts_with("GPU: ")) => amd(text),
        () => return None,
    };
    Some(Ok(report))
}

/// The table: two or three lines for a card, then one for each process.
fn nvidia(text: &str) -> SmiReport {
    let mut report = SmiReport { format: "nvidia-smi", ..SmiReport::default() };
    let mut in_processes = false;
    for line in text.lines() {
        in_processes |= line.contains("Processes:");
        let inner = line.trim().trim_matches('|');
        if in_processes {
            report.processes.extend(nvidia_process(inner));
            continue;
        }
        // `   0  NVIDIA A100-SXM4-40GB          On  | 00000000:07:00.0 Off |                    0 `
        if let Some((left, right)) = inner.split_once('|')
            && right.split_whitespace().next().is_some_and(|bus| bus.matches(':').count() == 2)
            && let Some((index, name)) = left.trim().split_once(' ')
            && let Ok(index) = index.parse()
        {
            let name = name.trim().rsplit_once("  ").map_or(name, |(name, _)| name);
            let pci_bus_id = right.split_whitespace().next().and_then(named);
            report.cards.push(Card { index: Some(index), pci_bus_id, name: named(name), ..Card::default() });
        }
        let usage = inner.split('|').find(|cell| cell.contains("MiB /"));
        if let (Some((used, total)), Some(card)) =
            (usage.and_then(|cell| cell.split_once('/')), report.cards.last_mut())
        {
            (card.used_bytes, card.total_bytes) = (size(used, MIB), size(total, MIB));
        }
    }
    report
}

/// `    0   N/A  N/A      1234      C   /usr/bin/python3                  1234MiB `; older tables lack the two ids.
fn nvidia_process(line: &str) -> Option<CardProcess> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let card = words.first()?.parse().ok();
    let kind = words.iter().position(|word| matches!(*word, "C" | "G" | "C+G" | "M+C"))?;
    let pid = words.get(kind.checked_sub(1)?)?.parse().ok()?;
    let (used, name) = words.get(kind + 1..)?.split_last()?;
    Some(CardProcess { card, pid, name: named(&name.join(" ")), used_bytes: size(used, MIB), ..CardProcess::default() })
}

/// `GPU[0]  : VRAM Total Memory (B): 34342961152`
fn rocm(text: &str) -> SmiReport {
    let mut report = SmiReport { format: "rocm-smi --showmeminfo vram", ..SmiReport::default() };
    for line in text.lines() {
        let Some((index, rest)) = line.trim().strip_prefix("GPU[").and_then(|rest| rest.split_once(']')) else {
            continue;
        };
        let (Ok(index), Some((name, number))) =
            (index.parse(), rest.trim_start_matches([' ', '\t', ':']).rsplit_once(':'))
        else {
            continue;
        };
        if report.cards.last().is_none_or(|card| card.index != Some(index)) {
            report.cards.push(Card { index: Some(index), ..Card::default() });
        }
        let Some(card) = report.cards.last_mut() else { continue };
        match name.trim() {
            // The address has colons of its own: what stood before the last one is not its name.
            address if address.starts_with("PCI Bus") => {
                card.pci_bus_id = rest.split_once("PCI Bus:").and_then(|(_, address)| named(address));
            }
            "VRAM Total Memory (B)" => card.total_bytes = size(number, 1),
            "VRAM Total Used Memory (B)" => card.used_bytes = size(number, 1),
            _ => {}
        }
    }
    report
}

/// Names and values, indented: `GPU: 0`, `    MEM_USAGE:`, `        TOTAL_VRAM: 24560 MB`.
fn amd(text: &str) -> SmiReport {
    let mut report = SmiReport { format: "amd-smi", ..SmiReport::default() };
    let (mut card, mut vram_section, mut process) = (Card::default(), false, CardProcess::default());
    for line in text.lines() {
        let Some((name, value)) = line.trim().split_once(':') else { continue };
        let (name, value) = (name.trim(), value.trim());
        if matches!(name, "GPU" | "PROCESS_INFO") {
            keep_process(&mut report, &mut process, card.index);
        }
        match name {
            "GPU" => {
                keep_card(&mut report, &mut card);
                card.index = value.parse().ok();
            }
            "MARKET_NAME" => card.name = named(value),
            "BDF" => card.pci_bus_id = named(value),
            "UUID" => card.uuid = named(value),
            "TOTAL_VRAM" => card.total_bytes = size(value, MIB),
            "USED_VRAM" => card.used_bytes = size(value, MIB),
            "FREE_VRAM" => card.free_bytes = size(value, MIB),
            "SIZE" if vram_section => card.total_bytes = size(value, MIB),
            "TOTAL_UNCORRECTABLE_COUNT" => card.uncorrected_errors = value.parse().ok(),
            "PID" => process.pid = value.parse().unwrap_or(0),
            "NAME" if process.pid == 0 => process.name = named(value),
            "VRAM_MEM" => process.used_bytes = size(value, 1),
            _ => {}
        }
        if value.is_empty() {
            vram_section = name == "VRAM";
        }
    }
    keep_process(&mut report, &mut process, card.index);
    keep_card(&mut report, &mut card);
    report
}

fn keep_card(report: &mut SmiReport, card: &mut Card) {
    let card = std::mem::take(card);
    if card != (Card { index: card.index, ..Card::default() }) {
        report.cards.push(card);
    }
}

fn keep_process(report: &mut SmiReport, process: &mut CardProcess, card: Option<u64>) {
    let process = std::mem::take(process);
    if process.pid > 0 {
        report.processes.push(CardProcess { card, ..process });
    }
}
