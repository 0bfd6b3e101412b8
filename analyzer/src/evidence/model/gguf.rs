//! The header of a GGUF file: metadata and the list of tensors, never the tensors themselves. Everything is bounded.
//!
//! Source: docs/gguf.md of ggml-org/ggml.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use thiserror::Error;

use super::ModelFacts;

/// Most bytes of a header: vocabularies have some megabytes.
const MOST_BYTES: u64 = 256 << 20;
/// Most entries and tensors.
const MOST_ENTRIES: u64 = 1 << 20;
/// Longest text that is kept; longer ones are passed over.
const MOST_TEXT: u64 = 4096;
/// Deepest nesting of lists.
const DEEPEST: u32 = 4;
/// Most numbers of a list that are added up: one for each layer.
const MOST_LAYERS: u64 = 1 << 16;

/// A file that can't be used.
#[derive(Debug, Error)]
pub enum GgufError {
    /// It can't be read, or ends too early.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is no GGUF file.
    #[error("this is no GGUF file of version 2 or 3, whose first bytes are 'GGUF'")]
    NotGguf,
    /// Something in it can't be.
    #[error("{0}: the file is damaged, or larger than a header can be; give --model layers=... instead")]
    Damaged(&'static str),
}

/// A value of the metadata, as far as it is kept.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Number(u64),
    Text(String),
    /// A list of numbers: how many, and their sum.
    Numbers(u64, u64),
    Other,
}

struct Reader<R> {
    from: R,
    left: u64,
}

impl<R: Read> Reader<R> {
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], GgufError> {
        self.spend(N as u64)?;
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn spend(&mut self, bytes: u64) -> Result<(), GgufError> {
        self.left = self.left.checked_sub(bytes).ok_or(GgufError::Damaged("a length in it is too large"))?;
        Ok(())
    }

    fn u32(&mut self) -> Result<u32, GgufError> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, GgufError> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn skip(&mut self, bytes: u64) -> Result<(), GgufError> {
        self.spend(bytes)?;
        let skipped = io::copy(&mut self.from.by_ref().take(bytes), &mut io::sink())?;
        if skipped == bytes { Ok(()) } else { Err(GgufError::Io(io::ErrorKind::UnexpectedEof.into())) }
    }

    /// A text; empty where it is longer than anything that is looked for.
    fn text(&mut self) -> Result<String, GgufError> {
        let length = self.u64()?;
        if length > MOST_TEXT {
            self.skip(length)?;
            return Ok(String::new());
        }
        self.spend(length)?;
        let mut bytes = vec![0; length as usize];
        self.from.read_exact(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn value(&mut self, kind: u32, depth: u32) -> Result<Value, GgufError> {
        Ok(match kind {
            0 | 1 | 7 => Value::Number(u64::from(self.bytes::<1>()?[0])),
            2 | 3 => Value::Number(u64::from(u16::from_le_bytes(self.bytes()?))),
            4 | 5 => Value::Number(u64::from(self.u32()?)),
            10 | 11 => Value::Number(self.u64()?),
            6 => self.skip(4).map(|()| Value::Other)?,
            12 => self.skip(8).map(|()| Value::Other)?,
            8 => Value::Text(self.text()?),
            9 => self.list(depth)?,
            _ => return Err(GgufError::Damaged("a value has no known type")),
        })
    }

    fn list(&mut self, depth: u32) -> Result<Value, GgufError> {
        let (kind, count) = (self.u32()?, self.u64()?);
        if depth >= DEEPEST || count > MOST_BYTES {
            return Err(GgufError::Damaged("a list is too deep or too long"));
        }
        let mut sum = 0u64;
        let mut numbers = count <= MOST_LAYERS;
        for _ in 0..count {
            match self.value(kind, depth + 1)? {
                Value::Number(number) => sum = sum.saturating_add(number),
                _ => numbers = false,
            }
        }
        Ok(if numbers { Value::Numbers(count, sum) } else { Value::Other })
    }
}

/// Facts from a file.
///
/// # Errors
///
/// Where it can't be read or is none.
pub fn from_gguf(path: &Path) -> Result<ModelFacts, GgufError> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    read(BufReader::new(file), bytes)
}

/// Facts from a file's content, of which only the header is read.
pub fn read(from: impl Read, file_bytes: u64) -> Result<ModelFacts, GgufError> {
    let mut reader = Reader { from, left: MOST_BYTES };
    if reader.bytes::<4>().ok() != Some(*b"GGUF") || !(2..=3).contains(&reader.u32()?) {
        return Err(GgufError::NotGguf);
    }
    let (tensors, entries) = (reader.u64()?, reader.u64()?);
    if tensors > MOST_ENTRIES || entries > MOST_ENTRIES {
        return Err(GgufError::Damaged("it says that it has millions of entries"));
    }
    let mut metadata = BTreeMap::new();
    for _ in 0..entries {
        let (name, kind) = (reader.text()?, reader.u32()?);
        let value = reader.value(kind, 0)?;
        if value != Value::Other {
            metadata.insert(name, value);
        }
    }
    let weights = weights_on_card(&mut reader, tensors, file_bytes, &metadata)?;
    Ok(facts(&metadata, weights))
}

fn facts(metadata: &BTreeMap<String, Value>, (weights_bytes, parameters): (u64, u64)) -> ModelFacts {
    let architecture = match metadata.get("general.architecture") {
        Some(Value::Text(name)) => name.as_str(),
        _ => "llama",
    };
    let value = |name: &str| metadata.get(&format!("{architecture}.{name}"));
    let number = |name: &str| match value(name) {
        Some(Value::Number(number)) => Some(*number),
        _ => None,
    };
    let per_layer = match value("attention.head_count_kv") {
        Some(Value::Numbers(_, sum)) => Some(*sum),
        _ => None,
    };
    ModelFacts {
        layers: number("block_count"),
        heads: number("attention.head_count"),
        kv_heads: number("attention.head_count_kv"),
        kv_heads_of_all_layers: per_layer,
        head_dim: number("attention.key_length"),
        value_dim: number("attention.value_length"),
        embedding: number("embedding_length"),
        context: number("context_length"),
        weights_bytes: Some(weights_bytes).filter(|bytes| *bytes > 0),
        parameters: Some(parameters).filter(|parameters| *parameters > 0),
        ..ModelFacts::default()
    }
}

/// Bytes of the tensors that llama.cpp puts on a card with all layers, and parameters of all. The embedding of tokens stays
/// with the processor, unless it is the output, too.
fn weights_on_card<R: Read>(
    reader: &mut Reader<R>,
    tensors: u64,
    file_bytes: u64,
    metadata: &BTreeMap<String, Value>,
) -> Result<(u64, u64), GgufError> {
    let (mut offsets, mut parameters) = (Vec::new(), 0u64);
    let (mut embedding_at, mut has_output) = (None, false);
    for _ in 0..tensors {
        let name = reader.text()?;
        let dimensions = reader.u32()?;
        if dimensions > 8 {
            return Err(GgufError::Damaged("a tensor has too many dimensions"));
        }
        let mut elements = 1u64;
        for _ in 0..dimensions {
            elements = elements.saturating_mul(reader.u64()?);
        }
        let (_kind, offset) = (reader.u32()?, reader.u64()?);
        parameters = parameters.saturating_add(elements);
        has_output |= name == "output.weight";
        if name == "token_embd.weight" {
            embedding_at = Some(offset);
        }
        offsets.push(offset);
    }
    let alignment = match metadata.get("general.alignment") {
        Some(Value::Number(alignment)) => (*alignment).max(1),
        _ => 32,
    };
    let header = (MOST_BYTES - reader.left).checked_next_multiple_of(alignment).unwrap_or(u64::MAX);
    let data = file_bytes.saturating_sub(header);
    offsets.sort_unstable();
    let embedding = embedding_at.filter(|_| has_output).map_or(0, |at| {
        let next = offsets.iter().find(|offset| **offset > at).copied().unwrap_or(data);
        next.saturating_sub(at)
    });
    Ok((data.saturating_sub(embedding), parameters))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(out: &mut Vec<u8>, text: &str) {
        out.extend((text.len() as u64).to_le_bytes());
        out.extend(text.as_bytes());
    }

    fn number(out: &mut Vec<u8>, name: &str, value: u32) {
        text(out, name);
        out.extend(4u32.to_le_bytes());
        out.extend(value.to_le_bytes());
    }

    /// A header with two tensors of 1000 and 500 elements, and 4096 bytes of data in all.
    fn model() -> (Vec<u8>, u64) {
        let mut out = b"GGUF".to_vec();
        out.extend(3u32.to_le_bytes());
        out.extend(3u64.to_le_bytes());
        out.extend(7u64.to_le_bytes());
        text(&mut out, "general.architecture");
        out.extend(8u32.to_le_bytes());
        text(&mut out, "qwen2");
        number(&mut out, "qwen2.block_count", 6);
        number(&mut out, "qwen2.attention.head_count", 8);
        number(&mut out, "qwen2.embedding_length", 256);
        number(&mut out, "qwen2.context_length", 8192);
        text(&mut out, "qwen2.attention.head_count_kv");
        out.extend([9u32.to_le_bytes(), 4u32.to_le_bytes()].concat());
        out.extend(6u64.to_le_bytes());
        [8u32, 8, 8, 8, 8, 4].iter().for_each(|heads| out.extend(heads.to_le_bytes()));
        text(&mut out, "tokenizer.ggml.tokens");
        out.extend([9u32.to_le_bytes(), 8u32.to_le_bytes()].concat());
        out.extend(2u64.to_le_bytes());
        text(&mut out, "a");
        text(&mut out, "b");
        for (name, elements, offset) in
            [("token_embd.weight", 1000u64, 0u64), ("output.weight", 500, 2048), ("x", 9, 3072)]
        {
            text(&mut out, name);
            out.extend(1u32.to_le_bytes());
            out.extend(elements.to_le_bytes());
            out.extend(1u32.to_le_bytes());
            out.extend(offset.to_le_bytes());
        }
        let file_bytes = (out.len() as u64).next_multiple_of(32) + 4096;
        (out, file_bytes)
    }

    #[test]
    fn the_header_tells_the_facts() {
        let (header, file_bytes) = model();
        let facts = read(&header[..], file_bytes).unwrap();
        assert_eq!((facts.layers, facts.context, facts.context_is_certain), (Some(6), Some(8192), false));
        assert_eq!(facts.kv_bytes(), Some(44 * 2 * 8192 * 32 * 2));
        assert_eq!((facts.parameters, facts.weights_bytes), (Some(1509), Some(2048)));
    }

    #[test]
    fn damaged_files_are_refused_and_none_is_too_much() {
        let (header, file_bytes) = model();
        for end in 0..header.len() {
            assert!(read(&header[..end], file_bytes).is_err(), "cut at {end}");
        }
        for at in 0..header.len() {
            for value in [0, 0x7f, 0xff] {
                let mut bent = header.clone();
                bent[at] = value;
                _ = read(&bent[..], file_bytes);
            }
        }
        assert!(matches!(read(&b"PK\x03\x04abcdefgh"[..], 12), Err(GgufError::NotGguf)));
    }
}
