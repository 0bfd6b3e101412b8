//! A rise behind a long level stretch: what had a bound before, as a cache or a window has, and went beyond it.

use super::{Limits, median};

/// Whether the levels stood for a large part of the series between two highs, without rising in between: the rise that followed may be
/// a bound that was raised, or other work, as well as something that is no longer given back.
pub(super) fn stood_level(levels: &[f64], limits: &Limits) -> bool {
    let [first, .., last] = levels else { return false };
    let average = (last - first) / (levels.len() - 1) as f64;
    let Some((from, to)) = longest_pause(levels, limits.new_high_share * average.max(0.0)) else { return false };
    let pause = &levels[from..to];
    if (pause.len() as f64) < limits.bound_share * levels.len() as f64 || pause.len() < limits.parted_points {
        return false;
    }
    let quarter = pause.len() / 4;
    let ends = [&pause[1..=quarter], &pause[pause.len() - quarter..]].map(|part| median(part.to_vec()));
    // What falls behind a load and then climbs back to it rises all the time.
    ends[1] - ends[0] <= limits.slowing_share * average * pause.len() as f64
}

/// The longest stretch from one high to the next.
fn longest_pause(levels: &[f64], least: f64) -> Option<(usize, usize)> {
    let (mut high, mut at) = (*levels.first()?, 0);
    let mut longest: Option<(usize, usize)> = None;
    for (place, level) in levels.iter().enumerate().skip(1) {
        if *level > high + least {
            longest = longest.filter(|(from, to)| to - from >= place - at).or(Some((at, place)));
            (high, at) = (*level, place);
        }
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::super::{Point, Trend};
    use crate::thresholds::Thresholds;

    fn stood(levels: impl IntoIterator<Item = u64>) -> bool {
        let point = |(x, y): (usize, u64)| Point { x: x as f64, y: y as f64, sort: 0 };
        let points: Vec<Point> = levels.into_iter().enumerate().map(point).collect();
        let trend = Trend::of(&points, &Thresholds::default().trend_limits()).expect("enough levels");
        assert!(trend.rises(), "{points:?}");
        trend.stood_level
    }

    #[test]
    fn a_bound_that_is_raised_and_a_longer_window_rise_behind_a_level_stretch() {
        assert!(stood((0..60).chain(std::iter::repeat_n(60, 140)).chain(60..170)));
        let windows = (0..12).flat_map(|_| 1..=8);
        assert!(stood(windows.chain(1..81)));
    }

    #[test]
    fn what_rises_from_the_beginning_does_not() {
        assert!(!stood(0..200));
        // In stairs, and with noise.
        assert!(!stood((0..200).map(|step| step / 7 * 7)));
        assert!(!stood((0..200).map(|step: u64| 10 * step + step.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 97)));
    }

    #[test]
    fn nor_what_climbs_back_to_a_high_that_a_load_left() {
        assert!(!stood([1000, 900, 800].into_iter().chain((0..120).map(|step| 500 + 6 * step))));
    }
}
