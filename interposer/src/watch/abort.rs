//! What a program says when it gives up: ggml's `ggml_abort(file, line, format, ...)`.

use crate::base::program_memory;

/// Arguments behind the format that came in registers.
const IN_REGISTERS: usize = 3;
/// Bytes of one text that is put in.
const PART_BYTES: usize = 512;

/// A text that is cut where its room ends.
struct Line<'a> {
    out: &'a mut [u8],
    length: usize,
}

impl Line<'_> {
    fn push(&mut self, bytes: &[u8]) {
        let count = bytes.len().min(self.out.len() - self.length);
        self.out[self.length..self.length + count].copy_from_slice(&bytes[..count]);
        self.length += count;
    }

    /// A text of the program's; nothing where it can't be read.
    fn push_text(&mut self, address: u64) {
        let mut part = [0; PART_BYTES];
        let length = program_memory::text(address, &mut part);
        self.push(&part[..length]);
    }

    fn push_number(&mut self, number: i64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        let mut rest = number.unsigned_abs();
        while at == digits.len() || rest != 0 {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        self.push(if number < 0 { b"-" } else { b"" });
        self.push(&digits[at..]);
    }
}

/// Writes `FILE:LINE: TEXT` and returns its length. `registers`: the six integer arguments.
pub(super) fn text(registers: &[u64; 6], out: &mut [u8]) -> usize {
    let [file, line_number, format, arguments @ ..] = *registers;
    let mut line = Line { out, length: 0 };
    line.push_text(file);
    line.push(b":");
    line.push_number(i64::from(line_number as i32));
    line.push(b": ");
    let mut part = [0; PART_BYTES];
    let length = program_memory::text(format, &mut part);
    fill_in(&part[..length], arguments, &mut line);
    line.length
}

/// The format with its first arguments, as long as they are texts and plain whole numbers in registers. From the first that is
/// anything else on the format stays as it is: where its argument lies is not known here.
fn fill_in(mut format: &[u8], arguments: [u64; IN_REGISTERS], line: &mut Line<'_>) {
    let mut arguments = arguments.into_iter();
    while let Some(at) = format.iter().position(|byte| *byte == b'%') {
        let (before, rest) = format.split_at(at);
        line.push(before);
        format = rest;
        let after = match rest {
            [_, b'%', after @ ..] => {
                line.push(b"%");
                after
            }
            [_, b's', after @ ..] => {
                let Some(argument) = arguments.next() else { break };
                line.push_text(argument);
                after
            }
            [_, b'd' | b'i', after @ ..] => {
                let Some(argument) = arguments.next() else { break };
                line.push_number(i64::from(argument as i32));
                after
            }
            [_, b'l' | b'z', b'd' | b'i' | b'u', after @ ..] => {
                let Some(argument) = arguments.next() else { break };
                line.push_number(argument as i64);
                after
            }
            _ => break,
        };
        format = after;
    }
    line.push(format);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(format: &std::ffi::CStr, arguments: [u64; IN_REGISTERS]) -> String {
        let mut out = [0; 200];
        let [a, b, c] = arguments;
        let registers = [c"ggml.c".as_ptr() as u64, 77, format.as_ptr() as u64, a, b, c];
        let length = text(&registers, &mut out);
        String::from_utf8_lossy(&out[..length]).into_owned()
    }

    #[test]
    fn arguments_in_registers_are_put_in() {
        let text = c"x != NULL".as_ptr() as u64;
        assert_eq!(said(c"GGML_ASSERT(%s) failed", [text, 0, 0]), "ggml.c:77: GGML_ASSERT(x != NULL) failed");
        assert_eq!(said(c"100%%: %d of %zu", [-5i64 as u64, 1 << 40, 0]), "ggml.c:77: 100%: -5 of 1099511627776");
        assert_eq!(said(c"%s", [8, 0, 0]), "ggml.c:77: ", "no text there");
    }

    #[test]
    fn what_lies_elsewhere_stays_a_format() {
        assert_eq!(said(c"%d %.2f %s", [1, 2, 3]), "ggml.c:77: 1 %.2f %s");
        assert_eq!(said(c"%d%d%d%d", [1, 2, 3]), "ggml.c:77: 123%d");
        assert_eq!(said(c"%", [1, 2, 3]), "ggml.c:77: %");
    }

    #[test]
    fn a_long_text_is_cut() {
        let long = std::ffi::CString::new(vec![b'x'; 4000]).unwrap();
        assert_eq!(said(&long, [0; 3]).len(), 200);
    }
}
