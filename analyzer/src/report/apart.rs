//! What tells call sites with one name from each other.

use crate::words::clean;

/// The callers of a call site's function, as many as tell its key from the others: ` < load < main`. Empty where no other key
/// differs.
pub(super) fn way<'a>(key: &str, others: impl Iterator<Item = &'a str>) -> String {
    way_behind("", key, others)
}

/// The same of a row that is named by one of the functions on its way: what lies before that one is told only where nothing behind
/// it differs.
pub(super) fn way_behind<'a>(function: &str, key: &str, others: impl Iterator<Item = &'a str>) -> String {
    let parts: Vec<&str> = key.split(" < ").collect();
    let agree = |other: &str| other.split(" < ").zip(&parts).take_while(|(one, two)| one == *two).count();
    let Some(depth) = others.filter(|other| *other != key).map(agree).max() else { return String::new() };
    let name_of = |part: &str| part.split_once('!').map_or(part, |(_, function)| function).to_owned();
    let named = parts.iter().position(|part| name_of(part) == function).filter(|place| *place < depth).unwrap_or(0);
    parts.iter().take(depth + 1).skip(named + 1).map(|part| format!(" < {}", clean(&name_of(part)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Python function that calls through a library of its own is named by itself, and not by the library's function.
    #[test]
    fn what_lies_before_the_function_that_names_a_row_is_not_told_again() {
        let (one, other) = ("fast.so!take < a.py!alloc < a.py!load", "fast.so!take < a.py!alloc < a.py!cache");
        assert_eq!(way_behind("alloc", one, [other].into_iter()), " < load");
        assert_eq!(way_behind("take", one, [other].into_iter()), " < alloc < load");
        assert_eq!(way(one, [other].into_iter()), " < alloc < load");
    }

    #[test]
    fn rows_that_differ_before_that_function_are_told_apart_there() {
        let (one, other) = ("fast.so!take < more.so!get < a.py!alloc", "fast.so!take < less.so!cut < a.py!alloc");
        assert_eq!(way_behind("alloc", one, [other].into_iter()), " < get");
    }
}
