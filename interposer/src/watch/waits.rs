//! Waits for the device, of any thread: whether one came between a free that takes effect later and a failure, or between a failure
//! and what the program did then, is asked long after.
//!
//! A program waits often, and most waits say nothing new. So each of these moments counts up, and of what a thread waits for (a
//! device, a stream, an event) only the first wait after the last such moment is recorded: there are at most as many records as
//! moments, for each thing that is waited for; a program that waits for hundreds of things after one moment may be recorded more
//! often than that. Before the first deferred free and outside of failures, the stubs of waiting calls do not come here.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use gpuoom_trace::meaning::Does;

use crate::base::watching;

/// What was waited for is remembered in so many rows. A power of two.
const ROWS: usize = 64;
/// Places of a row. With one, two things that fall into the same row would drive each other out, and each of their waits would be
/// recorded: of four things, one program in forty.
const PLACES: usize = 8;

/// Moments after which a wait matters.
static MOMENTS: AtomicU32 = AtomicU32::new(0);
/// Whether something was freed that is given back later.
static DEFERRED: AtomicBool = AtomicBool::new(false);
/// By what was waited for: its key above the count of moments when that wait was recorded.
static RECORDED: [[AtomicU64; PLACES]; ROWS] = [const { [const { AtomicU64::new(0) }; PLACES] }; ROWS];

/// A forked child begins anew.
pub(super) fn forget() {
    MOMENTS.store(0, Ordering::Relaxed);
    DEFERRED.store(false, Ordering::Relaxed);
    RECORDED.iter().flatten().for_each(|place| place.store(0, Ordering::Relaxed));
}

/// From here on a wait says something. After the real call: a wait that began before it returned is none for what it freed.
#[inline(always)]
pub(super) fn matter() {
    // Relaxed: the thread that waits has synchronised with this one, or its wait says nothing about this moment.
    MOMENTS.fetch_add(1, Ordering::Relaxed);
}

/// Something was freed whose memory is given back when a stream gets there.
#[inline(always)]
pub(crate) fn deferred() {
    matter();
    if !DEFERRED.load(Ordering::Relaxed) && !DEFERRED.swap(true, Ordering::Relaxed) {
        watching::look_at_waits();
    }
}

/// What a thread waits for.
#[derive(Clone, Copy)]
pub(super) struct Target {
    key: u32,
}

impl Target {
    /// `handle`: the stream or event, which a device does not have. The streams of a device that have no handle of their own
    /// belong to it, or to the thread.
    pub(super) fn new(does: Does, handle: u64, device: u8, thread: u32) -> Self {
        const NO_HANDLE: u64 = 2;
        let (handle, whose) = match does {
            Does::WaitsForDevice => (0, u64::from(device)),
            _ if handle <= NO_HANDLE => (handle, u64::from(device) << 32 | u64::from(thread)),
            _ => (handle, 0),
        };
        let words = [does as u64, handle, whose];
        let mixed =
            words.iter().fold(0u64, |mixed, word| (mixed.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        // Two things whose 32 bits agree count as one, and a second wait may be missing: one pair in four thousand million.
        Target { key: (mixed >> 32) as u32 | 1 }
    }

    fn row(self) -> &'static [AtomicU64; PLACES] {
        &RECORDED[(self.key >> 8) as usize % ROWS]
    }

    fn after(self, moments: u32) -> u64 {
        u64::from(self.key) << 32 | u64::from(moments)
    }

    /// The count of moments, where no wait for this was recorded since the last one.
    pub(super) fn news(self) -> Option<u32> {
        let moments = MOMENTS.load(Ordering::Relaxed);
        let known = self.after(moments);
        (moments != 0 && self.row().iter().all(|place| place.load(Ordering::Relaxed) != known)).then_some(moments)
    }

    /// A wait for this is recorded. It takes the place of an earlier one of the same thing, or of one before another moment: those
    /// say nothing any more. Relaxed: where two threads take one place, a wait is recorded once more than needed.
    pub(super) fn recorded(self, moments: u32) {
        let row = self.row();
        let is_stale = |place: &&AtomicU64| place.load(Ordering::Relaxed) as u32 != moments;
        row.iter().find(is_stale).unwrap_or(&row[0]).store(self.after(moments), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_wait_after_a_moment_is_news() {
        forget();
        let stream = |handle| Target::new(Does::WaitsForStream, handle, 0, 7);
        assert_eq!(stream(0x1000).news(), None, "nothing was freed yet");
        matter();
        for target in [stream(0x1000), stream(0x2000), Target::new(Does::WaitsForDevice, 99, 0, 7)] {
            let moments = target.news().expect("the first wait for it");
            target.recorded(moments);
            assert_eq!(target.news(), None);
        }
        assert_eq!(
            Target::new(Does::WaitsForDevice, 1, 0, 8).news(),
            None,
            "a device has no handle, and is everybody's"
        );
        assert!(Target::new(Does::WaitsForDevice, 99, 1, 7).news().is_some(), "another device");
        assert!(stream(2).news().is_some());
        matter();
        assert!(stream(0x1000).news().is_some());
        forget();
        // Not a test of its own: the moments are the process's.
        things_of_one_row_do_not_drive_each_other_out();
        forget();
    }

    fn things_of_one_row_do_not_drive_each_other_out() {
        let of_one_row = |row: u32| (0..PLACES as u32).map(move |place| Target { key: place << 20 | row << 8 | 1 });
        for _ in 0..3 {
            matter();
            for target in of_one_row(5) {
                target.recorded(target.news().expect("the first wait for it after this moment"));
            }
            assert!(of_one_row(5).all(|target| target.news().is_none()), "each is known still");
        }
    }

    #[test]
    fn the_streams_without_a_handle_are_of_device_and_thread() {
        let key = |handle, device, thread| Target::new(Does::WaitsForStream, handle, device, thread).key;
        assert_ne!(key(0, 0, 7), key(0, 1, 7));
        assert_ne!(key(2, 0, 7), key(2, 0, 8));
        assert_eq!(key(0x1000, 0, 7), key(0x1000, 1, 8), "a handle says everything");
    }
}
