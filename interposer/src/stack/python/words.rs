//! The words that make up a Python stack: code object and instruction of each frame, read where they lie.
//!
//! They never say what a frame *is*; only that a stack is the same as one whose frames Python's own functions have named
//! ([`super::seen`]). Where the words lie differs by version. That a table below is right for the Python at hand is shown at run
//! time: [`Words::agree`] compares with what the C API answers, and until enough stacks have agreed the words are read by a call
//! that can't fault.

use super::api::Object;
use super::frames::Frames;
use crate::base::program_memory;
use crate::stack::key::mix;

/// Frames of a stack that is compared; a deeper one is asked for each time.
const MAX_FRAMES: usize = 96;

/// Spreads a code object's address over the whole word, so that an instruction's, which is near it, does not cancel it.
const SPREAD: u64 = 0xD6E8_FEB8_6659_FD93;

/// Where a version keeps the frames of a thread. Offsets in bytes, on x86-64, of releases built without debugging: from `offsetof`
/// over the headers of CPython 3.9.18, 3.10.13, 3.11.7, 3.12.1 and 3.13.0.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    /// From the thread's state to the pointer to its newest frame: each but the last leads to a pointer that is followed.
    way: &'static [u64],
    /// `f_code`, `f_executable`
    code: u64,
    /// `f_back`, `previous`
    previous: u64,
    /// `f_lasti`, `prev_instr`, `instr_ptr`
    instruction: u64,
    /// What the instruction is.
    kind: Instruction,
}

#[derive(Clone, Copy)]
enum Instruction {
    /// A 32-bit index; so many bytes each.
    Index(i64),
    /// A pointer into the code object, whose instructions begin at this offset (`co_code_adaptive`).
    Pointer(u64),
}

/// The layout of a minor version of Python 3; `None` where it is not known.
pub(super) fn layout(minor: u32) -> Option<&'static Layout> {
    const V9: Layout = Layout { way: &[24], code: 32, previous: 24, instruction: 104, kind: Instruction::Index(1) };
    const V10: Layout = Layout { instruction: 96, kind: Instruction::Index(2), ..V9 };
    const V11: Layout =
        Layout { way: &[56, 8], code: 32, previous: 48, instruction: 56, kind: Instruction::Pointer(184) };
    const V12: Layout =
        Layout { way: &[56, 0], code: 0, previous: 8, instruction: 56, kind: Instruction::Pointer(192) };
    const V13: Layout = Layout { way: &[72], kind: Instruction::Pointer(200), ..V12 };
    match minor {
        9 => Some(&V9),
        10 => Some(&V10),
        11 => Some(&V11),
        12 => Some(&V12),
        13 => Some(&V13),
        _ => None,
    }
}

/// How words are read.
pub(super) trait Read {
    /// The word at an address.
    fn word(&self, address: u64) -> Option<u64>;
}

/// By the kernel, whatever the address.
pub(super) struct Checked;

impl Read for Checked {
    fn word(&self, address: u64) -> Option<u64> {
        program_memory::word(address)
    }
}

/// As they lie there.
pub(super) struct Direct;

impl Read for Direct {
    #[inline(always)]
    fn word(&self, address: u64) -> Option<u64> {
        if address < 1 << 12 || address & 7 != 0 {
            return None;
        }
        // SAFETY: `super::seen` uses this only for the frames of a thread that is inside them and whose state nobody else frees
        // while it looks (`super::end`), with a layout that has agreed with the C API.
        Some(unsafe { (address as *const u64).read_volatile() })
    }
}

impl Layout {
    #[inline(always)]
    fn newest(&self, state: Object, read: &impl Read) -> Option<u64> {
        self.way.iter().try_fold(state as u64, |at, offset| read.word(at.wrapping_add(*offset)))
    }

    #[inline(always)]
    fn frame(&self, frame: u64, read: &impl Read) -> Option<[u64; 3]> {
        let word = |offset: u64| read.word(frame.wrapping_add(offset));
        let instruction = match self.kind {
            // Half a word, and the other half is something else.
            Instruction::Index(_) => u64::from(word(self.instruction)? as u32),
            Instruction::Pointer(_) => word(self.instruction)?,
        };
        Some([word(self.code)?, instruction, word(self.previous)?])
    }

    /// A key of all words; `None` where one can't be read, or the stack is too deep.
    #[inline(always)]
    pub(super) fn key(&self, state: Object, read: &impl Read, native: u64) -> Option<u64> {
        let mut key = native;
        let mut frame = self.newest(state, read)?;
        for _ in 0..MAX_FRAMES {
            if frame == 0 {
                return Some(key);
            }
            let [code, instruction, previous] = self.frame(frame, read)?;
            // Both in one step: the next frame's waits for this one's.
            key = mix(key, code.wrapping_mul(SPREAD) ^ instruction);
            frame = previous;
        }
        None
    }

    /// Bytes from the first instruction of the code to the one that runs.
    fn last_instruction(&self, code: u64, instruction: u64) -> i64 {
        match self.kind {
            Instruction::Index(bytes) => i64::from(instruction as u32 as i32).wrapping_mul(bytes),
            Instruction::Pointer(start) => instruction.wrapping_sub(code).wrapping_sub(start) as i64,
        }
    }
}

/// The words of one stack, to be compared with what the C API says of it.
pub(super) struct Words {
    frames: [(u64, i64); MAX_FRAMES],
    count: usize,
}

impl Words {
    /// Reads them.
    pub(super) fn read(layout: &Layout, state: Object) -> Option<Words> {
        let mut words = Words { frames: [(0, 0); MAX_FRAMES], count: 0 };
        let mut frame = layout.newest(state, &Checked)?;
        while frame != 0 {
            let [code, instruction, previous] = layout.frame(frame, &Checked)?;
            *words.frames.get_mut(words.count)? = (code, layout.last_instruction(code, instruction));
            words.count += 1;
            frame = previous;
        }
        Some(words)
    }

    /// Whether these are the frames that the C API has answered, in its order. There may be more of them: versions from 3.11 on have
    /// frames of their own where C code calls Python.
    pub(super) fn agree(&self, frames: &Frames) -> bool {
        let mut own = self.frames[..self.count].iter();
        let is_there = |(code, last): &(u64, i64)| own.any(|(own, at)| own == code && (*last < 0 || at == last));
        frames.places().iter().all(is_there)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory with a stack of two frames as 3.12 has it: state, the word that leads to the newest frame, frames, codes.
    fn memory() -> Vec<u64> {
        let mut words = vec![0u64; 64];
        let at = |index: usize| &raw const words[index] as u64;
        let (holder, newest, oldest, code) = (at(16), at(20), at(32), at(44));
        words[7] = holder;
        words[16] = newest;
        (words[20], words[21], words[27]) = (code, oldest, code + 192 + 10);
        (words[32], words[33], words[39]) = (code, 0, code + 192 + 4);
        words
    }

    fn state(memory: &[u64]) -> Object {
        memory.as_ptr().cast_mut().cast()
    }

    #[test]
    fn both_ways_of_reading_find_the_same_and_see_a_change() {
        let layout = layout(12).unwrap();
        let mut memory = memory();
        let key = layout.key(state(&memory), &Checked, 1).unwrap();
        assert_eq!(layout.key(state(&memory), &Direct, 1), Some(key));
        assert_ne!(layout.key(state(&memory), &Direct, 2), Some(key), "another native stack");
        let words = Words::read(layout, state(&memory)).unwrap();
        let code = &raw const memory[44] as u64;
        assert_eq!(words.frames[..words.count], [(code, 10), (code, 4)]);
        memory[27] += 2;
        assert_ne!(layout.key(state(&memory), &Direct, 1), Some(key), "another instruction");
    }

    #[test]
    fn what_is_no_stack_has_no_key() {
        let layout = layout(12).unwrap();
        let mut memory = memory();
        memory[33] = &raw const memory[20] as u64;
        assert_eq!(layout.key(state(&memory), &Checked, 1), None, "a ring of frames ends");
        assert!(Words::read(layout, state(&memory)).is_none());
        memory[16] = 0x18;
        assert_eq!(layout.key(state(&memory), &Checked, 1), None);
        assert_eq!(layout.key(state(&memory), &Direct, 1), None, "no pointer");
    }

    #[test]
    fn an_index_counts_in_units_of_its_version() {
        assert_eq!(layout(9).unwrap().last_instruction(0, u64::from(u32::MAX)), -1);
        assert_eq!(layout(10).unwrap().last_instruction(0, 7), 14);
        assert!(layout(8).is_none() && layout(99).is_none());
    }

    #[test]
    fn the_frames_of_the_api_are_among_the_words_in_their_order() {
        let words = Words { frames: std::array::from_fn(|at| (at as u64, at as i64 * 2)), count: 5 };
        let frames = |places: &[(u64, i64)]| Frames::of_places(places);
        assert!(words.agree(&frames(&[(0, 0), (2, 4), (4, 8)])), "two of the interpreter's own between");
        assert!(words.agree(&frames(&[(1, -1)])), "one whose instruction is not known");
        assert!(!words.agree(&frames(&[(2, 4), (0, 0)])), "another order");
        assert!(!words.agree(&frames(&[(2, 6)])), "another instruction");
        assert!(!words.agree(&frames(&[(7, 14)])), "another frame");
    }
}
