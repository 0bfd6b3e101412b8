//! Stairs: what rises again and again, with more levels in between that do not. What each evaluation of a training keeps looks like
//! this, step by step. A slope says nothing of it, and nor may anybody say that it does not rise.

use super::Limits;

/// Whether levels rose in several stairs of about one height, of which nothing was given back, and another may follow: they have not
/// been level for much longer than before.
pub(super) fn are_stairs(levels: &[f64], limits: &Limits) -> bool {
    let kept = kept(levels);
    let [first, .., last] = kept[..] else { return false };
    let total = last - first;
    let jump = |(place, pair): (usize, &[f64])| (place, pair[1] - pair[0]);
    let is_stair = |(_, height): &(usize, f64)| *height >= limits.stair_share * total;
    let stairs: Vec<(usize, f64)> = kept.windows(2).enumerate().map(jump).filter(is_stair).collect();
    if total <= 0.0 || stairs.len() < limits.least_stairs {
        return false;
    }
    let heights = || stairs.iter().map(|(_, height)| *height);
    let (lowest, highest) = heights().fold((f64::INFINITY, 0.0), |(low, high), next| (next.min(low), next.max(high)));
    // Rounds that rose as high before and fell back are no level stretches: the last of them only has not fallen yet.
    let before = levels[..=stairs[0].0].iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if before - first >= limits.returned_share * total {
        return false;
    }
    let are_all = heights().sum::<f64>() >= limits.stairs_share * total;
    let pauses = stairs.windows(2).map(|pair| pair[1].0 - pair[0].0);
    let longest = pauses.chain([stairs[0].0 + 1]).max().unwrap_or(0);
    let pause = kept.len() - 1 - stairs[stairs.len() - 1].0;
    are_all && lowest >= limits.stair_height_share * highest && pause as f64 <= limits.pause_factor * longest as f64
}

/// What the levels never fall below again.
pub(super) fn kept(levels: &[f64]) -> Vec<f64> {
    let mut kept = levels.to_vec();
    for place in (0..kept.len().saturating_sub(1)).rev() {
        kept[place] = kept[place].min(kept[place + 1]);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::super::{Course, Point, Trend};
    use crate::thresholds::Thresholds;

    fn course(levels: &[u64]) -> Course {
        let point = |(x, y): (usize, &u64)| Point { x: x as f64, y: *y as f64, sort: 0 };
        let points: Vec<Point> = levels.iter().enumerate().map(point).collect();
        Trend::of(&points, &Thresholds::default().trend_limits()).expect("enough levels").course
    }

    /// Epochs of eleven steps, between which so much comes to stay.
    fn epochs(heights: &[u64]) -> Vec<u64> {
        let mut level = 271;
        let mut levels = vec![level; 11];
        for height in heights {
            level += height;
            levels.extend([level; 11]);
        }
        levels
    }

    #[test]
    fn what_comes_between_the_epochs_and_stays_is_stairs() {
        assert_eq!(course(&epochs(&[198, 198, 198])), Course::Stairs);
        assert_eq!(course(&epochs(&[238, 238])), Course::Stairs);
    }

    #[test]
    fn one_step_up_is_none() {
        assert_ne!(course(&epochs(&[198])), Course::Stairs);
    }

    #[test]
    fn neither_is_what_ended_long_ago_or_was_given_back() {
        let mut ended = epochs(&[198, 198]);
        ended.extend([667; 40]);
        assert_ne!(course(&ended), Course::Stairs);
        let mut given_back = epochs(&[198, 198]);
        given_back.extend([271; 5]);
        assert_ne!(course(&given_back), Course::Stairs);
    }

    /// Gradients that are accumulated: the last round has not been emptied yet.
    #[test]
    fn nor_are_rounds_that_are_emptied() {
        let rounds: Vec<u64> = (0..12).flat_map(|_| (8..40).step_by(4)).collect();
        assert_ne!(course(&rounds), Course::Stairs);
        let halves: Vec<u64> = (0..12).flat_map(|_| (8..40).step_by(4).flat_map(|level| [level, level])).collect();
        assert_ne!(course(&halves), Course::Stairs);
    }

    #[test]
    fn nor_is_noise() {
        let noise: Vec<u64> = (0..48).map(|step: u64| 1000 + step.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 97).collect();
        assert_eq!(course(&noise), Course::Level);
    }
}
