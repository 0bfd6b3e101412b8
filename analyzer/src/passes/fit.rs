//! Rank correlation and variation.

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
    fn ranks_correlate() {
        let of = |right: [f64; 4]| rank_correlation(&[1.0, 2.0, 3.0, 4.0].into_iter().zip(right).collect::<Vec<_>>());
        assert_eq!(of([10.0, 20.0, 30.0, 400.0]), Some(1.0));
        assert_eq!(of([9.0, 8.0, 7.0, 6.0]), Some(-1.0));
        assert_eq!(of([5.0; 4]), None);
    }
}
