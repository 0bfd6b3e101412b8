//! Names as their authors wrote them, from what compilers made of them.

use std::fmt::{self, Write};

/// Longest name that is made readable, in bytes; a longer one stays as it is.
const MAX_MANGLED_BYTES: usize = 1 << 14;
/// Longest readable name, in bytes. A short one can stand for a very long one: repetition costs a mangled name nothing.
const MAX_NAME_BYTES: usize = 1 << 14;

/// A text that refuses to become too long.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_NAME_BYTES {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// A function as its author wrote it: C++ and Rust; anything else stays as it is.
pub(super) fn demangle(raw: &str) -> String {
    if raw.len() > MAX_MANGLED_BYTES || !raw.contains("_Z") && !raw.contains("_R") {
        return bounded(raw);
    }
    // Rust's older names are also C++ names, with a hash at their end.
    rust(raw).or_else(|| cpp(raw)).unwrap_or_else(|| bounded(raw))
}

fn bounded(raw: &str) -> String {
    raw.chars().take(MAX_NAME_BYTES / 4).collect()
}

fn rust(raw: &str) -> Option<String> {
    let name = rustc_demangle::try_demangle(raw).ok()?;
    let mut out = Bounded(String::new());
    // The alternate form leaves the hash out.
    write!(out, "{name:#}").ok()?;
    Some(out.0)
}

fn cpp(raw: &str) -> Option<String> {
    let symbol = cpp_demangle::Symbol::new(raw).ok()?;
    let mut out = Bounded(String::new());
    symbol.structured_demangle(&mut out, &cpp_demangle::DemangleOptions::default()).ok()?;
    Some(out.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_language_is_read() {
        for (raw, name) in [
            ("main", "main"),
            ("ggml_gallocr_reserve_n", "ggml_gallocr_reserve_n"),
            ("_ZN13llama_contextC2ERK11llama_modeli", "llama_context::llama_context(llama_model const&, int)"),
            ("_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector<int, std::allocator<int> >::push_back(int const&)"),
            ("_ZN3foo3bar17h0123456789abcdefE", "foo::bar"),
            ("_RNvCskwGfYPst2Cb_3foo3bar", "foo::bar"),
            ("_ZN3foo3barEv.constprop.0", "foo::bar() [clone .constprop.0]"),
            ("_Znonsense", "_Znonsense"),
            ("", ""),
        ] {
            assert_eq!(demangle(raw), name, "{raw}");
        }
    }

    #[test]
    fn a_name_that_explodes_stays_bounded() {
        // Each part repeats all before it: 2^n copies of the first one.
        let mut raw = String::from("_Z1fP1AS_");
        for number in 0..200u32 {
            let digit = std::char::from_digit(number % 36, 36).unwrap_or('0').to_ascii_uppercase();
            raw.push_str(&format!("1XIS{digit}_S{digit}_E"));
        }
        assert!(demangle(&raw).len() <= MAX_NAME_BYTES);
        assert!(demangle(&"x".repeat(1 << 20)).len() <= MAX_NAME_BYTES);
        assert!(demangle(&format!("_Z{}", "N".repeat(MAX_MANGLED_BYTES - 2))).len() <= MAX_NAME_BYTES);
    }
}
