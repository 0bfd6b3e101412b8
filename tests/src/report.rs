//! `gpuoom-analyze report --format json`, field by field.

use std::collections::BTreeMap;

use serde_json::Value;

/// A report; fields are named by JSON pointers, such as `/devices/0/peak/padded_bytes`.
pub struct Report(Value);

/// A diagnosis, as the report has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    /// Id in the catalogue.
    pub id: String,
    /// How sure it is.
    pub confidence: String,
    /// What part it plays.
    pub role: String,
    /// Whether it is about failures.
    pub is_of_failures: bool,
}

impl Report {
    pub(crate) fn new(value: Value) -> Self {
        Self::of_schema(value, "gpuoom.report/1")
    }

    pub(crate) fn of_schema(value: Value, schema: &str) -> Self {
        assert_eq!(value.get("schema").and_then(Value::as_str), Some(schema), "schema of {value}");
        Self(value)
    }

    fn get(&self, pointer: &str) -> &Value {
        self.0.pointer(pointer).unwrap_or_else(|| panic!("no {pointer} in {:#}", self.0))
    }

    /// Whatever is there.
    pub fn value(&self, pointer: &str) -> &Value {
        self.get(pointer)
    }

    /// A whole number.
    pub fn number(&self, pointer: &str) -> u64 {
        self.get(pointer).as_u64().unwrap_or_else(|| panic!("{pointer} is no number in {:#}", self.0))
    }

    /// A whole number, or nothing where the report says null.
    pub fn number_or_null(&self, pointer: &str) -> Option<u64> {
        (!self.get(pointer).is_null()).then(|| self.number(pointer))
    }

    /// A ratio.
    pub fn ratio(&self, pointer: &str) -> f64 {
        self.get(pointer).as_f64().unwrap_or_else(|| panic!("{pointer} is no number in {:#}", self.0))
    }

    /// A text.
    pub fn text(&self, pointer: &str) -> &str {
        self.get(pointer).as_str().unwrap_or_else(|| panic!("{pointer} is no text in {:#}", self.0))
    }

    /// Yes or no.
    pub fn flag(&self, pointer: &str) -> bool {
        self.get(pointer).as_bool().unwrap_or_else(|| panic!("{pointer} is no bool in {:#}", self.0))
    }

    /// How many entries a list has.
    pub fn count(&self, pointer: &str) -> usize {
        self.get(pointer).as_array().unwrap_or_else(|| panic!("{pointer} is no list in {:#}", self.0)).len()
    }

    /// Bytes of ggml's buffers on a device at a moment, by what they are for; under an empty name those of which nobody says.
    pub fn buffers(&self, device: usize, moment: &str) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        let at = format!("/devices/{device}/tensors");
        assert!(self.get(&at).is_null() || self.text(&format!("{at}/framework")) == "ggml");
        let moments = self.0.pointer(&format!("{at}/moments")).and_then(Value::as_array).into_iter().flatten();
        for found in moments.filter(|found| found["at"] == moment) {
            for row in found["allocated_by"]["rows"].as_array().expect("rows") {
                let kind = row["kind"].as_str().unwrap_or_default();
                *sums.entry(kind.to_owned()).or_insert(0) += row["bytes"].as_u64().expect("bytes");
            }
        }
        sums
    }

    /// The diagnoses, the most telling first.
    pub fn diagnoses(&self) -> Vec<Diagnosis> {
        let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
        let of = |value: &Value| Diagnosis {
            id: text(value, "id"),
            confidence: text(value, "confidence"),
            role: text(value, "role"),
            is_of_failures: value["ooms"].as_array().is_some_and(|ooms| !ooms.is_empty()),
        };
        self.get("/diagnoses").as_array().into_iter().flatten().map(of).collect()
    }

    /// What the report names as the cause of a failure; one that it has no cause for is left out.
    pub fn causes(&self) -> Vec<String> {
        let causes = self.get("/ooms").as_array().into_iter().flatten().filter_map(|oom| oom["cause"].as_str());
        causes.map(str::to_owned).collect()
    }

    /// A part of the report as it stands there, for messages.
    pub fn excerpt(&self, pointer: &str) -> String {
        format!("{:#}", self.get(pointer))
    }

    /// Asserts that the trace was closed and says that the process exited with that code.
    pub fn assert_exited(&self, code: u64) {
        assert_eq!((self.text("/process/end"), self.number("/process/exit_code")), ("exited", code));
        assert!(self.flag("/trace/clean_close"), "not closed: {:#}", self.0);
    }

    /// Asserts that nothing was seen to grow from cycle to cycle.
    pub fn assert_no_growth(&self) {
        let growing = (0..self.count("/growth")).filter(|device| self.flag(&format!("/growth/{device}/significant")));
        assert_eq!(growing.count(), 0, "a healthy run does not grow: {:#}", self.get("/growth"));
    }

    /// Asserts that nothing explains a failure: there was none.
    pub fn assert_no_cause(&self) {
        let causes = self.diagnoses().into_iter().filter(|found| matches!(&found.role[..], "cause" | "shape"));
        assert_eq!(causes.count(), 0, "a healthy run has no cause: {:#}", self.get("/diagnoses"));
    }

    /// Asserts that this is the cause of the last failure, as sure as that.
    pub fn assert_cause(&self, id: &str, confidence: &str) {
        let last = self.count("/ooms") - 1;
        assert_eq!(self.text(&format!("/ooms/{last}/cause")), id, "{:?}", self.diagnoses());
        self.assert_diagnosed(id, confidence);
    }

    /// Asserts that this was found, as sure as that.
    pub fn assert_diagnosed(&self, id: &str, confidence: &str) {
        let found = self.diagnoses();
        assert!(
            found.iter().any(|known| (&known.id[..], &known.confidence[..]) == (id, confidence)),
            "{id}: {found:?}"
        );
    }

    /// Asserts that nothing was lost on the way.
    pub fn assert_nothing_lost(&self) {
        assert_eq!((self.number("/trace/events_lost"), self.number("/trace/torn_events")), (0, 0));
    }

    /// Asserts that no interface was bypassed, and that each ledger adds up: rows, remainder and free memory to the total of
    /// what was read.
    pub fn assert_accounts(&self) {
        assert_eq!(self.count("/coverage/bypassed"), 0, "{:#}", self.get("/coverage"));
        for ledger in self.get("/ledger").as_array().into_iter().flatten() {
            let number = |field: &str| ledger[field].as_u64();
            let rows: u64 =
                ledger["rows"].as_array().into_iter().flatten().filter_map(|row| row["bytes"].as_u64()).sum();
            let Some((free, rest)) = number("free_bytes").zip(number("unattributed_bytes")) else { continue };
            let over = number("overattributed_bytes").unwrap_or(0);
            assert_eq!(Some(rows + rest + free), number("total_bytes").map(|total| total + over), "{ledger:#}");
        }
    }

    /// Asserts that there was exactly one out-of-memory return, and what became of it.
    pub fn assert_only_oom(&self, outcome: &str, because: &str) {
        assert_eq!(self.count("/ooms"), 1, "{:#}", self.0);
        assert_eq!((self.text("/ooms/0/outcome"), self.text("/ooms/0/because")), (outcome, because), "{:#}", self.0);
    }
}
