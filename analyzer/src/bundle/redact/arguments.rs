//! The command line: names of options stay, values do not, but for numbers that decide how much memory is needed.

use super::Redactor;
use super::log::Sort;
use super::paths::is_path_like;
use super::words::{MEMORY_OPTIONS, PACKAGES, PLAIN_VALUES, SECRETS};

const PLACE: &str = "command line";
/// Longest name of an option with one dash. Behind it, the value may follow without a gap.
const LONGEST_SHORT: usize = 4;

impl Redactor {
    /// All arguments; the first is the program.
    pub(super) fn arguments(&mut self, arguments: &[String]) -> Vec<String> {
        let mut option: Option<String> = None;
        let redact = |(index, argument): (usize, &String)| {
            if index == 0 {
                return self.path(PLACE, argument);
            }
            let of = option.take();
            if argument.starts_with('-') && number(argument).is_none() {
                let (redacted, waits) = self.option(argument);
                option = waits;
                return redacted;
            }
            match argument.split_once('=').filter(|(name, _)| is_key(name)) {
                Some((name, value)) if of.is_none() => {
                    format!("{}={}", self.text(PLACE, name), self.value(name, value))
                }
                _ => self.value(of.as_deref().unwrap_or_default(), argument),
            }
        };
        arguments.iter().enumerate().map(redact).collect()
    }

    /// An option, and its name where a value may follow.
    fn option(&mut self, argument: &str) -> (String, Option<String>) {
        let (name, value) = match argument.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (argument, None),
        };
        let is_name = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        let is_long = name.starts_with("--");
        let is_short = name.len() <= LONGEST_SHORT + 1 && name[1..].chars().all(|c| c.is_ascii_alphabetic());
        let shown = match is_name(name) && (is_long || is_short || MEMORY_OPTIONS.contains(&name)) {
            _ if self.keep.arguments => self.text(PLACE, name),
            true => self.names(PLACE, name),
            // `-pSECRET`: one letter is the name, the rest can be its value.
            false => {
                self.log.note(Sort::Argument, PLACE);
                let letter: String = name.chars().take(2).filter(|c| *c == '-' || c.is_ascii_alphabetic()).collect();
                format!("{letter}***{}", self.values.of(name))
            }
        };
        match value {
            Some(value) => (format!("{shown}={}", self.value(name, value)), None),
            None => (shown, Some(name.to_owned())),
        }
    }

    fn value(&mut self, option: &str, value: &str) -> String {
        if is_secret(option) && !value.is_empty() {
            self.log.note(Sort::Secret, PLACE);
            return "***".to_owned();
        }
        if self.keep.arguments {
            return self.text(PLACE, value);
        }
        let matters = MEMORY_OPTIONS.contains(&spelled(option).as_str());
        let is_package = option == "-m" && PACKAGES.contains(&value.split('.').next().unwrap_or_default());
        match () {
            () if value.is_empty() || value == "***" || PLAIN_VALUES.contains(&value) => value.to_owned(),
            () if is_package || (matters && is_amounts(value)) => self.names(PLACE, value),
            () if is_path_like(value) && !value.contains("://") => self.path(PLACE, value),
            () => self.stand_in(Sort::Argument, PLACE, value),
        }
    }
}

/// An option as the table spells it: `--max_model_len` is `--max-model-len`, and so is `max_model_len`.
fn spelled(option: &str) -> String {
    match option.starts_with('-') {
        true => option.replace('_', "-"),
        false => format!("--{}", option.replace('_', "-")),
    }
}

fn is_key(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|c| c.is_ascii_alphabetic() || "_+".contains(c))
        && characters.all(|c| c.is_ascii_alphanumeric() || "_.-+".contains(c))
}

/// Whether a name is that of a secret.
pub(super) fn is_secret(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    // `api_key`, `--auth`, but not `key_type`.
    let last = lower.rsplit(|c: char| !c.is_ascii_alphanumeric()).next();
    matches!(last, Some("key" | "auth" | "token" | "pwd")) || {
        // `--max-tokens` is none.
        !lower.contains("tokens") && !lower.contains("tokenizer") && SECRETS.iter().any(|part| lower.contains(part))
    }
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok()
}

/// Numbers, with units and between commas: `8192`, `0.9`, `16G`, `3,1`.
pub(super) fn is_amounts(text: &str) -> bool {
    let is_amount = |part: &str| {
        let digits = part.trim_end_matches(|c: char| "kKmMgGtTiIbB%".contains(c));
        digits.len() + 3 >= part.len() && digits.len() <= 24 && number(digits).is_some_and(f64::is_finite)
    };
    !text.is_empty() && text.split([',', '/', ':']).all(is_amount)
}
