//! Writing a bundle: the same content gives the same bytes, so that bundles can be compared.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, Write};

use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

use super::layout::ROOT;

/// What a file of a bundle holds.
#[derive(Debug)]
pub enum Content {
    /// A text, or something else that is small.
    Bytes(Vec<u8>),
    /// A file without a name.
    File(File),
}

/// The files of a bundle, by name below [`ROOT`].
#[derive(Debug, Default)]
pub struct Pack(BTreeMap<String, Content>);

impl Pack {
    /// Adds a file; one with the same name is replaced.
    pub fn add(&mut self, name: &str, content: Content) {
        self.0.insert(name.to_owned(), content);
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Writes the archive. No time, account or machine of the writer is in it.
    ///
    /// # Errors
    /// `out` can't be written, or one of the files can't be read.
    pub fn write(self, out: impl Write) -> io::Result<()> {
        // 255: an operating system that is not told.
        let packed = GzBuilder::new().mtime(0).operating_system(255).write(out, Compression::default());
        let mut archive = Builder::new(packed);
        for (name, content) in self.0 {
            let name = format!("{ROOT}/{name}");
            match content {
                Content::Bytes(bytes) => append(&mut archive, &name, bytes.len() as u64, &bytes[..])?,
                Content::File(mut file) => {
                    file.rewind()?;
                    let length = file.metadata()?.len();
                    append(&mut archive, &name, length, file.take(length))?;
                }
            }
        }
        archive.into_inner()?.finish()?.flush()
    }
}

fn append(archive: &mut Builder<impl Write>, name: &str, length: u64, content: impl Read) -> io::Result<()> {
    let mut header = Header::new_ustar();
    header.set_path(name)?;
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(length);
    header.set_cksum();
    archive.append(&header, content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_content_gives_the_same_bytes() {
        let written = |reversed: bool| {
            let mut names = ["report.md", "traces/01.trace.bin", "issue.md"];
            if reversed {
                names.reverse();
            }
            let mut pack = Pack::default();
            for name in names {
                let mut file = tempfile::tempfile().unwrap();
                file.write_all(name.as_bytes()).unwrap();
                match name.ends_with(".bin") {
                    true => pack.add(name, Content::File(file)),
                    false => pack.add(name, Content::Bytes(name.into())),
                }
            }
            let mut out = Vec::new();
            pack.write(&mut out).unwrap();
            out
        };
        assert_eq!(written(false), written(true));
        let mut text = String::new();
        flate2::read::GzDecoder::new(&written(false)[..]).read_to_string(&mut text).unwrap();
        assert!(text.contains("gpuoom-bundle/traces/01.trace.bin"));
    }
}
