//! Ends of steps that are kept: few of many, evenly chosen.

/// Ends that are kept: more become half as many.
pub(super) const MOST_STEPS: usize = 64;

/// What a call site held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteLevel {
    /// Number of the site; 0: of no known place.
    pub site: u32,
    /// Bytes of its blocks.
    pub bytes: u64,
    /// Their number.
    pub blocks: u64,
    /// Blocks that it was ever given: those that do not live are taken back.
    pub given: u64,
}

/// What lived at the end of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Its number, counted from 1.
    pub number: u64,
    /// Ticks.
    pub at: u64,
    /// Bytes of all blocks.
    pub bytes: u64,
    /// Bytes that were ever given out.
    pub given_bytes: u64,
    /// Ordinal of the record of the last block that was given out when the end was noted: that of a floor is noted a little later.
    pub entered: u64,
    /// By how much the bytes had fallen to this floor; 0 where it is none.
    pub fell_bytes: u64,
    /// The call sites that held any of it, by number.
    pub rows: Vec<SiteLevel>,
}

impl Step {
    /// What a call site held.
    pub fn of_site(&self, site: u32) -> Option<&SiteLevel> {
        self.rows.binary_search_by_key(&site, |row| row.site).ok().map(|place| &self.rows[place])
    }
}

/// Ends of steps of one sort.
#[derive(Clone, Debug)]
pub struct Kept {
    steps: Vec<Step>,
    count: u64,
    last_at: u64,
    /// Every end with such a number is kept.
    every: u64,
    is_cut: bool,
}

impl Default for Kept {
    fn default() -> Self {
        Kept { steps: Vec::new(), count: 0, last_at: 0, every: 1, is_cut: false }
    }
}

impl Kept {
    /// In order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// All, kept or not.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How many may have ended behind this one, which is the last that is looked at, before the next was kept.
    pub fn may_be_behind(&self, last: &Step) -> u64 {
        self.count.saturating_sub(last.number).min(self.every - 1)
    }

    /// When the last of all came, in ticks.
    pub fn last_at(&self) -> u64 {
        self.last_at
    }

    /// Whether ends are missing because there was no room for their rows.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// One more; whether it is one to keep.
    pub(super) fn wants_next(&mut self, at: u64) -> bool {
        self.count += 1;
        self.last_at = at;
        (self.count - 1).is_multiple_of(self.every)
    }

    /// Keeps the one that was counted last.
    pub(super) fn push(&mut self, step: Step, rows_left: &mut usize) {
        let Some(left) = rows_left.checked_sub(step.rows.len() + 1) else {
            self.is_cut = true;
            return;
        };
        *rows_left = left;
        self.steps.push(Step { number: self.count, ..step });
        if self.steps.len() > MOST_STEPS {
            self.every *= 2;
            let every = self.every;
            self.retain(rows_left, |step| (step.number - 1).is_multiple_of(every));
        }
    }

    /// About how many of all are like this.
    pub(super) fn count_of(&self, is_one: impl Fn(&Step) -> bool) -> u64 {
        self.steps.iter().filter(|step| is_one(step)).count() as u64 * self.every
    }

    /// Begins anew.
    pub(super) fn clear(&mut self, rows_left: &mut usize) {
        self.retain(rows_left, |_| false);
        *self = Kept::default();
    }

    fn retain(&mut self, rows_left: &mut usize, is_one: impl Fn(&Step) -> bool) {
        let cost = |steps: &[Step]| steps.iter().map(|step| step.rows.len() + 1).sum::<usize>();
        let before = cost(&self.steps);
        self.steps.retain(is_one);
        *rows_left += before - cost(&self.steps);
    }

    /// Forgets all ends that turn out to be none. Where every one was kept so far, the others are numbered anew.
    pub(super) fn forget(&mut self, rows_left: &mut usize, is_none: impl Fn(&Step) -> bool) {
        let before = self.steps.len();
        if !self.steps.iter().any(&is_none) {
            return;
        }
        self.retain(rows_left, |step| !is_none(step));
        if self.steps.is_empty() {
            *self = Kept::default();
        } else if self.steps.len() != before && self.every == 1 {
            (1..).zip(&mut self.steps).for_each(|(number, step)| step.number = number);
            self.count = self.steps.len() as u64;
        }
    }
}
