//! Requests for memory, and whether one makes up for another that was refused.

use crate::meaning::Ends;
use crate::record::{Event, Kind, NO_DEVICE, Record, flag};

/// Stands for the size of something whose size nobody tells, a library's handle for instance.
pub const UNKNOWN_BYTES: u64 = u64::MAX;

/// The numbers by which a later request belongs to a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long after the last attempt a request belongs to a failure that only time and size tie it to, in nanoseconds.
    pub soon_ns: u64,
    /// What was got from elsewhere counts as a fall-back from this share on: one part in so many of what was asked for last.
    pub least_part: u64,
}

impl Limits {
    /// What holds where nobody sets anything else.
    pub const DEFAULT: Limits = Limits { soon_ns: 1_000_000_000, least_part: 64 };
}

impl Default for Limits {
    fn default() -> Self {
        Limits::DEFAULT
    }
}

/// A request for memory, as far as it matters for another one. All zero is a valid, meaningless one.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// When the call returned, in nanoseconds of any clock.
    pub at_ns: u64,
    /// Bytes asked for, or [`UNKNOWN_BYTES`].
    pub requested_bytes: u64,
    /// Return address of the call, 0 where it is not known.
    pub place: u64,
    /// Number of the whole way to the call, 0 where it is not known.
    pub path: u32,
    /// Device as records have it, [`crate::record::NO_DEVICE`] for memory of the host.
    pub device: u8,
    /// Kind of memory, by number.
    pub kind: u8,
    /// It writes to the variable that the thread's last failed call was to write to. False also where nobody looked.
    pub same_variable: bool,
}

/// Whether this record is of memory of a device that is given back: a block of it, or all that a device or a context holds.
/// `ends`: what its function ends.
pub fn gives_back(record: &Record, ends: Ends) -> bool {
    let is_of_device =
        matches!(record.kind(), Kind::Device | Kind::Managed | Kind::Array | Kind::Pool | Kind::Physical);
    let is_block = record.event() == Some(Event::Free) && record.address != 0 && is_of_device;
    let ends_all = !matches!(ends, Ends::Nothing | Ends::Reference);
    (is_block || ends_all) && record.status == 0 && !record.has(flag::CORRECTION)
}

/// What a later request is to one that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    /// The same again, or more of the same.
    Retry,
    /// Something else in its place.
    FallBack,
    /// Something else that only the variable, or only the size, ties to it, where that is little: a trifle into the same variable,
    /// memory of a card of the size that was refused of the host's.
    Weak,
    /// Soon after it, from elsewhere, and smaller or of another sort, or more after memory was given back: in its place if it is not
    /// too small.
    Near,
    /// Nothing that could be seen.
    Unrelated,
}

/// A refused request with its last attempt, as [`relation`] looks at it.
pub(super) struct Refused<'a> {
    /// Bytes that were asked for first.
    pub(super) wanted_bytes: u64,
    /// Device and kind of memory that were asked for first.
    pub(super) wanted_sort: (u8, u8),
    /// The last attempt.
    pub(super) last: &'a Request,
    /// Another request was refused since the last attempt.
    pub(super) is_past: bool,
    /// An exception was thrown since: where the program goes on, the calls that come soon may be anything.
    pub(super) was_thrown: bool,
    /// Memory of a device was given back since.
    pub(super) gave_back: bool,
}

/// What a later request of the same thread is to a refused one, with no GPU work in between.
///
/// What ties two requests, the surest first: the whole way to the call; the variable that they write to; the size; the place
/// of the call, which in a program with one wrapper for all says little by itself; and time alone.
pub(super) fn relation(refused: &Refused<'_>, by: &Request, limits: &Limits) -> Relation {
    let last = refused.last;
    if [refused.wanted_bytes, by.requested_bytes].contains(&UNKNOWN_BYTES) {
        // The size of what sets something up is not known: it makes up for its own sort only.
        let same = refused.wanted_bytes == by.requested_bytes && refused.wanted_sort.0 == by.device;
        return if same { Relation::Retry } else { Relation::Unrelated };
    }
    if by.requested_bytes == 0 {
        return Relation::Unrelated;
    }
    let soon = by.at_ns.saturating_sub(last.at_ns) <= limits.soon_ns;
    let same_path = last.path != 0 && last.path == by.path;
    let same_size =
        [refused.wanted_bytes, last.requested_bytes].into_iter().any(|bytes| is_same_size(bytes, by.requested_bytes));
    // After an exception a variable of the same address may be another one: the frames between are gone.
    let same_variable = by.same_variable && !refused.is_past && !refused.was_thrown;
    let is_near = soon && !refused.was_thrown;
    let [place_unknown, path_unknown] = [last.place == 0 || by.place == 0, last.path == 0 || by.path == 0];
    let same_place = last.place == by.place && !place_unknown;
    // A wrapper writes to its own variable for all who call it.
    let is_wrappers = same_place && !path_unknown && !same_path;
    let is_tied = same_path || soon && (same_variable && !is_wrappers || same_size);
    if refused.wanted_sort == (by.device, by.kind) && by.requested_bytes >= refused.wanted_bytes {
        // As much into the variable that was to get it is the retry whenever it comes. A wrapper's own variable, to which one place
        // writes for all, says nothing by its address.
        let same_holder = same_variable && !same_place && !place_unknown;
        let again = is_tied || same_holder || is_near && (same_place || place_unknown);
        // More from another place is another request, unless room was made for it: then it may be one block for all.
        let joint = is_near && refused.gave_back;
        return match again {
            true => Relation::Retry,
            false if joint => Relation::Near,
            false => Relation::Unrelated,
        };
    }
    // A register gives no memory: it pins what the program has. In the place of what was refused that stands only where it holds all
    // of it; a buffer of the program's own, pinned for its transfers, is no fall-back.
    let pins_its_own = by.kind == Kind::Registered as u8 && refused.wanted_sort.1 != by.kind;
    if pins_its_own && !same_size && by.requested_bytes < last.requested_bytes {
        return Relation::Unrelated;
    }
    // Nobody takes a card's memory in place of the host's, unless something ties the two. By its size alone it may as well be the
    // block that the refused one was to be copied to.
    if refused.wanted_sort.0 == NO_DEVICE && by.device != NO_DEVICE {
        match is_tied {
            false => return Relation::Unrelated,
            true if !same_path && !same_variable => return Relation::Weak,
            true => {}
        }
    }
    // A variable of the stack has the address of another function's.
    let is_trifle = by.requested_bytes < last.requested_bytes / limits.least_part.max(1);
    if is_tied && !same_path && !same_size && is_trifle {
        return Relation::Weak;
    }
    // From the same place by another way is what each request of a program with one wrapper is.
    match is_tied || is_near && same_place && path_unknown {
        true => Relation::FallBack,
        false if is_near => Relation::Near,
        false => Relation::Unrelated,
    }
}

/// Sizes this close are the same request, rounded otherwise.
fn is_same_size(one: u64, other: u64) -> bool {
    const ROUNDING_BYTES: u64 = 2 << 20;
    let apart = one.abs_diff(other);
    apart < ROUNDING_BYTES && apart <= one.max(other) / 10
}
