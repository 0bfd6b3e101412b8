//! Rules that were read already, by return address: a table of fixed size without locks.

use std::sync::atomic::{AtomicU64, Ordering};

use super::rule::Rule;
use super::{cfi, objects, unload};
use crate::base::guard;

/// Return addresses that are remembered; one that finds no place is looked up each time. A power of two.
const PLACES: usize = 1 << 15;
/// Places that are tried from the hashed one on.
const TRIES: usize = 8;
/// Somebody writes the rule.
const TAKEN: u64 = 1;

struct Place {
    /// Address, and above its 48 bits the lowest 16 of the number of unloads: after one of these nothing counts any more.
    key: AtomicU64,
    rule: AtomicU64,
}

static TABLE: [Place; PLACES] = [const { Place { key: AtomicU64::new(0), rule: AtomicU64::new(0) } }; PLACES];

/// What is known of an address.
pub(super) enum Known {
    /// The rule.
    Rule(Rule),
    /// No object is there: code that was made at run time, or no code.
    NoObject,
}

#[inline(always)]
fn start(key: u64) -> usize {
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 49) as usize
}

fn places(key: u64) -> impl Iterator<Item = &'static Place> {
    let start = start(key);
    (0..TRIES).map(move |step| &TABLE[(start + step) % PLACES])
}

/// The rule for the frame that `pc` is in. `after_call`: it is a return address, so the call lies before it; otherwise it is
/// the very instruction that a signal interrupted.
#[inline(always)]
pub(super) fn of(pc: u64, after_call: bool, room: &mut cfi::Room) -> Known {
    let address = pc.wrapping_sub(u64::from(after_call));
    let key = (address & 0xFFFF_FFFF_FFFF) | unload::count() << 48;
    let first = &TABLE[start(key)];
    // Acquire: whoever sees the key sees its rule.
    if first.key.load(Ordering::Acquire) == key {
        return Known::Rule(Rule::unpack(first.rule.load(Ordering::Relaxed)));
    }
    further(key, address, room)
}

#[inline(never)]
fn further(key: u64, address: u64, room: &mut cfi::Room) -> Known {
    for place in places(key) {
        match place.key.load(Ordering::Acquire) {
            known if known == key => return Known::Rule(Rule::unpack(place.rule.load(Ordering::Relaxed))),
            0 => break,
            _ => {}
        }
    }
    look_up(key, address, room)
}

#[cold]
#[inline(never)]
fn look_up(key: u64, address: u64, room: &mut cfi::Room) -> Known {
    guard::cold(Known::NoObject, || {
        let Some(objects::Object { header, .. }) = objects::at(address) else { return Known::NoObject };
        let rule = if header == 0 { Rule::Unknown } else { cfi::rule(header, address, room) };
        remember(key, rule);
        Known::Rule(rule)
    })
}

fn remember(key: u64, rule: Rule) {
    let is_old = |known: u64| known == 0 || known != TAKEN && known >> 48 != key >> 48;
    for place in places(key) {
        let known = place.key.load(Ordering::Relaxed);
        if known == key {
            return;
        }
        if is_old(known) && place.key.compare_exchange(known, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            place.rule.store(rule.pack(), Ordering::Relaxed);
            place.key.store(key, Ordering::Release);
            return;
        }
    }
}
