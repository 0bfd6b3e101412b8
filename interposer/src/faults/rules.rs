//! `GPUOOM_INJECT`: which calls are to fail.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use gpuoom_trace::record::injected;

use crate::base::inject::{MAX_RULES, Rule, Site};
use crate::base::{config, guard};
use crate::link;

/// Why a call is refused; the numbers are those of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Reason {
    /// The virtual card has no room for it.
    Capacity = injected::CAPACITY,
    /// `oom@N`.
    Call = injected::CALL,
    /// `oom>SIZE`.
    Size = injected::SIZE,
    /// `oom%PERCENT`.
    Chance = injected::CHANCE,
    /// `oom@FILE+OFFSET`.
    Site = injected::SITE,
}

/// Return addresses that were looked up for rules with a site, and in which no rule's site lies.
const ELSEWHERE: usize = 1024;

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
    let path = if object.path.is_empty() { "/proc/thread-self/exe" } else { &object.path };
    let real = std::fs::canonicalize(path).unwrap_or_default();
    let named = |path: &std::path::Path| path.file_name().is_some_and(|name| name.to_string_lossy() == site.file);
    named(&real) || named(std::path::Path::new(path))
}

#[cfg(test)]
mod tests {
    use super::*;

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
