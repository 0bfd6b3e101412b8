//! What tells call sites with one name from each other.

use crate::words::clean;

/// The callers of a call site's function, as many as tell its key from the others: ` < load < main`. Empty where no other key
/// differs.
pub(super) fn way<'a>(key: &str, others: impl Iterator<Item = &'a str>) -> String {
    let parts: Vec<&str> = key.split(" < ").collect();
    let agree = |other: &str| other.split(" < ").zip(&parts).take_while(|(one, two)| one == *two).count();
    let Some(depth) = others.filter(|other| *other != key).map(agree).max() else { return String::new() };
    let name = |part: &&str| format!(" < {}", clean(part.split_once('!').map_or(part, |(_, function)| function)));
    parts.iter().take(depth + 1).skip(1).map(name).collect()
}
