//! The hooks on ggml and llama.cpp. What they are, [`crate::table::ggml`] says.
//!
//! A buffer is known by its handle. The memory that the runtime gave for it was asked for on the same thread while the buffer was
//! made; so nothing is asked of ggml. A buffer for which the runtime gave nothing (memory of the processor) is not told of.

use std::sync::atomic::{AtomicU64, Ordering};

use gpuoom_trace::record::Event;

use super::macros::entries;
use super::scopes::Made;
use crate::base::config;
use crate::call::{Described, Frame};
use crate::record::state;
use crate::table::ggml::{Number, functions};

functions!(entries);

/// What ggml tells of a buffer that is there.
struct Told {
    event: Event,
    status: i32,
    buffer: u64,
}

/// A buffer is freed; of none, ggml does nothing.
fn freed(buffer: u64) -> Told {
    Told { event: Event::BlockFree, status: 0, buffer }
}

/// What a buffer is for, by ggml's own number.
fn used(buffer: u64, usage: i32) -> Told {
    Told { event: Event::BlockUse, status: usage, buffer }
}

/// Handles of buffers that were told of, a bit for each, by which other handles may be meant as well. llama.cpp makes and frees an
/// empty buffer for each tensor of a model, to see what the device can do with it: of those the file says nothing.
static TOLD: [AtomicU64; TOLD_WORDS] = [const { AtomicU64::new(0) }; TOLD_WORDS];
const TOLD_WORDS: usize = 1024;

/// The word and the bit of a handle.
fn bit_of(buffer: u64) -> (&'static AtomicU64, u64) {
    // Handles are addresses of one sort of structure: their low bits are alike.
    let hash = (buffer >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48;
    (&TOLD[hash as usize / 64], 1 << (hash % 64))
}

fn told(api: u16, told: impl Fn() -> Told) {
    let Told { event, status, buffer } = told();
    let (word, bit) = bit_of(buffer);
    // Relaxed: who has the handle has it from the call that made it.
    if word.load(Ordering::Relaxed) & bit == 0 || !config::get().framework || state::running().is_none() {
        return;
    }
    let Some(frame) = Frame::enter(api) else { return };
    let what = Described::new(buffer, 0);
    frame.publish(&frame.told(event, status, &what), &what);
    frame.leave();
}

/// A buffer was made.
pub(super) fn made(api: u16, made: &Made) {
    if state::running().is_none() {
        return;
    }
    let (word, bit) = bit_of(made.buffer);
    word.fetch_or(bit, Ordering::Relaxed);
    let Some(frame) = Frame::enter(api) else { return };
    let what = Described {
        numbers: [made.memory, u64::from(made.allocations)],
        number_count: 2,
        ..Described::new(made.buffer, made.size_bytes)
    };
    frame.publish(&frame.told(Event::Block, 0, &what), &what);
    frame.leave();
}
