//! How much each device held when: step functions of bounded size, so that several traces can be added up.

use rustc_hash::FxHashMap;

use super::accounts::Accounts;

/// Points that are kept of one device. More changes than that are summed up in buckets of equal length.
pub const MAX_POINTS: usize = 4096;

/// What a device held at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// Bytes asked for.
    pub bytes: u64,
    /// The granules that they are padded to.
    pub granules: u64,
}

impl Level {
    /// The larger of each.
    fn max(self, other: Level) -> Level {
        Level { bytes: self.bytes.max(other.bytes), granules: self.granules.max(other.granules) }
    }
}

/// What a device held in one bucket of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Ticks when the bucket begins.
    pub at: u64,
    /// Most that was held in it.
    pub most: Level,
    /// What was held at its end, and until the next point.
    pub last: Level,
}

/// The bytes of one device over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps {
    points: Vec<Point>,
    /// Length of a bucket in ticks, a power of two; 1 as long as each change has a point of its own.
    width: u64,
}

impl Default for Steps {
    fn default() -> Self {
        Steps { points: Vec::new(), width: 1 }
    }
}

impl Steps {
    /// From `at` on so much is held. Moments never go back.
    pub fn note(&mut self, at: u64, level: Level) {
        let at = self.begin_of(at);
        let held = self.points.last().map_or(Level::default(), |point| point.last);
        if held == level {
            return;
        }
        match self.points.last_mut() {
            Some(point) if point.at == at => (point.most, point.last) = (point.most.max(level), level),
            _ => {
                // A long bucket begins with what was held before it.
                let most = if self.is_exact() { level } else { level.max(held) };
                self.points.push(Point { at, most, last: level });
            }
        }
        while self.points.len() > MAX_POINTS {
            self.coarsen();
        }
    }

    /// Whether each change is there by itself.
    pub fn is_exact(&self) -> bool {
        self.width == 1
    }

    /// Length of a bucket in ticks.
    pub fn width(&self) -> u64 {
        self.width
    }

    /// The points, in order.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    fn begin_of(&self, at: u64) -> u64 {
        at & !(self.width - 1)
    }

    /// Makes the buckets longer until half of the room is free again.
    fn coarsen(&mut self) {
        while self.points.len() > MAX_POINTS / 2 && self.width < 1 << 63 {
            self.width *= 2;
            let mut merged: Vec<Point> = Vec::with_capacity(self.points.len());
            for point in &self.points {
                let at = self.begin_of(point.at);
                match merged.last_mut() {
                    Some(bucket) if bucket.at == at => {
                        (bucket.most, bucket.last) = (bucket.most.max(point.most), point.last);
                    }
                    before => {
                        let held = before.map_or(Level::default(), |bucket| bucket.last);
                        merged.push(Point { at, most: point.most.max(held), last: point.last });
                    }
                }
            }
            self.points = merged;
        }
    }
}

/// The steps of all devices of a trace.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    now: u64,
    devices: FxHashMap<u8, Steps>,
}

impl Timeline {
    /// A record was replayed whose call ended at this moment. Records come in the order of their numbers, and that order
    /// is the true one: a thread that stamps early is not taken back in time.
    pub fn follow(&mut self, at: u64, accounts: &mut Accounts) {
        self.now = self.now.max(at);
        while let Some(device) = accounts.next_touched() {
            let level = accounts.device(device).map_or(Level::default(), |account| Level {
                bytes: u64::try_from(account.held.requested_bytes).unwrap_or(u64::MAX),
                granules: account.held.granules,
            });
            self.devices.entry(device).or_default().note(self.now, level);
        }
    }

    /// The steps of each device, by its number.
    pub fn devices(&self) -> Vec<(u8, &Steps)> {
        let mut devices: Vec<(u8, &Steps)> = self.devices.iter().map(|(device, steps)| (*device, steps)).collect();
        devices.sort_unstable_by_key(|(device, _)| *device);
        devices
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many bytes, and granules that rise and fall with them.
    fn level(bytes: u64) -> Level {
        Level { bytes, granules: bytes / 3 }
    }

    #[test]
    fn few_changes_are_exact() {
        let mut steps = Steps::default();
        for (at, bytes) in [(10, 5), (20, 5), (20, 9), (20, 2), (30, 0)] {
            steps.note(at, level(bytes));
        }
        let expected = [(10, 5, 5), (20, 9, 2), (30, 0, 0)].map(|(at, most, last)| Point {
            at,
            most: level(most),
            last: level(last),
        });
        assert_eq!(steps.points(), expected);
        assert!(steps.is_exact());
    }

    /// However coarse: no bucket hides more than it shows, and what is held between them is right.
    #[test]
    fn many_changes_keep_the_most_of_each_bucket() {
        let mut steps = Steps::default();
        let mut random = 1u64;
        let mut changes = vec![(0, 0)];
        for index in 0..100_000u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            changes.push((index * 3 + 7, random >> 40));
            steps.note(index * 3 + 7, level(random >> 40));
        }
        assert!(steps.points().len() <= MAX_POINTS && !steps.is_exact());
        for pair in steps.points().windows(2) {
            assert!(pair[0].at + steps.width() <= pair[1].at);
        }
        for point in steps.points() {
            let end = point.at + steps.width();
            let mut inside = changes.iter().filter(|(at, _)| (point.at..end).contains(at)).map(|(_, bytes)| *bytes);
            let before = changes.iter().take_while(|(at, _)| *at < point.at).last().map_or(0, |(_, bytes)| *bytes);
            assert_eq!(Some(point.most), inside.clone().max().map(|most| level(most.max(before))));
            assert_eq!(Some(point.last), inside.next_back().map(level));
        }
    }

    #[test]
    fn moments_at_the_end_of_time_are_no_trouble() {
        let mut steps = Steps::default();
        for index in 0..3 * MAX_POINTS as u64 {
            steps.note((u64::MAX - 9000).saturating_add(index * 2), level(index + 1));
        }
        assert!(steps.points().len() <= MAX_POINTS);
        let most = steps.points().iter().map(|point| point.most.bytes).max();
        assert_eq!(most, Some(3 * MAX_POINTS as u64));
    }
}
