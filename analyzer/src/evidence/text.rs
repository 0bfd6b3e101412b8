//! Files as text. A log that was cut while its program wrote on begins with zeros; what PowerShell wrote is UTF-16.

use std::borrow::Cow;

/// Bytes that are looked at to tell UTF-16 that does not say so.
const LOOKED_AT: usize = 512;
/// Zeros that are skipped at once.
static ZEROS: [u8; 4096] = [0; 4096];

/// A text and where it began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text<'a> {
    /// The text; what is none in its encoding is replaced.
    pub text: Cow<'a, str>,
    /// Zeros before it.
    pub skipped_bytes: u64,
}

/// The text of a file: UTF-8, or UTF-16 with or without its mark, behind any number of zeros.
pub fn text_of(bytes: &[u8]) -> Text<'_> {
    let whole = bytes.chunks(ZEROS.len()).take_while(|chunk| ZEROS.starts_with(chunk)).map(<[u8]>::len).sum::<usize>();
    let rest = bytes.get(whole..).unwrap_or_default();
    let skipped = whole + rest.iter().position(|byte| *byte != 0).unwrap_or(rest.len());
    let bytes = &bytes[skipped..];
    let text = match bytes {
        [0xef, 0xbb, 0xbf, rest @ ..] => String::from_utf8_lossy(rest),
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes).into(),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes).into(),
        // The first zero of the other order was skipped.
        _ if looks_like_utf16(bytes) => utf16(bytes, u16::from_le_bytes).into(),
        _ => String::from_utf8_lossy(bytes),
    };
    Text { text, skipped_bytes: skipped as u64 }
}

/// Whether every other byte is zero, as in UTF-16 of what is mostly ASCII.
fn looks_like_utf16(bytes: &[u8]) -> bool {
    let pairs = bytes[..bytes.len().min(LOOKED_AT)].chunks_exact(2);
    let all = pairs.len();
    let fitting = pairs.filter(|pair| pair[0] != 0 && pair[1] == 0).count();
    all >= 4 && fitting * 10 >= all * 9
}

fn utf16(bytes: &[u8], word: fn([u8; 2]) -> u16) -> String {
    let words = bytes.chunks_exact(2).map(|pair| word([pair[0], pair[1]]));
    char::decode_utf16(words).map(|character| character.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_encoding_is_the_same_text() {
        let text = "CUDA out of memory. Größe\r\n";
        let words = || text.encode_utf16();
        let of = |mark: &[u8], bytes: Vec<u8>| [mark, &bytes].concat();
        let (little, big): (Vec<u8>, Vec<u8>) =
            (words().flat_map(u16::to_le_bytes).collect(), words().flat_map(u16::to_be_bytes).collect());
        for (bytes, skipped) in [
            (text.as_bytes().to_vec(), 0),
            (of(b"\xef\xbb\xbf", text.into()), 0),
            (of(b"\xff\xfe", little.clone()), 0),
            (of(b"\xfe\xff", big.clone()), 0),
            (little, 0),
            (of(&[0; 5000], text.into()), 5000),
        ] {
            let read = text_of(&bytes);
            assert_eq!((read.text.as_ref(), read.skipped_bytes), (text, skipped), "{bytes:?}");
        }
        // Without its mark the last zero is missing at the end.
        assert_eq!(text_of(&big).text, text.trim_end_matches('\n'));
        assert_eq!(text_of(&[0; 10_000]), Text { text: "".into(), skipped_bytes: 10_000 });
    }

    proptest! {
        #[test]
        fn any_bytes_are_some_text(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            text_of(&bytes);
        }
    }
}
