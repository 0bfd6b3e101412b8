//! Words that name one machine, card, account or key by their form alone.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::log::Sort;
use super::words::IDENTIFIERS;

/// Shortest run of letters and digits that is taken for a key, and the digits that it must have.
const KEY_LENGTH: usize = 32;
const KEY_DIGITS: usize = 6;
/// How keys of well-known services begin, and how long they are at least.
const KEYS: [(&str, usize); 12] = [
    ("hf_", 20),
    ("sk-", 20),
    ("ghp_", 20),
    ("gho_", 20),
    ("ghs_", 20),
    ("github_pat_", 20),
    ("glpat-", 16),
    ("xoxb-", 16),
    ("xoxp-", 16),
    ("AKIA", 16),
    ("eyJ", 30),
    ("wandb_", 20),
];

/// What a word is, and what stands for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) sort: Sort,
    pub(super) stand_in: &'static str,
}

impl Told {
    pub(super) const ADDRESS: Told = Told { sort: Sort::Address, stand_in: "<address>" };
    const IDENTIFIER: Told = Told { sort: Sort::Identifier, stand_in: "<id>" };
    const SECRET: Told = Told { sort: Sort::Secret, stand_in: "***" };
}

/// A key of a service, or something long that looks like one.
pub(super) fn secret(word: &str) -> Option<Told> {
    let is_known = KEYS.iter().any(|(begin, length)| word.starts_with(begin) && word.len() >= *length);
    let is_run = word.len() >= KEY_LENGTH
        && !word.starts_with("_Z")
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-+/.~".contains(&byte))
        && !word.starts_with(['/', '~', '.'])
        && word.split(['/', '.']).any(|part| {
            let digits = part.bytes().filter(u8::is_ascii_digit).count();
            part.len() >= KEY_LENGTH && digits >= KEY_DIGITS && digits < part.len()
        });
    (is_known || is_run).then_some(Told::SECRET)
}

/// A UUID, with or without a prefix such as `GPU-`.
pub(super) fn identifier(word: &str) -> Option<Told> {
    let groups = [8, 4, 4, 4, 12];
    let parts: Vec<&str> = word.split('-').collect();
    let is_hex = |part: &str, length: usize| part.len() == length && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_uuid = parts.windows(5).any(|window| window.iter().zip(groups).all(|(part, length)| is_hex(part, length)));
    is_uuid.then_some(Told::IDENTIFIER)
}

/// An address of a network, a network card or a mailbox.
pub(super) fn address(word: &str) -> Option<Told> {
    let host = word.split('/').next().unwrap_or(word);
    let is_v4 =
        |text: &str| text.parse::<Ipv4Addr>().is_ok_and(|address| !address.is_loopback() && !address.is_unspecified());
    let is_v6 = host.contains("::") || host.matches(':').count() == 7;
    let is_v6 = is_v6
        && host.bytes().any(|byte| byte.is_ascii_digit())
        && host.parse::<Ipv6Addr>().is_ok_and(|address| !address.is_loopback());
    let groups: Vec<&str> = host.split([':', '-']).collect();
    let is_mac =
        groups.len() == 6 && groups.iter().all(|part| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit()));
    let is_mail = host.split_once('@').is_some_and(|(name, domain)| !name.is_empty() && domain.contains('.'));
    (is_v4(host) || is_v6 || is_mac || is_mail).then_some(Told::ADDRESS)
}

/// Whether a word is the name of a field that holds an identifier: `Serial`, `unique_id`, `GPU UUID`.
pub(super) fn is_identifier_field(word: &str) -> bool {
    let lower = word.to_ascii_lowercase();
    IDENTIFIERS.iter().any(|field| {
        lower == *field || lower.ends_with(&format!("_{field}")) || lower.starts_with(&format!("{field}_"))
    })
}
