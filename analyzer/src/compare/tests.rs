//! Comparisons of traces that were built.

use gpuoom_trace::record::{Event, Kind, Record};
use proptest::prelude::*;

use super::{Difference, Presence, Threshold, compare};
use crate::passes::profile::{Figure, KnownBy, Place, Profile, SiteName, SiteProfile};
use crate::testing::{GIB, MIB, TraceBuilder, profile};

/// A program with two libraries; each call is site, bytes, and whether the memory is given back.
fn program(calls: &[(u32, u64, bool)]) -> TraceBuilder {
    let mut trace = TraceBuilder::default()
        .device(0, "card", 16 * GIB)
        .library("/lib/libalpha.so.1", 0x10_0000, 1)
        .library("/lib/libbeta.so.1", 0x20_0000, 2);
    for (number, (site, bytes, _)) in (1..).zip(calls) {
        let record = trace.record(Event::Alloc, Kind::Device, "hipMalloc");
        let granules = bytes.div_ceil(256 * MIB) as u32;
        let (address, requested) = (number << 36, *bytes);
        trace.push(Record { site: *site, address, requested, padded_granules: granules, ..record }, &[]);
    }
    for (number, _) in (1..).zip(calls).filter(|(_, (_, _, freed))| *freed) {
        trace.free(number << 36);
    }
    trace
}

fn of(calls: &[(u32, u64, bool)]) -> Profile {
    profile(&program(calls))
}

fn changes(difference: &Difference) -> Vec<(&str, Presence, i128)> {
    let sites = difference.sites.iter().filter(|site| site.is_notable);
    sites.map(|site| (&site.key[..], site.presence, site.pair.change(Figure::Peak))).collect()
}

const MI: i128 = MIB as i128;

#[test]
fn growth_comes_first_and_what_is_new_or_gone_is_named() {
    let base = of(&[(1, 100 * MIB, true), (2, 300 * MIB, true)]);
    let new = of(&[(1, 200 * MIB, true), (0, 5 * MIB, true)]);
    let difference = compare(&base, &new, Threshold::default());
    assert_eq!(
        changes(&difference),
        [
            ("hipMalloc in libalpha.so", Presence::Both, 100 * MI),
            ("hipMalloc", Presence::New, 5 * MI),
            ("hipMalloc in libbeta.so", Presence::Gone, -300 * MI),
        ]
    );
    assert_eq!(difference.places[0].pair.change(Figure::Peak), -195 * MI);
    assert_eq!(difference.matched_by, KnownBy::Library);
}

#[test]
fn noise_is_no_difference_but_it_is_not_called_equal() {
    let base = of(&[(1, GIB, true)]);
    let new = of(&[(1, GIB + 4096, true)]);
    let difference = compare(&base, &new, Threshold { bytes: 300 * MIB, share: 0.01 });
    assert!(!difference.is_notable && !difference.is_equal);
    assert!(compare(&base, &new, Threshold::NONE).is_notable);
    let same = compare(&base, &base, Threshold::NONE);
    assert!(same.is_equal && !same.is_notable && same.notes.is_empty());
}

#[test]
fn a_leak_at_an_equal_peak_is_a_difference() {
    let difference = compare(&of(&[(1, GIB, true)]), &of(&[(1, GIB, false)]), Threshold::default());
    let site = &difference.sites[0];
    assert_eq!((site.pair.change(Figure::Peak), site.pair.change(Figure::End)), (0, i128::from(GIB)));
    assert!(site.is_notable);
}

#[test]
fn a_trace_that_knows_less_sets_the_names_for_both() {
    let mut older = program(&[(0, GIB, true)]);
    older.header.minor = 0;
    let (old, new) = (profile(&older), of(&[(1, GIB, true)]));
    let difference = compare(&old, &new, Threshold::default());
    assert_eq!((difference.matched_by, difference.is_equal), (KnownBy::Function, true));
    assert!(difference.notes.iter().any(|note| note.starts_with("BASE (format 1.0) does not tell who called")));
}

/// A function that only the base run has is not one of the new run's executable.
#[test]
fn what_is_gone_keeps_the_name_of_its_own_program() {
    let named = |executable: &str, functions: &[&str]| {
        let calls: Vec<_> = functions.iter().map(|_| (1, GIB, true)).collect();
        let mut run = of(&calls);
        run.run.executable = executable.to_owned();
        let site = run.sites[0].clone();
        let by_stack = |function: &&str| Some(format!("hipMalloc < {executable}!{function} < {executable}!main"));
        let name = |function| SiteName { by_stack: by_stack(function), ..site.name.clone() };
        run.sites = functions.iter().map(|function| SiteProfile { name: name(function), ..site.clone() }).collect();
        run.run.sites_known_by = KnownBy::Stack;
        run
    };
    let (base, new) = (named("leak", &["request", "warm_up"]), named("kill9", &["warm_up", "fill"]));
    let difference = compare(&base, &new, Threshold::default());
    let mut keys: Vec<_> = difference.sites.iter().map(|site| (site.presence, &site.key[..])).collect();
    keys.sort_by_key(|(_, key)| *key);
    assert_eq!(
        keys,
        [
            (Presence::New, "hipMalloc < kill9!fill < kill9!main"),
            (Presence::Both, "hipMalloc < kill9!warm_up < kill9!main"),
            (Presence::Gone, "hipMalloc < leak!request < leak!main"),
        ]
    );
}

#[test]
fn what_makes_two_runs_hard_to_compare_is_said() {
    let mut odd = program(&[(1, GIB, true)]);
    odd.header.granularity_bytes = 2 * MIB;
    odd.header.events_lost = 3;
    odd.process.executable = "/usr/bin/other".into();
    let notes = compare(&of(&[(1, GIB, true)]), &profile(&odd), Threshold::default()).notes.join("\n");
    for expected in ["llama-cli and other", "padded to 256 MiB in BASE and to 2 MiB in NEW", "NEW lost 3 events"] {
        assert!(notes.contains(expected), "{notes}");
    }
    let other_card = TraceBuilder::default().device(0, "another", GIB);
    let mut one = program(&[]);
    let mut two = other_card;
    one.alloc(0x1000, MIB);
    two.alloc(0x1000, MIB);
    let notes = compare(&profile(&one), &profile(&two), Threshold::default()).notes;
    assert_eq!(notes, ["GPU 0 is another card: card in BASE, another in NEW."]);
}

/// A regression may come from below: what changed there stands beside the numbers.
#[test]
fn other_versions_below_the_program_are_said() {
    let with = |version: i32| {
        let mut trace = program(&[]).runtime_version(version);
        trace.alloc(0x1000, MIB);
        profile(&trace)
    };
    let notes = |base, new| compare(&with(base), &with(new), Threshold::default()).notes;
    let changed = notes(60_443_483, 70_254_321);
    assert_eq!(changed, ["Other versions below the program: HIP is 6.4.43483 in BASE and 7.2.54321 in NEW."]);
    assert!(notes(60_443_483, 60_443_483).is_empty());
}

#[test]
fn a_device_that_only_one_run_uses_is_new_or_gone() {
    let (base, mut moved) = (of(&[(1, GIB, true)]), program(&[]));
    let record = moved.record(Event::Alloc, Kind::Device, "hipMalloc");
    moved.push(Record { site: 1, device: 1, address: 0x1000, requested: GIB, padded_granules: 4, ..record }, &[]);
    let difference = compare(&base, &profile(&moved), Threshold::default());
    let places: Vec<_> = difference.places.iter().map(|place| (place.place, place.presence)).collect();
    assert_eq!(places, [(Place::Gpu(0), Presence::Gone), (Place::Gpu(1), Presence::New)]);
}

fn calls() -> impl Strategy<Value = Vec<(u32, u64, bool)>> {
    prop::collection::vec((0u32..3, 1u64..4 * GIB, any::<bool>()), 0..30)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_run_does_not_differ_from_itself(calls in calls()) {
        let profile = of(&calls);
        let difference = compare(&profile, &profile, Threshold::NONE);
        prop_assert!(difference.is_equal && !difference.is_notable);
    }

    #[test]
    fn the_other_way_round_everything_changes_its_sign(one in calls(), two in calls()) {
        let (one, two) = (of(&one), of(&two));
        let (there, back) = (compare(&one, &two, Threshold::NONE), compare(&two, &one, Threshold::NONE));
        prop_assert_eq!((there.is_equal, there.is_notable), (back.is_equal, back.is_notable));
        prop_assert_eq!(there.sites.len(), back.sites.len());
        for site in &there.sites {
            let mirror = back.sites.iter().find(|other| {
                (&other.key, other.place, other.kind) == (&site.key, site.place, site.kind)
            }).expect("the same call sites");
            prop_assert_eq!((mirror.pair.base, mirror.pair.new), (site.pair.new, site.pair.base));
            let presence = match site.presence {
                Presence::Both => Presence::Both,
                Presence::New => Presence::Gone,
                Presence::Gone => Presence::New,
            };
            prop_assert_eq!(mirror.presence, presence);
        }
    }

    #[test]
    fn changes_of_call_sites_add_up_to_those_of_the_device(one in calls(), two in calls()) {
        let difference = compare(&of(&one), &of(&two), Threshold::default());
        for place in &difference.places {
            for figure in Figure::all() {
                let sites = difference.sites.iter().filter(|site| site.place == place.place);
                let sum: i128 = sites.map(|site| site.pair.change(figure)).sum();
                prop_assert_eq!(sum, place.pair.change(figure), "{:?}", figure);
                let kinds: i128 = place.kinds.iter().map(|kind| kind.pair.change(figure)).sum();
                prop_assert_eq!(kinds, sum);
            }
        }
    }
}
