//! The program's calls for memory themselves: the first ones, the last ones, and those before failures.

use std::collections::VecDeque;

/// Calls of the beginning that are kept.
pub const FIRST: usize = 8192;
/// Calls that are kept of the end, and before a failure. A power of two.
pub const LAST: usize = 4096;
/// Calls before failures that are kept: of the first failures, and as many of the last ones.
const MOST_BEFORE_FAILURES: usize = 8 * LAST;

/// What a call did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum What {
    /// It gave memory.
    #[default]
    Given,
    /// It gave memory back.
    Returned,
    /// It ran out of memory.
    Refused,
}

/// One of the program's own calls for memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// Ticks when it began.
    pub at: u64,
    /// Bytes asked for; of a free, those of the block.
    pub bytes: u64,
    /// Pointer or handle; 0 where it was refused.
    pub address: u64,
    /// Kernel thread id.
    pub thread: u32,
    /// Call site, 0 where it is not known.
    pub site: u32,
    /// Function.
    pub api: u16,
    /// Device of the memory.
    pub device: u8,
    /// Whether it is memory of a stream-ordered pool.
    pub is_of_pool: bool,
    /// Whether it is managed memory, whose pages may lie in RAM.
    pub is_managed: bool,
    /// What it did.
    pub what: What,
}

/// Calls that follow each other.
#[derive(Clone, Debug)]
struct Segment {
    from: u64,
    calls: Vec<Call>,
}

/// The calls that are kept, by number.
#[derive(Clone, Debug)]
pub struct Calls {
    first: Vec<Call>,
    ring: Vec<Call>,
    count: u64,
    early: VecDeque<Segment>,
    late: VecDeque<Segment>,
    /// Calls in `early` and in `late`.
    kept: [usize; 2],
    /// Number behind the last call that a segment holds.
    kept_until: u64,
}

impl Default for Calls {
    fn default() -> Self {
        Calls {
            first: Vec::new(),
            ring: vec![Call::default(); LAST],
            count: 0,
            early: VecDeque::new(),
            late: VecDeque::new(),
            kept: [0; 2],
            kept_until: FIRST as u64,
        }
    }
}

impl Calls {
    /// Takes note of a call.
    #[inline]
    pub fn push(&mut self, call: Call) {
        self.ring[self.count as usize % LAST] = call;
        if self.count < FIRST as u64 {
            self.first.push(call);
        }
        self.count += 1;
    }

    /// All calls, kept or not.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Keeps what led here. Each call is copied at most once, however many failures there are.
    pub fn keep(&mut self) {
        let from = self.kept_until.max(self.count.saturating_sub(LAST as u64));
        if from >= self.count {
            return;
        }
        let calls: Vec<Call> = (from..self.count).map(|number| self.ring[number as usize % LAST]).collect();
        self.kept_until = self.count;
        let is_late = usize::from(self.kept[0] >= MOST_BEFORE_FAILURES);
        self.kept[is_late] += calls.len();
        let list = if is_late == 1 { &mut self.late } else { &mut self.early };
        list.push_back(Segment { from, calls });
        while self.kept[1] > MOST_BEFORE_FAILURES + LAST {
            self.kept[1] -= self.late.pop_front().map_or(0, |gone| gone.calls.len());
        }
    }

    /// The call with this number; `None` where it is not kept.
    pub fn get(&self, number: u64) -> Option<&Call> {
        if number >= self.count {
            return None;
        }
        if self.count - number <= LAST as u64 {
            return self.ring.get(number as usize % LAST);
        }
        let of = |list: &VecDeque<Segment>| {
            let at = list.partition_point(|segment| segment.from <= number).checked_sub(1)?;
            Some((at, (number - list[at].from) as usize))
        };
        let early = || of(&self.early).and_then(|(at, inside)| self.early[at].calls.get(inside));
        let late = || of(&self.late).and_then(|(at, inside)| self.late[at].calls.get(inside));
        self.first.get(number as usize).or_else(early).or_else(late)
    }

    /// The calls before the one with this number, in order, as far back as they are kept without a gap: at most [`LAST`],
    /// or all from the beginning on where there were at most [`FIRST`].
    pub fn before(&self, number: u64) -> Window {
        let most = if number <= FIRST as u64 { FIRST } else { LAST };
        let mut calls: Vec<Call> = (0..number).rev().take(most).map_while(|number| self.get(number).copied()).collect();
        calls.reverse();
        Window { from: number.saturating_sub(calls.len() as u64), calls }
    }

    /// The first calls.
    pub fn first(&self) -> &[Call] {
        &self.first
    }
}

/// Calls without a gap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Number of the first of them; 0 where nothing is missing before.
    pub from: u64,
    /// The calls.
    pub calls: Vec<Call>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(calls: &mut Calls, count: u64) {
        for _ in 0..count {
            calls.push(Call { at: calls.count(), ..Call::default() });
        }
    }

    fn reach(window: &Window) -> (u64, u64) {
        assert!((window.from..).zip(&window.calls).all(|(number, call)| call.at == number));
        (window.from, window.from + window.calls.len() as u64)
    }

    #[test]
    fn beginning_and_end_are_there() {
        let mut calls = Calls::default();
        add(&mut calls, 5000);
        assert_eq!(reach(&calls.before(5000)), (0, 5000));
        add(&mut calls, 95_000);
        assert_eq!(reach(&calls.before(8000)), (0, 8000));
        assert_eq!(reach(&calls.before(100_000)), (100_000 - LAST as u64, 100_000));
        assert!(calls.before(50_000).calls.is_empty(), "nobody asked to keep these");
    }

    #[test]
    fn what_led_to_a_failure_stays() {
        let mut calls = Calls::default();
        add(&mut calls, 20_000);
        calls.keep();
        add(&mut calls, 100);
        calls.keep();
        add(&mut calls, 80_000);
        for failure in [20_000, 20_100] {
            assert_eq!(reach(&calls.before(failure)), (failure - LAST as u64, failure));
        }
    }

    #[test]
    fn many_failures_take_bounded_room_and_keep_the_first_and_the_last() {
        let mut calls = Calls::default();
        for _ in 0..300 {
            add(&mut calls, 3000);
            calls.keep();
        }
        assert!(calls.kept.iter().all(|kept| *kept <= MOST_BEFORE_FAILURES + LAST));
        assert_eq!(reach(&calls.before(30_000)), (30_000 - LAST as u64, 30_000));
        assert_eq!(reach(&calls.before(897_000)), (897_000 - LAST as u64, 897_000));
        assert!(calls.before(450_000).calls.is_empty());
    }
}
