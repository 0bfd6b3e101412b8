//! Whole stacks of this test program, against what glibc's `backtrace` says.

use gpuoom_trace::payload::stack_flag;

use super::memory::{self, Reader};
use super::walk::{Entry, Walk};
use super::{cfi, key_of, memo, objects};
use crate::base::thread;

unsafe extern "C" {
    fn backtrace(buffer: *mut *mut libc::c_void, size: libc::c_int) -> libc::c_int;
}

/// What the walk found, and what `backtrace` found from the same call on.
struct Both {
    ours: Vec<u64>,
    theirs: Vec<u64>,
    flags: u8,
    remembered: bool,
    direct: bool,
}

/// Enters as a hook is entered: the return address and the registers of the caller.
#[unsafe(naked)]
unsafe extern "C" fn enter(out: *mut Option<Both>) {
    std::arch::naked_asm!("mov rsi, rsp", "mov rdx, rbp", "jmp {inner}", inner = sym inner)
}

unsafe extern "C" fn inner(out: *mut Option<Both>, sp: u64, rbp: u64) {
    // SAFETY: the return address of `enter`; a place for 200 addresses; the thread's own block; `out` is the caller's.
    unsafe {
        let entry = Entry { pc: *(sp as *const u64), sp, rbp };
        let own = memory::own(thread::current(), sp);
        let (mut walk, mut room) = (Walk::EMPTY, cfi::Room::EMPTY);
        walk.walk(&entry, &mut Reader::new(own), &mut room);
        let mut theirs = [std::ptr::null_mut(); 200];
        let count = backtrace(theirs.as_mut_ptr(), 200) as usize;
        let theirs = theirs[..count].iter().map(|address| *address as u64);
        memo::remember(&entry, &walk, key_of(&walk));
        *out = Some(Both {
            ours: walk.frames[..walk.count].to_vec(),
            theirs: theirs.skip_while(|address| *address != entry.pc).take(128).collect(),
            flags: walk.flags,
            remembered: walk.is_lasting && memo::find(&entry, &mut Reader::new(own)) == Some(key_of(&walk)),
            direct: own != (0, 0),
        });
    }
}

fn both() -> Both {
    objects::prepare();
    memory::prepare();
    let mut out = None;
    // SAFETY: a place for the answer.
    unsafe { enter(&mut out) };
    out.unwrap()
}

#[track_caller]
fn assert_same(both: &Both) {
    assert_eq!(both.ours, both.theirs);
    assert!(both.remembered);
    assert_eq!(both.flags & stack_flag::NATIVE_WHOLE != 0, both.ours.len() < 128);
}

#[inline(never)]
fn deeper(depth: usize, at_the_end: &mut dyn FnMut()) {
    match depth {
        0 => at_the_end(),
        _ => deeper(std::hint::black_box(depth - 1), at_the_end),
    }
    std::hint::black_box(depth);
}

#[test]
fn stack_of_a_thread_is_what_the_c_library_says() {
    for depth in [0, 1, 30, 300] {
        let mut found = None;
        deeper(depth, &mut || found = Some(both()));
        let found = found.unwrap();
        assert!(found.ours.len() > depth.min(127) && found.direct);
        assert_eq!(found.flags & stack_flag::NATIVE_CUT != 0, depth == 300);
        assert_same(&found);
    }
}

#[test]
fn stack_through_another_language_is_whole() {
    unsafe extern "C" fn compare(_: *const libc::c_void, out: *const libc::c_void) -> libc::c_int {
        // SAFETY: the second element of the array below.
        unsafe { *(*out.cast::<*mut Option<Both>>()) = Some(both()) };
        0
    }
    let mut found = None;
    let place: *mut Option<Both> = &mut found;
    let mut pair = [place, place];
    type Compare = unsafe extern "C" fn(*const libc::c_void, *const libc::c_void) -> libc::c_int;
    let compare: Compare = compare;
    // SAFETY: two elements of that size, and a function that leaves them alone.
    unsafe { libc::qsort(pair.as_mut_ptr().cast(), 2, 8, Some(compare)) };
    assert_same(&found.unwrap());
}

#[test]
fn a_word_that_changed_makes_a_stack_another_one() {
    objects::prepare();
    let mut words = [0x1234u64, 0, 0, 0];
    let sp = words.as_mut_ptr() as u64;
    let entry = Entry { pc: words[0], sp, rbp: 7 };
    let own = (sp, sp + 32);
    let (mut walk, mut room) = (Walk::EMPTY, cfi::Room::EMPTY);
    walk.walk(&entry, &mut Reader::new(own), &mut room);
    assert_eq!((walk.frames[0], walk.count, walk.is_lasting), (0x1234, 1, false), "no object is there");
    walk.needs_rbp = true;
    (walk.word_count, walk.places[1], walk.words[1]) = (2, sp + 24, 0);
    memo::remember(&entry, &walk, 99);
    let find = |entry: Entry| memo::find(&entry, &mut Reader::new(own));
    assert_eq!(find(entry), Some(99));
    assert_eq!(find(Entry { rbp: 8, ..entry }), None);
    assert_eq!(find(Entry { pc: 0x1235, ..entry }), None);
    // SAFETY: the last of the four words.
    unsafe { (sp as *mut u64).add(3).write_volatile(1) };
    assert_eq!(find(entry), None);
}

#[test]
fn registers_of_another_moment_give_the_return_address_alone() {
    let words = [5u64];
    let sp = words.as_ptr() as u64;
    let mut walk = Walk::EMPTY;
    let mut room = cfi::Room::EMPTY;
    walk.walk(&Entry { pc: 0x1234, sp, rbp: 0 }, &mut Reader::new((sp, sp + 8)), &mut room);
    assert_eq!((&walk.frames[..walk.count], walk.flags, walk.is_lasting), (&[0x1234][..], 0, false));
}

#[test]
fn other_stacks_are_read_by_copies_and_stop_at_their_end() {
    let words = [1u64, 2, 3];
    let at = words.as_ptr() as u64;
    let mut reader = Reader::new((0, 0));
    assert_eq!((reader.word(at), reader.word(at + 16), reader.word(at + 1)), (Some(1), Some(3), None));
    assert_eq!((reader.word(0), reader.word(u64::MAX - 7)), (None, None));
}

/// Numbers that look random and are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 ^ self.0 >> 29
    }
}

#[test]
fn frame_information_that_lies_is_no_rule_and_no_crash() {
    let mut numbers = Numbers(1);
    let mut room = cfi::Room::EMPTY;
    let mut known = 0;
    for round in 0..3000u64 {
        // A header that is believed, with entries near and far, and noise where it leads.
        let mut bytes: Vec<u8> = (0..4096).map(|_| numbers.next() as u8).collect();
        let count = [0, 1, 7, 300, u32::MAX][round as usize % 5];
        bytes[..4].copy_from_slice(&[1, 0x1B, 0x03, 0x3B]);
        bytes[8..12].copy_from_slice(&count.to_le_bytes());
        for entry in 0..7usize {
            let pair =
                [(entry * 512) as u32, if round & 1 == 0 { 64 * entry as u32 + 128 } else { numbers.next() as u32 }];
            let at = 12 + entry * 8;
            bytes[at..at + 4].copy_from_slice(&pair[0].to_le_bytes());
            bytes[at + 4..at + 8].copy_from_slice(&pair[1].to_le_bytes());
        }
        for place in (128..1024).step_by(64) {
            bytes[place..place + 8].copy_from_slice(&((numbers.next() % 300) | (12 << 32)).to_le_bytes());
        }
        let header = bytes.as_ptr() as u64;
        let address = header + numbers.next() % 4096;
        known += u32::from(cfi::rule(header, address, &mut room) != super::rule::Rule::Unknown);
    }
    assert!(known < 30, "{known} of 3000 rules were made of noise");
    assert_eq!(cfi::rule(0, 1, &mut room), super::rule::Rule::Unknown);
}

#[test]
fn stacks_that_lie_end_somewhere_without_a_crash() {
    objects::prepare();
    let mut numbers = Numbers(2);
    let (mut walk, mut room) = (Walk::EMPTY, cfi::Room::EMPTY);
    let code = [stacks_that_lie_end_somewhere_without_a_crash as *const () as u64, libc::qsort as *const () as u64];
    let mut words = vec![0u64; 512];
    for _ in 0..2000 {
        let sp = words.as_ptr() as u64;
        for word in &mut words {
            *word = match numbers.next() % 4 {
                0 => code[(numbers.next() % 2) as usize] + numbers.next() % 4096,
                1 => sp + numbers.next() % 4096 / 8 * 8,
                2 => numbers.next(),
                _ => u64::MAX - numbers.next() % 32,
            };
        }
        let entry = Entry { pc: words[0], sp, rbp: sp + numbers.next() % 4096 / 8 * 8 };
        let own = if numbers.next() & 1 == 0 { (sp, sp + 4096) } else { (0, 0) };
        walk.walk(&entry, &mut Reader::new(own), &mut room);
        assert!(walk.count >= 1 && walk.frames[0] == entry.pc);
    }
}

#[test]
fn a_rule_is_read_once_and_again_after_an_unload() {
    objects::prepare();
    let mut room = cfi::Room::EMPTY;
    let address = libc::qsort as *const () as u64 + 1;
    let rule = |room: &mut cfi::Room| match super::rules::of(address, true, room) {
        super::rules::Known::Rule(rule) => rule,
        super::rules::Known::NoObject => panic!("the C library is an object"),
    };
    let first = rule(&mut room);
    assert_ne!(first, super::rule::Rule::Unknown);
    assert_eq!(rule(&mut room), first);
    super::unload::look();
    assert_eq!(rule(&mut room), first);
    assert!(matches!(super::rules::of(64, true, &mut room), super::rules::Known::NoObject));
}
