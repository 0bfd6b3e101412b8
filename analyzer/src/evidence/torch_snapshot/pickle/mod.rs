//! Python's pickle format, as far as plain data needs it: numbers, strings, lists, tuples and dictionaries. What would make
//! Python run code (`GLOBAL`, `REDUCE`, `BUILD` and their like) is refused. Protocols 2 to 5, from Python's `pickle` and
//! from the pickler in PyTorch's C++ (torch/csrc/jit/serialization/pickler.cpp).
//!
//! Source: Lib/pickle.py and Lib/pickletools.py of CPython.

#[cfg(test)]
mod tests;

use thiserror::Error;

/// Deepest nesting of marks.
const MOST_MARKS: usize = 1000;
/// A container takes at least this many bytes in a file.
const LEAST_BYTES_OF_A_CONTAINER: usize = 2;

/// Why a pickle could not be read, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("offset {offset}: {reason}")]
pub struct PickleError {
    /// Bytes from the beginning of the file.
    pub offset: u64,
    /// What is wrong there.
    pub reason: Reason,
}

/// What is wrong in a pickle.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Reason {
    /// It would run code.
    #[error(
        "the opcode {name} makes Python look up or call things, which a memory snapshot never needs; the file is refused"
    )]
    Refused {
        /// Name of the opcode.
        name: &'static str,
    },
    /// An opcode that plain data of protocol 2 to 5 does not have.
    #[error(
        "the byte {byte:#04x} is no opcode that a memory snapshot has; is the file a pickle of torch.cuda.memory._dump_snapshot?"
    )]
    Unknown {
        /// The opcode.
        byte: u8,
    },
    /// The file does not begin as a pickle does.
    #[error("this is no pickle of protocol 2 to 5; torch.cuda.memory._dump_snapshot writes one")]
    NoPickle,
    /// The file ends too early.
    #[error("the file ends in the middle; it was cut or is still being written")]
    Truncated,
    /// The stack lacks what an opcode takes from it.
    #[error("an opcode finds nothing to work on; the file is damaged")]
    Underflow,
    /// What an opcode works on is of another kind.
    #[error("an opcode works on the wrong kind of value; the file is damaged")]
    WrongKind,
    /// A number of the memo that was never given.
    #[error("a value is taken from the memo that was never put there; the file is damaged")]
    NoMemo,
    /// A string that is not UTF-8.
    #[error("a string is not UTF-8; the file is damaged")]
    NoText,
    /// Nested too deeply.
    #[error("lists are nested more than {MOST_MARKS} deep")]
    TooDeep,
    /// More containers than the bytes can hold in a pickle of Python's.
    #[error("there are more lists than a file of this size has; the file was made up")]
    TooMany,
}

/// A value. Containers lie in the [`Arena`], strings in the file: nothing is copied, and what the file shares stays shared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// `None`.
    Nothing,
    /// `True`, `False`.
    Bool(bool),
    /// An integer. Larger ones are saturated.
    Int(i64),
    /// An integer above that, to 64 bits: an address.
    Unsigned(u64),
    /// A float.
    Float(f64),
    /// Where a string lies, and how long it is.
    Text(u32, u32),
    /// A list or tuple.
    List(u32),
    /// A dictionary.
    Dict(u32),
}

/// The containers of a pickle.
#[derive(Debug)]
pub struct Arena<'a> {
    bytes: &'a [u8],
    /// Lists as they are, dictionaries as key, value, key, value.
    containers: Vec<Vec<Value>>,
}

impl<'a> Arena<'a> {
    /// The string of a value.
    pub fn text(&self, value: Value) -> Option<&'a str> {
        let Value::Text(at, length) = value else { return None };
        std::str::from_utf8(self.bytes.get(at as usize..at as usize + length as usize)?).ok()
    }

    /// The items of a list or tuple.
    pub fn list(&self, value: Value) -> Option<&[Value]> {
        let Value::List(at) = value else { return None };
        self.containers.get(at as usize).map(Vec::as_slice)
    }

    /// The keys and values of a dictionary.
    pub fn pairs(&self, value: Value) -> Option<impl Iterator<Item = (Value, Value)> + '_> {
        let Value::Dict(at) = value else { return None };
        let items = self.containers.get(at as usize)?;
        Some(items.chunks_exact(2).map(|pair| (pair[0], pair[1])))
    }

    /// The value of a key. The last one counts, as in Python.
    pub fn get(&self, dict: Value, key: &str) -> Option<Value> {
        self.pairs(dict)?.filter(|(name, _)| self.text(*name) == Some(key)).last().map(|(_, value)| value)
    }
}

/// Reads the first value of a pickle.
pub fn read(bytes: &[u8]) -> Result<(Arena<'_>, Value), PickleError> {
    let error = |offset: usize, reason| PickleError { offset: offset as u64, reason };
    if !matches!(bytes, [0x80, 2..=5, ..]) {
        return Err(error(0, Reason::NoPickle));
    }
    let mut machine = Machine {
        arena: Arena { bytes, containers: Vec::new() },
        at: 0,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Vec::new(),
    };
    loop {
        let offset = machine.at;
        match machine.step() {
            Ok(None) => {}
            Ok(Some(value)) => return Ok((machine.arena, value)),
            Err(reason) => return Err(error(offset, reason)),
        }
    }
}

struct Machine<'a> {
    arena: Arena<'a>,
    at: usize,
    stack: Vec<Value>,
    marks: Vec<usize>,
    memo: Vec<Option<Value>>,
}

/// Opcodes that look up or call things, and those for values of other processes.
const REFUSED: [(u8, &str); 19] = [
    (b'c', "GLOBAL"),
    (b'R', "REDUCE"),
    (b'b', "BUILD"),
    (b'i', "INST"),
    (b'o', "OBJ"),
    (b'P', "PERSID"),
    (b'Q', "BINPERSID"),
    (0x81, "NEWOBJ"),
    (0x82, "EXT1"),
    (0x83, "EXT2"),
    (0x84, "EXT4"),
    (0x92, "NEWOBJ_EX"),
    (0x93, "STACK_GLOBAL"),
    (0x97, "NEXT_BUFFER"),
    (0x98, "READONLY_BUFFER"),
    (0x8f, "EMPTY_SET"),
    (0x90, "ADDITEMS"),
    (0x91, "FROZENSET"),
    (0x96, "BYTEARRAY8"),
];

impl<'a> Machine<'a> {
    /// One opcode; the value if it was the last.
    fn step(&mut self) -> Result<Option<Value>, Reason> {
        let opcode = self.take(1)?[0];
        match opcode {
            0x80 => drop(self.take(1)?),
            0x95 => drop(self.take(8)?),
            b'.' => return self.pop().map(Some),
            b'N' => self.stack.push(Value::Nothing),
            0x88 => self.stack.push(Value::Bool(true)),
            0x89 => self.stack.push(Value::Bool(false)),
            b'J' | b'K' | b'M' | 0x8a | 0x8b | b'G' => self.number(opcode)?,
            b'X' | 0x8c | 0x8d => self.string(opcode)?,
            b'(' => self.mark()?,
            b'0' => drop(self.pop()?),
            b'1' => drop(self.pop_to_mark()?),
            b'2' => self.stack.push(*self.stack.last().ok_or(Reason::Underflow)?),
            b']' => self.container(Vec::new(), Value::List)?,
            b'}' => self.container(Vec::new(), Value::Dict)?,
            b')' | 0x85 | 0x86 | 0x87 | b't' | b'l' => self.tuple(opcode)?,
            b'd' => {
                let items = self.pop_to_mark()?;
                self.container(items, Value::Dict)?;
            }
            b'a' | b'e' | b's' | b'u' => self.grow(opcode)?,
            b'q' | b'r' | 0x94 | b'h' | b'j' => self.memo(opcode)?,
            _ => return Err(refuse(opcode)),
        }
        Ok(None)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Reason> {
        let end = self.at.checked_add(length).ok_or(Reason::Truncated)?;
        let taken = self.arena.bytes.get(self.at..end).ok_or(Reason::Truncated)?;
        self.at = end;
        Ok(taken)
    }

    /// An unsigned number of up to eight bytes, the lowest first.
    fn unsigned(&mut self, length: usize) -> Result<u64, Reason> {
        Ok(self.take(length)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn pop(&mut self) -> Result<Value, Reason> {
        if self.marks.last().is_some_and(|mark| *mark == self.stack.len()) {
            return Err(Reason::Underflow);
        }
        self.stack.pop().ok_or(Reason::Underflow)
    }

    fn mark(&mut self) -> Result<(), Reason> {
        if self.marks.len() >= MOST_MARKS {
            return Err(Reason::TooDeep);
        }
        self.marks.push(self.stack.len());
        Ok(())
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Value>, Reason> {
        let mark = self.marks.pop().ok_or(Reason::Underflow)?;
        // `pop` never goes below a mark.
        Ok(self.stack.split_off(mark))
    }

    fn container(&mut self, items: Vec<Value>, kind: fn(u32) -> Value) -> Result<(), Reason> {
        if self.arena.containers.len() > self.arena.bytes.len() / LEAST_BYTES_OF_A_CONTAINER {
            return Err(Reason::TooMany);
        }
        let number = u32::try_from(self.arena.containers.len()).map_err(|_| Reason::TooMany)?;
        self.arena.containers.push(items);
        self.stack.push(kind(number));
        Ok(())
    }

    fn number(&mut self, opcode: u8) -> Result<(), Reason> {
        let value = match opcode {
            b'J' => Value::Int(i64::from(self.unsigned(4)? as u32 as i32)),
            b'K' => Value::Int(self.unsigned(1)? as i64),
            b'M' => Value::Int(self.unsigned(2)? as i64),
            b'G' => {
                let bytes: [u8; 8] = self.take(8)?.try_into().map_err(|_| Reason::Truncated)?;
                Value::Float(f64::from_be_bytes(bytes))
            }
            _ => {
                let length = self.unsigned(if opcode == 0x8a { 1 } else { 4 })?;
                long(self.take(usize::try_from(length).map_err(|_| Reason::Truncated)?)?)
            }
        };
        self.stack.push(value);
        Ok(())
    }

    fn string(&mut self, opcode: u8) -> Result<(), Reason> {
        let length = self.unsigned(match opcode {
            0x8c => 1,
            b'X' => 4,
            _ => 8,
        })?;
        let at = u32::try_from(self.at).map_err(|_| Reason::TooMany)?;
        let bytes = self.take(usize::try_from(length).map_err(|_| Reason::Truncated)?)?;
        // Python writes lone surrogates with "surrogatepass"; such a name is of no use to anybody.
        std::str::from_utf8(bytes).map_err(|_| Reason::NoText)?;
        self.stack.push(Value::Text(at, length as u32));
        Ok(())
    }

    fn tuple(&mut self, opcode: u8) -> Result<(), Reason> {
        let items = match opcode {
            b')' => Vec::new(),
            0x85..=0x87 => {
                let mut items = Vec::new();
                for _ in 0..opcode - 0x84 {
                    items.push(self.pop()?);
                }
                items.reverse();
                items
            }
            _ => self.pop_to_mark()?,
        };
        self.container(items, Value::List)
    }

    /// Puts items into the list or dictionary below them.
    fn grow(&mut self, opcode: u8) -> Result<(), Reason> {
        let items = match opcode {
            b'a' => vec![self.pop()?],
            b's' => {
                let value = self.pop()?;
                vec![self.pop()?, value]
            }
            _ => self.pop_to_mark()?,
        };
        let into_list = matches!(opcode, b'a' | b'e');
        let at = match self.stack.last() {
            Some(Value::List(at)) if into_list => *at,
            Some(Value::Dict(at)) if !into_list && items.len().is_multiple_of(2) => *at,
            Some(_) => return Err(Reason::WrongKind),
            None => return Err(Reason::Underflow),
        };
        let container = self.arena.containers.get_mut(at as usize).ok_or(Reason::WrongKind)?;
        if container.is_empty() {
            *container = items;
        } else {
            container.extend(items);
        }
        Ok(())
    }

    fn memo(&mut self, opcode: u8) -> Result<(), Reason> {
        let number = match opcode {
            b'q' | b'h' => self.unsigned(1)?,
            b'r' | b'j' => self.unsigned(4)?,
            _ => self.memo.len() as u64,
        } as usize;
        if matches!(opcode, b'h' | b'j') {
            self.stack.push(self.memo.get(number).copied().flatten().ok_or(Reason::NoMemo)?);
            return Ok(());
        }
        let value = *self.stack.last().ok_or(Reason::Underflow)?;
        // Each number is given by an opcode of its own: there are not more than bytes.
        if number >= self.arena.bytes.len() {
            return Err(Reason::NoMemo);
        }
        if number >= self.memo.len() {
            self.memo.resize(number + 1, None);
        }
        self.memo[number] = Some(value);
        Ok(())
    }
}

/// A number of any length, the lowest byte first, in two's complement.
fn long(bytes: &[u8]) -> Value {
    let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let fill = if negative { 0xff } else { 0 };
    let fits = bytes.iter().skip(8).all(|byte| *byte == fill);
    let mut low = [fill; 8];
    low.iter_mut().zip(bytes).for_each(|(low, byte)| *low = *byte);
    let number = u64::from_le_bytes(low);
    match (fits, negative) {
        (true, true) if number > i64::MAX as u64 => Value::Int(number as i64),
        (_, true) => Value::Int(i64::MIN),
        (true, false) => i64::try_from(number).map_or(Value::Unsigned(number), Value::Int),
        (false, false) => Value::Unsigned(u64::MAX),
    }
}

fn refuse(opcode: u8) -> Reason {
    match REFUSED.iter().find(|(byte, _)| *byte == opcode) {
        Some((_, name)) => Reason::Refused { name },
        None => Reason::Unknown { byte: opcode },
    }
}
