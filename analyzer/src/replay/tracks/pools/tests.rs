use gpuoom_trace::record::{Event, Kind};

use super::*;
use crate::testing::GIB;

const ME: u32 = 7;
const OTHER: u32 = 8;

fn set(pools: &mut Pools, handle: u64, numbers: &[u64]) -> bool {
    let record = Record { address: handle, device: 0, thread: ME, ..Record::new(Event::Sync, Kind::Pool) };
    pools.set(&record, payload::numbers(numbers, &mut [0; gpuoom_trace::record::MAX_PAYLOAD_BYTES]))
}

fn all(pools: &Pools) -> Kept {
    pools.on(0, ME, None).all
}

/// The device's own pool gave 6 GiB, of which 1 is in use.
fn own() -> Pools {
    own_with(None)
}

/// The same, with a release threshold that was set first.
fn own_with(threshold: Option<u64>) -> Pools {
    let mut pools = Pools::default();
    if let Some(bytes) = threshold {
        set(&mut pools, 0xD, &[RELEASE_THRESHOLD, bytes]);
    }
    pools.given(0, 0, 5 * GIB);
    pools.given(0, 0, GIB);
    pools.returned(0, 0, 5 * GIB);
    pools
}

#[test]
fn a_threshold_says_what_stays() {
    assert_eq!((all(&own()).bytes, all(&own()).retained_bytes), (5 * GIB, 0));
    let mut pools = own_with(Some(u64::MAX));
    assert_eq!(all(&pools).retained_bytes, 5 * GIB);
    assert!(set(&mut pools, 0xD, &[RELEASE_THRESHOLD, 4 * GIB]), "a lower one gives back");
    assert_eq!((all(&pools).retained_bytes, all(&pools).threshold_bytes), (3 * GIB, 4 * GIB));
    set(&mut pools, 0xD, &[RELEASE_THRESHOLD, u64::MAX]);
    assert_eq!(all(&pools).retained_bytes, 3 * GIB, "a higher one brings nothing back");
    assert!(!set(&mut pools, 0xD, &[2, 0]));
    assert_eq!(all(&pools).threshold_bytes, u64::MAX, "another attribute");
}

/// What went back before the threshold was raised may have left the pool.
#[test]
fn a_threshold_keeps_nothing_that_went_back_before() {
    let mut pools = own();
    set(&mut pools, 0xD, &[RELEASE_THRESHOLD, u64::MAX]);
    assert_eq!(all(&pools).retained_bytes, 0);
    pools.given(0, 0, 2 * GIB);
    pools.returned(0, 0, 2 * GIB);
    assert_eq!(all(&pools).retained_bytes, 2 * GIB, "what came since");
}

#[test]
fn a_trim_gives_back() {
    let mut pools = own();
    assert!(set(&mut pools, 0xD, &[3 * GIB]));
    assert_eq!((all(&pools).bytes, all(&pools).untrimmed_bytes, all(&pools).trims), (2 * GIB, 5 * GIB, 1));
    set(&mut pools, 0xD, &[0]);
    assert_eq!(all(&pools).bytes, 0);
    pools.given(0, 0, 2 * GIB);
    pools.returned(0, 0, 2 * GIB);
    assert_eq!(all(&pools).bytes, 2 * GIB, "what came since");
}

#[test]
fn what_a_trim_left_is_sure_only_where_nothing_was_in_use_or_under_way() {
    let mut pools = own();
    pools.returned(0, 0, GIB);
    set(&mut pools, 0xD, &[0]);
    assert_eq!((all(&pools).bytes, all(&pools).at_most_bytes), (0, 6 * GIB), "no wait: the frees may be under way");
    pools.waited(0, OTHER);
    set(&mut pools, 0xD, &[0]);
    assert_eq!(all(&pools).at_most_bytes, 6 * GIB, "another thread's wait may last");
    pools.waited(0, ME);
    set(&mut pools, 0xD, &[4 * GIB]);
    assert_eq!((all(&pools).bytes, all(&pools).at_most_bytes), (0, 6 * GIB), "a piece of 6 GiB is more than is kept");
    set(&mut pools, 0xD, &[0]);
    assert_eq!(all(&pools).at_most_bytes, 0);
    pools.given(0, 0, GIB);
    pools.given(0, 0, 2 * GIB);
    pools.returned(0, 0, GIB);
    assert_eq!((all(&pools).bytes, all(&pools).at_most_bytes), (GIB, GIB));
    pools.waited(0, ME);
    set(&mut pools, 0xD, &[0]);
    assert_eq!(all(&pools).at_most_bytes, GIB, "2 GiB are in use, and may hold a piece of more");
}

#[test]
fn pieces_that_do_not_fit_are_kept_beside_those_that_came_for_them() {
    let mut pools = Pools::default();
    for gib in 4..8 {
        pools.given(0, 0, gib * GIB);
        pools.returned(0, 0, gib * GIB);
    }
    assert_eq!((all(&pools).bytes, all(&pools).at_most_bytes), (7 * GIB, 22 * GIB));
}

#[test]
fn pools_are_told_apart_as_far_as_that_is_clear() {
    let mut pools = own();
    pools.appears(Does::NamesPool, 0xD, 0);
    pools.appears(Does::MakesPool, 0xA, 0);
    let number = pools.number(0xA);
    set(&mut pools, 0xA, &[RELEASE_THRESHOLD, u64::MAX]);
    assert_eq!((all(&pools).bytes, all(&pools).retained_bytes), (5 * GIB, 0), "the other one's threshold");
    pools.given(number, 0, GIB);
    pools.returned(number, 0, GIB);
    assert_eq!((all(&pools).bytes, all(&pools).retained_bytes, all(&pools).pools), (6 * GIB, GIB, 2));
    let beside = |asked| pools.on(0, ME, asked).elsewhere.map(|kept| (kept.bytes, kept.retained_bytes));
    assert_eq!(beside(Some(0)), Some((GIB, GIB)));
    assert_eq!(beside(Some(number)), Some((5 * GIB, 0)));
    assert_eq!(beside(None), Some((6 * GIB, GIB)));
    pools.waited(0, ME);
    pools.ended(0xA);
    assert_eq!((all(&pools).bytes, all(&pools).at_most_bytes, pools.number(0xD)), (5 * GIB, 5 * GIB, 0));
    assert_eq!(pools.on(1, ME, None).all, Kept::default());
}

#[test]
fn a_pool_that_is_given_to_a_device_has_its_plain_calls() {
    let mut pools = Pools::default();
    pools.appears(Does::NamesPool, 0xD, 0);
    pools.appears(Does::MakesPool, 0xA, 0);
    assert_eq!(pools.chosen(0), 0);
    pools.appears(Does::ChoosesPool, 0xA, 0);
    assert_eq!((pools.chosen(0), pools.chosen(1)), (pools.number(0xA), 0));
    pools.appears(Does::ChoosesPool, 0xD, 0);
    assert_eq!(pools.chosen(0), 0);
    pools.appears(Does::ChoosesPool, 0xA, 0);
    pools.ended(0xA);
    assert_eq!(pools.chosen(0), 0, "it is gone");
}

#[test]
fn where_nobody_knows_which_pool_gave_no_trim_and_no_threshold_counts() {
    for (does, handle) in [(Does::Else, 0xA), (Does::ChoosesPool, 0xB)] {
        let mut pools = own();
        pools.returned(0, 0, GIB);
        pools.waited(0, ME);
        set(&mut pools, 0xD, &[RELEASE_THRESHOLD, u64::MAX]);
        set(&mut pools, 0xD, &[0]);
        pools.appears(does, handle, 0);
        let kept = all(&pools);
        assert_eq!((kept.bytes, kept.at_most_bytes, kept.retained_bytes), (6 * GIB, 6 * GIB, 0));
        assert_eq!(pools.on(0, ME, Some(0)).elsewhere, None);
    }
}

#[test]
fn more_pools_than_are_told_apart_prove_nothing() {
    let mut pools = own();
    (1..=MOST_POOLS as u64 + 1).for_each(|handle| pools.appears(Does::MakesPool, handle, 1));
    set(&mut pools, 0xD0D0, &[RELEASE_THRESHOLD, u64::MAX]);
    assert_eq!((pools.made.len(), all(&pools).retained_bytes), (MOST_POOLS, 0));
}

#[test]
fn a_larger_block_than_any_before_may_cost_a_pool_what_it_keeps() {
    let mut pools = Pools::default();
    set(&mut pools, 0xD, &[RELEASE_THRESHOLD, u64::MAX]);
    (0..5).for_each(|_| pools.given(0, 0, 10));
    (0..5).for_each(|_| pools.returned(0, 0, 10));
    assert_eq!(pools.retained_bytes(0, 0), 50);
    pools.given(0, 0, 10);
    assert_eq!(pools.retained_bytes(0, 0), 40, "one of those pieces");
    pools.given(0, 0, 30);
    assert_eq!(pools.retained_bytes(0, 0), 0, "no piece is as large");
}

#[test]
fn a_reset_leaves_a_pool_nothing() {
    let mut pools = Pools::default();
    pools.given(0, 0, 40);
    pools.returned(0, 0, 40);
    assert_eq!(all(&pools).at_most_bytes, 40);
    pools.reset(0);
    assert_eq!(all(&pools).at_most_bytes, 0);
}
