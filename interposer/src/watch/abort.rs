//! What a program says when it gives up: ggml's `ggml_abort(file, line, format, ...)`.

use std::fmt::Write;

use super::printf::{Line, Variadic};

/// Writes `FILE:LINE: TEXT` and returns its length. `arguments`: all of the call's.
pub(super) fn text(arguments: Variadic<'_>, out: &mut [u8]) -> usize {
    let [file, line_number, format, ..] = *arguments.integers;
    let mut line = Line::new(out);
    line.push_text(file);
    // A line takes whatever comes, and is cut where its room ends.
    _ = write!(line, ":{}: ", line_number as i32);
    line.push_format(format, Variadic { integers_taken: 3, ..arguments });
    line.length
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(format: &std::ffi::CStr, [a, b, c]: [u64; 3]) -> String {
        let mut out = [0; 200];
        let integers = [c"ggml.c".as_ptr() as u64, 77, format.as_ptr() as u64, a, b, c];
        let vectors = [[0; 2]; 8];
        let arguments =
            Variadic { integers: &integers, integers_taken: 0, vectors: &vectors, vectors_taken: 0, on_stack: 0 };
        let length = text(arguments, &mut out);
        String::from_utf8_lossy(&out[..length]).into_owned()
    }

    #[test]
    fn the_place_comes_before_the_text() {
        let text = c"x != NULL".as_ptr() as u64;
        assert_eq!(said(c"GGML_ASSERT(%s) failed", [text, 0, 0]), "ggml.c:77: GGML_ASSERT(x != NULL) failed");
        assert_eq!(said(c"100%%: %d of %zu", [-5i64 as u64, 1 << 40, 0]), "ggml.c:77: 100%: -5 of 1099511627776");
        assert_eq!(said(c"%s", [8, 0, 0]), "ggml.c:77: ", "no text there");
        assert_eq!(said(c"%d%d%d%d", [1, 2, 3]), "ggml.c:77: 123%d", "no stack there");
    }

    #[test]
    fn a_long_text_is_cut() {
        let long = std::ffi::CString::new(vec![b'x'; 4000]).unwrap();
        assert_eq!(said(&long, [0; 3]).len(), 200);
    }
}
