//! The argument TRACE: a trace file, or a bundle that has traces in it. Every command opens its traces here.

use std::fs::File;
use std::path::{Path, PathBuf};

use gpuoom_trace::reader::{Damage, ReadError, TraceFile};
use thiserror::Error;

use crate::bundle::layout::TRACES;
use crate::bundle::{BundleError, open as bundles};
use crate::evidence::Source;

/// Why a trace can't be used.
#[derive(Debug, Error)]
pub(super) enum OpenError {
    /// The file is no trace that can be read.
    #[error(transparent)]
    Trace(#[from] ReadError),
    /// The archive is no bundle that can be read.
    #[error(transparent)]
    Bundle(#[from] BundleError),
}

/// A trace that was asked for.
#[derive(Debug)]
pub(super) struct Input {
    /// What it is called: its path, or that of the bundle with its name in it.
    pub(super) name: PathBuf,
    /// A trace of a bundle is unpacked already.
    file: Option<File>,
    /// What could not be read of the trace that this is a copy of.
    damages: Vec<Damage>,
}

impl Input {
    /// A trace that is unpacked already, or made just now; `damages`: what could not be read of its original.
    pub(super) fn unpacked(name: PathBuf, file: File, damages: Vec<Damage>) -> Self {
        Input { name, file: Some(file), damages }
    }

    /// Opens it.
    pub(super) fn open(self) -> Result<TraceFile, OpenError> {
        let mut trace = match self.file {
            Some(file) => TraceFile::from_file(file, &self.name)?,
            None => TraceFile::open(&self.name)?,
        };
        trace.add_damages(self.damages);
        Ok(trace)
    }
}

/// What one argument stands for.
#[derive(Debug, Default)]
pub(super) struct Inputs {
    /// The traces.
    pub(super) traces: Vec<Input>,
    /// What lies beside them in a bundle: what it is, its name, its bytes.
    pub(super) evidence: Vec<(Source, String, Vec<u8>)>,
    /// The thresholds that a bundle was made with: `NAME=VALUE` each.
    pub(super) thresholds: Vec<String>,
}

/// What an argument stands for: a trace, or what is in a bundle. `BUNDLE:traces/01.trace.bin` names one trace of a bundle.
pub(super) fn expand(path: &Path) -> Result<Inputs, OpenError> {
    let (archive, wanted) = match inside(path) {
        Some((archive, wanted)) => (archive, Some(wanted)),
        None if bundles::is_bundle(path) => (path.to_owned(), None),
        None => {
            return Ok(Inputs {
                traces: vec![Input { name: path.to_owned(), file: None, damages: Vec::new() }],
                ..Inputs::default()
            });
        }
    };
    let mut bundle = bundles::open(&archive)?;
    if let Some(wanted) = wanted {
        let held: Vec<String> = bundle.traces.iter().map(|(name, _)| name.clone()).collect();
        bundle.traces.retain(|(name, _)| *name == wanted);
        if bundle.traces.is_empty() {
            return Err(BundleError::NoSuchTrace { path: archive, wanted, held: held.join(", ") }.into());
        }
    }
    let named = |name: &str| format!("{}:{name}", archive.display());
    let traces = std::mem::take(&mut bundle.traces);
    let trace = |(name, file): (String, File)| Input::unpacked(named(&name).into(), file, bundle.damages_of(&name));
    Ok(Inputs {
        traces: traces.into_iter().map(trace).collect(),
        thresholds: bundle.thresholds,
        evidence: bundle.evidence.into_iter().map(|(source, name, bytes)| (source, named(&name), bytes)).collect(),
    })
}

/// Opens the one trace that a command works on.
pub(super) fn open(path: &Path) -> Result<TraceFile, OpenError> {
    let mut inputs = expand(path)?.traces;
    let count = inputs.len();
    match inputs.drain(..).next() {
        Some(input) if count == 1 => input.open(),
        first => {
            let first = first.map(|input| input.name.display().to_string()).unwrap_or_default();
            let name = first.rsplit_once(':').map_or("", |(_, name)| name).to_owned();
            Err(BundleError::Several { path: path.to_owned(), count, first: name }.into())
        }
    }
}

/// The archive and the name in it, where a path is no file itself and names a trace of a bundle.
fn inside(path: &Path) -> Option<(PathBuf, String)> {
    let (archive, name) = path.to_str()?.rsplit_once(':')?;
    (name.starts_with(TRACES) && !path.exists()).then(|| (archive.into(), name.to_owned()))
}
