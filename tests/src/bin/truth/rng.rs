//! Random numbers that are the same for the same seed, on any machine: SplitMix64.

/// A stream of random numbers.
#[derive(Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    /// The stream of one run: runs with neighbouring numbers have nothing in common.
    pub(crate) fn of(seed: u64, run: u64) -> Self {
        let mut rng = Rng(seed ^ run.wrapping_mul(0xD1B5_4A32_D192_ED03));
        rng.next();
        Rng(rng.next() ^ run)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// From `low` to `high`, both of which may come.
    pub(crate) fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high.max(low) - low + 1)
    }

    /// From 0 to below 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Between two numbers.
    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + self.unit() * (high - low)
    }

    /// True this often.
    pub(crate) fn chance(&mut self, share: f64) -> bool {
        self.unit() < share
    }

    /// One of them.
    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.within(0, of.len() as u64 - 1) as usize]
    }

    /// A size between two, small ones as often as large ones. Most programs ask for multiples of something; some do not.
    pub(crate) fn size(&mut self, low: u64, high: u64) -> u64 {
        let (low, high) = (low.max(1), high.max(low).max(1));
        let size = (self.between((low as f64).ln(), (high as f64).ln())).exp() as u64;
        let unit = self.pick(&[1 << 20, 1 << 16, 1 << 12, 256, 4]);
        (size / unit * unit).clamp(low, high)
    }

    /// A size that is this one give or take a share.
    pub(crate) fn about(&mut self, size: u64, share: f64) -> u64 {
        let factor = self.between(1.0 - share, 1.0 + share);
        ((size as f64 * factor) as u64 & !0xFFF).max(4096)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_and_runs_differ() {
        let of = |seed, run| {
            let mut rng = Rng::of(seed, run);
            [rng.next(), rng.next(), rng.next()]
        };
        assert_eq!(of(7, 3), of(7, 3));
        assert_ne!(of(7, 3), of(7, 4));
        assert_ne!(of(7, 3), of(8, 3));
    }

    #[test]
    fn sizes_stay_within_their_limits() {
        let mut rng = Rng::of(1, 1);
        assert!((0..1000).map(|_| rng.size(5000, 70_000)).all(|size| (5000..=70_000).contains(&size)));
    }
}
