//! Bytes over time as turning points: each peak and each floor that stands out by more than a bounded list has room for.

/// Turning points that are kept. Beyond that the smallest swings are forgotten as long as the newer half keeps each that is at
/// least half of its greatest; else those of the older half, whatever they are: the end is what a run is judged by.
pub const MAX_TURNS: usize = 4096;

/// A moment at which the bytes turned: a floor or a peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Ticks.
    pub at: u64,
    /// Bytes that lived then.
    pub bytes: u64,
    /// Largest request that was granted since the turning point before, in bytes.
    pub largest_request_bytes: u64,
}

/// The turning points of a sum of bytes. The first is a floor of 0 bytes; floors and peaks alternate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    turns: Vec<Turn>,
    /// The extreme since the last turning point: the next one, if the bytes leave it by `hysteresis_bytes`.
    open: Turn,
    /// Largest request since `open`.
    request_since: u64,
    rises: bool,
    hysteresis_bytes: u64,
    /// Before so many ticks, swings below so many bytes are not there.
    thinned: Vec<(u64, u64)>,
}

impl Default for Series {
    fn default() -> Self {
        Series {
            turns: Vec::new(),
            open: Turn::default(),
            request_since: 0,
            rises: false,
            hysteresis_bytes: 1,
            thinned: Vec::new(),
        }
    }
}

impl Series {
    /// From `at` on so many bytes live; `request_bytes` is what was granted just now, 0 for a free.
    #[inline]
    pub fn follow(&mut self, at: u64, bytes: u64, request_bytes: u64) {
        self.take_in(at, bytes, request_bytes);
        if self.turns.len() > MAX_TURNS {
            self.make_room();
        }
    }

    #[inline]
    fn take_in(&mut self, at: u64, bytes: u64, request_bytes: u64) {
        self.request_since = self.request_since.max(request_bytes);
        let goes_on = if self.rises { bytes > self.open.bytes } else { bytes <= self.open.bytes };
        if goes_on {
            let largest = self.open.largest_request_bytes.max(self.request_since);
            self.open = Turn { at: at.max(self.open.at), bytes, largest_request_bytes: largest };
            self.request_since = 0;
        } else if bytes.abs_diff(self.open.bytes) >= self.hysteresis_bytes {
            self.turn(at, bytes);
        }
    }

    fn turn(&mut self, at: u64, bytes: u64) {
        let before = self.open;
        self.open = Turn { at: at.max(before.at), bytes, largest_request_bytes: self.request_since };
        self.request_since = 0;
        self.rises = !self.rises;
        // The floor before the first byte has the time of the first byte.
        let first = self.turns.is_empty() && before.at == 0;
        self.turns.push(if first { Turn { at, ..before } } else { before });
    }

    #[cold]
    fn make_room(&mut self) {
        let most = greatest_fall(&self.turns[self.turns.len() / 2..]) / 2;
        let mut least = self.hysteresis_bytes;
        while self.turns.len() > MAX_TURNS / 2 {
            least = least.saturating_mul(2);
            if least > most {
                return self.thin_out_the_older_half();
            }
            let filtered = self.filtered(least);
            // Where all swings are larger, later ones that are smaller may still be told.
            if filtered.turns.len() < self.turns.len() {
                *self = filtered;
            }
        }
    }

    /// Swings of one size would all be forgotten at once: of the newer half they stay.
    fn thin_out_the_older_half(&mut self) {
        let (older, newer) = self.turns.split_at(self.turns.len() / 2);
        let (mut least, mut thinned) = (self.hysteresis_bytes, Series::default());
        thinned.turns.resize(MAX_TURNS, Turn::default());
        while thinned.turns.len() > MAX_TURNS / 4 && least < 1 << 63 {
            least *= 2;
            thinned = Series { hysteresis_bytes: least, ..Series::default() };
            older.iter().for_each(|turn| thinned.take_in(turn.at, turn.bytes, turn.largest_request_bytes));
        }
        thinned.hysteresis_bytes = self.hysteresis_bytes;
        let until = newer.first().map_or(0, |turn| turn.at);
        for turn in newer.iter().chain([&self.open]) {
            thinned.take_in(turn.at, turn.bytes, turn.largest_request_bytes);
        }
        thinned.request_since = thinned.request_since.max(self.request_since);
        thinned.thinned = self.thinned.iter().filter(|(_, other)| *other > least).copied().collect();
        thinned.thinned.push((until, least));
        *self = thinned;
    }

    /// The ticks since when every swing of at least so many bytes is there; 0 where none of them is missing.
    pub fn whole_since(&self, bytes: u64) -> u64 {
        let missing = self.thinned.iter().filter(|(_, least)| *least > bytes);
        missing.map(|(until, _)| *until).max().unwrap_or(0)
    }

    /// The same series with only the swings of at least so many bytes.
    pub fn filtered(&self, least_bytes: u64) -> Series {
        let hysteresis_bytes = least_bytes.max(self.hysteresis_bytes);
        let thinned = self.thinned.iter().filter(|(_, least)| *least > hysteresis_bytes).copied().collect();
        let mut filtered = Series { hysteresis_bytes, thinned, ..Series::default() };
        for turn in self.turns.iter().chain([&self.open]) {
            filtered.take_in(turn.at, turn.bytes, turn.largest_request_bytes);
        }
        filtered.request_since = filtered.request_since.max(self.request_since);
        filtered
    }

    /// Swings below this many bytes are not there; 1 as long as every one is.
    pub fn hysteresis_bytes(&self) -> u64 {
        self.hysteresis_bytes
    }

    /// Floors and peaks in turn, from the floor of 0 bytes to the extreme that is not left yet.
    pub fn turns(&self) -> impl DoubleEndedIterator<Item = &Turn> + Clone {
        self.turns.iter().chain([&self.open])
    }

    /// The fewest bytes from a moment on, as far as turning points tell: smaller swings may have been forgotten.
    pub fn lowest_since(&self, from: u64) -> Option<u64> {
        self.turns().rev().take_while(|turn| turn.at >= from).map(|turn| turn.bytes).min()
    }

    /// When fewer bytes than these were there for the last time until a moment, as far as turning points tell.
    pub fn last_below(&self, bytes: u64, until: u64) -> Option<u64> {
        self.turns().rev().find(|turn| turn.at <= until && turn.bytes < bytes).map(|turn| turn.at)
    }

    /// Whether nothing ever lived.
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }
}

/// The greatest fall from a turning point to a later one.
pub fn greatest_fall(turns: &[Turn]) -> u64 {
    let (mut high, mut greatest) = (0, 0);
    for turn in turns {
        high = high.max(turn.bytes);
        greatest = greatest.max(high - turn.bytes);
    }
    greatest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[u64]) -> Series {
        let mut series = Series::default();
        (1..).zip(values).for_each(|(at, bytes)| series.follow(at, *bytes, 0));
        series
    }

    fn bytes(series: &Series) -> Vec<u64> {
        series.turns().map(|turn| turn.bytes).collect()
    }

    #[test]
    fn floors_and_peaks_alternate() {
        let series = of(&[10, 30, 20, 20, 50, 5, 7]);
        assert_eq!(bytes(&series), [0, 30, 20, 50, 5, 7]);
        assert_eq!(series.turns().map(|turn| turn.at).collect::<Vec<_>>(), [1, 2, 4, 5, 6, 7]);
        assert_eq!(bytes(&series.filtered(15)), [0, 50, 5]);
        assert_eq!(bytes(&Series::default()), [0]);
    }

    #[test]
    fn each_turn_knows_the_largest_request_before_it() {
        let mut series = Series::default();
        for (at, bytes, request) in [(1, 10, 10), (2, 50, 40), (3, 40, 0), (4, 45, 5), (5, 5, 0), (6, 9, 4), (7, 10, 1)]
        {
            series.follow(at, bytes, request);
        }
        let largest = |series: &Series| series.turns().map(|turn| turn.largest_request_bytes).collect::<Vec<_>>();
        assert_eq!(largest(&series), [0, 40, 0, 5, 0, 4]);
        assert_eq!(largest(&series.filtered(20)), [0, 40, 5], "what is forgotten counts for what remains");
    }

    /// What came last stays, however long the run was and however much its swings are alike.
    #[test]
    fn swings_of_one_size_are_forgotten_from_the_beginning_on() {
        for (steps, noise) in [(2048, 0), (2049, 0), (50_000, 0), (50_000, 7)] {
            let mut series = Series::default();
            for step in 0..steps {
                series.follow(10 * step + 1, 4 * step + 64_000, 0);
                (0..noise)
                    .for_each(|number| series.follow(10 * step + 2 + number, 4 * step + 63_000 + number % 2 * 99, 0));
                series.follow(10 * step + 9, 4 * step + 4, 0);
            }
            let since = series.whole_since(32_000);
            assert_eq!(since == 0, steps == 2048, "{steps}");
            let floors = series.turns().filter(|turn| turn.at >= since && turn.at % 10 == 9);
            let floors: Vec<u64> = floors.map(|turn| turn.at / 10).collect();
            assert!(floors.len() >= 1000, "{steps}: {}", floors.len());
            assert!(floors.windows(2).all(|pair| pair[1] == pair[0] + 1), "{steps}: none is missing in between");
            assert_eq!(floors.last(), Some(&(steps - 1)));
            assert_eq!(series.whole_since(1 << 40), 0);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn a_series_is_bounded_and_keeps_its_extremes(values in prop::collection::vec(0u64..1 << 40, 1..20_000)) {
            let series = of(&values);
            prop_assert!(series.turns().count() <= MAX_TURNS + 1);
            let most = values.iter().copied().max().unwrap_or(0);
            let kept = series.turns().map(|turn| turn.bytes).max().unwrap_or(0);
            let coarsest = series.thinned.iter().map(|(_, least)| *least).max().unwrap_or(0);
            prop_assert!(most - kept < series.hysteresis_bytes().max(coarsest));
            let turns: Vec<u64> = bytes(&series);
            for (number, pair) in turns.windows(2).enumerate() {
                prop_assert!(if number % 2 == 0 { pair[0] < pair[1] } else { pair[0] > pair[1] }, "{number} {pair:?}");
            }
            prop_assert!(series.turns().zip(series.turns().skip(1)).all(|(one, next)| one.at <= next.at));
        }

        #[test]
        fn filtering_twice_is_filtering_once(values in prop::collection::vec(0u64..1000, 1..300), least in 1u64..500) {
            let once = of(&values).filtered(least * 2);
            prop_assert_eq!(bytes(&of(&values).filtered(least).filtered(least * 2)), bytes(&once));
        }
    }
}
