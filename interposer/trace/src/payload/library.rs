//! A library that came to addresses at which another had been (payload of a `library` record).

use super::{MAX_PAYLOAD_BYTES, MAX_TEXT_BYTES, pack, unpack};

/// Longest build id, in bytes as a library has it; what is longer is cut.
const MAX_BUILD_ID_BYTES: usize = 64;

/// Which library it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LibraryName {
    /// GNU build id in hexadecimal, empty where there is none.
    pub build_id: String,
    /// Path as the loader knows it; empty where it is not known.
    pub path: String,
}

/// Packs a library: its build id (not in hexadecimal) and its path; a path that is too long loses its beginning.
pub fn library<'a>(build_id: &[u8], path: &[u8], out: &'a mut [u8; MAX_PAYLOAD_BYTES]) -> &'a [u8] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0; MAX_TEXT_BYTES];
    let build_id = &build_id[..build_id.len().min(MAX_BUILD_ID_BYTES)];
    for (to, byte) in text.as_chunks_mut::<2>().0.iter_mut().zip(build_id) {
        *to = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
    }
    let start = build_id.len() * 2 + 1;
    let path = &path[path.len().saturating_sub(MAX_TEXT_BYTES - start)..];
    text[start..start + path.len()].copy_from_slice(path);
    pack(&text[..start + path.len()], out)
}

impl LibraryName {
    /// Reads the payload of a `library` record, with replacement characters where it is not UTF-8; `None` where there is
    /// none, which says that no library is there.
    pub fn read(payload: &[u8]) -> Option<LibraryName> {
        let text = Some(unpack(payload)).filter(|text| !text.is_empty())?;
        let mut parts = text.splitn(2, |byte| *byte == 0);
        let mut next = || String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
        Some(LibraryName { build_id: next(), path: next() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_return_and_are_cut_to_fit() {
        let mut out = [0; MAX_PAYLOAD_BYTES];
        let read = |payload: &[u8]| LibraryName::read(payload).unwrap();
        let known = read(library(&[0xab, 0x0c], b"/opt/libplugin.so", &mut out));
        assert_eq!((known.build_id.as_str(), known.path.as_str()), ("ab0c", "/opt/libplugin.so"));
        assert_eq!(read(library(&[], b"", &mut out)), LibraryName::default());
        let mut long = vec![b'd'; 5000];
        long.extend(b"/libplugin.so");
        let cut = read(library(&[7; 500], &long, &mut out));
        assert_eq!((cut.build_id.len(), cut.path.len()), (128, MAX_TEXT_BYTES - 129));
        assert!(cut.path.ends_with("/libplugin.so"));
    }

    #[test]
    fn without_a_payload_there_is_no_library() {
        let mut out = [0; MAX_PAYLOAD_BYTES];
        assert_eq!((LibraryName::read(&[]), LibraryName::read(pack(&[], &mut out))), (None, None));
        let odd = LibraryName::read(pack(b"\xff", &mut out)).unwrap();
        assert_eq!((odd.build_id.as_str(), odd.path.as_str()), ("\u{fffd}", ""));
    }
}
