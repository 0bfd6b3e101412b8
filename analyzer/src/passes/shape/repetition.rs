//! Repetition: the shortest stretch of calls that comes again and again, as a step of a training or a token does.

use rustc_hash::FxHashMap;

use crate::replay::tracks::calls::{Call, What};
use crate::thresholds::Thresholds;

/// Beyond some dozens nobody asks how often a stretch came.
const MOST_TIMES: usize = 64;
/// Cells of edit distances that are computed at most. What takes more is not found.
const MAX_CELLS: usize = 4_000_000;

/// A stretch of calls that repeats up to the end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Repetition {
    /// Calls of one stretch.
    pub calls: usize,
    /// How often it came, as far back as the calls are known.
    pub times: usize,
    /// Share of the calls that differ, at most.
    pub different: f64,
    /// Ticks when the first of them began.
    pub began_at: u64,
}

/// Calls that do the same: function, size class, call site.
fn sort_of(call: &Call) -> (u16, u32, u32, What) {
    // Eight classes to a power of two.
    let bits = 64 - call.bytes.leading_zeros();
    let class = if bits > 4 { (bits << 3) | ((call.bytes >> (bits - 4)) & 7) as u32 } else { call.bytes as u32 };
    (call.api, class, call.site, call.what)
}

impl Repetition {
    /// The shortest repetition at the end of calls, in which memory comes back: equal layers of a load are none.
    pub fn of(calls: &[Call], thresholds: &Thresholds) -> Option<Self> {
        // What came once is no repetition.
        let least = usize::try_from(thresholds.repetitions).unwrap_or(usize::MAX).max(2);
        let mut sorts = FxHashMap::default();
        let tokens: Vec<u32> = calls
            .iter()
            .map(|call| {
                let next = sorts.len() as u32;
                *sorts.entry(sort_of(call)).or_insert(next)
            })
            .collect();
        let mut counts = vec![0i32; sorts.len()];
        let mut cells_left = MAX_CELLS;
        for period in 2..=calls.len() / least {
            let (before, last) = tokens[tokens.len() - 2 * period..].split_at(period);
            let most = (period as f64 * thresholds.repetition_share) as usize;
            if differing(before, last, &mut counts) > 2 * most
                || !gives_back(&calls[calls.len() - period..], thresholds)
            {
                continue;
            }
            cells_left = cells_left.checked_sub(least.saturating_mul(period * (2 * most + 1)))?;
            if let Some((times, worst)) = times(&tokens, period, most, least) {
                let began_at = calls[calls.len() - times * period].at;
                return Some(Repetition { calls: period, times, different: worst as f64 / period as f64, began_at });
            }
        }
        None
    }
}

/// Whether enough of what a stretch of calls gave came back within it.
fn gives_back(calls: &[Call], thresholds: &Thresholds) -> bool {
    let sum = |what| {
        let of = calls.iter().filter(|call| call.what == what);
        of.map(|call| u128::from(call.bytes)).sum::<u128>()
    };
    let given = sum(What::Given);
    given > 0 && sum(What::Returned) as f64 >= thresholds.repetition_return_share * given as f64
}

/// Tokens that one stretch has and the other lacks: never less than half of what its edit distance needs to be.
fn differing(one: &[u32], other: &[u32], counts: &mut [i32]) -> usize {
    one.iter().for_each(|token| counts[*token as usize] += 1);
    other.iter().for_each(|token| counts[*token as usize] -= 1);
    let mut sum = 0;
    for token in one.iter().chain(other) {
        sum += std::mem::take(&mut counts[*token as usize]).unsigned_abs() as usize;
    }
    sum
}

/// How often the last stretch of this length came, and the greatest edit distance from one to the next; `None` for less than
/// `least`.
fn times(tokens: &[u32], period: usize, most: usize, least: usize) -> Option<(usize, usize)> {
    let (mut count, mut worst) = (1, 0);
    let mut end = tokens.len() - period;
    while end >= period {
        let (before, last) = (&tokens[end - period..end], &tokens[end..end + period]);
        let Some(distance) = edit_distance(before, last, most) else { break };
        worst = worst.max(distance);
        count += 1;
        end -= period;
        if count >= MOST_TIMES.max(least) {
            break;
        }
    }
    (count >= least).then_some((count, worst))
}

/// The edit distance of two stretches of equal length, if it is at most `most`.
fn edit_distance(one: &[u32], other: &[u32], most: usize) -> Option<usize> {
    if one == other {
        return Some(0);
    }
    let width = 2 * most + 1;
    let far = most + 1;
    // Row i holds the distances of one[..i] to other[..i + offset - most].
    let mut row: Vec<usize> = (0..width).map(|offset| offset.checked_sub(most).unwrap_or(far)).collect();
    for i in 1..=one.len() {
        let mut next = vec![far; width];
        for offset in 0..width {
            let Some(j) = (i + offset).checked_sub(most) else { continue };
            if j > other.len() {
                break;
            }
            let above = row.get(offset + 1).map_or(far, |distance| distance + 1);
            let left = offset.checked_sub(1).map_or(far, |left| next[left] + 1);
            let both = if j == 0 { i } else { row[offset] + usize::from(one[i - 1] != other[j - 1]) };
            next[offset] = above.min(left).min(both).min(far);
        }
        row = next;
    }
    Some(row[most]).filter(|distance| *distance <= most)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn repetition(calls: &[Call]) -> Option<Repetition> {
        Repetition::of(calls, &Thresholds::default())
    }

    fn given(bytes: u64) -> Call {
        Call { bytes, what: What::Given, ..Call::default() }
    }

    fn returned(bytes: u64) -> Call {
        Call { bytes, what: What::Returned, ..Call::default() }
    }

    fn step(sizes: &[u64]) -> Vec<Call> {
        sizes.iter().map(|size| given(*size)).chain(sizes.iter().rev().map(|size| returned(*size))).collect()
    }

    #[test]
    fn a_step_that_repeats_is_found_with_its_length() {
        let sizes = [100, 2000, 300, 40_000, 500, 6000];
        let calls: Vec<Call> = (0..5).flat_map(|_| step(&sizes)).collect();
        let found = repetition(&calls).unwrap();
        assert_eq!((found.calls, found.times, found.different), (12, 5, 0.0));
        assert_eq!(repetition(&calls[..30]), None, "two times and a half");
    }

    #[test]
    fn a_few_other_calls_do_not_hide_it() {
        let sizes: Vec<u64> = (1..=20).map(|size| size * size * 1000).collect();
        let mut calls: Vec<Call> = (0..4).flat_map(|_| step(&sizes)).collect();
        calls[95].bytes = 7;
        calls[50].bytes = 7;
        let found = repetition(&calls).unwrap();
        assert_eq!((found.calls, found.times), (40, 4));
        assert!(found.different <= Thresholds::default().repetition_share && found.different > 0.0);
    }

    #[test]
    fn equal_layers_of_a_load_are_no_steps() {
        let calls: Vec<Call> = (0..10).flat_map(|_| [given(100), given(2000), given(300)]).collect();
        assert_eq!(repetition(&calls), None);
        assert_eq!(repetition(&[]), None);
    }

    #[test]
    fn edit_distances() {
        assert_eq!(edit_distance(&[1, 2, 3, 4], &[1, 2, 3, 4], 0), Some(0));
        assert_eq!(edit_distance(&[1, 2, 3, 4], &[2, 3, 4, 5], 2), Some(2));
        assert_eq!(edit_distance(&[1, 2, 3, 4], &[1, 9, 3, 8], 2), Some(2));
        assert_eq!(edit_distance(&[1, 2, 3, 4], &[5, 6, 7, 8], 2), None);
    }

    proptest! {
        #[test]
        fn whatever_the_calls_it_ends(
            sizes in prop::collection::vec((0u64..6, any::<bool>()), 0..400),
            repetitions in prop_oneof![1u64..100, Just(1_000_000_000)],
            repetition_share in 0.0f64..=1.0,
        ) {
            let calls: Vec<Call> = sizes
                .into_iter()
                .map(|(size, gives)| if gives { given(size) } else { returned(size) })
                .collect();
            let mut thresholds = Thresholds::default();
            (thresholds.repetitions, thresholds.repetition_share) = (repetitions, repetition_share);
            if let Some(found) = Repetition::of(&calls, &thresholds) {
                prop_assert!(found.times as u64 >= thresholds.repetitions.max(2) && found.calls * found.times <= calls.len());
            }
        }
    }
}
