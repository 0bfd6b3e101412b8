//! From a call to the frames around it.

use gpuoom_trace::payload::{MAX_NATIVE_FRAMES, stack_flag};

use super::cfi;
use super::memory::Reader;
use super::rule::{Cfa, Rbp, Rule, SIGNAL_SP};
use super::rules::{self, Known};

/// Beside [`SIGNAL_SP`].
const SIGNAL_PC: u64 = 168;
const SIGNAL_RBP: u64 = 120;

/// Words that one stack depends on, at most; each frame has one, or two where a frame pointer is followed.
pub(super) const MAX_WORDS: usize = 192;
/// Frames without call frame information that are passed by their frame pointers, one behind the other.
const MAX_GUESSES: usize = 32;
/// A frame that is larger than this is none.
const MAX_GUESSED_FRAME_BYTES: u64 = 1 << 20;

/// Where a call came from: what its hook found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Return address.
    pub(crate) pc: u64,
    /// Stack pointer: the return address lies there.
    pub(crate) sp: u64,
    /// rbp, which is the caller's.
    pub(crate) rbp: u64,
}

/// The caller's rbp: read only once somebody needs it.
#[derive(Clone, Copy)]
enum Saved {
    Register,
    At(u64),
    Value(u64),
    Lost,
}

/// A stack, and all that it was made from.
pub(super) struct Walk {
    /// Return addresses, innermost first.
    pub(super) frames: [u64; MAX_NATIVE_FRAMES],
    pub(super) count: usize,
    /// Bits of [`stack_flag`].
    pub(super) flags: u8,
    /// Addresses that were read.
    pub(super) places: [u64; MAX_WORDS],
    /// What was there.
    pub(super) words: [u64; MAX_WORDS],
    pub(super) word_count: usize,
    /// The register rbp was needed.
    pub(super) needs_rbp: bool,
    /// A signal handler is on the way.
    pub(super) has_signal: bool,
    /// The same words, rbp and loaded objects always give the same stack.
    pub(super) is_lasting: bool,
}

impl Walk {
    /// No stack: all zero.
    pub(super) const EMPTY: Walk = Walk {
        frames: [0; MAX_NATIVE_FRAMES],
        count: 0,
        flags: 0,
        places: [0; MAX_WORDS],
        words: [0; MAX_WORDS],
        word_count: 0,
        needs_rbp: false,
        has_signal: false,
        is_lasting: false,
    };

    /// Return addresses, innermost first.
    pub(super) fn native(&self) -> &[u64] {
        &self.frames[..self.count]
    }

    /// Walks from a call to the first frame of its thread, as far as there is a way.
    pub(super) fn walk(&mut self, entry: &Entry, reader: &mut Reader, room: &mut cfi::Room) {
        (self.count, self.flags, self.word_count) = (0, 0, 0);
        (self.needs_rbp, self.has_signal, self.is_lasting) = (false, false, true);
        if self.read(reader, entry.sp) == Some(entry.pc) {
            self.go(entry, reader, room);
        } else {
            // The registers are of another moment (a handler came in between): the return address is all there is.
            self.push(entry.pc);
            self.is_lasting = false;
        }
    }

    fn push(&mut self, address: u64) -> bool {
        if self.count == MAX_NATIVE_FRAMES {
            self.flags |= stack_flag::NATIVE_CUT;
            return false;
        }
        self.frames[self.count] = address;
        self.count += 1;
        true
    }

    #[inline(always)]
    fn read(&mut self, reader: &mut Reader, address: u64) -> Option<u64> {
        let word = reader.word(address)?;
        if self.word_count < MAX_WORDS {
            self.places[self.word_count] = address;
            self.words[self.word_count] = word;
            self.word_count += 1;
        } else {
            self.is_lasting = false;
        }
        Some(word)
    }

    fn go(&mut self, entry: &Entry, reader: &mut Reader, room: &mut cfi::Room) {
        let mut at = State { pc: entry.pc, sp: entry.sp + 8, rbp: Saved::Register, after_call: true, guesses: 0 };
        loop {
            // Of an interrupted instruction the address behind its first byte is kept: it then reads like all others.
            if !self.push(at.pc.wrapping_add(u64::from(!at.after_call))) {
                return;
            }
            let goes_on = match rules::of(at.pc, at.after_call, room) {
                Known::Rule(Rule::Frame(cfa, rbp)) => self.ordinary(&mut at, cfa, rbp, entry, reader),
                Known::Rule(Rule::End) => return self.flags |= stack_flag::NATIVE_WHOLE,
                other => {
                    // Passed by value: the rest of the loop has it in registers.
                    let next = self.rare(at, &other, entry, reader, room);
                    next.is_some_and(|next| {
                        at = next;
                        true
                    })
                }
            };
            if !goes_on {
                return;
            }
            if at.pc == 0 {
                // Some threads and fibers begin with a return address of 0.
                return self.flags |= stack_flag::NATIVE_WHOLE;
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn rare(
        &mut self,
        at: State,
        known: &Known,
        entry: &Entry,
        reader: &mut Reader,
        room: &mut cfi::Room,
    ) -> Option<State> {
        match known {
            Known::Rule(Rule::Signal) => return self.interrupted(&at, reader),
            // Code may come there at any moment.
            Known::NoObject => self.is_lasting = false,
            Known::Rule(_) => {}
        }
        self.guessed(&at, entry, reader, room)
    }

    #[inline(always)]
    fn rbp(&mut self, at: &State, entry: &Entry, reader: &mut Reader) -> Option<u64> {
        match at.rbp {
            Saved::Register => {
                self.needs_rbp = true;
                Some(entry.rbp)
            }
            Saved::At(place) => self.read(reader, place),
            Saved::Value(value) => Some(value),
            Saved::Lost => None,
        }
    }

    /// Goes to the caller; `false` where that is not possible.
    #[inline(always)]
    fn ordinary(&mut self, at: &mut State, cfa: Cfa, rbp: Rbp, entry: &Entry, reader: &mut Reader) -> bool {
        let cfa = match cfa {
            Cfa::Stack(offset) => at.sp.wrapping_add_signed(offset.into()),
            Cfa::Frame(offset) | Cfa::BehindFrame(offset) => {
                let Some(value) = self.rbp(at, entry, reader) else { return false };
                if !matches!(at.rbp, Saved::Register) {
                    at.rbp = Saved::Value(value);
                }
                let place = value.wrapping_add_signed(offset.into());
                let is_place = matches!(cfa, Cfa::Frame(_));
                let Some(cfa) = (if is_place { Some(place) } else { self.read(reader, place) }) else { return false };
                cfa
            }
        };
        // The stack only shrinks on the way out.
        if cfa <= at.sp {
            return false;
        }
        match rbp {
            Rbp::Same => {}
            Rbp::AtCfa(offset) => at.rbp = Saved::At(cfa.wrapping_add_signed(offset.into())),
            Rbp::AtFrame(offset) => {
                let Some(value) = self.rbp(at, entry, reader) else { return false };
                at.rbp = Saved::At(value.wrapping_add_signed(offset.into()));
            }
            Rbp::Lost => at.rbp = Saved::Lost,
        }
        let Some(pc) = self.read(reader, cfa.wrapping_sub(8)) else { return false };
        (at.pc, at.sp, at.after_call, at.guesses) = (pc, cfa, true, 0);
        true
    }

    /// Behind a signal handler: the interrupted code, maybe on another stack.
    fn interrupted(&mut self, at: &State, reader: &mut Reader) -> Option<State> {
        self.has_signal = true;
        let sp = self.read(reader, at.sp.wrapping_add_signed(SIGNAL_SP))?;
        let pc = self.read(reader, at.sp.wrapping_add(SIGNAL_PC))?;
        Some(State { pc, sp, rbp: Saved::At(at.sp.wrapping_add(SIGNAL_RBP)), after_call: false, guesses: 0 })
    }

    /// Code without call frame information: by its frame pointer, if that looks like one.
    fn guessed(&mut self, at: &State, entry: &Entry, reader: &mut Reader, room: &mut cfi::Room) -> Option<State> {
        let frame = self.rbp(at, entry, reader)?;
        let is_near = frame >= at.sp && frame - at.sp < MAX_GUESSED_FRAME_BYTES;
        if !is_near || at.guesses == MAX_GUESSES {
            return None;
        }
        let pc = self.read(reader, frame.wrapping_add(8))?;
        if matches!(rules::of(pc, true, room), Known::Rule(Rule::Unknown)) || pc < 4096 {
            return None;
        }
        self.flags |= stack_flag::NATIVE_GUESSED;
        Some(State { pc, sp: frame.wrapping_add(16), rbp: Saved::At(frame), after_call: true, guesses: at.guesses + 1 })
    }
}

/// A frame on the way.
#[derive(Clone, Copy)]
struct State {
    pc: u64,
    /// Stack pointer as it is in this frame.
    sp: u64,
    rbp: Saved,
    after_call: bool,
    guesses: usize,
}
