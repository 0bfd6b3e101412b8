//! Straight lines through points, by linear least squares.

/// A straight line through points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// Points.
    pub points: usize,
    /// Rise per unit of x.
    pub slope: f64,
    /// Standard error of the slope.
    pub slope_error: f64,
    /// Share of the variance that the line explains, 0 to 1.
    pub r_squared: f64,
}

impl Fit {
    /// The line through points; `None` for less than three, or where all have the same x.
    pub fn through(points: &[(f64, f64)]) -> Option<Self> {
        let count = points.len() as f64;
        if points.len() < 3 {
            return None;
        }
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
        let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|(x, y)| of(x - mean_x, y - mean_y)).sum::<f64>();
        let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
        if !(xx > 0.0 && xx.is_finite() && yy.is_finite()) {
            return None;
        }
        let slope = xy / xx;
        let rest = sum(&|x, y| (y - slope * x).powi(2));
        let r_squared = if yy > 0.0 { (1.0 - rest / yy).clamp(0.0, 1.0) } else { 0.0 };
        Some(Fit { points: points.len(), slope, slope_error: (rest / (count - 2.0) / xx).sqrt(), r_squared })
    }

    /// The 95 % interval of the slope, by Student's t.
    pub fn slope_interval(&self) -> (f64, f64) {
        let reach = student_t(self.points - 2) * self.slope_error;
        (self.slope - reach, self.slope + reach)
    }
}

/// The 97.5 % quantile of Student's t, which is that of fewer degrees where the table has a gap: never too narrow.
fn student_t(degrees: usize) -> f64 {
    const TABLE: [(usize, f64); 15] = [
        (1, 12.706),
        (2, 4.303),
        (3, 3.182),
        (4, 2.776),
        (5, 2.571),
        (6, 2.447),
        (7, 2.365),
        (8, 2.306),
        (9, 2.262),
        (10, 2.228),
        (15, 2.131),
        (20, 2.086),
        (30, 2.042),
        (60, 2.000),
        (120, 1.980),
    ];
    TABLE.iter().rev().find(|(known, _)| *known <= degrees).map_or(12.706, |(_, quantile)| *quantile)
}

/// Spearman's rank correlation, equal values sharing their mean rank; `None` for less than three pairs, or where one side is
/// all alike.
pub fn rank_correlation(pairs: &[(f64, f64)]) -> Option<f64> {
    if pairs.len() < 3 {
        return None;
    }
    let left = ranks(pairs.iter().map(|pair| pair.0).collect());
    let right = ranks(pairs.iter().map(|pair| pair.1).collect());
    let mean = (pairs.len() as f64 - 1.0) / 2.0;
    let sum = |one: &[f64], other: &[f64]| one.iter().zip(other).map(|(x, y)| (x - mean) * (y - mean)).sum::<f64>();
    let (both, one, other) = (sum(&left, &right), sum(&left, &left), sum(&right, &right));
    (one > 0.0 && other > 0.0).then(|| both / (one * other).sqrt())
}

fn ranks(values: Vec<f64>) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|one, other| values[*one].total_cmp(&values[*other]));
    let mut ranks = vec![0.0; values.len()];
    let mut begin = 0;
    for stretch in order.chunk_by(|one, other| values[*one] == values[*other]) {
        let rank = begin as f64 + (stretch.len() as f64 - 1.0) / 2.0;
        stretch.iter().for_each(|place| ranks[*place] = rank);
        begin += stretch.len();
    }
    ranks
}

/// Mean, and standard deviation over mean, of values; 0 of none.
pub fn variation(values: &[f64]) -> (f64, f64) {
    if values.is_empty() {
        return (0.0, 0.0);
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64;
    (mean, if mean == 0.0 { 0.0 } else { variance.sqrt() / mean })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_with_its_uncertainty() {
        let exact: Vec<_> = (0..6).map(|x| (f64::from(x), 3.0 * f64::from(x) + 1.0)).collect();
        let fit = Fit::through(&exact).unwrap();
        assert_eq!((fit.slope, fit.r_squared), (3.0, 1.0));
        assert!(fit.slope_error < 1e-9);
        // y = 0, 2, 1, 3: slope 0.8, residuals -0.3, 0.9, -0.9, 0.3, so s² = 1.8 / 2 and the error is sqrt(0.9 / 5).
        let noisy = Fit::through(&[(0.0, 0.0), (1.0, 2.0), (2.0, 1.0), (3.0, 3.0)]).unwrap();
        assert!((noisy.slope - 0.8).abs() < 1e-9 && (noisy.slope_error - 0.18f64.sqrt()).abs() < 1e-9);
        assert!((noisy.r_squared - 0.64).abs() < 1e-9);
        let (low, high) = noisy.slope_interval();
        assert!((high - low - 2.0 * 4.303 * 0.18f64.sqrt()).abs() < 1e-9);
        assert_eq!(Fit::through(&[(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]), None);
        assert_eq!(Fit::through(&exact[..2]), None);
    }

    #[test]
    fn ranks_correlate() {
        let of = |right: [f64; 4]| rank_correlation(&[1.0, 2.0, 3.0, 4.0].into_iter().zip(right).collect::<Vec<_>>());
        assert_eq!(of([10.0, 20.0, 30.0, 400.0]), Some(1.0));
        assert_eq!(of([9.0, 8.0, 7.0, 6.0]), Some(-1.0));
        assert_eq!(of([5.0; 4]), None);
    }
}
