//! Rises that are given back again.

use super::{Limits, median};

/// Whether the levels rose and fell before as they rise now.
pub(super) fn was_given_back(levels: &[f64], last: &[f64], limits: &Limits) -> bool {
    let smooth: Vec<f64> = levels.windows(3).map(|three| median(three.to_vec())).collect();
    let least = limits.returned_share * (last[last.len() - 1] - last[0]);
    let (mut low, mut high, mut rose) = (f64::INFINITY, f64::NEG_INFINITY, false);
    for level in smooth {
        if level > high {
            high = level;
            rose |= high - low >= least;
        } else if rose && high - level >= least {
            return true;
        }
        if level < low {
            // What falls from the beginning on (buffers of a load) was no rise.
            (low, high, rose) = (level, level, false);
        }
    }
    false
}

/// Whether the levels fell back to their floor twice or more before, from less high: the last round may only be a longer one. Floors that
/// rise themselves are those of something that stays below the rounds.
pub(super) fn was_given_back_often(levels: &[f64], last: &[f64], limits: &Limits) -> bool {
    let least = limits.often_returned_share * (last[last.len() - 1] - last[0]);
    let floor = levels.iter().copied().fold(f64::INFINITY, f64::min);
    // Not each level is kept: the lowest of a round may lie between two of them.
    let apart = levels.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
    let (mut high, mut returns) = (f64::NEG_INFINITY, 0);
    for level in levels {
        high = high.max(*level);
        let is_floor = level - floor <= apart.max(limits.floor_share * (high - floor));
        // Noise falls as far as it rises from one level to the next.
        if high - level >= least.max(limits.round_steps * apart) && is_floor {
            returns += 1;
            high = *level;
        }
    }
    returns >= 2
}
