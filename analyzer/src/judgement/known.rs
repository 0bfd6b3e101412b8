//! What is known, and what is not: unknown is a value of its own, with the name of the reading that is missing.

/// Whether a predicate holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// It does.
    Yes,
    /// It does not.
    No,
    /// Nobody can say without this reading.
    Unknown(&'static str),
}

impl From<bool> for Holds {
    fn from(holds: bool) -> Self {
        if holds { Holds::Yes } else { Holds::No }
    }
}

impl Holds {
    /// Both. What is known to be false decides, whatever is not known.
    pub fn and(self, other: Holds) -> Holds {
        match (self, other) {
            (Holds::No, _) | (_, Holds::No) => Holds::No,
            (Holds::Unknown(reading), _) | (_, Holds::Unknown(reading)) => Holds::Unknown(reading),
            _ => Holds::Yes,
        }
    }

    /// Either. What is known to be true decides, whatever is not known.
    pub fn or(self, other: Holds) -> Holds {
        match (self, other) {
            (Holds::Yes, _) | (_, Holds::Yes) => Holds::Yes,
            (Holds::Unknown(reading), _) | (_, Holds::Unknown(reading)) => Holds::Unknown(reading),
            _ => Holds::No,
        }
    }
}

/// A number that was read, or the name of the reading that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known<T> {
    value: Option<T>,
    reading: &'static str,
}

impl<T: Copy> Known<T> {
    /// A value, and what it is called where it is missing.
    pub fn new(value: Option<T>, reading: &'static str) -> Self {
        Known { value, reading }
    }

    /// The value.
    pub fn get(self) -> Option<T> {
        self.value
    }

    /// What tells it.
    pub fn reading(self) -> &'static str {
        self.reading
    }

    /// Whether something holds for it.
    pub fn is(self, predicate: impl FnOnce(T) -> bool) -> Holds {
        self.value.map_or(Holds::Unknown(self.reading), |value| predicate(value).into())
    }

    /// Another value made from it.
    pub fn map<U: Copy>(self, change: impl FnOnce(T) -> U) -> Known<U> {
        Known { value: self.value.map(change), reading: self.reading }
    }

    /// Both; the first that is missing gives the name.
    pub fn zip<U: Copy>(self, other: Known<U>) -> Known<(T, U)> {
        let reading = if self.value.is_none() { self.reading } else { other.reading };
        Known { value: self.value.zip(other.value), reading }
    }

    /// This, or where it is missing the other.
    pub fn or(self, other: Known<T>) -> Known<T> {
        if self.value.is_some() || other.value.is_none() { self } else { other }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_and_unknown_combine() {
        let unknown = Holds::Unknown("x");
        assert_eq!(unknown.and(Holds::No), Holds::No);
        assert_eq!(unknown.and(Holds::Yes), unknown);
        assert_eq!(unknown.or(Holds::Yes), Holds::Yes);
        assert_eq!(unknown.or(Holds::No), unknown);
        let (three, none) = (Known::new(Some(3), "three"), Known::<i32>::new(None, "none"));
        assert_eq!(three.zip(none).is(|_| true), Holds::Unknown("none"));
        assert_eq!(none.or(three).get(), Some(3));
    }
}
