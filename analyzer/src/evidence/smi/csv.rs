//! `nvidia-smi --query-gpu=... --format=csv`, `--query-compute-apps=...`, and `rocm-smi --showmeminfo vram --csv`.

use super::{Card, CardProcess, SmiError, SmiReport, named, size};

const MIB: u64 = 1 << 20;

pub(super) fn read(text: &str) -> Option<Result<SmiReport, SmiError>> {
    let head = text.lines().find(|line| !line.trim().is_empty())?;
    let columns: Vec<&str> = head.split(',').map(str::trim).collect();
    let has = |name: &str| columns.iter().any(|column| column.starts_with(name));
    let of_processes = has("used_memory") || has("used_gpu_memory");
    let of_rocm = has("VRAM Total");
    if !(of_processes || of_rocm || has("memory.total") || has("memory.used") || has("memory.free")) {
        return None;
    }
    let format = if of_rocm { "rocm-smi --csv" } else { "nvidia-smi --format=csv" };
    let mut report = SmiReport { format, ..SmiReport::default() };
    let rows = text.lines().skip_while(|line| *line != head).skip(1).filter(|line| !line.trim().is_empty());
    for (number, row) in rows.enumerate() {
        let cells: Vec<&str> = row.split(',').map(str::trim).collect();
        let cell = |names: &[&str]| {
            let column = columns.iter().position(|column| names.iter().any(|name| column.starts_with(name)))?;
            cells.get(column).copied()
        };
        let bytes = |names: &[&str]| {
            let unit = if of_rocm { 1 } else { MIB };
            cell(names).and_then(|text| size(text, unit))
        };
        if of_processes {
            let Some(pid) = cell(&["pid"]).and_then(|pid| pid.parse().ok()) else { continue };
            report.processes.push(CardProcess {
                card: None,
                pci_bus_id: cell(&["gpu_bus_id"]).and_then(named),
                uuid: cell(&["gpu_uuid"]).and_then(named),
                pid,
                name: cell(&["process_name", "name"]).and_then(named),
                used_bytes: bytes(&["used_memory", "used_gpu_memory"]),
            });
            continue;
        }
        let index = cell(&["index", "device"]).and_then(|index| index.trim_start_matches("card").parse().ok());
        report.cards.push(Card {
            index: index.or(Some(number as u64)),
            pci_bus_id: cell(&["pci.bus_id", "gpu_bus_id", "PCI Bus"]).and_then(named),
            uuid: cell(&["uuid", "gpu_uuid"]).and_then(named),
            name: cell(&["name", "gpu_name", "Card Series", "Card series"]).and_then(named),
            total_bytes: bytes(&["memory.total", "VRAM Total Memory"]),
            used_bytes: bytes(&["memory.used", "VRAM Total Used"]),
            free_bytes: bytes(&["memory.free"]),
            retired_pages: cell(&["retired_pages.double_bit.count", "retired_pages.dbe"]).and_then(|n| n.parse().ok()),
            uncorrected_errors: cell(&["ecc.errors.uncorrected.aggregate"]).and_then(|n| n.parse().ok()),
        });
    }
    Some(Ok(report))
}
