//! What the files about one library tell about an address in it.

use std::fmt;
use std::path::PathBuf;

use super::demangle::demangle;
use super::dwarf::DebugInformation;
use super::frame::Frame;
use super::functions::Functions;

/// What is missing of a library's names, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// No file of it was found.
    NoFile,
    /// Files were found, and all are of other builds.
    OtherBuild {
        /// One of them.
        path: PathBuf,
        /// Its build id, empty where it has none.
        build_id: String,
    },
    /// The trace has no build id for it, so no file can be shown to be the one.
    NoBuildId,
    /// A file was found and is of no use.
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Only what other libraries may call has names: the library was stripped.
    Stripped,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::NoFile => write!(f, "its file was not found"),
            Missing::OtherBuild { path, build_id } if build_id.is_empty() => {
                write!(f, "{} has no build id, so nothing shows that it is the recorded one: not used", path.display())
            }
            Missing::OtherBuild { path, build_id } => {
                write!(f, "{} is another build ({build_id}): not used", path.display())
            }
            Missing::NoBuildId => {
                write!(
                    f,
                    "it has no build id, so no file can be shown to be the recorded one (link with -Wl,--build-id)"
                )
            }
            Missing::Unusable { path, reason } => write!(f, "{}: {reason}", path.display()),
            Missing::Stripped => {
                write!(f, "it was stripped: only exported functions have names, and no debug file was found")
            }
        }
    }
}

/// What is known of one library.
#[derive(Default)]
pub(super) struct Image {
    /// Address in the file that the beginning of the module has.
    pub(super) first_address: u64,
    /// Functions by name.
    pub(super) functions: Functions,
    /// Lines and inlined functions.
    pub(super) debug_information: Option<DebugInformation>,
    /// What is missing.
    pub(super) missing: Option<Missing>,
}

impl Image {
    /// A library of which nothing is known.
    pub(super) fn unknown(missing: Missing) -> Self {
        Image { missing: Some(missing), ..Image::default() }
    }

    /// What is missing.
    pub(super) fn missing(&self) -> Option<&Missing> {
        self.missing.as_ref()
    }

    /// The frames at an offset in the module, `here` being what is known without the file.
    pub(super) fn frames(&self, offset: u64, here: Frame) -> Vec<Frame> {
        let address = self.first_address.saturating_add(offset);
        let symbol = self.functions.at(address).map(|name| demangle(&name));
        let places = self.debug_information.as_ref().map(|known| known.at(address)).unwrap_or_default();
        let last = places.len().saturating_sub(1);
        let mut frames: Vec<Frame> = places
            .into_iter()
            .enumerate()
            .map(|(index, place)| Frame {
                function: place.function.map(|name| demangle(&name)),
                file: place.file,
                line: place.line,
                inlined: index < last,
                ..here.clone()
            })
            .collect();
        if frames.is_empty() {
            frames.push(here);
        }
        if let Some(outer) = frames.last_mut() {
            if outer.function.is_none() {
                outer.function.clone_from(&symbol);
            }
            outer.symbol = symbol.or_else(|| outer.function.clone());
        }
        frames
    }
}
