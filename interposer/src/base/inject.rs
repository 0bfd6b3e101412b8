//! `GPUOOM_INJECT`, as it is written: which calls are to fail.

/// What the variable is to hold, for the line about one that can't be understood.
pub(crate) const EXPECTED: &str = "oom@N, oom>SIZE, oom%PERCENT or oom@FILE+0xOFFSET[#N], several separated by commas";

/// What is wrong with a value, where there is more to say than what was expected.
pub(crate) type Wrong = Option<String>;

/// Rules that are kept; nobody writes so many.
pub(crate) const MAX_RULES: usize = 16;

/// One rule.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Rule {
    /// `oom@N`: the N-th allocation call of the process.
    Call(u64),
    /// `oom>SIZE`: requests for more than so many bytes.
    Above(u64),
    /// `oom%PERCENT`: so many of a hundred calls, drawn from the seed and the call's number.
    Chance(f64),
    /// `oom@FILE+0xOFFSET`, `oom@FILE+0xOFFSET#N`: calls that return there.
    Site(Site),
}

/// A place in a library or in the program.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Site {
    /// File name without its directory.
    pub(crate) file: String,
    /// Return address, counted from the file's first loaded byte.
    pub(crate) offset: u64,
    /// Only the N-th call from there, counted from 1.
    pub(crate) nth: Option<u64>,
}

/// Reads the variable.
pub(crate) fn parse(text: &str) -> Result<Vec<Rule>, Wrong> {
    let rules: Vec<Rule> = text.split(',').map(|one| rule(one.trim())).collect::<Result<_, _>>()?;
    Some(rules).filter(|rules| rules.len() <= MAX_RULES).ok_or(None)
}

fn rule(text: &str) -> Result<Rule, Wrong> {
    let rest = text.strip_prefix("oom").ok_or(None)?;
    if let Some(value) = rest.strip_prefix('>') {
        return gpuoom_units::size(value).map(Rule::Above).map_err(|invalid| Some(invalid.to_string()));
    }
    let percent = |text: &str| text.parse().ok().filter(|percent| (0.0..=100.0).contains(percent)).map(Rule::Chance);
    let known = match (rest.strip_prefix('@'), rest.strip_prefix('%')) {
        (Some(value), _) if value.contains('+') => site(value).map(Rule::Site),
        (Some(value), _) => count(value).map(Rule::Call),
        (_, Some(value)) => percent(value),
        _ => None,
    };
    known.ok_or(None)
}

fn site(text: &str) -> Option<Site> {
    let (place, nth) = match text.rsplit_once('#') {
        Some((place, nth)) => (place, Some(count(nth)?)),
        None => (text, None),
    };
    let (file, offset) = place.rsplit_once("+0x")?;
    let offset = u64::from_str_radix(offset, 16).ok()?;
    (!file.is_empty() && !file.contains('/')).then(|| Site { file: file.to_owned(), offset, nth })
}

fn count(text: &str) -> Option<u64> {
    text.parse().ok().filter(|count| *count >= 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_understood() {
        let site = |nth| Rule::Site(Site { file: "lib+a.so.1".into(), offset: 0x1f0, nth });
        for (text, rules) in [
            ("oom@3", vec![Rule::Call(3)]),
            ("oom>1.5G", vec![Rule::Above(3 << 29)]),
            ("oom%2.5", vec![Rule::Chance(2.5)]),
            ("oom@lib+a.so.1+0x1f0", vec![site(None)]),
            ("oom@lib+a.so.1+0x1f0#2", vec![site(Some(2))]),
            ("oom@1, oom@2", vec![Rule::Call(1), Rule::Call(2)]),
        ] {
            assert_eq!(parse(text), Ok(rules), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        let many = vec!["oom@1"; MAX_RULES + 1].join(",");
        let bad = ["", "oom", "oom@", "oom@0", "oom@-1", "oom%101", "oom%x", "oom>", "oom>-1", "oom@a+12", "oom@+0x1"];
        for text in bad.into_iter().chain(["oom@/a/b+0x1", "oom@a+0x1#0", "oom@1,,oom@2", "fail@1", "oom%NaN", &many]) {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
