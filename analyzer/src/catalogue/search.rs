//! Finds claims and diagnoses by what somebody types: a symptom, a variable, a piece of an error text, folklore.

use super::claims::{Claim, claims};
use super::entries;
use super::entry::Entry;

/// Most claims of an answer.
const MOST_CLAIMS: usize = 3;
/// Most diagnoses of an answer.
const MOST_ENTRIES: usize = 6;
/// Letters of a word that says something. Shorter ones are "is", "of", "my"; those with a digit say something anyway.
const TELLING_LETTERS: usize = 4;

/// What was found, the best first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Claims that people make about it.
    pub claims: Vec<&'static Claim>,
    /// Diagnoses that mention it.
    pub entries: Vec<&'static Entry>,
}

impl Found {
    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.entries.is_empty()
    }
}

/// Claims and diagnoses that fit `query`.
pub fn search(query: &str) -> Found {
    let query = Query::new(query);
    if query.words.is_empty() {
        return Found::default();
    }
    let claims = best(claims().iter().map(|claim| (query.fits_claim(claim), claim)), MOST_CLAIMS);
    let entries = best(entries().map(|entry| (query.fits_entry(entry), entry)), MOST_ENTRIES);
    Found { claims, entries }
}

/// Those that fit at all, the best first; of equals the first.
fn best<T>(ranked: impl Iterator<Item = (usize, T)>, most: usize) -> Vec<T> {
    let mut ranked: Vec<(usize, T)> = ranked.filter(|(fit, _)| *fit > 0).collect();
    ranked.sort_by_key(|(fit, _)| std::cmp::Reverse(*fit));
    ranked.into_iter().take(most).map(|(_, one)| one).collect()
}

/// What was typed.
struct Query {
    /// In lower case, blanks collapsed, with one at each end.
    text: String,
    /// Its words that say something.
    words: Vec<String>,
}

impl Query {
    fn new(text: &str) -> Self {
        let text = format!(" {} ", text.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" "));
        let telling =
            |word: &&str| word.len() >= TELLING_LETTERS || word.contains(|letter: char| letter.is_ascii_digit());
        let mut words: Vec<String> = text.split_whitespace().filter(telling).map(str::to_owned).collect();
        if words.is_empty() {
            words = text.split_whitespace().map(str::to_owned).collect();
        }
        Query { text, words }
    }

    /// A claim fits by a phrase of its own that was typed, the longer the better; else by each typed word in its text.
    fn fits_claim(&self, claim: &Claim) -> usize {
        let typed = claim.words.iter().filter(|phrase| is_in(&self.text, phrase)).map(|phrase| 10 + phrase.len()).max();
        let begun = claim.words.iter().any(|phrase| is_in(phrase, self.text.trim())).then_some(10);
        let title = claim.title.to_lowercase();
        let told = self.words.iter().all(|word| title.contains(word.as_str())).then_some(5);
        typed.max(begun).max(told).unwrap_or(0)
    }

    /// An entry fits where each typed word is in it; words of its name and title count most.
    fn fits_entry(&self, entry: &Entry) -> usize {
        let head = format!("{} {} {}", entry.id, entry.title, entry.seen).to_lowercase();
        let commands: String = entry.fixes.iter().map(|fix| fix.command.to_lowercase() + "\n").collect();
        let lists = [&entry.proves, &entry.any_proves, &entry.refutes].into_iter().flatten();
        let texts = entry.fixes.iter().map(|fix| &fix.text).chain([&entry.note]).chain(lists);
        let rest: String = texts.map(|text| text.to_lowercase() + "\n").collect();
        let of_word = |word: &String| match () {
            () if head.contains(word.as_str()) => 9,
            () if commands.contains(word.as_str()) => 3,
            () if rest.contains(word.as_str()) => 1,
            () => 0,
        };
        let fits: Vec<usize> = self.words.iter().map(of_word).collect();
        if fits.contains(&0) { 0 } else { fits.iter().sum() }
    }
}

/// Whether `phrase` stands in `text` as whole words: `apu` is not in `capucine`.
fn is_in(text: &str, phrase: &str) -> bool {
    let is_letter = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    text.match_indices(phrase).any(|(at, _)| {
        !is_letter(text[..at].chars().next_back()) && !is_letter(text[at + phrase.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_claim(query: &str) -> &'static str {
        search(query).claims.first().map_or("", |claim| &claim.title)
    }

    #[test]
    fn folklore_is_found_as_people_say_it() {
        for (query, title) in [
            ("four pools", "four memory pools"),
            ("HSA_OVERRIDE_GFX_VERSION", "HSA_OVERRIDE_GFX_VERSION"),
            ("export HSA_OVERRIDE_GFX_VERSION=10.3.0", "HSA_OVERRIDE_GFX_VERSION"),
            ("256MB", "chunks of 256 MB"),
            ("dark matter", "dark matter"),
            ("is exit 137 my GPU?", "137"),
            ("expandable_segments:True", "expandable_segments"),
            ("num_alloc_retries", "num_alloc_retries"),
            ("Strix Halo", "APU"),
        ] {
            assert!(first_claim(query).contains(title), "{query}: {}", first_claim(query));
        }
    }

    #[test]
    fn diagnoses_are_found_by_symptom_variable_and_command() {
        for (query, id) in [
            ("zombie", "zombie-vram"),
            ("vm.max_map_count", "map-count-exhaustion"),
            ("HSA_XNACK", "xnack-ineffective"),
            ("KV cache", "kv-cache-prealloc"),
            ("dmem cgroup", "device-cgroup-limit"),
        ] {
            let found = search(query);
            assert!(found.entries.iter().any(|entry| entry.id == id), "{query}: {found:?}");
        }
    }

    #[test]
    fn nothing_is_found_for_what_nobody_says() {
        for query in ["", " ", "zombi-vram", "quux", "\u{1b}[31m", "ä"] {
            assert!(search(query).is_empty(), "{query}");
        }
    }
}
