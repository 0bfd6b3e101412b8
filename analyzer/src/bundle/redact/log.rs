//! What was replaced: sorts, places and numbers, never the thing itself.

use std::collections::BTreeMap;

/// A sort of thing that is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sort {
    /// The name of an account.
    User,
    /// The name of a machine.
    Host,
    /// A network address.
    Address,
    /// A path or the name of a file.
    Path,
    /// A value on the command line.
    Argument,
    /// A value of a variable.
    Variable,
    /// A label, or the name of a function in the program's own code.
    Label,
    /// The number of a card or machine.
    Identifier,
    /// A token or password.
    Secret,
    /// Lines of a log that do not tell of memory or GPUs.
    Line,
    /// A file that was left out.
    File,
}

/// What is said of a sort: its name, what stands there now, and the word of `--keep` that leaves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// In words.
    pub name: &'static str,
    /// What stands there now.
    pub stand_in: &'static str,
    /// The word of `--keep`; empty: always replaced.
    pub keep: &'static str,
}

impl Sort {
    /// What is said of it.
    pub fn line(self) -> Line {
        let line = |name, stand_in, keep| Line { name, stand_in, keep };
        match self {
            Sort::User => line("names of accounts", "`user-1`, and `~` for a home directory", "user"),
            Sort::Host => line("names of machines", "`host-1`", "host"),
            Sort::Address => line("network addresses, mail addresses and pages", "`<address>`", "host"),
            Sort::Path => {
                line("parts of paths, and names of files", "`<1>`: the same number is the same name", "paths")
            }
            Sort::Argument => {
                line("values on the command line", "`***1`: the same number is the same value", "arguments")
            }
            Sort::Variable => line("values of variables", "`***1`: the same number is the same value", "environment"),
            Sort::Label => line("marks, and names of the program's functions", "`mark a1`, `function 1`", "marks"),
            Sort::Identifier => line("serial numbers and UUIDs", "`<id>`", ""),
            Sort::Secret => line("tokens and passwords", "`***`", ""),
            Sort::Line => line("lines of logs that tell nothing of memory or GPUs", "left out", "evidence"),
            Sort::File => line("files that hold more than can be looked through", "left out", "evidence"),
        }
    }
}

/// How often what was replaced where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log(BTreeMap<(Sort, String), u64>);

impl Log {
    pub(super) fn note(&mut self, sort: Sort, place: &str) {
        self.note_many(sort, place, 1);
    }

    pub(super) fn note_many(&mut self, sort: Sort, place: &str, count: u64) {
        if count > 0 {
            *self.0.entry((sort, place.to_owned())).or_default() += count;
        }
    }

    /// Sort, place and number, in a fixed order.
    pub fn rows(&self) -> impl Iterator<Item = (Sort, &str, u64)> {
        self.0.iter().map(|((sort, place), count)| (*sort, place.as_str(), *count))
    }

    /// Whether nothing was replaced.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
