//! Names that pools give to their blocks: numbers for the first of them, one number for all others.

use rustc_hash::FxHashMap;

/// Names that are kept of all pools together.
pub const MOST_NAMES: usize = 200;
/// The number of all names that are not kept.
const OTHERS: u8 = MOST_NAMES as u8 + 1;
/// What stands for those.
const OTHER_NAMES: &str = "other names";
/// Bytes of a name that are kept.
const MAX_NAME: usize = 256;

/// A name by its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameNumber(u8);

impl NameNumber {
    /// No name.
    pub const NONE: NameNumber = NameNumber(0);

    /// Whether it stands for all names that are not kept.
    pub(super) fn is_left_out(self) -> bool {
        self.0 == OTHERS
    }
}

/// All names that are known.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    numbers: FxHashMap<Box<[u8]>, NameNumber>,
    texts: Vec<String>,
}

impl Names {
    /// The number of a name; an empty one is none.
    pub(super) fn number(&mut self, name: &[u8]) -> NameNumber {
        let name = &name[..name.len().min(MAX_NAME)];
        if name.is_empty() {
            return NameNumber::NONE;
        }
        if let Some(known) = self.numbers.get(name) {
            return *known;
        }
        if self.texts.len() >= MOST_NAMES {
            return NameNumber(OTHERS);
        }
        self.texts.push(String::from_utf8_lossy(name).into_owned());
        let number = NameNumber(self.texts.len() as u8);
        self.numbers.insert(name.into(), number);
        number
    }

    /// A name by its number.
    pub(super) fn text(&self, number: NameNumber) -> Option<&str> {
        match number {
            NameNumber(OTHERS) => Some(OTHER_NAMES),
            NameNumber(number) => {
                usize::from(number).checked_sub(1).and_then(|place| self.texts.get(place)).map(String::as_str)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_the_bound_are_one() {
        let mut names = Names::default();
        let numbers: Vec<NameNumber> =
            (0..MOST_NAMES + 3).map(|number| names.number(number.to_string().as_bytes())).collect();
        assert_eq!(names.text(numbers[0]), Some("0"));
        assert_eq!(names.text(numbers[MOST_NAMES - 1]), Some("199"));
        assert_eq!(names.text(numbers[MOST_NAMES]), Some(OTHER_NAMES));
        assert_eq!(numbers[MOST_NAMES], numbers[MOST_NAMES + 2]);
        assert!(numbers[MOST_NAMES].is_left_out() && !numbers[MOST_NAMES - 1].is_left_out());
        assert_eq!((names.number(b"7"), names.number(b"")), (numbers[7], NameNumber::NONE));
        assert_eq!(names.text(NameNumber::NONE), None);
    }
}
