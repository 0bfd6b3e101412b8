//! Why nothing can be loaded before a program: said where a command left no trace, so that silence is not taken for health.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use object::elf::{FileHeader64, PT_INTERP};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, ReadCache, ReadRef};

/// `ELFCLASS64` and `EM_X86_64` (`elf.h`): a byte, and two, of every ELF header.
const CLASS_64: u8 = 2;
const X86_64: u16 = 62;
/// What a loader of musl's is called.
const MUSL: &[u8] = b"ld-musl";
/// The bits of a mode by which a program gets another user or group.
const SET_ID: u32 = libc::S_ISUID | libc::S_ISGID;

/// The reason in words that go behind the program's name; `None` where there is none, or it is not known.
pub(super) fn why_not(program: &OsStr) -> Option<String> {
    let path = find(program, std::env::var_os("PATH").as_deref())?;
    let file = File::open(&path).ok()?;
    let metadata = file.metadata().ok()?;
    of_file(file).or_else(|| {
        gets_rights(&metadata, own_ids())
            .then(|| "gets other rights than yours (set-user-id), so the loader ignores LD_PRELOAD".to_owned())
    })
}

/// Where the shell would find a program.
fn find(program: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    if Path::new(program).components().count() > 1 {
        return Some(program.into());
    }
    std::env::split_paths(path?).map(|directory| directory.join(program)).find(|candidate| candidate.is_file())
}

fn own_ids() -> (u32, u32) {
    // SAFETY: they can't fail.
    unsafe { (libc::getuid(), libc::getgid()) }
}

fn gets_rights(metadata: &Metadata, (user, group): (u32, u32)) -> bool {
    let mode = metadata.mode() & SET_ID;
    (mode & libc::S_ISUID != 0 && metadata.uid() != user) || (mode & libc::S_ISGID != 0 && metadata.gid() != group)
}

fn of_file(mut file: File) -> Option<String> {
    // Scripts are no programs of their own, and their interpreters are not followed.
    let mut magic = [0; 20];
    file.read_exact(&mut magic).ok()?;
    if !magic.starts_with(b"\x7fELF") {
        return None;
    }
    let machine = u16::from_le_bytes([magic[18], magic[19]]);
    if magic[4] != CLASS_64 || machine != X86_64 {
        return Some("is built for another processor than the recorder (x86-64)".to_owned());
    }
    let cache = ReadCache::new(file);
    let header = FileHeader64::<Endianness>::parse(&cache).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, &cache).ok()?;
    let Some(interpreter) = segments.iter().find(|segment| segment.p_type(endian) == PT_INTERP) else {
        return Some("is statically linked, so no library can be loaded before it".to_owned());
    };
    let name = cache.read_bytes_at(interpreter.p_offset(endian), interpreter.p_filesz(endian).min(4096)).ok()?;
    let is_musl = name.windows(MUSL.len()).any(|part| part == MUSL);
    is_musl.then(|| "runs on musl, which can't load the recorder (it needs glibc)".to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// An ELF file with one segment: its type, and what lies there.
    fn elf(class: u8, machine: u16, segment: u32, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0u8; 64 + 56];
        bytes[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1, 1]);
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(16, &2u16.to_le_bytes());
        put(18, &machine.to_le_bytes());
        put(20, &1u32.to_le_bytes());
        put(32, &64u64.to_le_bytes());
        put(52, &64u16.to_le_bytes());
        put(54, &56u16.to_le_bytes());
        put(56, &1u16.to_le_bytes());
        put(64, &segment.to_le_bytes());
        put(72, &120u64.to_le_bytes());
        put(96, &(content.len() as u64).to_le_bytes());
        bytes.extend_from_slice(content);
        bytes
    }

    fn said_of(bytes: &[u8]) -> Option<String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("program");
        std::fs::write(&path, bytes).unwrap();
        why_not(path.as_os_str())
    }

    #[test]
    fn programs_that_take_no_preload_are_known() {
        let glibc = elf(2, 62, 3, b"/lib64/ld-linux-x86-64.so.2\0");
        assert_eq!(said_of(&glibc), None);
        for (bytes, word) in [
            (elf(2, 62, 1, b""), "statically"),
            (elf(2, 62, 3, b"/lib/ld-musl-x86_64.so.1\0"), "musl"),
            (elf(2, 183, 3, b"/lib/ld-linux-aarch64.so.1\0"), "processor"),
            (elf(1, 3, 3, b"/lib/ld-linux.so.2\0"), "processor"),
        ] {
            let said = said_of(&bytes).expect(word);
            assert!(said.contains(word), "{said}");
        }
        for length in 0..glibc.len() {
            said_of(&glibc[..length]);
        }
        assert_eq!(said_of(b"#!/bin/sh\n"), None);
        assert_eq!(why_not(OsStr::new("/nowhere/at/all")), None);
    }

    #[test]
    fn other_rights_count_only_if_they_are_not_one_s_own() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let set = |mode| std::fs::set_permissions(file.path(), PermissionsExt::from_mode(mode)).unwrap();
        set(0o4755);
        let metadata = file.path().metadata().unwrap();
        assert!(gets_rights(&metadata, (metadata.uid() + 1, metadata.gid())));
        assert!(!gets_rights(&metadata, (metadata.uid(), metadata.gid())));
        set(0o755);
        assert!(!gets_rights(&file.path().metadata().unwrap(), (metadata.uid() + 1, metadata.gid() + 1)));
    }

    #[test]
    fn a_name_without_a_path_is_looked_for() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("tool"), "").unwrap();
        let path = directory.path().as_os_str();
        assert_eq!(find(OsStr::new("tool"), Some(path)), Some(directory.path().join("tool")));
        assert_eq!(find(OsStr::new("other"), Some(path)), None);
        assert_eq!(find(OsStr::new("./tool"), None), Some("./tool".into()));
    }
}
