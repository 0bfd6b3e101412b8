//! Patterns with `*` and `?`, for names of call sites and programs.

use std::fmt;

/// Longest pattern, in characters: those of call sites are a few hundred long.
const MAX_CHARACTERS: usize = 4096;

/// A pattern: `*` stands for any text, `?` for one character. Everything else stands for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    pattern: Vec<char>,
}

impl Glob {
    /// A pattern.
    ///
    /// # Errors
    /// A sentence, for an empty one or one that is too long.
    pub fn new(text: &str) -> Result<Self, String> {
        let pattern: Vec<char> = text.chars().collect();
        match pattern.len() {
            0 => Err("an empty pattern fits nothing: write * for everything".to_owned()),
            length if length > MAX_CHARACTERS => {
                Err(format!("a pattern of {length} characters is too long: at most {MAX_CHARACTERS}"))
            }
            _ => Ok(Glob { pattern }),
        }
    }

    /// Whether a name fits. The time is bounded by the product of both lengths.
    pub fn fits(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        let (mut at, mut of) = (0, 0);
        // Where the last star was, and how much of the name it has taken.
        let mut star: Option<(usize, usize)> = None;
        while of < name.len() {
            match self.pattern.get(at) {
                Some('*') => {
                    star = Some((at, of));
                    at += 1;
                }
                Some(c) if *c == '?' || *c == name[of] => (at, of) = (at + 1, of + 1),
                _ => {
                    let Some((star_at, taken)) = star else { return false };
                    star = Some((star_at, taken + 1));
                    (at, of) = (star_at + 1, taken + 1);
                }
            }
        }
        self.pattern[at..].iter().all(|c| *c == '*')
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pattern.iter().try_for_each(|c| write!(f, "{c}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks() {
        for (pattern, name, fits) in [
            ("*", "", true),
            ("*", "anything", true),
            ("train*", "train.py", true),
            ("train*", "retrain", false),
            ("*libtorch*", "hipMalloc < libtorch_hip.so!at::empty", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*a*b*c*", "xxaxxbxxcxx", true),
            ("*a*b*c", "xxaxxbxxcxx", false),
            ("[x]", "x", false),
            ("größe?", "größer", true),
        ] {
            assert_eq!(Glob::new(pattern).unwrap().fits(name), fits, "{pattern} {name}");
        }
        assert!(Glob::new("").is_err() && Glob::new(&"*".repeat(5000)).is_err());
    }

    #[test]
    fn a_hostile_pattern_takes_no_time() {
        let pattern = Glob::new(&"*a".repeat(2000)).unwrap();
        assert!(!pattern.fits(&"a".repeat(1999)));
    }
}
