//! Numbers in the texts of entries: `{free_margin_bytes}` stands for the threshold of that name, so that no text can say another
//! number than the one that decides.

use std::borrow::Cow;

use super::entry::Entry;
use crate::thresholds::{Thresholds, named};

/// An entry whose texts have the numbers by which its rule decides.
pub fn with_numbers(entry: &Entry, thresholds: &Thresholds) -> Entry {
    let all = |texts: &[String]| texts.iter().map(|text| filled(text, thresholds).into_owned()).collect();
    Entry {
        proves: all(&entry.proves),
        any_proves: all(&entry.any_proves),
        refutes: all(&entry.refutes),
        confidence: filled(&entry.confidence, thresholds).into_owned(),
        ..entry.clone()
    }
}

/// A text with the numbers for its placeholders. A test holds that each names a threshold; what names none would stay as it is.
fn filled<'a>(text: &'a str, thresholds: &Thresholds) -> Cow<'a, str> {
    let mut filled = Cow::Borrowed(text);
    for field in placeholders(text) {
        if let Some(known) = named(field) {
            filled = filled.replace(&format!("{{{field}}}"), &known.words_of(thresholds)).into();
        }
    }
    filled
}

/// The names between braces.
fn placeholders(text: &str) -> impl Iterator<Item = &str> {
    text.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{entries, find};

    /// Numbers in these texts that are no thresholds: what they are instead, and the texts.
    const NO_THRESHOLDS: [(&str, &[&str]); 6] = [
        (
            "versions",
            &[
                "older than 7.0",
                "7.0 or later",
                "6.4.0 or 6.4.1",
                "5.6.0:",
                "6.2.0 or older",
                "6.4.0 to 6.4.1",
                "ROCm 7.1:",
                "ROCm 7.14:",
                "ROCm 10.0:",
                "fixed in 10.0",
                "torch is 2.12 or later",
                "before torch 2.7",
                "torch is 2.7 or later",
                "torch 2.12 or 2.13",
                "RDNA4",
                "the 2.12 or 2.13 series (spring 2026)",
                "gfx10, gfx11 or gfx12",
                "gfx1100 or gfx1101",
                "ROCm/rocm-systems#4363",
                "torch 2.7",
                "torch is 2.7 or later",
            ],
        ),
        (
            "settings and what they are compared with",
            &[
                "HSA_XNACK=1",
                "is set in a process that uses torch: to 1",
                "something else than 1",
                "the value is not 1",
                "HSA_ENABLE_SDMA=1",
                "HSA_ENABLE_SDMA=0",
                "HSA_ENABLE_IPC_MODE_LEGACY=1",
                "GPU_MAX_HEAP_SIZE is below 100",
                "threshold is set above 0",
                "(100 under HIP; 75 where the pool is at most 512 MiB; 60 on gfx940 APUs without peers)",
            ],
        ),
        (
            "numbers of the kernel's",
            &["(65,530 unless set)", "times 4096 bytes", "RAM - RAM/64 - 1.5 GiB", "15/16 of the RAM"],
        ),
        (
            "what follows from types and formulas",
            &[
                "times 2 or 4 bytes",
                "(6 for weights, 8 for Adam, 4 for gradients)",
                "8 bytes a parameter",
                "an 8-bit",
                "about 2 bytes a parameter",
                "in fp32",
                "2 x layers x context",
                "cover 80 % of the bytes",
            ],
        ),
        (
            "signs that a reader can look for, and no rule decides by",
            &["at least 140 MiB at a kernel launch", "32 or 128 MiB for each handle", "typically 256 MiB without"],
        ),
        (
            "codes, counts, tiers and names",
            &["137", "libamdhip64", "rose by at least 1", "is above 0", "(T0)", "(T2)", "(T2:", "T0)"],
        ),
    ];

    fn texts() -> impl Iterator<Item = (&'static str, &'static str)> {
        entries().flat_map(|entry| {
            let texts = [&entry.proves, &entry.any_proves, &entry.refutes].into_iter().flatten();
            texts.chain([&entry.confidence]).map(|text| (entry.id.as_str(), text.as_str()))
        })
    }

    #[test]
    fn each_placeholder_is_a_threshold_that_the_entry_uses() {
        for (id, text) in texts() {
            for field in placeholders(text) {
                let known = named(field).unwrap_or_else(|| panic!("{id}: {{{field}}} is no threshold"));
                assert!(known.used_by.contains(&id), "{id}: {{{field}}} is used by {:?}", known.used_by);
            }
            let filled = filled(text, &Thresholds::default());
            assert!(!filled.contains(['{', '}']), "{id}: {filled}");
        }
    }

    #[test]
    fn no_other_number_stands_in_a_text() {
        let mut unused: Vec<&str> = NO_THRESHOLDS.iter().flat_map(|(_, texts)| *texts).copied().collect();
        let mut open = Vec::new();
        for (id, text) in texts() {
            let mut rest = text.to_owned();
            placeholders(text).for_each(|field| rest = rest.replace(&format!("{{{field}}}"), ""));
            for (_, known) in NO_THRESHOLDS {
                for known in known.iter().filter(|known| text.contains(**known)) {
                    rest = rest.replace(known, "");
                    unused.retain(|other| other != known);
                }
            }
            if rest.contains(|c: char| c.is_ascii_digit()) {
                open.push(format!("{id}: '{rest}'"));
            }
        }
        assert!(open.is_empty(), "thresholds, or exceptions?\n{}", open.join("\n"));
        assert_eq!(unused, Vec::<&str>::new(), "in no text");
    }

    #[test]
    fn texts_have_the_numbers_that_decide() {
        let mut thresholds = Thresholds::default();
        let refuted =
            |thresholds: &Thresholds| with_numbers(find("true-capacity").unwrap(), thresholds).refutes.join("; ");
        assert!(refuted(&thresholds).contains("above the request by at least 10 % of it plus 64 MiB"));
        thresholds.set("free-margin-share=12.5%").unwrap();
        thresholds.set("free-margin=1.5G").unwrap();
        assert!(refuted(&thresholds).contains("above the request by at least 12.5 % of it plus 1.5 GiB"));
        let hang = with_numbers(find("hang-not-oom").unwrap(), &thresholds);
        assert!(hang.proves.iter().any(|text| text.contains("60 s after it began")), "{:?}", hang.proves);
    }
}
