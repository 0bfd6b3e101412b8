//! A format and its arguments as a text, as far as that can be done without running the C library's code or reading what may not be
//! there.
//!
//! Where the arguments of a variadic call lie, the ABI says (System V, x86-64): whole numbers and pointers in the integer registers
//! that are left, floating-point numbers in vector registers, and each in the next word of the stack once its registers are used up.

use std::fmt::{self, Write};

use crate::base::program_memory;

/// Bytes of one argument that are put in.
const PART_BYTES: usize = 512;
/// No more decimals are put in.
const MOST_DECIMALS: usize = 20;
const INTEGERS: usize = 6;
const VECTORS: usize = 8;

/// The arguments of a variadic call that were not taken yet.
#[derive(Clone, Copy)]
pub(super) struct Variadic<'a> {
    /// The integer registers, of which the first `integers_taken` are used up.
    pub(super) integers: &'a [u64; INTEGERS],
    pub(super) integers_taken: usize,
    /// The vector registers; a number is in the lower half.
    pub(super) vectors: &'a [[u64; 2]; VECTORS],
    pub(super) vectors_taken: usize,
    /// Address of the next argument on the stack.
    pub(super) on_stack: u64,
}

impl Variadic<'_> {
    fn integer(&mut self) -> Option<u64> {
        let taken = self.integers_taken;
        self.integers_taken += 1;
        self.integers.get(taken).copied().or_else(|| self.of_stack())
    }

    fn float(&mut self) -> Option<f64> {
        let taken = self.vectors_taken;
        self.vectors_taken += 1;
        self.vectors.get(taken).map(|vector| vector[0]).or_else(|| self.of_stack()).map(f64::from_bits)
    }

    fn of_stack(&mut self) -> Option<u64> {
        let at = self.on_stack;
        self.on_stack = at.wrapping_add(8);
        program_memory::word(at)
    }
}

/// A text that is cut where its room ends.
pub(super) struct Line<'a> {
    out: &'a mut [u8],
    pub(super) length: usize,
}

impl Line<'_> {
    pub(super) fn new(out: &mut [u8]) -> Line<'_> {
        Line { out, length: 0 }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let count = bytes.len().min(self.out.len() - self.length);
        self.out[self.length..self.length + count].copy_from_slice(&bytes[..count]);
        self.length += count;
    }

    /// A text of the program's; nothing where it can't be read.
    pub(super) fn push_text(&mut self, address: u64) {
        let mut part = [0; PART_BYTES];
        let length = program_memory::text(address, &mut part);
        self.push(&part[..length]);
    }

    /// The format at that address with its arguments, up to the first that is of another sort than those known here: from there on it
    /// stays as it is, because nobody knows where what follows lies.
    pub(super) fn push_format(&mut self, address: u64, mut arguments: Variadic<'_>) {
        let mut part = [0; PART_BYTES];
        let length = program_memory::text(address, &mut part);
        let mut format = &part[..length];
        while let Some(at) = format.iter().position(|byte| *byte == b'%') {
            let (before, rest) = format.split_at(at);
            self.push(before);
            format = rest;
            let Some((directive, after)) = Directive::parse(&rest[1..]) else { break };
            if self.push_argument(&directive, &mut arguments).is_err() {
                break;
            }
            format = after;
        }
        self.push(format);
    }

    fn push_argument(&mut self, directive: &Directive, arguments: &mut Variadic<'_>) -> Result<(), Strange> {
        let mut part = [0; PART_BYTES];
        let width = Amount::take(directive.width, arguments)?.unwrap_or(0);
        let precision = Amount::take(directive.precision, arguments)?;
        let length = directive.write(arguments, precision, &mut part).ok_or(Strange)?;
        let missing = width.saturating_sub(length).min(PART_BYTES);
        let has_zeros = directive.has_zeros && directive.conversion != b's';
        let (sign, rest) = part[..length].split_at(usize::from(has_zeros && part[0] == b'-'));
        self.push(sign);
        (0..missing).filter(|_| !directive.is_left).for_each(|_| self.push(if has_zeros { b"0" } else { b" " }));
        self.push(rest);
        (0..missing).filter(|_| directive.is_left).for_each(|_| self.push(b" "));
        Ok(())
    }
}

impl Write for Line<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

/// An argument of which nothing is known, not even where it lies.
struct Strange;

/// A width or a precision.
#[derive(Clone, Copy)]
enum Amount {
    Fixed(usize),
    Argument,
}

impl Amount {
    /// Takes it off the format, if one stands there.
    fn parse(text: &mut &[u8]) -> Option<Amount> {
        if let [b'*', rest @ ..] = *text {
            *text = rest;
            return Some(Amount::Argument);
        }
        let (number, rest) = text.split_at(text.iter().take_while(|byte| byte.is_ascii_digit()).count());
        *text = rest;
        let add = |sum: usize, digit: &u8| sum.saturating_mul(10).saturating_add(usize::from(digit - b'0'));
        (!number.is_empty()).then(|| Amount::Fixed(number.iter().fold(0, add)))
    }

    /// A negative argument means something else.
    fn take(amount: Option<Amount>, arguments: &mut Variadic<'_>) -> Result<Option<usize>, Strange> {
        Ok(match amount {
            None => None,
            Some(Amount::Fixed(amount)) => Some(amount),
            Some(Amount::Argument) => {
                let argument = arguments.integer().ok_or(Strange)?;
                Some(usize::try_from(argument as i32).map_err(|_| Strange)?)
            }
        })
    }
}

/// What stands behind a `%`.
struct Directive {
    is_left: bool,
    has_zeros: bool,
    width: Option<Amount>,
    precision: Option<Amount>,
    /// Whether a whole number has 64 bits.
    is_long: bool,
    conversion: u8,
}

impl Directive {
    /// The directive and what follows it; nothing where it is none of the usual ones.
    fn parse(mut text: &[u8]) -> Option<(Directive, &[u8])> {
        let (mut is_left, mut has_zeros) = (false, false);
        while let [flag @ (b'-' | b'0'), rest @ ..] = text {
            is_left |= *flag == b'-';
            has_zeros |= *flag == b'0';
            text = rest;
        }
        let width = Amount::parse(&mut text);
        let mut precision = None;
        if let [b'.', rest @ ..] = text {
            text = rest;
            precision = Some(Amount::parse(&mut text).unwrap_or(Amount::Fixed(0)));
        }
        let (size, rest) = text.split_at(text.iter().take_while(|byte| b"lzjt".contains(byte)).count());
        let (conversion, after) = rest.split_first()?;
        let is_known = match conversion {
            b'd' | b'i' | b'u' | b'x' => precision.is_none(),
            b's' | b'f' | b'c' | b'p' | b'%' => size.is_empty(),
            _ => false,
        };
        let (has_zeros, is_long, conversion) = (has_zeros && !is_left, !size.is_empty(), *conversion);
        is_known.then_some((Directive { is_left, has_zeros, width, precision, is_long, conversion }, after))
    }

    /// Writes the argument and answers with its length; nothing where it can't be had.
    fn write(&self, arguments: &mut Variadic<'_>, precision: Option<usize>, out: &mut [u8]) -> Option<usize> {
        let mut line = Line::new(out);
        match self.conversion {
            b'%' => line.push(b"%"),
            b'c' => line.push(&[arguments.integer()? as u8]),
            b's' => {
                // Behind its precision a text need not end.
                let mut part = [0; PART_BYTES];
                let part = &mut part[..precision.unwrap_or(PART_BYTES).min(PART_BYTES)];
                let length = program_memory::text(arguments.integer()?, part);
                line.push(&part[..length]);
            }
            b'f' => {
                let decimals = precision.unwrap_or(6).min(MOST_DECIMALS);
                write!(line, "{:.decimals$}", arguments.float()?).ok()?;
            }
            b'p' => write!(line, "{:#x}", arguments.integer()?).ok()?,
            _ => self.write_whole(arguments.integer()?, &mut line).ok()?,
        }
        Some(line.length)
    }

    fn write_whole(&self, value: u64, line: &mut Line<'_>) -> fmt::Result {
        match (self.conversion, self.is_long) {
            (b'x', true) => write!(line, "{value:x}"),
            (b'x', false) => write!(line, "{:x}", value as u32),
            (b'u', true) => write!(line, "{value}"),
            (b'u', false) => write!(line, "{}", value as u32),
            (_, true) => write!(line, "{}", value as i64),
            (_, false) => write!(line, "{}", value as i32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(format: &std::ffi::CStr, integers: [u64; INTEGERS], floats: &[f64], stack: &[u64]) -> String {
        let mut vectors = [[0; 2]; VECTORS];
        vectors.iter_mut().zip(floats).for_each(|(vector, float)| vector[0] = float.to_bits());
        let on_stack = stack.as_ptr() as u64;
        let arguments =
            Variadic { integers: &integers, integers_taken: 2, vectors: &vectors, vectors_taken: 0, on_stack };
        let mut out = [0; 200];
        let mut line = Line::new(&mut out);
        line.push_format(format.as_ptr() as u64, arguments);
        let length = line.length;
        String::from_utf8_lossy(&out[..length]).into_owned()
    }

    #[test]
    fn arguments_come_from_registers_and_then_from_the_stack() {
        let name = c"alloc_buffer".as_ptr() as u64;
        let reason = c"out of memory".as_ptr() as u64;
        let format = c"%s: allocating %.2f MiB on device %d: cudaMalloc failed: %s\n";
        let text = "alloc_buffer: allocating 12.51 MiB on device 1: cudaMalloc failed: out of memory\n";
        assert_eq!(said(format, [0, 0, name, 1, reason, 0], &[12.512], &[]), text);
        let format = c"%d %d %d %d %lu %zu %x %u";
        let minus = -2i32 as u32;
        let text = "1 2 3 -2 5 18446744073709551615 ff 4294967295";
        let stack = [5, u64::MAX, 255, u64::from(u32::MAX)];
        let format_and = [0, 0, 1, 2, 3, u64::from(minus)];
        assert_eq!(said(format, format_and, &[], &stack), text, "the upper half of a register is not the argument's");
        let nine = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        let stack = [9.5f64.to_bits(), 7];
        let format = c"%.0f%.0f%.0f%.0f%.0f%.0f%.0f%.0f %.1f %d%d%d%d%d";
        assert_eq!(said(format, [0, 0, 3, 4, 5, 6], &nine, &stack), "12345678 9.5 34567");
    }

    #[test]
    fn widths_and_precisions_are_as_the_c_library_has_them() {
        let text = c"abc".as_ptr() as u64;
        let name = c"longer than that".as_ptr() as u64;
        assert_eq!(said(c"[%5d|%-5d|%05d]", [0, 0, 7, 7, -7i64 as u64, 0], &[], &[]), "[    7|7    |-0007]");
        assert_eq!(said(c"[%*s|%.*s|%.3s]", [0, 0, 5, text, 6, name], &[], &[text]), "[  abc|longer|abc]");
        assert_eq!(said(c"[%8.2f|%.f|%f]", [0; 6], &[-1.006, 2.5, 0.5], &[]), "[   -1.01|2|0.500000]");
        assert_eq!(said(c"[%c%%|%p]", [0, 0, u64::from(b'x'), 4096, 0, 0], &[], &[]), "[x%|0x1000]");
    }

    #[test]
    fn what_is_not_known_ends_it() {
        for rest in [c"%g %d", c"%Lf", c"%n", c"%1$d", c"%+d", c"%.3d", c"%hhd", c"%ls", c"%", c"%5"] {
            let text = [c"%d ".to_bytes(), rest.to_bytes()].concat();
            let text = std::ffi::CString::new(text).unwrap();
            assert_eq!(said(&text, [0, 0, 9, 8, 7, 6], &[], &[]), format!("9 {}", rest.to_str().unwrap()));
        }
        let negative = [0, 0, u64::from(-1i32 as u32), 0, 0, 0];
        assert_eq!(said(c"%*d", negative, &[], &[]), "%*d");
        assert_eq!(said(c"%s|%s|", [0, 0, 8, 0, 0, 0], &[], &[]), "||", "no texts there");
    }
}
