//! `gpuoom-analyze gauntlet` on a client.

use std::ffi::OsString;

use serde_json::Value;

use crate::artefacts::analyzer;
use crate::run::{Client, Finished};
use crate::trace::parse;

/// A gauntlet that has been run.
pub struct GauntletRun {
    /// The analyzer itself, as a client: its status, its stderr, the device's log of all runs.
    pub run: Finished,
    table: Value,
}

/// A row of the table, as far as tests ask: outcome, reason, end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Name of the call site.
    pub name: String,
    /// The native function that the named line of Python called; empty where the name is no line of Python.
    pub operator: String,
    /// What `GPUOOM_INJECT` held.
    pub rule: String,
    /// Bytes that the first call from there asked for.
    pub requested_bytes: u64,
    /// `dropped`, ...
    pub fate: String,
    /// Why; empty where it was not reached.
    pub because: String,
    /// `exit 0`, `signal 11`, `hung`.
    pub ending: String,
}

impl Client {
    /// Runs the gauntlet on this client, with these options, in JSON.
    pub fn run_gauntlet(&self, options: &[&str]) -> GauntletRun {
        let run = self.try_gauntlet(options);
        assert!(!run.stdout.is_empty(), "no table: {}", run.stderr);
        let table = parse(&run.stdout);
        assert_eq!(table["schema"], "gpuoom.gauntlet/1");
        GauntletRun { run, table }
    }

    /// The same, where there need not be a table.
    pub fn try_gauntlet(&self, options: &[&str]) -> Finished {
        let before = ["gauntlet", "--format", "json"].into_iter().chain(options.iter().copied()).chain(["--"]);
        let arguments: Vec<OsString> = before.map(OsString::from).chain(self.command_line()).collect();
        self.instead(analyzer(), arguments).record_behind_launcher().run_plain()
    }
}

impl GauntletRun {
    /// The rows, in order.
    pub fn rows(&self) -> Vec<Row> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let ending = |value: &Value| match (value["exit_code"].as_i64(), value["signal"].as_i64()) {
            (Some(code), _) => format!("exit {code}"),
            (_, Some(signal)) => format!("signal {signal}"),
            _ => text(&value["end"]),
        };
        let row = |trial: &Value| Row {
            name: text(&trial["name"]),
            operator: text(&trial["operator"]),
            rule: text(&trial["rule"]),
            requested_bytes: trial["requested_bytes"].as_u64().unwrap_or_default(),
            fate: text(&trial["fate"]),
            because: text(&trial["because"]),
            ending: ending(&trial["ending"]),
        };
        self.table["trials"].as_array().into_iter().flatten().map(row).collect()
    }

    /// A count of the table.
    pub fn count(&self, what: &str) -> u64 {
        self.table["counts"][what].as_u64().unwrap_or_else(|| panic!("no count of {what} in {:#}", self.table))
    }
}
