//! What people read and repeat about GPU memory, and what is known of it. It is data; no diagnosis counts it.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// One claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The claim, as people make it.
    pub title: String,
    /// What somebody types who looks for it, in lower case.
    #[serde(skip_serializing)]
    pub words: Vec<String>,
    /// What is known of it.
    pub verdict: Verdict,
    /// What is true.
    pub truth: String,
    /// What to type in place of what the claim advises; empty: nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instead: String,
    /// Diagnoses that it is about.
    pub see: Vec<String>,
    /// Where that can be read.
    pub sources: Vec<String>,
}

/// What is known of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Sources confirm it.
    True,
    /// It holds under conditions that it does not name.
    Partly,
    /// No source shows it, and none excludes it.
    NotShown,
    /// Sources contradict it.
    Wrong,
}

impl Verdict {
    /// As people read it.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::True => "True",
            Verdict::Partly => "Partly true",
            Verdict::NotShown => "Not shown",
            Verdict::Wrong => "Wrong",
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    claim: Vec<Claim>,
}

/// All claims, in the order of the data.
pub fn claims() -> &'static [Claim] {
    static CLAIMS: OnceLock<Vec<Claim>> = OnceLock::new();
    CLAIMS.get_or_init(|| {
        // The data is built in, and a test reads all of it.
        let file: File =
            toml::from_str(include_str!("data/claims.toml")).unwrap_or_else(|error| panic!("claims: {error}"));
        file.claim
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::catalogue::find;

    #[test]
    fn claims_can_be_found_and_lead_to_diagnoses() {
        let mut seen = HashSet::new();
        for claim in claims() {
            assert!(!claim.words.is_empty() && !claim.truth.is_empty() && !claim.sources.is_empty(), "{}", claim.title);
            for words in &claim.words {
                assert_eq!(*words, words.to_lowercase(), "{}", claim.title);
                assert!(seen.insert(words.as_str()), "{words} finds two claims");
            }
            for id in &claim.see {
                assert!(find(id).is_some(), "{}: {id} is not a diagnosis", claim.title);
            }
        }
    }

    /// What a claim is refused for must not come back as its advice.
    #[test]
    fn nothing_unsafe_is_advised() {
        for claim in claims() {
            let unsafe_ones = ["pkill", "HSA_XNACK=1", "GFX_VERSION=", "amdgpu_gpu_recover", "NO_HIP_MEMORY_CACHING=1"];
            assert!(!unsafe_ones.iter().any(|bad| claim.instead.contains(bad)), "{}", claim.title);
        }
    }
}
