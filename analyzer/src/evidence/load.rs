//! Files into [`Evidence`], with limits on their sizes.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::text::{Text, text_of};
use super::{Evidence, EvidenceError, Given};
use super::{kernel_log, model, program_log, runtime_message, smi, torch_message, torch_snapshot};

/// What a file is said to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The output of a program: PyTorch's messages, llama.cpp's and vLLM's lines, what the GPU runtime wrote.
    TorchLog,
    /// A memory snapshot of PyTorch.
    TorchSnapshot,
    /// Output of `amd-smi`, `rocm-smi` or `nvidia-smi`.
    Smi,
    /// The kernel's log.
    KernelLog,
    /// A model in a GGUF file.
    Gguf,
    /// Facts of a model.
    ModelFacts,
}

impl Source {
    fn what(self) -> &'static str {
        match self {
            Source::TorchLog => "the output of a program",
            Source::TorchSnapshot => "a memory snapshot of PyTorch",
            Source::Smi => "the output of amd-smi or nvidia-smi",
            Source::KernelLog => "the kernel's log of one run",
            Source::Gguf => "the header of a model",
            Source::ModelFacts => "the facts of a model",
        }
    }

    /// Largest file that is read. A snapshot of a million events with stacks has some hundred megabytes.
    fn limit_bytes(self) -> u64 {
        match self {
            Source::TorchLog | Source::KernelLog => 1 << 30,
            Source::Smi => 64 << 20,
            Source::Gguf | Source::ModelFacts => 1 << 20,
            Source::TorchSnapshot => 2 << 30,
        }
    }
}

/// Reads a file and adds what it says.
pub fn load(evidence: &mut Evidence, source: Source, path: &Path) -> Result<(), EvidenceError> {
    if source == Source::Gguf {
        // Models are larger than memory: only the header is read.
        let facts = model::from_gguf(path);
        let path = path.display().to_string();
        match facts {
            Ok(facts) => set_model(evidence, facts, path),
            Err(reason) => return Err(EvidenceError::Gguf { path, reason }),
        }
        return Ok(());
    }
    let bytes = read(source, path)?;
    add(evidence, source, path.display().to_string(), &bytes)
}

/// Adds what a file says whose bytes are there already. `path` is what it is called.
///
/// # Errors
/// It is not what it is said to be.
pub fn add(evidence: &mut Evidence, source: Source, path: String, bytes: &[u8]) -> Result<(), EvidenceError> {
    if let Some(reason) = without_content(bytes) {
        return Err(EvidenceError::Nothing { path, reason });
    }
    match source {
        Source::TorchLog => {
            let Text { text: log, skipped_bytes } = text_of(bytes);
            let (mut content, runtime) = (torch_message::find_all(&log), runtime_message::find_all(&log));
            let program = program_log::find_all(&log);
            content.iter_mut().for_each(|message| message.offset_bytes += skipped_bytes);
            if content.is_empty() && runtime.is_empty() && program.is_empty() {
                let reason = "no out-of-memory message of PyTorch is in it, and no line of llama.cpp or vLLM about memory; give the output of the \
                    program, with its last lines";
                return Err(EvidenceError::Nothing { path, reason });
            }
            evidence.runtime_logs.push(Given { path: path.clone(), content: runtime });
            evidence.program_logs.push(Given { path: path.clone(), content: program });
            evidence.torch_logs.push(Given { path, content });
        }
        Source::TorchSnapshot => match torch_snapshot::read(bytes) {
            Ok(content) => evidence.torch_snapshots.push(Given { path, content }),
            Err(reason) => return Err(EvidenceError::Snapshot { path, reason }),
        },
        Source::Smi => match smi::read(&text_of(bytes).text) {
            Ok(content) => evidence.smi.push(Given { path, content }),
            Err(reason) => return Err(EvidenceError::Smi { path, reason }),
        },
        Source::Gguf => match model::read_gguf(bytes, bytes.len() as u64) {
            Ok(facts) => set_model(evidence, facts, path),
            Err(reason) => return Err(EvidenceError::Gguf { path, reason }),
        },
        Source::ModelFacts => match model::from_file(&text_of(bytes).text) {
            Ok(facts) => set_model(evidence, facts, path),
            Err(reason) => return Err(EvidenceError::Facts { path, reason }),
        },
        Source::KernelLog => {
            let log = text_of(bytes).text;
            let content = kernel_log::read(&log);
            // A quiet log of the kernel says something: nothing was killed. Another file says nothing.
            if content.is_empty() && !kernel_log::is_kernel_log(&log) {
                let reason = "this is no log of the kernel; give the output of dmesg or of journalctl -k";
                return Err(EvidenceError::Nothing { path, reason });
            }
            evidence.kernel_logs.push(Given { path, content });
        }
    }
    Ok(())
}

/// Why a file can say nothing at all.
fn without_content(bytes: &[u8]) -> Option<&'static str> {
    match has_content(bytes) {
        _ if bytes.is_empty() => Some("the file is empty; was it written before the program failed?"),
        false => Some("the file holds nothing but zeros; it was cut off, or its disk was full"),
        true => None,
    }
}

/// Whether a file has a byte that is not zero.
fn has_content(bytes: &[u8]) -> bool {
    const ZEROS: [u8; 4096] = [0; 4096];
    bytes.chunks(ZEROS.len()).any(|chunk| !ZEROS.starts_with(chunk))
}

/// A file says all that is known of a model.
fn set_model(evidence: &mut Evidence, facts: model::ModelFacts, path: String) {
    evidence.model = Some(facts);
    evidence.model_from = vec![path];
}

/// The bytes of a file, if it is not larger than such a file ever is.
///
/// # Errors
/// It can't be read, or is too large.
pub fn read(source: Source, path: &Path) -> Result<Vec<u8>, EvidenceError> {
    let named = || path.display().to_string();
    if path.is_dir() {
        return Err(EvidenceError::Nothing { path: named(), reason: "this is a directory; name the file in it" });
    }
    let limit_bytes = source.limit_bytes();
    let mut bytes = Vec::new();
    let opened = File::open(path).and_then(|file| file.take(limit_bytes + 1).read_to_end(&mut bytes));
    opened.map_err(|reason| EvidenceError::Io { path: named(), reason })?;
    if bytes.len() as u64 > limit_bytes {
        return Err(EvidenceError::TooLarge { path: named(), what: source.what(), limit_bytes });
    }
    Ok(bytes)
}
