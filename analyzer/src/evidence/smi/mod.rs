//! What the vendors' tools say about the cards: `amd-smi`, `rocm-smi`, `nvidia-smi`, as JSON, XML, CSV and text. Which of them
//! it is, is found out from the content.

mod csv;
mod json;
#[cfg(test)]
mod tests;
mod text;
mod xml;

use serde::Serialize;
use thiserror::Error;

/// Most cards and processes that are kept of a file.
const MOST_ROWS: usize = 10_000;

/// A card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Card {
    /// Number, as the tool counts.
    pub index: Option<u64>,
    /// PCI address, as the tool writes it.
    pub pci_bus_id: Option<String>,
    /// UUID: as good as a serial number, so it is kept to match lists, and written nowhere.
    #[serde(skip)]
    pub uuid: Option<String>,
    /// Name.
    pub name: Option<String>,
    /// Its memory.
    pub total_bytes: Option<u64>,
    /// What is in use.
    pub used_bytes: Option<u64>,
    /// What is free.
    pub free_bytes: Option<u64>,
    /// Pages that were taken out of use.
    pub retired_pages: Option<u64>,
    /// ECC errors that could not be corrected.
    pub uncorrected_errors: Option<u64>,
}

/// A process that uses a card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CardProcess {
    /// Number of the card.
    pub card: Option<u64>,
    /// PCI address of the card, where its list has that.
    pub pci_bus_id: Option<String>,
    /// UUID of the card, where its list has that; as [`Card::uuid`].
    #[serde(skip)]
    pub uuid: Option<String>,
    /// Process id.
    pub pid: u64,
    /// Name.
    pub name: Option<String>,
    /// What it holds of the card's memory; none where the tool does not say.
    pub used_bytes: Option<u64>,
}

/// What a file says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SmiReport {
    /// The tool and its format.
    pub format: &'static str,
    /// Cards.
    pub cards: Vec<Card>,
    /// Processes.
    pub processes: Vec<CardProcess>,
}

impl SmiReport {
    /// The tool: each counts cards in a way of its own.
    pub fn tool(&self) -> &'static str {
        self.format.split(' ').next().unwrap_or(self.format)
    }
}

/// Why a file could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SmiError {
    /// It is of none of the known formats.
    #[error(
        "this is no output that is known; expected one of: amd-smi static, metric or process (text or --json), rocm-smi \
         --showmeminfo vram (text, --json or --csv), nvidia-smi, nvidia-smi -q -x, nvidia-smi --query-gpu=index,name,\
         memory.total,memory.used --format=csv"
    )]
    Unknown,
    /// It is of a known format, and damaged.
    #[error("offset {offset}: {reason}")]
    Damaged {
        /// Bytes from the beginning of the file.
        offset: u64,
        /// What is wrong there.
        reason: String,
    },
    /// It says nothing about memory.
    #[error("{format} with nothing about memory; {advice}")]
    Nothing {
        /// The tool and its format.
        format: &'static str,
        /// What to run.
        advice: &'static str,
    },
}

/// Reads what a tool wrote.
pub fn read(text: &str) -> Result<SmiReport, SmiError> {
    let readers = [xml::read, json::read, csv::read, text::read];
    let mut report = readers.iter().find_map(|read| read(text)).unwrap_or(Err(SmiError::Unknown))?;
    report.cards.truncate(MOST_ROWS);
    report.processes.truncate(MOST_ROWS);
    // Addresses alone help to read another file of the same tool.
    let says_something = |card: &Card| {
        let of_memory = card.total_bytes.is_some() || card.used_bytes.is_some() || card.retired_pages.is_some();
        of_memory || card.pci_bus_id.is_some()
    };
    if report.processes.is_empty() && !report.cards.iter().any(says_something) {
        let advice = match report.format.starts_with("nvidia") {
            true => "run nvidia-smi -q -x",
            false => "run amd-smi metric --json or amd-smi process --json",
        };
        return Err(SmiError::Nothing { format: report.format, advice });
    }
    for card in &mut report.cards {
        if let (None, Some(total), Some(used)) = (card.free_bytes, card.total_bytes, card.used_bytes) {
            card.free_bytes = Some(total.saturating_sub(used));
        }
    }
    Ok(report)
}

/// `24564 MiB`, `7.3 GB`, `16384`. The tools of both vendors mean 1024 by their units, whatever they call them. A number
/// without a unit has the given one.
fn size(text: &str, unit_bytes: u64) -> Option<u64> {
    gpuoom_units::size_in(text, unit_bytes).ok()
}

/// A name that says something.
fn named(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty() && text != "N/A" && !text.contains("Not Found")).then(|| text.chars().take(200).collect())
}
