//! `nvidia-smi -q -x`. Only the few elements that are looked for are read; the rest may be anything.

use super::{Card, CardProcess, SmiError, SmiReport, named, size};

const MIB: u64 = 1 << 20;

pub(super) fn read(text: &str) -> Option<Result<SmiReport, SmiError>> {
    let start = text.find("<nvidia_smi_log")?;
    let text = &text[start..];
    if !text.contains("</nvidia_smi_log>") {
        let reason = "the file ends in the middle: </nvidia_smi_log> is missing".to_owned();
        return Some(Err(SmiError::Damaged { offset: (start + text.len()) as u64, reason }));
    }
    let mut report = SmiReport { format: "nvidia-smi -q -x", ..SmiReport::default() };
    for (index, (attributes, gpu)) in tagged(text, "gpu").enumerate() {
        let memory = element(gpu, "fb_memory_usage").unwrap_or_default();
        let of_memory = |name: &str| element(memory, name).and_then(|text| size(text, MIB));
        let retired = element(gpu, "retired_pages").unwrap_or_default();
        let retired: Vec<u64> =
            elements(retired, "retired_count").filter_map(|count| count.trim().parse().ok()).collect();
        let errors = element(gpu, "ecc_errors").and_then(|errors| element(errors, "aggregate")).unwrap_or_default();
        report.cards.push(Card {
            index: Some(index as u64),
            // Shortened output may have no more of the place than the element's own id.
            pci_bus_id: element(gpu, "pci")
                .and_then(|pci| element(pci, "pci_bus_id"))
                .or_else(|| attribute(attributes, "id"))
                .and_then(named),
            uuid: element(gpu, "uuid").and_then(named),
            name: element(gpu, "product_name").and_then(named),
            total_bytes: of_memory("total"),
            used_bytes: of_memory("used"),
            free_bytes: of_memory("free"),
            retired_pages: (!retired.is_empty())
                .then(|| retired.iter().fold(0, |sum, count| count.saturating_add(sum))),
            uncorrected_errors: element(errors, "dram_uncorrectable").and_then(|count| count.trim().parse().ok()),
        });
        for process in elements(gpu, "process_info") {
            let Some(pid) = element(process, "pid").and_then(|pid| pid.trim().parse().ok()) else { continue };
            report.processes.push(CardProcess {
                card: Some(index as u64),
                pci_bus_id: None,
                uuid: None,
                pid,
                name: element(process, "process_name").and_then(named),
                used_bytes: element(process, "used_memory").and_then(|text| size(text, MIB)),
            });
        }
    }
    Some(Ok(report))
}

fn element<'a>(text: &'a str, name: &'a str) -> Option<&'a str> {
    elements(text, name).next()
}

/// The value of an attribute: `id="00000000:01:00.0"`.
fn attribute<'a>(attributes: &'a str, name: &str) -> Option<&'a str> {
    let behind = attributes.split_once(&format!("{name}=\""))?.1;
    Some(behind.split_once('"')?.0)
}

/// What stands in the elements of a name, one after the other.
fn elements<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    tagged(text, name).map(|(_, inner)| inner)
}

/// The attributes of the elements of a name, and what stands in each.
fn tagged<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let (open, close) = (format!("<{name}"), format!("</{name}>"));
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            let behind = &rest[rest.find(&open)? + open.len()..];
            rest = behind;
            // `<gpu` is also how `<gpu_reset_status>` begins.
            if !behind.starts_with(['>', ' ', '\t', '\n', '\r']) {
                continue;
            }
            let (attributes, inner) = behind.split_once('>')?;
            let end = inner.find(&close)?;
            rest = &inner[end..];
            return Some((attributes, &inner[..end]));
        }
    })
}
