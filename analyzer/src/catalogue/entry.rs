//! What an entry of the catalogue says.

use serde::{Deserialize, Serialize};

use super::need::Need;
use super::only::Only;
use crate::judgement::role::Role;

/// One diagnosis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its name, which never changes.
    pub id: String,
    /// What it says, as half a sentence.
    pub title: String,
    /// The same where sizes and times alone speak for it: what they show, and no name for it. Empty: the title.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub seen: String,
    /// Where it can happen: `rocm`, `cuda`, or something finer.
    pub platforms: Vec<String>,
    /// Lowest tier of evidence that decides it.
    pub tier: Tier,
    /// What part it plays; a rule may say of one failure that it plays a lesser one.
    pub role: Role,
    /// The entry whose question comes right before this one's; empty for the first. Of two diagnoses that are equally sure, the
    /// one that is asked first is named first.
    #[serde(default)]
    pub asked_after: String,
    /// Umbrella entries that this one explains: they are not named where this one is at least probable for the same failures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resolves: Vec<String>,
    /// Named only where no other cause or shape of any confidence is, nor an entry that resolves it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last_resort: bool,
    /// It argues from memory in use that no recorded call explains: what calls past the recorder took looks the same. Where such
    /// calls are known, it is possible at most.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub counts_unexplained: bool,
    /// What must hold, each of it.
    pub proves: Vec<String>,
    /// Of these one must hold, where there are any.
    #[serde(default)]
    pub any_proves: Vec<String>,
    /// What excludes it.
    #[serde(default)]
    pub refutes: Vec<String>,
    /// How sure it can be; empty in the data: [`DEFAULT_CONFIDENCE`](super::DEFAULT_CONFIDENCE).
    #[serde(default)]
    pub confidence: String,
    /// What to do about it, cheapest first.
    #[serde(default, rename(deserialize = "fix"))]
    pub fixes: Vec<Fix>,
    /// What the fixes cost beyond the effort of the change.
    #[serde(default)]
    pub cost: String,
    /// What a reader must know besides.
    #[serde(default)]
    pub note: String,
    /// Where to report it; empty: it is no bug, or nobody's.
    #[serde(default)]
    pub file: Vec<Filing>,
    /// Where the rule comes from.
    #[serde(default)]
    pub sources: Vec<String>,
}

impl Entry {
    /// What it says where its title would say more than is known.
    pub fn as_seen(&self) -> &str {
        if self.seen.is_empty() { &self.title } else { &self.seen }
    }
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fix {
    /// What to type; empty where it is a change of code or of habit.
    #[serde(default)]
    pub command: String,
    /// What it does.
    pub text: String,
    /// On which platform, versions and programs it works: what a trace can decide.
    #[serde(default, skip_serializing_if = "Only::is_empty")]
    pub only: Only,
    /// What else must be so, in words; empty: nothing.
    #[serde(default)]
    pub when: String,
    /// What must be so besides, or be thought of, on ROCm.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub on_rocm: String,
    /// What the command's spelling takes from the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spelling: Option<Spelling>,
    /// Rungs of the ladder of fixes that it stands for.
    #[serde(default)]
    pub rungs: Vec<u8>,
    /// It takes a restart of the machine: what does without one comes before it on the same rung.
    #[serde(default)]
    pub reboot: bool,
}

/// What the spelling of a command takes from the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spelling {
    /// Parameters of the kernel's memory manager for GPUs: `ttm.` with the kernel's own driver, as the catalogue writes them, and
    /// `amdttm.` with AMD's out-of-tree one.
    Ttm,
}

impl Spelling {
    /// When the catalogue's spelling is right.
    pub fn words(self) -> &'static str {
        match self {
            Spelling::Ttm => "the in-tree amdgpu driver; with AMD's out-of-tree driver the prefix is amdttm.",
        }
    }
}

impl Fix {
    /// Everything that must be so, in words; empty where it always works.
    pub fn condition(&self) -> String {
        let spelling = self.spelling.map_or("", |spelling| spelling.words());
        joined(&[&self.only.words(), &self.when, &self.on_rocm, spelling])
    }
}

/// Conditions beside each other, without the empty ones.
pub fn joined(conditions: &[&str]) -> String {
    conditions.iter().copied().filter(|condition| !condition.is_empty()).collect::<Vec<_>>().join(", ")
}

/// A place for a bug report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filing {
    /// The tracker or project.
    #[serde(rename = "where")]
    pub place: String,
    /// Where it is no defect of theirs, it is not to be reported.
    #[serde(default, skip_serializing_if = "Only::is_empty")]
    pub only: Only,
    /// What the report must hold.
    #[serde(default)]
    pub needs: Vec<Need>,
}

impl Filing {
    /// The tracker or project, with the condition, as people read it.
    pub fn place_in_words(&self) -> String {
        let condition = self.only.words();
        if condition.is_empty() { self.place.clone() } else { format!("{} (if: {condition})", self.place) }
    }

    /// What the report must hold, as people read it; `None` where nothing is asked for.
    pub fn needs_in_words(&self) -> Option<String> {
        let what: Vec<&str> = self.needs.iter().map(|need| need.what()).collect();
        match &what[..] {
            [] => None,
            [one] => Some((*one).to_owned()),
            [most @ .., last] => Some(format!("{} and {last}", most.join(", "))),
        }
    }
}

/// What evidence takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Tier {
    /// The calls alone.
    T0,
    /// Readings, settings, limits and versions that the recorder takes.
    T1,
    /// Something from outside the process.
    T2,
    /// Another run, with one thing changed.
    T3,
}

impl Tier {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Tier::T0 => "T0",
            Tier::T1 => "T1",
            Tier::T2 => "T2",
            Tier::T3 => "T3",
        }
    }

    /// What it needs, in words.
    pub fn needs(self) -> &'static str {
        match self {
            Tier::T0 => "the recorded calls alone",
            Tier::T1 => "the recorder's readings, settings, limits and versions",
            Tier::T2 => "something from outside the process",
            Tier::T3 => "another run with one thing changed",
        }
    }
}
