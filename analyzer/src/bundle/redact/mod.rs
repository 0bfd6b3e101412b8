//! Takes out of texts what is nobody's business. What stays is a list of what is known to be harmless (`words.rs`); everything
//! else of a sort gets a stable stand-in, so that equal things stay equal and different ones different.

mod arguments;
mod environment;
mod identifiers;
mod log;
mod logs;
mod machine;
mod names;
mod paths;
#[cfg(test)]
mod tests;
mod text;
mod trace;
// Tables of words: a word a line would make them hard to look through.
#[rustfmt::skip]
mod words;

use std::collections::HashMap;

pub use log::{Line, Log, Sort};
pub use logs::Kept;

use gpuoom_trace::reader::Metadata;

use names::Names;

/// What is left as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// Names of accounts.
    pub user: bool,
    /// Names of machines, and network addresses.
    pub host: bool,
    /// Paths and names of files.
    pub paths: bool,
    /// Values on the command line.
    pub arguments: bool,
    /// Values of variables.
    pub environment: bool,
    /// Labels, and names of functions in the program's own code.
    pub marks: bool,
    /// Other evidence: whole logs, and snapshots.
    pub evidence: bool,
}

impl Keep {
    /// Everything stays.
    pub const ALL: Keep =
        Keep { user: true, host: true, paths: true, arguments: true, environment: true, marks: true, evidence: true };
}

/// Stand-ins by number: the same thing always gets the same one.
#[derive(Debug, Default)]
struct Numbers(HashMap<String, usize>);

impl Numbers {
    fn of(&mut self, text: &str) -> usize {
        let next = self.0.len() + 1;
        *self.0.entry(text.to_owned()).or_insert(next)
    }
}

/// `a` to `z`, then `aa`: no digit may tell two sorts of labels apart.
fn letters(number: usize) -> String {
    let (mut rest, mut letters) = (number, Vec::new());
    while rest > 0 {
        rest -= 1;
        letters.push(b'a' + (rest % 26) as u8);
        rest /= 26;
    }
    letters.iter().rev().map(|letter| char::from(*letter)).collect()
}

/// Replaces, and counts what it replaced.
#[derive(Debug, Default)]
pub struct Redactor {
    keep: Keep,
    names: Names,
    parts: Numbers,
    values: Numbers,
    labels: Numbers,
    thread_names: Numbers,
    sorts: Numbers,
    functions: Numbers,
    /// Functions of the trace that is being rewritten whose blocks have numbers for a payload, and no names.
    numbered: Vec<u16>,
    log: Log,
}

impl Redactor {
    /// Leaves what `keep` says.
    pub fn new(keep: Keep) -> Self {
        Redactor { keep, ..Redactor::default() }
    }

    /// Learns names from a trace. All traces and texts come here before anything is replaced, so that a name that one of them
    /// tells is found in the others.
    pub fn learn_trace(&mut self, metadata: &Metadata) {
        let process = &metadata.process;
        self.names.learn_host(&process.hostname);
        self.names.learn_text(&process.executable);
        process.command_line.iter().chain(&process.notes).for_each(|text| self.names.learn_text(text));
        for (name, value) in &process.environment {
            match name.as_str() {
                "USER" | "LOGNAME" | "SUDO_USER" => self.names.learn_user(value),
                "HOSTNAME" => self.names.learn_host(value),
                _ => self.names.learn_text(value),
            }
        }
        let lists = metadata.module_lists.iter().chain([&metadata.modules]);
        lists.flat_map(|list| &list.modules).for_each(|module| self.names.learn_text(&module.path));
        metadata.machine.files.iter().for_each(|(path, text)| {
            self.names.learn_text(path);
            self.names.learn_text(text);
        });
        self.names.learn_program(&process.executable);
    }

    /// Learns names from a text beside the traces.
    pub fn learn_text(&mut self, text: &str) {
        self.names.learn_text(text);
        self.names.learn_log(text);
    }

    /// Learns the name of an account.
    pub fn learn_user(&mut self, name: &str) {
        self.names.learn_user(name);
    }

    /// Learns the name of a machine.
    pub fn learn_host(&mut self, name: &str) {
        self.names.learn_host(name);
    }

    /// What was replaced so far.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// What is left as it is.
    pub fn keep(&self) -> Keep {
        self.keep
    }
}
