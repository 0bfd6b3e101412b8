//! `amd-smi ... --json` and `rocm-smi ... --json`.

use serde_json::Value;

use super::{Card, CardProcess, SmiError, SmiReport, named, size};

const MIB: u64 = 1 << 20;

pub(super) fn read(text: &str) -> Option<Result<SmiReport, SmiError>> {
    // The tools print warnings before it.
    let start = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).take(50);
    let start = start.into_iter().find(|at| text[*at..].trim_start_matches([' ', '\t']).starts_with(['{', '[']))?;
    let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
    match values.next()? {
        Ok(value) => from_value(&value).map(Ok),
        // nvidia-smi's and the kernel's texts have brackets, too.
        Err(_) if !text[start..].contains("\":") => None,
        Err(error) => {
            let lines = text[start..].split_inclusive('\n').take(error.line().saturating_sub(1));
            let offset = start + lines.map(str::len).sum::<usize>() + error.column().saturating_sub(1);
            let reason = format!("no valid JSON: {error}");
            Some(Err(SmiError::Damaged { offset: offset as u64, reason }))
        }
    }
}

fn from_value(value: &Value) -> Option<SmiReport> {
    let rows = value.as_array().or_else(|| value.get("gpu_data")?.as_array());
    if let Some(rows) = rows.filter(|rows| rows.iter().any(|row| row.get("gpu").is_some())) {
        return Some(amd_smi(rows));
    }
    let cards = value.as_object().filter(|object| object.keys().any(|key| key.starts_with("card")))?;
    let mut report = SmiReport { format: "rocm-smi --json", ..SmiReport::default() };
    for (name, card) in cards {
        let Some(index) = name.strip_prefix("card").and_then(|index| index.parse().ok()) else { continue };
        let bytes = |key: &str| card.get(key).and_then(|value| number(value, 1));
        report.cards.push(Card {
            index: Some(index),
            pci_bus_id: card.get("PCI Bus").and_then(Value::as_str).and_then(named),
            name: ["Card Series", "Card series"].iter().find_map(|key| named(card.get(*key)?.as_str()?)),
            total_bytes: bytes("VRAM Total Memory (B)"),
            used_bytes: bytes("VRAM Total Used Memory (B)"),
            ..Card::default()
        });
    }
    report.cards.sort_by_key(|card| card.index);
    Some(report)
}

fn amd_smi(rows: &[Value]) -> SmiReport {
    let mut report = SmiReport { format: "amd-smi --json", ..SmiReport::default() };
    for row in rows {
        let index = row.get("gpu").and_then(Value::as_u64);
        let at = |path: &str| row.pointer(path);
        let memory = |name: &str| at(&format!("/mem_usage/{name}")).and_then(|value| number(value, MIB));
        let card = Card {
            index,
            pci_bus_id: text(row, &["/bus/bdf", "/bdf"]),
            uuid: text(row, &["/uuid"]),
            name: at("/asic/market_name").and_then(Value::as_str).and_then(named),
            total_bytes: memory("total_vram").or_else(|| at("/vram/size").and_then(|value| number(value, MIB))),
            used_bytes: memory("used_vram"),
            free_bytes: memory("free_vram"),
            retired_pages: None,
            uncorrected_errors: at("/ecc/total_uncorrectable_count").and_then(Value::as_u64),
        };
        if card != (Card { index, ..Card::default() }) {
            report.cards.push(card);
        }
        let processes = ["process_list", "processes"].iter().find_map(|name| row.get(*name)?.as_array());
        for entry in processes.into_iter().flatten() {
            report.processes.extend(process(index, entry.get("process_info").unwrap_or(entry)));
        }
    }
    report
}

/// The first of these places that says something.
fn text(row: &Value, places: &[&str]) -> Option<String> {
    places.iter().find_map(|place| named(row.pointer(place)?.as_str()?))
}

fn process(card: Option<u64>, info: &Value) -> Option<CardProcess> {
    let pid = info.get("pid")?;
    let pid = pid.as_u64().or_else(|| pid.as_str()?.parse().ok())?;
    let used = ["/memory_usage/vram_mem", "/vram_mem", "/mem_usage/vram_mem"];
    let used = used.iter().find_map(|path| info.pointer(path));
    Some(CardProcess {
        card,
        pci_bus_id: None,
        uuid: None,
        pid,
        name: info.get("name").and_then(Value::as_str).and_then(named),
        // Without a unit these are bytes.
        used_bytes: used.and_then(|value| number(value, 1)),
    })
}

/// `{"value": 24560, "unit": "MB"}`, `"24560 MB"`, `24560`.
fn number(value: &Value, unit_bytes: u64) -> Option<u64> {
    match value {
        Value::Number(number) => size(&number.to_string(), unit_bytes),
        Value::String(text) => size(text, unit_bytes),
        Value::Object(object) => {
            let unit = object.get("unit").and_then(Value::as_str).unwrap_or_default();
            let amount = match object.get("value")? {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            size(&format!("{amount} {unit}"), unit_bytes)
        }
        _ => None,
    }
}
