//! One frame of a stack.

use serde::{Serialize, Serializer};

use super::packages::installed;

/// What sort of code a frame belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FrameKind {
    /// Machine code.
    Native,
    /// Python.
    Python,
}

/// One frame, as far as it has names. The names of the fields are those of the JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Frame {
    /// Native or Python.
    pub kind: FrameKind,
    /// The function, in the language that it is written in; null where nothing tells.
    pub function: Option<String>,
    /// File name of the library or program; null of Python.
    pub module: Option<String>,
    /// Source file, as the debug information or Python names it.
    pub file: Option<String>,
    /// Of Python: the file from where its package lies on, where it belongs to one that is installed or built in place.
    #[serde(skip)]
    pub package_path: Option<String>,
    /// Line in it.
    pub line: Option<u32>,
    /// Return address; null of Python.
    #[serde(serialize_with = "hex")]
    pub address: Option<u64>,
    /// The same, counted from the beginning of the module.
    #[serde(serialize_with = "hex")]
    pub offset: Option<u64>,
    /// Whether the function was inlined into the next frame's.
    pub inlined: bool,
    /// The name in the table of symbols. It does not depend on whether debug information is there.
    #[serde(skip)]
    pub symbol: Option<String>,
}

fn hex<S: Serializer>(number: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    match number {
        Some(number) => serializer.collect_str(&format_args!("{number:#x}")),
        None => serializer.serialize_none(),
    }
}

impl Frame {
    /// A frame of machine code of which only the address is known.
    pub fn native(address: u64) -> Self {
        Frame {
            kind: FrameKind::Native,
            function: None,
            module: None,
            file: None,
            package_path: None,
            line: None,
            address: Some(address),
            offset: None,
            inlined: false,
            symbol: None,
        }
    }

    /// A frame of Python.
    pub fn python(file: &str, function: &str, line: u32) -> Self {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Frame {
            kind: FrameKind::Python,
            function: text(function),
            file: text(file),
            package_path: installed(file).map(str::to_owned),
            line: (line > 0).then_some(line),
            address: None,
            ..Frame::native(0)
        }
    }

    /// The function as far as one is known, without parameters and template arguments. Python's names have neither: brackets are
    /// a part of them (`train.<locals>.closure`).
    pub fn short(&self) -> Option<String> {
        match self.kind {
            FrameKind::Native => self.function.as_deref().map(super::short),
            FrameKind::Python => self.function.clone(),
        }
    }
}
