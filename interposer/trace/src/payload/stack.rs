//! Stacks: the way to a call, native and in Python (payload of a `site` record), and the name of a Python code object
//! (payload of a `code` record).

use super::{MAX_PAYLOAD_BYTES, MAX_TEXT_BYTES, pack, unpack};

/// Return addresses that a stack holds at most.
pub const MAX_NATIVE_FRAMES: usize = 128;
/// Python frames that a stack holds at most.
pub const MAX_PYTHON_FRAMES: usize = 64;
const HEAD_BYTES: usize = 4;
const FRAME_BYTES: usize = 8;

const _: () = assert!(HEAD_BYTES + (MAX_NATIVE_FRAMES + MAX_PYTHON_FRAMES) * FRAME_BYTES <= MAX_TEXT_BYTES);

/// How much of a stack is known.
pub mod stack_flag {
    /// The native part ends at the first frame of the thread.
    pub const NATIVE_WHOLE: u8 = 0x01;
    /// The native part was cut at the recorder's limit.
    pub const NATIVE_CUT: u8 = 0x02;
    /// Frames of code without call frame information were passed by their frame pointers: some may be missing.
    pub const NATIVE_GUESSED: u8 = 0x10;
    /// The Python frames were looked for, and could be read.
    pub const PYTHON_SEEN: u8 = 0x04;
    /// The Python part was cut at the recorder's limit.
    pub const PYTHON_CUT: u8 = 0x08;
}

/// A frame of Python code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PythonFrame {
    /// Number of the code object ([`crate::record::Event::Code`] has its name).
    pub code: u32,
    /// Line that runs, from 1 on; 0: not known.
    pub line: u32,
}

/// A stack as a `site` record has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stack {
    /// Bits of [`stack_flag`].
    pub flags: u8,
    /// Return addresses, innermost first.
    pub native: Vec<u64>,
    /// Python frames, innermost first.
    pub python: Vec<PythonFrame>,
}

/// Packs a stack, innermost frames first; what is beyond the limits is cut, and the flags say so.
pub fn stack<'a>(flags: u8, native: &[u64], python: &[PythonFrame], out: &'a mut [u8; MAX_PAYLOAD_BYTES]) -> &'a [u8] {
    let cut = |length: usize, most: usize, flag: u8| if length > most { flag } else { 0 };
    let flags = flags
        | cut(native.len(), MAX_NATIVE_FRAMES, stack_flag::NATIVE_CUT)
        | cut(python.len(), MAX_PYTHON_FRAMES, stack_flag::PYTHON_CUT);
    let (native, python) =
        (&native[..native.len().min(MAX_NATIVE_FRAMES)], &python[..python.len().min(MAX_PYTHON_FRAMES)]);
    let length = HEAD_BYTES + (native.len() + python.len()) * FRAME_BYTES;
    out[..2].copy_from_slice(&(length as u16).to_le_bytes());
    out[2..2 + HEAD_BYTES].copy_from_slice(&[flags, native.len() as u8, python.len() as u8, 0]);
    let words =
        native.iter().copied().chain(python.iter().map(|frame| u64::from(frame.code) | u64::from(frame.line) << 32));
    for (to, word) in out[2 + HEAD_BYTES..].as_chunks_mut::<FRAME_BYTES>().0.iter_mut().zip(words) {
        *to = word.to_le_bytes();
    }
    &out[..2 + length]
}

impl Stack {
    /// Reads the payload of a `site` record; `None` where there is none, or one that says more frames than it has or than
    /// the format allows.
    pub fn read(payload: &[u8]) -> Option<Stack> {
        let ([flags, native, python, _], frames) = unpack(payload).split_first_chunk::<HEAD_BYTES>()?;
        let (native, python) = (usize::from(*native), usize::from(*python));
        if native > MAX_NATIVE_FRAMES || python > MAX_PYTHON_FRAMES {
            return None;
        }
        let words = frames.as_chunks::<FRAME_BYTES>().0;
        let word = |bytes: &[u8; FRAME_BYTES]| u64::from_le_bytes(*bytes);
        let (native, rest) = words.split_at_checked(native)?;
        Some(Stack {
            flags: *flags,
            native: native.iter().map(word).collect(),
            python: rest
                .get(..python)?
                .iter()
                .map(word)
                .map(|word| PythonFrame { code: word as u32, line: (word >> 32) as u32 })
                .collect(),
        })
    }

    /// Whether all bits of a [`stack_flag`] are set.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag == flag
    }
}

/// Where a Python code object comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CodeName {
    /// File as the code object names it.
    pub file: String,
    /// Function with the classes and functions around it, where the version of Python tells (3.11); else its own name.
    pub function: String,
}

/// Packs the name of a code object; a file name that is too long loses its beginning, a function its end.
pub fn code_name<'a>(file: &[u8], function: &[u8], out: &'a mut [u8; MAX_PAYLOAD_BYTES]) -> &'a [u8] {
    const MOST: usize = MAX_TEXT_BYTES / 2 - 1;
    let file = &file[file.len().saturating_sub(MOST)..];
    let function = &function[..function.len().min(MOST)];
    let mut text = [0; MAX_TEXT_BYTES];
    text[..file.len()].copy_from_slice(file);
    let length = file.len() + 1 + function.len();
    text[file.len() + 1..length].copy_from_slice(function);
    pack(&text[..length], out)
}

impl CodeName {
    /// Reads the payload of a `code` record, with replacement characters where it is not UTF-8; what has no zero byte is
    /// a file without a function.
    pub fn read(payload: &[u8]) -> CodeName {
        let mut parts = unpack(payload).splitn(2, |byte| *byte == 0);
        let mut next = || String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
        CodeName { file: next(), function: next() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame() -> impl Strategy<Value = PythonFrame> {
        (any::<u32>(), any::<u32>()).prop_map(|(code, line)| PythonFrame { code, line })
    }

    proptest! {
        #[test]
        fn what_is_packed_is_read(
            flags in 0u8..16,
            native in prop::collection::vec(any::<u64>(), 0..=MAX_NATIVE_FRAMES),
            python in prop::collection::vec(frame(), 0..=MAX_PYTHON_FRAMES),
        ) {
            let mut out = [0; MAX_PAYLOAD_BYTES];
            let read = Stack::read(stack(flags, &native, &python, &mut out)).unwrap();
            prop_assert_eq!(read, Stack { flags, native, python });
        }

        #[test]
        fn whatever_bytes_come_are_bounded(bytes in prop::collection::vec(any::<u8>(), 0..MAX_PAYLOAD_BYTES)) {
            if let Some(read) = Stack::read(&bytes) {
                prop_assert!(read.native.len() <= MAX_NATIVE_FRAMES && read.python.len() <= MAX_PYTHON_FRAMES);
                prop_assert!((read.native.len() + read.python.len()) * 8 <= bytes.len());
            }
            CodeName::read(&bytes);
        }
    }

    #[test]
    fn a_stack_that_is_too_deep_is_cut_and_says_so() {
        let mut out = [0; MAX_PAYLOAD_BYTES];
        let native: Vec<u64> = (0..200).collect();
        let python = [PythonFrame { code: 7, line: 9 }; 100];
        let read = Stack::read(stack(stack_flag::PYTHON_SEEN, &native, &python, &mut out)).unwrap();
        assert_eq!((read.native.as_slice(), read.python.len()), (&native[..128], 64));
        assert!(read.has(stack_flag::NATIVE_CUT | stack_flag::PYTHON_CUT | stack_flag::PYTHON_SEEN));
        assert!(!read.has(stack_flag::NATIVE_WHOLE));
    }

    #[test]
    fn a_payload_with_too_few_or_too_many_frames_is_none() {
        let mut out = [0; MAX_PAYLOAD_BYTES];
        let whole = stack(0, &[1, 2], &[PythonFrame::default()], &mut out).to_vec();
        let with = |at: usize, value: u8| {
            let mut payload = whole.clone();
            payload[at] = value;
            Stack::read(&payload)
        };
        assert!(Stack::read(&whole).is_some());
        assert_eq!((with(3, 4), with(4, 2), with(3, 255)), (None, None, None));
        assert_eq!(with(0, 3), None, "a length that cuts the stack short");
        assert_eq!(Stack::read(&[]), None);
        assert_eq!(with(5, 9), Stack::read(&whole), "the reserved byte is ignored");
    }

    #[test]
    fn names_of_codes_return_and_are_cut_to_fit() {
        let mut out = [0; MAX_PAYLOAD_BYTES];
        let name = |file: &str, function: &str| CodeName { file: file.into(), function: function.into() };
        assert_eq!(CodeName::read(code_name(b"/a/b.py", b"Model.forward", &mut out)), name("/a/b.py", "Model.forward"));
        let long = CodeName::read(code_name(&[b'f'; 5000], &[b'g'; 5000], &mut out));
        assert!(long.file.len() > 800 && long.function.len() > 800 && long.function.ends_with('g'));
        assert_eq!(CodeName::read(pack(b"alone", &mut out)), name("alone", ""));
    }
}
