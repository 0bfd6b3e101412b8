//! Evidence from beside the trace: what PyTorch, the vendor's tools and the kernel wrote. Values only; nothing here trusts
//! its input.

pub mod kernel_log;
mod load;
pub mod model;
pub mod program_log;
pub mod runtime_message;
pub mod smi;
pub mod text;
pub mod torch_message;
pub mod torch_snapshot;

pub use load::{Source, add, load, read};

use thiserror::Error;

use crate::thresholds::Thresholds;
use kernel_log::KernelEvent;
use model::{FactError, GgufError, ModelFacts};
use program_log::ProgramLine;
use runtime_message::RuntimeMessage;
use smi::{SmiError, SmiReport};
use torch_message::TorchMessage;
use torch_snapshot::{Snapshot, SnapshotError};

use crate::symbols::SymbolPlaces;

/// A file and what was read from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Given<T> {
    /// The file, as it was given.
    pub path: String,
    /// What it says.
    pub content: T,
}

/// All that was given beside the traces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// Logs with PyTorch's messages, in the order given.
    pub torch_logs: Vec<Given<Vec<TorchMessage>>>,
    /// What the GPU runtime wrote into the same logs; empty where it wrote nothing that is known.
    pub runtime_logs: Vec<Given<Vec<RuntimeMessage>>>,
    /// What llama.cpp and vLLM wrote into the same logs; empty where they wrote nothing of memory.
    pub program_logs: Vec<Given<Vec<ProgramLine>>>,
    /// Memory snapshots of PyTorch.
    pub torch_snapshots: Vec<Given<Snapshot>>,
    /// Output of the vendors' tools.
    pub smi: Vec<Given<SmiReport>>,
    /// Logs of the kernel: what in them has to do with memory, the GPU or a crash; empty where nothing has.
    pub kernel_logs: Vec<Given<Vec<KernelEvent>>>,
    /// What is known of the model that runs, where something was said.
    pub model: Option<ModelFacts>,
    /// Where that comes from: files, and options.
    pub model_from: Vec<String>,
    /// The numbers by which rules decide: the defaults, or what the user set.
    pub thresholds: Thresholds,
    /// Where the files with the names of functions are.
    pub symbols: SymbolPlaces,
}

/// A file that could not be used. The message names the file, the offset where there is one, the reason, and what to do.
#[derive(Debug, Error)]
pub enum EvidenceError {
    /// It can't be read.
    #[error("{path}: {reason}")]
    Io {
        /// The file.
        path: String,
        /// What the system says.
        reason: std::io::Error,
    },
    /// It is too large.
    #[error("{path}: the file has more than {limit_bytes} bytes, which {what} never needs; give the part that matters")]
    TooLarge {
        /// The file.
        path: String,
        /// What it was to be.
        what: &'static str,
        /// Largest size that is read.
        limit_bytes: u64,
    },
    /// It is no snapshot.
    #[error("{path}: {reason}")]
    Snapshot {
        /// The file.
        path: String,
        /// What is wrong.
        reason: SnapshotError,
    },
    /// It is no output of a vendor's tool.
    #[error("{path}: {reason}")]
    Smi {
        /// The file.
        path: String,
        /// What is wrong.
        reason: SmiError,
    },
    /// It is no GGUF file.
    #[error("{path}: {reason}")]
    Gguf {
        /// The file.
        path: String,
        /// What is wrong.
        reason: GgufError,
    },
    /// It has no facts of a model.
    #[error("{path}: {reason}")]
    Facts {
        /// The file.
        path: String,
        /// What is wrong.
        reason: FactError,
    },
    /// A log without what was looked for.
    #[error("{path}: {reason}")]
    Nothing {
        /// The file.
        path: String,
        /// What is missing.
        reason: &'static str,
    },
}
