//! The wordings of the table: text with places for numbers and names. A line that has the text somewhere is one of that wording, and
//! what stands in the places is what it says.
//!
//! `{requested}` is a number with its unit, `{requested:MiB}` a number that counts so many, `{device:n}` a whole number, `{buffer:w}`
//! words up to what comes behind, `{shape:s}` sizes between commas, and `{*}` anything on the line.

use super::quantity::{Captured, Name, Quantity};
use crate::evidence::torch_message::Printed;

/// Longest words that are read from one place.
const MOST_WORDS: usize = 80;
/// Units that a number may have in a text, the longer ones first.
const UNITS: [&str; 12] = ["bytes", "byte", "KiB", "MiB", "GiB", "TiB", "KB", "kB", "MB", "GB", "TB", "B"];
/// Units of one letter, as TensorFlow writes them.
const LETTERS: [&str; 3] = ["K", "M", "G"];

/// A wording that is ready to be looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template {
    parts: Vec<Part>,
    /// The longest text in it: a line without that needs no closer look.
    rarest: String,
    /// Its bytes.
    bytes: Bytes,
}

/// Which bytes a text has. A line that lacks one of a wording's can't have the wording, which is soon told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bytes([u64; 4]);

impl Bytes {
    pub(super) fn of(text: &str) -> Bytes {
        let mut bytes = Bytes::default();
        text.bytes().for_each(|byte| bytes.0[usize::from(byte >> 6)] |= 1 << (byte & 63));
        bytes
    }

    fn has(self, other: Bytes) -> bool {
        self.0.iter().zip(other.0).all(|(own, other)| own & other == other)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    /// `{*}`
    Anything,
    /// `{requested}`, `{requested:MiB}`
    Size(Quantity, Option<String>),
    /// `{device:n}`
    Number(Name),
    /// `{buffer:w}`
    Words(Name),
    /// `{shape:s}`
    Shape(Name),
}

impl Template {
    /// Reads a wording of the table. None: it is wrong, which a test finds.
    pub(super) fn new(text: &str) -> Option<Template> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once('{') {
            let (place, behind) = behind.split_once('}')?;
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            parts.push(place_of(place)?);
            rest = behind;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        let texts = parts.iter().filter_map(|part| if let Part::Text(text) = part { Some(text) } else { None });
        let rarest = texts.max_by_key(|text| text.len())?.clone();
        matches!(parts.first(), Some(Part::Text(_))).then(|| Template { bytes: Bytes::of(&rarest), parts, rarest })
    }

    /// What the first place of a line says that has this wording, and how many bytes of the line come before it.
    pub(super) fn find(&self, line: &str) -> Option<(usize, Captured)> {
        self.find_in(line, Bytes::of(line))
    }

    /// The same where it is known which bytes the line has.
    pub(super) fn find_in(&self, line: &str, bytes: Bytes) -> Option<(usize, Captured)> {
        let Some(Part::Text(first)) = self.parts.first() else { return None };
        if !bytes.has(self.bytes) || !line.contains(&self.rarest) {
            return None;
        }
        line.match_indices(first.as_str()).find_map(|(at, _)| Some((at, self.read(&line[at..])?)))
    }

    fn read(&self, text: &str) -> Option<Captured> {
        let mut captured = Captured::default();
        let mut rest = text;
        for (place, part) in self.parts.iter().enumerate() {
            rest = match part {
                Part::Text(text) => rest.strip_prefix(text.as_str())?,
                Part::Size(quantity, unit) => {
                    // Columns are filled with blanks.
                    let text = rest.trim_start_matches(' ');
                    let (size, length) = size_at(text, unit.as_deref())?;
                    captured.sizes.insert(*quantity, size);
                    &text[length..]
                }
                Part::Number(name) => take(rest, digits(rest), *name, &mut captured)?,
                Part::Shape(name) => {
                    let is_shape = |character: char| character.is_ascii_digit() || character == ',';
                    let length = rest.find(|character| !is_shape(character)).unwrap_or(rest.len());
                    take(rest, length, *name, &mut captured)?
                }
                Part::Anything => &rest[self.behind(place, rest)?..],
                Part::Words(name) => {
                    let length = self.behind(place, rest)?;
                    (length <= MOST_WORDS).then_some(())?;
                    take(rest, length, *name, &mut captured)?
                }
            };
        }
        Some(captured)
    }

    /// How far it is to the text behind a place; to the end of the line where none is.
    fn behind(&self, place: usize, rest: &str) -> Option<usize> {
        match self.parts.get(place + 1) {
            Some(Part::Text(text)) => rest.find(text.as_str()),
            _ => Some(rest.len()),
        }
    }
}

fn place_of(place: &str) -> Option<Part> {
    if place == "*" {
        return Some(Part::Anything);
    }
    Some(match place.split_once(':') {
        None => Part::Size(Quantity::named(place)?, None),
        Some((name, "n")) => Part::Number(Name::named(name)?),
        Some((name, "w")) => Part::Words(Name::named(name)?),
        Some((name, "s")) => Part::Shape(Name::named(name)?),
        Some((name, unit)) => Part::Size(Quantity::named(name)?, Some(unit.to_owned())),
    })
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

fn take<'a>(text: &'a str, length: usize, name: Name, captured: &mut Captured) -> Option<&'a str> {
    (length > 0).then_some(())?;
    captured.names.insert(name, text[..length].trim().to_owned());
    Some(&text[length..])
}

/// A number with its unit, or one that counts `unit` each; and its length in the text.
fn size_at(text: &str, unit: Option<&str>) -> Option<(Printed, usize)> {
    // A point that ends the sentence is none of the number.
    let length =
        text.find(|character: char| !character.is_ascii_digit() && !".,".contains(character)).unwrap_or(text.len());
    let number = text[..length].trim_end_matches(['.', ',']);
    // CuPy parts thousands by commas.
    let plain: String = number.chars().filter(|character| *character != ',').collect();
    if let Some(unit) = unit {
        return Some((Printed::of(&plain, unit)?, number.len()));
    }
    let behind = &text[number.len()..];
    let blank = usize::from(behind.starts_with(' '));
    let unit = UNITS.iter().chain(&LETTERS).find(|unit| behind[blank..].starts_with(**unit))?;
    Some((Printed::of(&plain, unit)?, number.len() + blank + unit.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(template: &str, line: &str) -> Option<(usize, Captured)> {
        Template::new(template).unwrap().find(line)
    }

    #[test]
    fn places_are_read() {
        let template = "allocating {requested:MiB} MiB on device {device:n}: cudaMalloc failed";
        let (at, said) = found(template, "x: allocating 6144.50 MiB on device 3: cudaMalloc failed: out").unwrap();
        assert_eq!((at, said.sizes[&Quantity::Requested].bytes), (3, 6144 * (1 << 20) + (1 << 19)));
        assert_eq!(said.names[&Name::Device], "3");
        assert_eq!(found(template, "allocating x MiB on device 3: cudaMalloc failed"), None);
        let (_, said) =
            found("Out of memory allocating {requested:B} bytes", "Out of memory allocating 25,600,000 bytes").unwrap();
        assert_eq!(said.sizes[&Quantity::Requested], Printed { bytes: 25_600_000, rounding_bytes: 0 });
        let (_, said) = found(
            "failed to allocate {buffer:w} buffer of size {requested:B}",
            "failed to allocate ROCm0 buffer of size 7",
        )
        .unwrap();
        assert_eq!((said.names[&Name::Buffer].as_str(), said.sizes[&Quantity::Requested].bytes), ("ROCm0", 7));
        let (_, said) =
            found("memory ({needed}) than is available ({available})", "memory (5.0 GiB) than is available (3.9 GiB)")
                .unwrap();
        assert_eq!(said.sizes[&Quantity::Needed].bytes, 5 << 30);
        let (_, said) =
            found("shape[{shape:s}] and type {type:w} on", "shape[16,112,3] and type float on /job").unwrap();
        assert_eq!((said.names[&Name::Shape].as_str(), said.names[&Name::Type].as_str()), ("16,112,3", "float"));
    }

    #[test]
    fn a_later_place_of_the_line_can_be_the_one() {
        let (at, said) = found("size {requested:B}.", "size x, size 12.").unwrap();
        assert_eq!((at, said.sizes[&Quantity::Requested].bytes), (8, 12));
    }

    #[test]
    fn wrong_wordings_are_none() {
        for text in ["", "{requested}", "a {nothing} b", "a {requested", "{*} b"] {
            assert_eq!(Template::new(text), None, "{text}");
        }
    }
}
