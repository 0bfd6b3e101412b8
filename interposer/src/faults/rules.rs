//! `GPUOOM_INJECT`: which calls are to fail.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::Reason;
use crate::config::Wrong;
use crate::{config, guard, link};

/// What the variable is to hold, for the line about one that can't be understood.
pub(crate) const EXPECTED: &str = "oom@N, oom>SIZE, oom%PERCENT or oom@FILE+0xOFFSET[#N], several separated by commas";

/// Rules that are kept; nobody writes so many.
const MAX_RULES: usize = 16;
/// Return addresses that were looked up for rules with a site, and in which no rule's site lies.
const ELSEWHERE: usize = 1024;

/// One rule.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Rule {
    /// `oom@N`: the N-th allocation call of the process.
    Call(u64),
    /// `oom>SIZE`: requests for more than so many bytes.
    Above(u64),
    /// `oom%PERCENT`: so many of a hundred calls, drawn from the seed and the call's number.
    Chance(f64),
    /// `oom@FILE+0xOFFSET`, `oom@FILE+0xOFFSET#N`: calls that return there.
    Site(Site),
}

/// A place in a library or in the program.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Site {
    /// File name without its directory.
    pub(crate) file: String,
    /// Return address, counted from the file's first loaded byte.
    pub(crate) offset: u64,
    /// Only the N-th call from there, counted from 1.
    pub(crate) nth: Option<u64>,
}

/// Reads the variable.
pub(crate) fn parse(text: &str) -> Result<Vec<Rule>, Wrong> {
    let rules: Vec<Rule> = text.split(',').map(|one| rule(one.trim())).collect::<Result<_, _>>()?;
    Some(rules).filter(|rules| rules.len() <= MAX_RULES).ok_or(None)
}

fn rule(text: &str) -> Result<Rule, Wrong> {
    let rest = text.strip_prefix("oom").ok_or(None)?;
    if let Some(value) = rest.strip_prefix('>') {
        return gpuoom_units::size(value).map(Rule::Above).map_err(|invalid| Some(invalid.to_string()));
    }
    let percent = |text: &str| text.parse().ok().filter(|percent| (0.0..=100.0).contains(percent)).map(Rule::Chance);
    let known = match (rest.strip_prefix('@'), rest.strip_prefix('%')) {
        (Some(value), _) if value.contains('+') => site(value).map(Rule::Site),
        (Some(value), _) => count(value).map(Rule::Call),
        (_, Some(value)) => percent(value),
        _ => None,
    };
    known.ok_or(None)
}

fn site(text: &str) -> Option<Site> {
    let (place, nth) = match text.rsplit_once('#') {
        Some((place, nth)) => (place, Some(count(nth)?)),
        None => (text, None),
    };
    let (file, offset) = place.rsplit_once("+0x")?;
    let offset = u64::from_str_radix(offset, 16).ok()?;
    (!file.is_empty() && !file.contains('/')).then(|| Site { file: file.to_owned(), offset, nth })
}

fn count(text: &str) -> Option<u64> {
    text.parse().ok().filter(|count| *count >= 1)
}

/// Allocation calls of this process so far.
static CALLS: AtomicU64 = AtomicU64::new(0);
/// Calls from the site of each rule that has one.
static FROM_SITE: [AtomicU64; MAX_RULES] = [const { AtomicU64::new(0) }; MAX_RULES];
/// The return address of each rule's site, once a call came from there; 0: none yet.
static RETURNS_TO: [AtomicUsize; MAX_RULES] = [const { AtomicUsize::new(0) }; MAX_RULES];
static KNOWN_ELSEWHERE: [AtomicUsize; ELSEWHERE] = [const { AtomicUsize::new(0) }; ELSEWHERE];

/// Counting begins anew: a forked child counts its own calls.
pub(super) fn forget() {
    CALLS.store(0, Ordering::Relaxed);
    FROM_SITE.iter().for_each(|count| count.store(0, Ordering::Relaxed));
}

/// The number of an allocation call, from 1.
pub(super) fn number() -> u64 {
    // Relaxed, here and below: each number is given once, and nothing else hangs on it.
    CALLS.fetch_add(1, Ordering::Relaxed) + 1
}

/// The rule that this call is to fail by.
pub(super) fn refuses(number: u64, requested_bytes: u64, caller: usize) -> Option<Reason> {
    let config = config::get();
    let mut reason = None;
    for (index, rule) in config.inject.iter().enumerate() {
        // All are asked, also behind one that applies: each site counts its calls.
        let applies = match rule {
            Rule::Call(n) => (*n == number).then_some(Reason::Call),
            Rule::Above(size) => (requested_bytes > *size).then_some(Reason::Size),
            Rule::Chance(percent) => is_drawn(config.seed, number, *percent).then_some(Reason::Chance),
            Rule::Site(site) => comes_from(index, site, caller).then_some(Reason::Site),
        };
        reason = reason.or(applies);
    }
    reason
}

/// Whether a call is drawn. By the number of the call alone, so that a run can be repeated.
fn is_drawn(seed: u64, number: u64, percent: f64) -> bool {
    // SplitMix64 (Steele, Lea, Flood 2014): its output for the state that it has after `number` steps from the seed.
    let mut mixed = seed.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^= mixed >> 31;
    // 53 bits are what a double holds without rounding: 0 <= drawn < 1.
    let drawn = (mixed >> 11) as f64 / (1u64 << 53) as f64;
    drawn * 100.0 < percent
}

fn comes_from(rule: usize, site: &Site, caller: usize) -> bool {
    if !returns_to(rule, site, caller) {
        return false;
    }
    let count = FROM_SITE[rule].fetch_add(1, Ordering::Relaxed) + 1;
    site.nth.is_none_or(|nth| nth == count)
}

/// Whether the return address is that of the site. The file that it lies in is looked up once per address.
fn returns_to(rule: usize, site: &Site, caller: usize) -> bool {
    match RETURNS_TO[rule].load(Ordering::Relaxed) {
        0 => {}
        known => return known == caller,
    }
    let elsewhere = &KNOWN_ELSEWHERE[(caller.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) ^ rule];
    // The rule is part of what is known: another rule's site may be here.
    let mark = caller ^ rule << 56;
    if elsewhere.load(Ordering::Relaxed) == mark {
        return false;
    }
    // The search uses the heap: see `link::real`.
    let is_there = guard::cold(false, || guard::without_signals(|| lies_at(site, caller)));
    if is_there {
        RETURNS_TO[rule].store(caller, Ordering::Relaxed);
    } else {
        elsewhere.store(mark, Ordering::Relaxed);
    }
    is_there
}

fn lies_at(site: &Site, caller: usize) -> bool {
    let Some(object) = link::object_of(caller) else { return false };
    if caller.wrapping_sub(object.start) as u64 != site.offset {
        return false;
    }
    // The program itself has no path; and a library may be known by a link, while a trace names the file.
    let path = if object.path.is_empty() { "/proc/self/exe" } else { &object.path };
    let real = std::fs::canonicalize(path).unwrap_or_default();
    let named = |path: &std::path::Path| path.file_name().is_some_and(|name| name.to_string_lossy() == site.file);
    named(&real) || named(std::path::Path::new(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_understood() {
        let site = |nth| Rule::Site(Site { file: "lib+a.so.1".into(), offset: 0x1f0, nth });
        for (text, rules) in [
            ("oom@3", vec![Rule::Call(3)]),
            ("oom>1.5G", vec![Rule::Above(3 << 29)]),
            ("oom%2.5", vec![Rule::Chance(2.5)]),
            ("oom@lib+a.so.1+0x1f0", vec![site(None)]),
            ("oom@lib+a.so.1+0x1f0#2", vec![site(Some(2))]),
            ("oom@1, oom@2", vec![Rule::Call(1), Rule::Call(2)]),
        ] {
            assert_eq!(parse(text), Ok(rules), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        let many = vec!["oom@1"; MAX_RULES + 1].join(",");
        let bad = ["", "oom", "oom@", "oom@0", "oom@-1", "oom%101", "oom%x", "oom>", "oom>-1", "oom@a+12", "oom@+0x1"];
        for text in bad.into_iter().chain(["oom@/a/b+0x1", "oom@a+0x1#0", "oom@1,,oom@2", "fail@1", "oom%NaN", &many]) {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn chance_is_of_the_seed_and_the_number_alone() {
        let drawn = |seed, percent| (1..=10_000).filter(|number| is_drawn(seed, *number, percent)).count();
        assert_eq!((drawn(0, 0.0), drawn(0, 100.0)), (0, 10_000));
        // Within six standard deviations of 2000 (each 40).
        assert!((1760..2240).contains(&drawn(0, 20.0)), "{}", drawn(0, 20.0));
        let pattern = |seed| (1..=64).map(|number| is_drawn(seed, number, 50.0)).collect::<Vec<_>>();
        assert_eq!(pattern(1), pattern(1));
        assert_ne!(pattern(1), pattern(2));
    }

    #[test]
    fn a_site_is_a_place_in_a_file() {
        let here = a_site_is_a_place_in_a_file as *const () as usize;
        let object = link::object_of(here).unwrap();
        let file = std::env::current_exe().unwrap().file_name().unwrap().to_string_lossy().into_owned();
        let site = Site { file, offset: (here - object.start) as u64, nth: None };
        assert!(lies_at(&site, here) && !lies_at(&site, here + 1));
        assert!(!lies_at(&Site { file: "another".into(), ..site }, here));
    }
}
