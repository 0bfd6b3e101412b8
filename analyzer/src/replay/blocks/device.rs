//! What allocators above the runtime told of one device: sums, their own totals, and what lived at the peak.

use gpuoom_trace::record::{Event, Record};

use super::Given;
use super::latest::Latest;
use super::segments::Segment;
use super::steps::Steps;

/// An allocator's own word: bytes given out, and bytes that it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// Given out.
    pub allocated_bytes: u64,
    /// Held.
    pub reserved_bytes: u64,
}

/// An allocator at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The sum of its blocks that live.
    pub bytes: u128,
    /// Their number.
    pub blocks: u64,
    /// Its own word; `None` where it has none, or that is not known.
    pub own: Option<Own>,
    /// Whether its own word stood in its last record, and was not concluded from the one before.
    pub is_said: bool,
    /// Bytes of its segments that went back to the runtime since its last record: its own word counts them still.
    pub given_back_bytes: u64,
}

impl State {
    /// Whether its own word is another number than the sum of its blocks.
    pub fn differs(&self) -> bool {
        self.own.is_some_and(|own| u128::from(own.allocated_bytes) != self.bytes)
    }

    /// What it holds: by its own word, less what went back since.
    pub fn reserved_bytes(&self) -> Option<u64> {
        self.own?.reserved_bytes.checked_sub(self.given_back_bytes)
    }
}

/// One allocator on one device.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Its number.
    pub allocator: u8,
    /// Records.
    pub events: u64,
    /// What is the case now.
    pub now: State,
    /// The most that its blocks ever were, in bytes.
    pub most_bytes: u128,
    /// Ordinal of the record that reached it.
    pub(super) most_at: u64,
    /// Blocks that lived then and are gone.
    pub(super) gone_since_most: Vec<Given>,
    /// By its own word: the most that it held, and the most that it had given out of that.
    pub most_held: Own,
    /// Whether its own word is not known after some record.
    pub lacks_totals: bool,
    /// All that was given out, in bytes.
    pub given_bytes: u128,
    /// Of it, by call sites where frames of Python were looked for.
    pub python_bytes: u128,
    /// Records after which its own word is another number than the sum of its blocks.
    pub mismatches: u64,
    /// Sequence number of the first.
    pub first_mismatch: Option<u64>,
    /// Frees of blocks that are not known.
    pub unknown_frees: u64,
    /// Frees that tell another size than the block had.
    pub other_sizes: u64,
    /// Blocks whose address was given out again although no free was told.
    pub replaced: u64,
    /// What was the case at the peak with the number in `kept_at`; kept when it first changes after that.
    kept: State,
    kept_at: u64,
}

impl Told {
    /// What was the case at the latest peak, which has this number.
    pub fn at_peak(&self, number: u64) -> State {
        if self.kept_at == number { self.kept } else { self.now }
    }

    /// Something changes after the peak with this number.
    #[inline]
    fn changes(&mut self, number: u64) {
        if self.kept_at != number {
            (self.kept, self.kept_at) = (self.now, number);
        }
    }

    /// Follows the allocator's own word: what the record says, or what follows from the last one of its device.
    #[inline]
    fn follow(&mut self, record: &Record, said: Option<impl Iterator<Item = u64>>) {
        self.now.is_said = said.is_some();
        self.now.given_back_bytes = 0;
        self.now.own = match said {
            Some(mut numbers) => numbers
                .next()
                .zip(numbers.next())
                .map(|(allocated_bytes, reserved_bytes)| Own { allocated_bytes, reserved_bytes }),
            None => self.now.own.and_then(|own| {
                let allocated_bytes = match record.event() {
                    Some(Event::BlockFree) => own.allocated_bytes.checked_sub(record.requested),
                    _ if record.status != 0 => Some(own.allocated_bytes),
                    _ => own.allocated_bytes.checked_add(record.requested),
                };
                Some(Own { allocated_bytes: allocated_bytes?, ..own })
            }),
        };
        match self.now.own {
            Some(own) => {
                let height = |own: Own| (own.reserved_bytes, own.allocated_bytes);
                self.most_held = if height(own) > height(self.most_held) { own } else { self.most_held };
            }
            None => self.lacks_totals = true,
        }
        if self.now.differs() {
            self.mismatches += 1;
            self.first_mismatch.get_or_insert(record.seq());
        }
    }
}

/// How much the calls for memory of a device hold, and the most that they held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Height {
    /// Now.
    pub bytes: u128,
    /// At most.
    pub most_bytes: u128,
}

/// The moment when the calls for memory held most, and of such moments, when most of it was given out in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peak {
    /// Its number, counted from 1.
    pub number: u64,
    /// Ordinal of the record that reached it.
    pub position: u64,
    /// Its ticks.
    pub at: u64,
    /// What the calls held.
    height: u128,
    /// What was given out in blocks.
    bytes: u128,
}

/// One device.
#[derive(Clone, Debug)]
pub struct Device {
    /// Number as recorded.
    pub index: u8,
    /// Bytes of all blocks of all allocators.
    bytes: u128,
    /// Number of the latest peak; 0: there was none.
    peaks: u64,
    /// The peak, unless that was before anything was told.
    pub peak: Option<Peak>,
    told: Vec<Told>,
    /// What lives where steps of the program end.
    pub steps: Steps,
    /// Blocks that lived at the peak and are gone.
    pub(super) gone: Vec<Given>,
    /// Segments that were there at the peak and are gone.
    pub(super) gone_segments: Vec<Segment>,
    /// Its latest failure, where it was too much to say at once what was the case.
    pub(super) latest: Option<Box<Latest>>,
}

impl Device {
    pub(super) fn new(index: u8) -> Self {
        let (told, gone, gone_segments) = Default::default();
        Device {
            index,
            bytes: 0,
            peaks: 0,
            peak: None,
            told,
            steps: Steps::default(),
            gone,
            gone_segments,
            latest: None,
        }
    }

    /// Its allocators.
    pub fn all(&self) -> impl Iterator<Item = &Told> {
        self.told.iter()
    }

    /// One of its allocators; a new one where it told nothing yet.
    #[inline]
    pub(super) fn told(&mut self, allocator: u8) -> &mut Told {
        let known = self.told.iter().position(|told| told.allocator == allocator);
        let place = known.unwrap_or_else(|| {
            self.told.push(Told { allocator, ..Told::default() });
            self.told.len() - 1
        });
        &mut self.told[place]
    }

    /// A record of an allocator that tells its totals, or from which they follow.
    #[inline]
    pub(super) fn follow(&mut self, allocator: u8, record: &Record, said: Option<impl Iterator<Item = u64>>) {
        let number = self.peaks;
        let told = self.told(allocator);
        told.changes(number);
        told.follow(record, said);
    }

    #[inline]
    pub(super) fn given(&mut self, given: &Given, python: bool) {
        let (bytes, number) = (u128::from(given.size_bytes), self.peaks);
        let told = self.told(given.allocator);
        told.changes(number);
        told.now.bytes += bytes;
        told.now.blocks += 1;
        told.given_bytes += bytes;
        told.python_bytes += if python { bytes } else { 0 };
        if told.now.bytes > told.most_bytes {
            (told.most_bytes, told.most_at) = (told.now.bytes, given.entered);
            told.gone_since_most.clear();
        }
        self.bytes += bytes;
    }

    /// A block is gone, whose size is told with that, or 0.
    #[inline]
    pub(super) fn taken(&mut self, given: &Given, size_bytes: u64, at: u64, rows_left: &mut usize) {
        self.goes(given, at, rows_left);
        if size_bytes != 0 && size_bytes != given.size_bytes {
            self.told(given.allocator).other_sizes += 1;
        }
    }

    /// A block is gone, and nobody told.
    #[cold]
    pub(super) fn lost(&mut self, given: &Given, at: u64, rows_left: &mut usize) {
        self.goes(given, at, rows_left);
        self.told(given.allocator).replaced += 1;
    }

    #[inline]
    fn goes(&mut self, given: &Given, at: u64, rows_left: &mut usize) {
        let (bytes, number) = (u128::from(given.size_bytes), self.peaks);
        let told = self.told(given.allocator);
        told.changes(number);
        told.now.bytes -= bytes;
        told.now.blocks -= 1;
        if given.entered <= told.most_at {
            told.gone_since_most.push(*given);
        }
        self.bytes -= bytes;
        self.steps.taken(given, at, rows_left);
        if self.peak.is_some_and(|peak| given.entered <= peak.position) {
            self.gone.push(*given);
        }
        if let Some(latest) = &mut self.latest {
            latest.goes(given);
        }
    }

    /// A segment is gone.
    pub(super) fn segment_goes(&mut self, segment: &Segment) {
        let number = self.peaks;
        for told in self.told.iter_mut().filter(|told| segment.has_blocks_of(told.allocator)) {
            told.changes(number);
            told.now.given_back_bytes = told.now.given_back_bytes.saturating_add(segment.bytes());
        }
        if self.peak.is_some_and(|peak| segment.entered <= peak.position) {
            self.gone_segments.push(*segment);
        }
        if let Some(latest) = &mut self.latest {
            latest.segment_goes(segment);
        }
    }

    /// After each change of the blocks, or of what the calls hold.
    #[inline]
    pub(super) fn look_for_peak(&mut self, height: Height, position: u64, at: u64) {
        if height.bytes != height.most_bytes {
            // It was higher than it was at the peak, before this device told anything.
            if self.peak.is_some_and(|peak| peak.height < height.most_bytes) {
                self.peak = None;
            }
            return;
        }
        let is_new = self.peak.is_none_or(|peak| height.most_bytes > peak.height || self.bytes > peak.bytes);
        if is_new {
            self.peaks += 1;
            self.peak = Some(Peak { number: self.peaks, position, at, height: height.most_bytes, bytes: self.bytes });
            self.gone.clear();
            self.gone_segments.clear();
        }
    }
}
