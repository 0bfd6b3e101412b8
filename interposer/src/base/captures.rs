//! Streams that the program captures into graphs.
//!
//! What is ordered on such a stream does not happen now but each time the graph runs: memory that is asked for there is a node of the
//! graph, as with `cudaGraphAddMemAllocNode` ("Stream Ordered Memory Allocator", CUDA programming guide; HIP's
//! `capturehipMallocAsync`, tried on 5.7.1 and 6.4.3: `docs/rocm-versions.md`).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Streams that are followed at a time. Memory ordered on another one counts as taken at once.
const MOST: usize = 8;
/// Handles up to here are names, such as `cudaStreamPerThread`, that mean another stream on each thread. They are not followed.
const LAST_NAME: u64 = 2;
/// `cudaErrorStreamCaptureUnmatched` and `cudaErrorStreamCaptureWrongThread`, and HIP's: the end of a capture that goes on.
const GOES_ON: [i32; 2] = [903, 908];

/// Captures under way, also of streams that are not followed.
static COUNT: AtomicU32 = AtomicU32::new(0);
/// Streams being captured, 0 where none is.
static STREAMS: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];

// Relaxed throughout: whoever orders work on a stream that another thread captures has to order that itself, and a handle is all there is.

/// The capture of a stream has begun.
pub(crate) fn begin(stream: u64) {
    COUNT.fetch_add(1, Ordering::Relaxed);
    if stream > LAST_NAME && !STREAMS.iter().any(|open| open.load(Ordering::Relaxed) == stream) {
        replace(0, stream);
    }
}

/// The program was told `status` when it ended the capture of a stream. A capture that had become void ends with an error.
pub(crate) fn end(stream: u64, status: i32) {
    if GOES_ON.contains(&status) {
        return;
    }
    if (stream > LAST_NAME && replace(stream, 0)) || status == 0 {
        let _ = COUNT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1));
    }
}

fn replace(old: u64, new: u64) -> bool {
    STREAMS.iter().any(|open| open.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed).is_ok())
}

/// Whether any stream is being captured.
#[inline(always)]
pub(crate) fn is_any() -> bool {
    COUNT.load(Ordering::Relaxed) != 0
}

/// Whether this stream is being captured.
#[inline(always)]
pub(crate) fn has(stream: u64) -> bool {
    is_any() && stream > LAST_NAME && is_followed(stream)
}

#[cold]
fn is_followed(stream: u64) -> bool {
    STREAMS.iter().any(|open| open.load(Ordering::Relaxed) == stream)
}

/// A forked child begins without its parent's captures.
pub(crate) fn forget_parent() {
    COUNT.store(0, Ordering::Relaxed);
    STREAMS.iter().for_each(|open| open.store(0, Ordering::Relaxed));
}

#[cfg(test)]
mod tests {
    use super::*;

    // One test: the table is the process's.
    #[test]
    fn a_stream_is_captured_from_its_begin_to_its_end() {
        let void = 901;
        assert!(!is_any() && !has(0x10) && !has(0));
        begin(0x10);
        begin(LAST_NAME);
        assert!(has(0x10) && !has(0x20) && !has(LAST_NAME));
        end(0x10, GOES_ON[1]);
        assert!(has(0x10));
        end(0x20, void);
        end(0x10, void);
        assert!(!has(0x10) && is_any());
        end(LAST_NAME, 0);
        assert!(!is_any());
        for stream in 0x10..0x20 {
            begin(stream);
        }
        assert!(has(0x17) && !has(0x18));
        forget_parent();
        assert!(!is_any() && !has(0x10));
    }
}
