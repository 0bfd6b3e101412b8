//! How a rule is put to the test: what must hold, what would refute it, and how sure that makes the diagnosis.

use serde::Serialize;

use super::role::Role;

pub use super::known::{Holds, Known};

/// How sure a diagnosis is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// Only the shape holds.
    Possible,
    /// One reading is missing, the rest holds, nothing refutes it.
    Probable,
    /// Everything that must hold holds, and nothing refutes it.
    Proven,
}

impl Confidence {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Confidence::Possible => "possible",
            Confidence::Probable => "probable",
            Confidence::Proven => "proven",
        }
    }
}

/// Where a number comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// A recorded call, or a reading.
    Measured,
    /// The model of the card with its granule.
    Modelled,
    /// A formula over measured numbers.
    Estimated,
    /// The user, or a file that the user gave.
    Given,
}

impl Basis {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Basis::Measured => "measured",
            Basis::Modelled => "modelled",
            Basis::Estimated => "estimated",
            Basis::Given => "given",
        }
    }
}

/// One thing that speaks for a diagnosis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// What holds, with its numbers.
    pub text: String,
    /// Where the numbers come from.
    pub basis: Basis,
}

/// A refuter and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refuter {
    /// What would refute the diagnosis.
    pub text: String,
    /// Whether it could be checked. (One that holds makes the diagnosis disappear.)
    pub checked: bool,
}

/// What a rule found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It does not apply, or something that must hold does not.
    None,
    /// Everything that must hold may hold, and this refutes it.
    Excluded {
        /// What refutes it, with its numbers.
        by: String,
    },
    /// It holds.
    Found(Confidence),
}

/// A rule under test. Texts are made only where they are needed: most rules do not apply to most failures.
#[derive(Debug)]
pub struct Check {
    evidence: Vec<Evidence>,
    refuters: Vec<Refuter>,
    missing: Vec<String>,
    unknown: u32,
    held: u32,
    failed: bool,
    excluded: Option<String>,
    limit: Confidence,
    returns: Vec<Returns>,
    parts: Vec<&'static str>,
    modelled: bool,
    is_guess: bool,
    is_as_seen: bool,
    is_slight: bool,
    role: Option<Role>,
}

/// What a check found out, beside how sure it is.
#[derive(Debug)]
pub struct Parts {
    /// What holds.
    pub evidence: Vec<Evidence>,
    /// What would have refuted it.
    pub refuters: Vec<Refuter>,
    /// What would settle it.
    pub missing: Vec<String>,
    /// What rungs would give back.
    pub returns: Vec<Returns>,
    /// Which of the entry's several causes it is, where it has several (see `Only::part`).
    pub causes: Vec<&'static str>,
    /// Whether a number comes from the model of the card.
    pub modelled: bool,
    /// Whether sizes and times alone speak for it.
    pub is_guess: bool,
    /// Whether what was seen is told in the entry's words for that, and not by its title.
    pub is_as_seen: bool,
    /// Whether others that are as sure come before it.
    pub is_slight: bool,
}

/// What one rung of the ladder would give back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returns {
    /// Rung of the ladder.
    pub rung: u8,
    /// Bytes.
    pub bytes: u64,
    /// How the number came about.
    pub basis: Basis,
}

impl Default for Check {
    fn default() -> Self {
        Check {
            evidence: Vec::new(),
            refuters: Vec::new(),
            missing: Vec::new(),
            unknown: 0,
            held: 0,
            failed: false,
            excluded: None,
            limit: Confidence::Proven,
            returns: Vec::new(),
            parts: Vec::new(),
            modelled: false,
            is_guess: false,
            is_as_seen: false,
            is_slight: false,
            role: None,
        }
    }
}

impl Check {
    /// Whether the rule can be about this at all; asked first, and no evidence by itself. False ends the check.
    pub fn applies(&mut self, holds: bool) -> bool {
        self.failed |= !holds;
        !self.failed
    }

    /// Something that must hold, by measured numbers.
    pub fn must(&mut self, holds: impl Into<Holds>, text: impl FnOnce() -> String) {
        self.must_by(Basis::Measured, holds, text);
    }

    /// Something that must hold.
    pub fn must_by(&mut self, basis: Basis, holds: impl Into<Holds>, text: impl FnOnce() -> String) {
        if self.failed {
            return;
        }
        match holds.into() {
            Holds::Yes => {
                self.held += 1;
                self.modelled |= basis == Basis::Modelled;
                let text = text();
                // What another line has said already comes without words.
                if !text.is_empty() {
                    self.evidence.push(Evidence { text, basis });
                }
            }
            Holds::No => self.failed = true,
            Holds::Unknown(reading) => {
                self.unknown += 1;
                self.miss(reading);
            }
        }
    }

    /// Something that need not hold, and is worth saying where it does.
    pub fn note(&mut self, holds: impl Into<Holds>, text: impl FnOnce() -> String) {
        self.note_by(Basis::Measured, holds, text);
    }

    /// The same, where the numbers are not measured.
    pub fn note_by(&mut self, basis: Basis, holds: impl Into<Holds>, text: impl FnOnce() -> String) {
        if !self.failed && holds.into() == Holds::Yes {
            self.evidence.push(Evidence { text: text(), basis });
        }
    }

    /// Something that refutes the diagnosis. The text says what, so that it can stand in the list of what was checked.
    pub fn unless(&mut self, holds: impl Into<Holds>, text: impl FnOnce() -> String) {
        if self.failed || self.excluded.is_some() {
            return;
        }
        match holds.into() {
            Holds::Yes => self.excluded = Some(text()),
            Holds::No => self.refuters.push(Refuter { text: text(), checked: true }),
            Holds::Unknown(reading) => {
                self.unknown += 1;
                self.refuters.push(Refuter { text: text(), checked: false });
                self.miss(reading);
            }
        }
    }

    /// Something that must hold, and whose opposite is worth saying: it then excludes the diagnosis.
    pub fn decides(
        &mut self,
        holds: impl Into<Holds>,
        proves: impl FnOnce() -> String,
        refutes: impl FnOnce() -> String,
    ) {
        match holds.into() {
            Holds::No => self.unless(true, refutes),
            holds if self.excluded.is_none() => self.must(holds, proves),
            _ => {}
        }
    }

    /// It can't be surer than this.
    pub fn at_most(&mut self, limit: Confidence) {
        self.limit = self.limit.min(limit);
    }

    /// Something that was not recorded may refute it, or what refutes it: it is possible at most, and nothing is ruled out.
    pub fn could_be_otherwise(&mut self, missing: &str) {
        self.at_most(Confidence::Possible);
        self.miss(missing);
        self.failed |= self.excluded.is_some();
    }

    /// Sizes and times alone speak for it, and nothing names what it is about: it is possible at most, and not worth a word where
    /// something surer explains the failure. `would_settle` says what would name it.
    pub fn guess(&mut self, would_settle: &str) {
        (self.is_guess, self.is_as_seen) = (true, true);
        self.at_most(Confidence::Possible);
        self.miss(would_settle);
    }

    /// The entry's title would say too much here: its words for what is seen (`seen` in the catalogue) do.
    pub fn only_as_seen(&mut self) {
        self.is_as_seen = true;
    }

    /// It is a small part of what happened: others that are as sure are named before it.
    pub fn is_a_small_part(&mut self) {
        self.is_slight = true;
    }

    /// Whether sizes and times alone speak for it so far.
    pub fn is_guess(&self) -> bool {
        self.is_guess
    }

    /// It plays another part here than its rule says.
    pub fn plays(&mut self, role: Role) {
        self.role = Some(role);
    }

    /// The part that it plays, where that is another one than its rule says.
    pub fn role(&self) -> Option<Role> {
        self.role
    }

    /// A reading, a file or a run that would settle it, without lowering the confidence.
    pub fn would_settle(&mut self, reading: &str) {
        self.miss(reading);
    }

    /// What a rung of the ladder would give back.
    pub fn gives_back(&mut self, rung: u8, bytes: u64, basis: Basis) {
        if !self.failed && bytes > 0 {
            self.returns.push(Returns { rung, bytes, basis });
        }
    }

    /// Whether something that must hold does not: the rest need not be computed.
    pub fn is_over(&self) -> bool {
        self.failed
    }

    /// Whether something that must hold, or would refute it, was not known so far.
    pub fn is_unsure(&self) -> bool {
        self.unknown > 0
    }

    fn miss(&mut self, reading: &str) {
        if !self.failed && !self.missing.iter().any(|known| known == reading) {
            self.missing.push(reading.to_owned());
        }
    }

    /// What was found.
    pub fn judgement(&self) -> Judgement {
        // Where nothing of what must hold was seen to hold, there is not even a shape.
        if self.failed || self.held == 0 {
            return Judgement::None;
        }
        if let Some(by) = &self.excluded {
            return Judgement::Excluded { by: by.clone() };
        }
        let confidence = match self.unknown {
            0 => Confidence::Proven,
            1 => Confidence::Probable,
            _ => Confidence::Possible,
        };
        Judgement::Found(confidence.min(self.limit))
    }

    /// Names one of the several causes that an entry has: its fixes are then for these only.
    pub fn part(&mut self, name: &'static str) {
        self.parts.push(name);
    }

    /// Takes the check apart.
    pub fn into_parts(self) -> Parts {
        Parts {
            evidence: self.evidence,
            refuters: self.refuters,
            missing: self.missing,
            returns: self.returns,
            causes: self.parts,
            modelled: self.modelled,
            is_guess: self.is_guess,
            is_as_seen: self.is_as_seen,
            is_slight: self.is_slight,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> String {
        "text".to_owned()
    }

    fn judged(rule: impl FnOnce(&mut Check)) -> Judgement {
        let mut check = Check::default();
        rule(&mut check);
        check.judgement()
    }

    #[test]
    fn confidence_falls_with_each_missing_reading() {
        let unknown = Holds::Unknown("a reading");
        assert_eq!(judged(|check| check.must(true, text)), Judgement::Found(Confidence::Proven));
        let one = judged(|check| {
            check.must(true, text);
            check.unless(unknown, text);
        });
        assert_eq!(one, Judgement::Found(Confidence::Probable));
        let two = judged(|check| {
            check.must(true, text);
            check.must(unknown, text);
            check.unless(unknown, text);
        });
        assert_eq!(two, Judgement::Found(Confidence::Possible));
        assert_eq!(judged(|check| check.must(unknown, text)), Judgement::None, "not even a shape");
    }

    #[test]
    fn what_does_not_hold_ends_it_and_what_refutes_excludes_it() {
        let failed = judged(|check| {
            check.must(true, text);
            check.must(false, || unreachable!("not needed"));
            check.unless(true, || unreachable!("not needed"));
        });
        assert_eq!(failed, Judgement::None);
        let excluded = judged(|check| {
            check.must(true, text);
            check.unless(true, || "because".to_owned());
        });
        assert_eq!(excluded, Judgement::Excluded { by: "because".to_owned() });
    }

    #[test]
    fn a_limit_holds() {
        let limited = judged(|check| {
            check.must(true, text);
            check.at_most(Confidence::Possible);
        });
        assert_eq!(limited, Judgement::Found(Confidence::Possible));
    }
}
