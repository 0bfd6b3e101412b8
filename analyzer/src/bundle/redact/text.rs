//! Free text: paths, pages, addresses, identifiers and secrets are found word by word, names wherever they stand.

use super::Redactor;
use super::arguments::is_secret;
use super::identifiers::{Told, address, identifier, is_identifier_field, secret};
use super::log::Sort;
use super::paths::is_path_like;
use super::words::SITES;

/// What ends a word, beside white space.
const DELIMITERS: &str = "\"'`,;()[]{}<>|=\0";

/// What a field's name says of the value that comes next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Anything,
    Identifier,
    /// Waits for the sign between name and value.
    SecretAfterSign,
    Secret,
}

impl Redactor {
    /// One line of text.
    pub(super) fn text(&mut self, place: &str, text: &str) -> String {
        let mut done = String::with_capacity(text.len());
        let (mut rest, mut next) = (text, Next::Anything);
        while let Some(first) = rest.chars().next() {
            if is_delimiter(first) {
                done.push(first);
                rest = &rest[first.len_utf8()..];
                next = match (first, next) {
                    ('=', Next::SecretAfterSign) => Next::Secret,
                    (',' | ';' | '\n', _) => Next::Anything,
                    (_, next) => next,
                };
                // `</tag>` is no path.
                if first == '<' && rest.starts_with('/') {
                    done.push('/');
                    rest = &rest[1..];
                }
                // A path between quotes or tags may have spaces in it.
                if let Some(length) = quoted_path(first, rest) {
                    done.push_str(&self.path(place, &rest[..length]));
                    rest = &rest[length..];
                }
                continue;
            }
            let length = rest.find(is_delimiter).unwrap_or(rest.len());
            let (word, behind) = rest.split_at(length);
            rest = behind;
            let redacted = self.word(place, word, &mut next);
            done.push_str(&redacted);
        }
        self.names(place, &done)
    }

    fn word(&mut self, place: &str, word: &str, next: &mut Next) -> String {
        match *next {
            Next::Secret if word != "***" => {
                // The word behind `Bearer` is the secret.
                *next = if word.eq_ignore_ascii_case("bearer") { Next::Secret } else { Next::Anything };
                return match *next {
                    Next::Secret => word.to_owned(),
                    _ => self.put(place, Told { sort: Sort::Secret, stand_in: "***" }),
                };
            }
            Next::Identifier if word.len() >= 4 && word.bytes().any(|byte| byte.is_ascii_digit()) => {
                *next = Next::Anything;
                return self.put(place, Told { sort: Sort::Identifier, stand_in: "<id>" });
            }
            _ => {}
        }
        let trimmed = word.trim_end_matches([':', '.', '!', '?']);
        let tail = &word[trimmed.len()..];
        if is_identifier_field(trimmed) {
            *next = Next::Identifier;
        } else if trimmed.eq_ignore_ascii_case("bearer") {
            *next = Next::Secret;
        } else if is_secret(trimmed) {
            *next = if tail.contains(':') { Next::Secret } else { Next::SecretAfterSign };
        } else if word == ":" && *next == Next::SecretAfterSign {
            *next = Next::Secret;
        } else if *next == Next::SecretAfterSign {
            *next = Next::Anything;
        }
        format!("{}{tail}", self.bare(place, trimmed))
    }

    fn bare(&mut self, place: &str, word: &str) -> String {
        if let Some(told) = identifier(word).or_else(|| secret(word)) {
            return self.put(place, told);
        }
        if word.contains("://") || word.starts_with("www.") {
            let known = SITES.iter().any(|site| word.starts_with(site));
            return if known || self.keep.host { word.to_owned() } else { self.put(place, Told::ADDRESS) };
        }
        if let Some(told) = address(word).filter(|_| !self.keep.host) {
            return self.put(place, told);
        }
        if !word.contains(':') {
            return if is_path_like(word) { self.path(place, word) } else { word.to_owned() };
        }
        // `file.py:12`, `/a:/b`, `10.0.0.1:8080`.
        let parts: Vec<String> = word.split(':').map(|part| self.bare(place, part)).collect();
        parts.join(":")
    }

    fn put(&mut self, place: &str, told: Told) -> String {
        self.log.note(told.sort, place);
        told.stand_in.to_owned()
    }
}

fn is_delimiter(c: char) -> bool {
    c.is_whitespace() || DELIMITERS.contains(c)
}

/// Bytes of a path that begins here and ends at the sign that closes what `opened` opened.
fn quoted_path(opened: char, rest: &str) -> Option<usize> {
    let closes = match opened {
        '"' | '\'' | '`' => opened,
        '>' => '<',
        _ => return None,
    };
    let is_path = rest.starts_with('/') || rest.starts_with("~/");
    is_path.then(|| rest.find([closes, '\n'])).flatten()
}
