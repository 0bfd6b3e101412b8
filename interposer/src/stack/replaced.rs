//! Addresses that belonged to an object that was unloaded: another may lie there now.
//!
//! A return address there says nothing alone. It counts together with the object that it lies in, so that two libraries that
//! come to the same place one after the other have stacks of their own, and the file says which of them each stack is of. A
//! library that comes back to its own place is the same object, so a program that loads and unloads for ever has no more
//! stacks for it.

use std::sync::atomic::{AtomicU64, Ordering};

use gpuoom_trace::payload;
use gpuoom_trace::record::{Event, Kind, MAX_PAYLOAD_BYTES, Record};

use super::key::{STACK_BIT, mix};
use super::objects::{self, Object};
use super::{gone, unload};
use crate::base::guard;
use crate::link;
use crate::record::Recorder;

/// A new file begins: what was unloaded before is not in it.
pub(super) fn forget() {
    gone::forget();
    for known in &KNOWN {
        known.key.store(0, Ordering::Relaxed);
        known.said.store(0, Ordering::Relaxed);
    }
}

/// What stands for a return address where stacks are told apart: itself in nearly all programs.
#[inline(always)]
pub(crate) fn word(address: u64) -> u64 {
    if gone::may_have(called_from(address)) { with_object(address) } else { address }
}

#[cold]
#[inline(never)]
fn with_object(address: u64) -> u64 {
    if !gone::has(called_from(address)) {
        return address;
    }
    let identity = guard::cold(None, || objects::at(called_from(address)).map(|object| known(&object).1));
    mix(address, identity.unwrap_or(0)) | STACK_BIT
}

/// The call lies before the address that it returns to.
#[inline(always)]
fn called_from(address: u64) -> u64 {
    address.wrapping_sub(1)
}

/// An object in such a place, as it was found after the last unload.
struct Known {
    /// First address, and above its 48 bits the lowest 16 of the number of unloads.
    key: AtomicU64,
    identity: AtomicU64,
    /// The key that it had when the file was told.
    said: AtomicU64,
}

const OBJECTS: usize = 64;
static KNOWN: [Known; OBJECTS] =
    [const { Known { key: AtomicU64::new(0), identity: AtomicU64::new(0), said: AtomicU64::new(0) } }; OBJECTS];
/// Somebody writes the identity. No key: objects begin with a page.
const TAKEN: u64 = 1;

fn place_of(object: &Object) -> (&'static Known, u64) {
    let key = (object.start & 0xFFFF_FFFF_FFFF) | unload::count() << 48;
    (&KNOWN[(mix(0, key) >> 32) as usize % OBJECTS], key)
}

/// Where an object is remembered, and what tells it from others that may come to its place.
fn known(object: &Object) -> (&'static Known, u64) {
    let (place, key) = place_of(object);
    let before = place.key.load(Ordering::Acquire);
    if before == key {
        let identity = place.identity.load(Ordering::Relaxed);
        // The same key always goes with the same identity.
        std::sync::atomic::fence(Ordering::Acquire);
        if place.key.load(Ordering::Relaxed) == key {
            return (place, identity);
        }
    }
    let identity = identity_of(object);
    if before != TAKEN && place.key.compare_exchange(before, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok() {
        place.identity.store(identity, Ordering::Relaxed);
        place.key.store(key, Ordering::Release);
    }
    (place, identity)
}

/// Of its build id, path and place.
fn identity_of(object: &Object) -> u64 {
    let mut text = [0; MAX_PAYLOAD_BYTES];
    let words = describe(object, &mut text).chunks(8).map(|part| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        u64::from_le_bytes(word)
    });
    words.fold(mix(object.start, object.end), mix)
}

/// The payload of its record.
fn describe<'a>(object: &Object, out: &'a mut [u8; MAX_PAYLOAD_BYTES]) -> &'a [u8] {
    let (mut build_id, mut path) = ([0; link::MAX_BUILD_ID_BYTES], [0; 1024]);
    let build_id_bytes = link::read_build_id(object.start, &mut build_id);
    let length = object.path(&mut path);
    payload::library(&build_id[..build_id_bytes], &path[..length], out)
}

/// Says in the file which objects these addresses lie in, where that is not clear. For calls that return to them and come
/// next in the file.
#[inline(always)]
pub(crate) fn say(recorder: &Recorder, thread: u32, addresses: &[u64]) {
    if gone::is_any() {
        say_replaced(recorder, thread, addresses);
    }
}

#[cold]
#[inline(never)]
fn say_replaced(recorder: &Recorder, thread: u32, addresses: &[u64]) {
    let mut last = (0, 0);
    for address in addresses.iter().filter(|address| gone::has(called_from(**address))) {
        let called_from = called_from(*address);
        if (last.0..last.1).contains(&called_from) {
            continue;
        }
        last = guard::cold((0, 0), || say_one(recorder, thread, called_from));
    }
}

/// Returns the addresses that it said something about.
fn say_one(recorder: &Recorder, thread: u32, address: u64) -> (u64, u64) {
    const PAGE: u64 = 4096;
    let mut out = [0; MAX_PAYLOAD_BYTES];
    let at = recorder.clock.now();
    let note = |start: u64, end: u64| {
        let event = Record::new(Event::Library, Kind::None);
        Record { at, thread, address: start, requested: end - start, ..event }
    };
    let Some(object) = objects::at(address) else {
        // Code that was made at run time, or an object that a C library before 2.35 does not tell of yet.
        let start = address & !(PAGE - 1);
        recorder.publish(&note(start, start.saturating_add(PAGE)));
        return (start, start.saturating_add(PAGE));
    };
    let range = (object.start, object.end.max(object.start));
    let (place, _) = known(&object);
    let (_, key) = place_of(&object);
    if place.said.load(Ordering::Relaxed) != key
        && recorder.publish_long(&note(range.0, range.1), describe(&object, &mut out)).is_some()
    {
        place.said.store(key, Ordering::Relaxed);
    }
    range
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_counts_with_its_object_once_another_was_there() {
        objects::prepare();
        let code = an_address_counts_with_its_object_once_another_was_there as *const () as u64 + 1;
        let other = libc::getpid as *const () as u64 + 1;
        forget();
        assert_eq!((word(code), word(other)), (code, other));
        gone::add(code - 100, code + 100);
        assert_eq!(word(other), other);
        let changed = word(code);
        assert!(changed != code && changed & STACK_BIT != 0);
        assert_eq!(word(code), changed, "the same object at the same place");
        // The first address of the range is that of no call, the end is.
        assert_eq!((word(code - 100), word(code + 100) == code + 100), (code - 100, false));
        assert_eq!(word(code + 101), code + 101);
        for number in 0..200u64 {
            gone::add(0x1000 + number * 0x10_0000, 0x2000 + number * 0x10_0000);
        }
        assert!((0..200).all(|number| gone::has(0x1000 + number * 0x10_0000)), "more than there is room for");
        assert!(!gone::has(0x10_0000) && gone::count() == gone::RANGES);
        assert_eq!(word(code), changed);
        forget();
        assert_eq!(word(code), code);
    }

    #[test]
    fn an_object_has_its_build_id_and_path() {
        objects::prepare();
        let object = objects::at(libc::getpid as *const () as u64).unwrap();
        let mut out = [0; MAX_PAYLOAD_BYTES];
        let name = payload::LibraryName::read(describe(&object, &mut out)).unwrap();
        let listed = link::objects::loaded_objects_with_build_ids(0);
        let libc = listed.iter().find(|listed| listed.start as u64 == object.start).unwrap();
        assert_eq!((&name.build_id, &name.path), (&libc.build_id, &libc.path));
        assert_eq!(identity_of(&object), identity_of(&object));
        let program = objects::at(describe as *const () as u64).unwrap();
        assert_ne!(identity_of(&object), identity_of(&program));
    }
}
