//! Thresholds as options: names, units, ranges, and what a user changed.

use serde::Serialize;
use thiserror::Error;

use super::{TABLE, Thresholds};
use crate::catalogue::distance;
use crate::options::parse::meant;
use crate::words::{clean, grouped, size, span};

/// What a threshold counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A part of a whole.
    Share,
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Time,
    /// Things.
    Count,
    /// Per cent, as the kernel counts pressure.
    Percent,
    /// A number by itself.
    Number,
}

/// Most bytes that a threshold may have: exact as a floating-point number, and more than any card.
const MOST_BYTES: f64 = (1u64 << 50) as f64;
const DAY_NS: f64 = 86_400e9;

impl Unit {
    /// How a value is written on the command line.
    pub fn spelling(self) -> &'static str {
        match self {
            Unit::Share => "a share from 0 to 1, or per cent such as 80%",
            Unit::Bytes => "a size from 1 byte to 1024T, such as 256M or 1.5G",
            Unit::Time => "a time from 1ns to 24 hours, such as 250ms or 90s",
            Unit::Count => "a whole number from 1 to 1,000,000,000",
            Unit::Percent => "per cent from 0 to 100, such as 10%",
            Unit::Number => "a number from 0 to 1000, such as 1.5",
        }
    }

    /// A value as people read it.
    pub fn shown(self, value: f64) -> String {
        match self {
            Unit::Share | Unit::Number => format!("{value}"),
            Unit::Bytes => size(value as u64),
            Unit::Time if value % 1e9 == 0.0 => format!("{} s", value / 1e9),
            Unit::Time => span(value as u64),
            Unit::Count => grouped(value as u64),
            Unit::Percent => format!("{value} %"),
        }
    }

    /// A value as a sentence has it: as short as it is exact.
    fn words(self, value: f64) -> String {
        let rounded = |value: f64| (value * 1e4).round() / 1e4;
        match self {
            Unit::Share => format!("{} %", rounded(value * 100.0)),
            Unit::Bytes => {
                let units = [(1e0, "bytes"), (1024.0, "KiB"), (1_048_576.0, "MiB"), (1_073_741_824.0, "GiB")];
                let (bytes, unit) = units.into_iter().rev().find(|(bytes, _)| value >= *bytes).unwrap_or(units[0]);
                format!("{} {unit}", rounded(value / bytes))
            }
            Unit::Time => {
                let units = [(1e0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")];
                let (ns, unit) = units.into_iter().rev().find(|(ns, _)| value >= *ns).unwrap_or(units[0]);
                format!("{} {unit}", rounded(value / ns))
            }
            Unit::Count | Unit::Number | Unit::Percent => self.shown(value),
        }
    }

    fn range(self) -> std::ops::RangeInclusive<f64> {
        match self {
            Unit::Share => 0.0..=1.0,
            Unit::Bytes => 1.0..=MOST_BYTES,
            Unit::Time => 1.0..=DAY_NS,
            Unit::Count => 1.0..=1e9,
            Unit::Percent => 0.0..=100.0,
            Unit::Number => 0.0..=1000.0,
        }
    }

    /// The number that a text stands for.
    fn parse(self, text: &str) -> Result<f64, String> {
        let invalid = |invalid: gpuoom_units::Invalid<'_>| clean(&invalid.to_string());
        let value = match self {
            Unit::Bytes => gpuoom_units::size(text).map_err(invalid)? as f64,
            Unit::Time => gpuoom_units::time(text).map_err(invalid)? as f64,
            _ => self.number(text).unwrap_or(f64::NAN),
        };
        let is_in_range = self.range().contains(&value);
        is_in_range.then_some(value).ok_or_else(|| format!("expected {}", self.spelling()))
    }

    /// The number of a unit that is neither bytes nor time.
    fn number(self, text: &str) -> Option<f64> {
        let text = text.trim();
        let unit_at = text.find(|c: char| c.is_ascii_alphabetic() || c == '%').unwrap_or(text.len());
        let (number, unit) = (text[..unit_at].trim(), text[unit_at..].to_ascii_lowercase());
        let scale = match (self, unit.as_str()) {
            (Unit::Share | Unit::Number, "") | (Unit::Percent, "" | "%") | (Unit::Count, "") => 1.0,
            (Unit::Share, "%") => 0.01,
            _ => return None,
        };
        let value = number.parse::<f64>().ok()? * scale;
        (self != Unit::Count || value.fract() == 0.0).then_some(value)
    }
}

/// Which thresholds the user set, by their places in the table: one that was set to its default counts, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Given([u64; 4]);

impl Given {
    fn add(&mut self, place: usize) {
        if let Some(word) = self.0.get_mut(place / 64) {
            *word |= 1 << (place % 64);
        }
    }

    fn has(self, place: usize) -> bool {
        self.0.get(place / 64).is_some_and(|word| word >> (place % 64) & 1 == 1)
    }
}

/// One threshold.
pub struct Threshold {
    pub(super) field: &'static str,
    /// What it counts.
    pub unit: Unit,
    pub(super) meaning: &'static str,
    /// Where the default comes from.
    pub origin: &'static str,
    /// The diagnoses that use it.
    pub used_by: &'static [&'static str],
    pub(super) get: fn(&Thresholds) -> f64,
    pub(super) set: fn(&mut Thresholds, f64),
}

impl Threshold {
    /// Its name on the command line.
    pub fn name(&self) -> String {
        let bare = ["_bytes", "_ns"].iter().find_map(|unit| self.field.strip_suffix(unit));
        bare.unwrap_or(self.field).replace('_', "-")
    }

    /// Its value among others, as a sentence has it.
    pub fn words_of(&self, thresholds: &Thresholds) -> String {
        self.unit.words((self.get)(thresholds))
    }

    /// What it is.
    pub fn meaning(&self) -> &'static str {
        self.meaning.trim().trim_end_matches('.')
    }

    /// Its default.
    pub fn default_value(&self) -> f64 {
        (self.get)(&Thresholds::default())
    }

    /// `NAME=VALUE` with its exact value, as [`Thresholds::set`] reads it.
    fn spelled(&self, value: f64) -> String {
        let value = match self.unit {
            Unit::Share | Unit::Percent | Unit::Number => value.to_string(),
            Unit::Time => format!("{}ns", value as u64),
            Unit::Bytes | Unit::Count => (value as u64).to_string(),
        };
        format!("{}={value}", self.name())
    }
}

/// The threshold whose default is what a trace says.
const OF_TRACE: &str = "model-granule";

/// A threshold that the user set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Its name.
    pub name: String,
    /// What it counts.
    pub unit: Unit,
    /// Its value, in bytes, nanoseconds, or as a number.
    pub value: f64,
    /// What it would be; of the model's granule what a recorder has without a setting of its own.
    pub default: f64,
}

impl Change {
    /// As a report says it.
    pub fn words(&self) -> String {
        let value = self.unit.shown(self.value);
        match self.name.as_str() {
            OF_TRACE => format!("{OF_TRACE}={value} (default: what the trace was recorded with)"),
            name if self.value == self.default => format!("{name}={value} (the default)"),
            name => format!("{name}={value} (default {})", self.unit.shown(self.default)),
        }
    }
}

/// A setting that can't be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WrongThreshold {
    /// Without a value.
    #[error(
        "'{0}': write NAME=VALUE, such as capacity-high-share=0.85; `gpuoom-analyze explain --thresholds` lists all"
    )]
    NoValue(String),
    /// There is no such threshold.
    #[error("{0}: no such threshold{1} `gpuoom-analyze explain --thresholds` lists all")]
    Unknown(String, String),
    /// The value is none.
    #[error("{name}={value}: {wrong}")]
    Value {
        /// The threshold.
        name: String,
        /// What was given.
        value: String,
        /// What is wrong with it.
        wrong: String,
    },
}

/// All thresholds, in the order of the chapters.
pub fn all() -> &'static [Threshold] {
    TABLE
}

/// The one with this name, as the code and the catalogue's texts write it.
pub fn named(field: &str) -> Option<&'static Threshold> {
    TABLE.iter().find(|known| known.field == field)
}

/// Those that a diagnosis uses.
pub fn used_by(id: &str) -> impl Iterator<Item = &'static Threshold> + use<'_> {
    TABLE.iter().filter(move |threshold| threshold.used_by.contains(&id))
}

/// Behind a name that is none: the one that is near enough to be meant, else the three that are nearest.
fn was_meant(unknown: &str) -> String {
    let names: Vec<String> = TABLE.iter().map(Threshold::name).collect();
    match meant(unknown, names.iter().map(String::as_str)) {
        Some(name) => format!("; did you mean {name}?"),
        None => {
            let mut ranked: Vec<(usize, &String)> = names.iter().map(|name| (distance(unknown, name), name)).collect();
            ranked.sort();
            let nearest: Vec<&str> = ranked.iter().take(3).map(|(_, name)| name.as_str()).collect();
            format!(". The nearest are {};", nearest.join(", "))
        }
    }
}

impl Thresholds {
    /// Sets one by a text such as `gap-warning=2G`.
    ///
    /// # Errors
    ///
    /// Where the name is not known, or the value is none or out of range.
    pub fn set(&mut self, text: &str) -> Result<(), WrongThreshold> {
        let (name, value) = text.split_once('=').ok_or_else(|| WrongThreshold::NoValue(clean(text)))?;
        let wanted = name.trim().to_ascii_lowercase().replace('_', "-");
        let by_name = |known: &&Threshold| known.name() == wanted || known.field.replace('_', "-") == wanted;
        let Some((place, known)) = TABLE.iter().enumerate().find(|(_, known)| by_name(known)) else {
            return Err(WrongThreshold::Unknown(clean(name), was_meant(&wanted)));
        };
        let parsed = known.unit.parse(value).map_err(|wrong| WrongThreshold::Value {
            name: known.name(),
            value: clean(value),
            wrong,
        })?;
        (known.set)(self, parsed);
        self.given.add(place);
        Ok(())
    }

    /// Those that the user set.
    fn set_ones(&self) -> impl Iterator<Item = &'static Threshold> {
        let is_set =
            |(place, known): &(usize, &Threshold)| self.given.has(*place) || (known.get)(self) != known.default_value();
        TABLE.iter().enumerate().filter(is_set).map(|(_, known)| known)
    }

    /// Whether the user set one, by the name of its field.
    pub(super) fn is_set(&self, field: &str) -> bool {
        self.set_ones().any(|known| known.field == field)
    }

    /// Those that the user set, each as a text that [`Thresholds::set`] reads.
    pub fn texts(&self) -> Vec<String> {
        self.set_ones().map(|known| known.spelled((known.get)(self))).collect()
    }

    /// Those that the user set, also to the default.
    pub fn changes(&self) -> Vec<Change> {
        let changed = self.set_ones();
        let change = |known: &Threshold| Change {
            name: known.name(),
            unit: known.unit,
            value: (known.get)(self),
            default: known.default_value(),
        };
        changed.map(change).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thresholds::{COVERAGE, JOBS};

    fn set(text: &str) -> Result<Thresholds, WrongThreshold> {
        let mut thresholds = Thresholds::default();
        thresholds.set(text).map(|()| thresholds)
    }

    #[test]
    fn values_are_read_in_their_units() {
        assert_eq!(set("capacity-high-share=85%").unwrap().capacity_high_share, 0.85);
        assert_eq!(Thresholds::default().changes(), []);
        assert_eq!(set("gap_warning_bytes=2GiB").unwrap().gap_warning_bytes, 2 << 30);
        assert_eq!(set("hang-ns=2min").unwrap().hang_ns, 120_000_000_000);
        assert_eq!(set("Many-Cycles=12").unwrap().many_cycles, 12);
        let changed = set("hang=90s").unwrap().changes();
        assert_eq!(changed.iter().map(Change::words).collect::<Vec<_>>(), ["hang=90 s (default 60 s)"]);
    }

    /// Who sets a number wants it to count, and to be told, whatever its default is.
    #[test]
    fn what_is_set_to_its_default_was_set() {
        let words = |text: &str| set(text).unwrap().changes().iter().map(Change::words).collect::<Vec<_>>();
        assert_eq!(words("gap-warning=1.5G"), ["gap-warning=1.50 GiB (the default)"]);
        assert_eq!(words("model-granule=256M"), ["model-granule=256 MiB (default: what the trace was recorded with)"]);
        assert_eq!(set("model-granule=256M").unwrap().model_granule(), Some(256 << 20));
        assert_eq!(set("gap-warning=1.5G").unwrap().model_granule(), None);
    }

    #[test]
    fn what_cannot_be_used_is_said() {
        for text in
            ["capacity-high-share=1.2", "hang=-1s", "gap-warning=2000T", "many-cycles=1.5", "hang=5G", "hang=NaNs"]
        {
            let error = set(text).unwrap_err();
            assert!(matches!(error, WrongThreshold::Value { .. }), "{text}: {error}");
        }
        let error = set("capacity-hihg=0.5").unwrap_err().to_string();
        assert!(error.contains("no such threshold. The nearest are capacity-high-share, "), "{error}");
        let error = set("capacity-hihg-share=0.5").unwrap_err().to_string();
        assert!(error.contains("no such threshold; did you mean capacity-high-share? `gpuoom-analyze"), "{error}");
        assert!(matches!(set("hang"), Err(WrongThreshold::NoValue(_))));
    }

    proptest::proptest! {
        /// What a bundle carries is what was set, bit by bit.
        #[test]
        fn texts_return(changed in proptest::collection::vec((0usize..256, 0.0f64..1.0), 0..12)) {
            let mut thresholds = Thresholds::default();
            for (place, part) in changed {
                let known = &TABLE[place % TABLE.len()];
                let (least, most) = known.unit.range().into_inner();
                let value = least + (most - least) * part;
                let exact = if matches!(known.unit, Unit::Share | Unit::Percent | Unit::Number) { value } else { value.round() };
                thresholds.set(&known.spelled(exact)).unwrap();
            }
            let mut again = Thresholds::default();
            thresholds.texts().iter().for_each(|text| again.set(text).unwrap());
            proptest::prop_assert_eq!(again, thresholds);
        }
    }

    #[test]
    fn the_table_is_sound() {
        assert!(TABLE.len() <= 256, "more than can be marked as set");
        let mut names: Vec<String> = TABLE.iter().map(Threshold::name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), TABLE.len(), "names are unique");
        for known in TABLE {
            assert!(known.unit.range().contains(&known.default_value()), "{}", known.name());
            assert!(!known.used_by.is_empty() && !known.origin.is_empty(), "{}", known.name());
            for id in known.used_by {
                let is_known = crate::catalogue::find(id).is_some() || [COVERAGE, JOBS].contains(id);
                assert!(is_known, "{}: {id} is in no chapter", known.name());
            }
            let mut changed = Thresholds::default();
            (known.set)(&mut changed, known.default_value() / 2.0 + 1.0);
            assert!(
                changed.changes().iter().all(|change| change.name == known.name()),
                "{} sets another",
                known.name()
            );
        }
    }
}
