//! The table of wordings and meanings: data, built in. A wording says how a program words an error and where that can be read; a
//! meaning says which limit it speaks of and what it supports.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::template::Template;
use crate::judgement::check::Confidence;

/// The files of wordings, in the order in which a line is compared with them: the first that fits counts.
const FILES: [(&str, &str); 8] = [
    ("torch", include_str!("data/torch.toml")),
    ("libraries", include_str!("data/libraries.toml")),
    ("ggml", include_str!("data/ggml.toml")),
    ("servers", include_str!("data/servers.toml")),
    ("frameworks", include_str!("data/frameworks.toml")),
    ("kernel", include_str!("data/kernel.toml")),
    ("lookalikes", include_str!("data/lookalikes.toml")),
    ("fallback", include_str!("data/fallback.toml")),
];

/// Which limit was met, as far as a text decides it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// What the card has.
    Card,
    /// Memory that PyTorch's allocator reserved and does not use.
    Cache,
    /// What other processes hold on the card.
    Others,
    /// What runtime and libraries of the process hold.
    Runtime,
    /// A ceiling that was set for the process.
    Fraction,
    /// A framework's own pool or share of the card.
    Pool,
    /// The host's RAM.
    Host,
    /// A container's memory limit.
    Container,
    /// Device memory; the text does not say which part of it.
    Device,
    /// The text does not say.
    #[default]
    Unknown,
}

impl Limit {
    /// As people read it.
    pub fn words(self) -> &'static str {
        match self {
            Limit::Card => "the card's capacity",
            Limit::Cache => "PyTorch's own cache: memory that is reserved but unallocated, in pieces (fragmentation)",
            Limit::Others => "what other processes hold on the card",
            Limit::Runtime => "what the runtime and libraries of this process hold on the card",
            Limit::Fraction => "a ceiling that was set for this process",
            Limit::Pool => "the framework's own pool or share of the card",
            Limit::Host => "the host's RAM",
            Limit::Container => "the container's memory limit",
            Limit::Device => "device memory; the text does not decide which limit of it",
            Limit::Unknown => "unknown: the text does not decide it",
        }
    }
}

/// A diagnosis that a meaning supports by itself.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Supported {
    pub(super) id: String,
    confidence: String,
    pub(super) because: String,
}

impl Supported {
    /// None: misspelt, which a test finds.
    pub(super) fn confidence(&self) -> Option<Confidence> {
        [Confidence::Possible, Confidence::Probable, Confidence::Proven]
            .into_iter()
            .find(|confidence| confidence.name() == self.confidence)
    }
}

/// What a wording means.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Meaning {
    pub(super) id: String,
    pub(super) says: String,
    /// Whether it is about memory at all.
    #[serde(default = "yes")]
    pub(super) memory: bool,
    #[serde(default)]
    pub(super) limit: Limit,
    #[serde(default)]
    pub(super) diagnoses: Vec<Supported>,
    /// Names of sentences.
    #[serde(default)]
    pub(super) missing: Vec<String>,
    #[serde(default)]
    pub(super) next: Vec<String>,
}

fn yes() -> bool {
    true
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Next {
    /// What to type; empty where it is no command.
    #[serde(default)]
    pub command: String,
    /// What that does, or what to do.
    pub text: String,
}

/// How a program words an error.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wording {
    pub(super) id: String,
    /// Who prints it; empty: the text does not tell.
    #[serde(default)]
    pub(super) program: String,
    /// Lines of one error are of one family.
    #[serde(default)]
    pub(super) family: String,
    /// What a line has.
    #[serde(default)]
    text: Vec<String>,
    /// What a line is, as a whole.
    #[serde(default)]
    line: Vec<String>,
    /// The reader of evidence that knows it, and what it calls it.
    #[serde(default)]
    pub(super) reader: Vec<String>,
    pub(super) meaning: String,
    /// What the memory was for; empty: not told.
    #[serde(default)]
    pub(super) purpose: String,
    /// What to do next where it tells the purpose; empty: what its meaning says.
    #[serde(default)]
    pub(super) next: Vec<String>,
    /// Families whose errors it adds to, where it comes close behind one.
    #[serde(default)]
    pub(super) follows: Vec<String>,
    /// Whether it is an error where it adds to none.
    #[serde(default = "yes")]
    pub(super) alone: bool,
    /// The program tries again with other sizes: all of them are one error.
    #[serde(default)]
    pub(super) retries: bool,
    /// Where the wording can be read: a project and its file, or an address.
    pub(super) origin: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    program: String,
    #[serde(default)]
    family: String,
    wording: Vec<Wording>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Meanings {
    meaning: Vec<Meaning>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Phrases {
    missing: BTreeMap<String, String>,
    next: BTreeMap<String, Next>,
}

/// A wording with what it is compared by.
pub(super) struct Row {
    pub(super) wording: Wording,
    pub(super) templates: Vec<Template>,
}

impl Row {
    /// Whether a whole line is it.
    pub(super) fn is_line(&self, line: &str) -> bool {
        self.wording.line.iter().any(|whole| whole == line.trim())
    }
}

/// All of it.
pub(super) struct Table {
    pub(super) rows: Vec<Row>,
    meanings: BTreeMap<String, Meaning>,
    phrases: Phrases,
}

impl Table {
    /// The table that is built in. A test reads all of it.
    pub(super) fn get() -> &'static Table {
        static TABLE: OnceLock<Table> = OnceLock::new();
        TABLE.get_or_init(read)
    }

    /// What a wording means.
    pub(super) fn meaning(&self, wording: &Wording) -> &Meaning {
        &self.meanings[&wording.meaning]
    }

    /// A sentence about what is missing.
    pub(super) fn missing(&self, name: &str) -> String {
        self.phrases.missing[name].clone()
    }

    /// What to do next.
    pub(super) fn next(&self, name: &str) -> Next {
        self.phrases.next[name].clone()
    }
}

fn read() -> Table {
    let rows = FILES.iter().flat_map(|(name, data)| rows_of(name, data)).collect();
    let meanings: Meanings = parse("meanings", include_str!("data/meanings.toml"));
    let meanings = meanings.meaning.into_iter().map(|meaning| (meaning.id.clone(), meaning)).collect();
    Table { rows, meanings, phrases: parse("phrases", include_str!("data/phrases.toml")) }
}

fn parse<T: serde::de::DeserializeOwned>(name: &str, data: &str) -> T {
    toml::from_str(data).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn rows_of(name: &str, data: &str) -> Vec<Row> {
    let file: File = parse(name, data);
    let with_defaults = |mut wording: Wording| {
        if wording.program.is_empty() {
            wording.program.clone_from(&file.program);
        }
        if wording.family.is_empty() {
            wording.family.clone_from(&file.family);
        }
        let templates = wording
            .text
            .iter()
            .map(|text| Template::new(text).unwrap_or_else(|| panic!("{name}: {}: wrong wording: {text}", wording.id)));
        Row { templates: templates.collect(), wording }
    };
    file.wording.into_iter().map(with_defaults).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::catalogue;

    #[test]
    fn each_name_in_the_table_stands_for_something() {
        let table = Table::get();
        let ids: BTreeSet<&str> = table.rows.iter().map(|row| row.wording.id.as_str()).collect();
        assert_eq!(ids.len(), table.rows.len(), "an id twice");
        let mut used = BTreeSet::new();
        for Row { wording, templates } in &table.rows {
            let meaning = table.meanings.get(&wording.meaning).unwrap_or_else(|| panic!("{}", wording.id));
            used.insert(&meaning.id);
            assert!(!(templates.is_empty() && wording.reader.is_empty() && wording.line.is_empty()), "{}", wording.id);
            assert!(!wording.family.is_empty() || !wording.alone, "{}", wording.id);
            wording.next.iter().for_each(|name| drop(table.next(name)));
            for family in &wording.follows {
                assert!(table.rows.iter().any(|row| row.wording.family == *family), "{}: {family}", wording.id);
            }
        }
        assert_eq!(used.len(), table.meanings.len(), "a meaning that no wording has");
        for meaning in table.meanings.values() {
            meaning.missing.iter().for_each(|name| drop(table.missing(name)));
            meaning.next.iter().for_each(|name| drop(table.next(name)));
            assert!(meaning.memory || meaning.diagnoses.is_empty(), "{}", meaning.id);
            for supported in &meaning.diagnoses {
                assert!(catalogue::find(&supported.id).is_some() && supported.confidence().is_some(), "{}", meaning.id);
            }
        }
    }

    /// An address, or a project and a file in it.
    #[test]
    fn each_wording_has_an_origin_that_can_be_opened() {
        for Row { wording, .. } in &Table::get().rows {
            assert!(!wording.origin.is_empty(), "{}", wording.id);
            for origin in &wording.origin {
                let is_file = origin.split_once(": ").is_some_and(|(project, file)| {
                    project.matches('/').count() == 1 && file.contains('/') && !project.contains(' ')
                });
                assert!(origin.starts_with("https://github.com/") || is_file, "{}: {origin}", wording.id);
            }
        }
    }
}
