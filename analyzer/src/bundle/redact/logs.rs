//! Texts beside the traces. A program's output can hold anything, so of logs only the lines stay that tell of memory or GPUs.

use super::Redactor;
use super::identifiers::is_identifier_field;
use super::log::Sort;
use crate::evidence::Source;

/// A line of a program's output stays if it has one of these in it, in small letters.
const OUTPUT: [&str; 16] = [
    "out of memory",
    "outofmemory",
    "allocat",
    " gib",
    " mib",
    "cuda error",
    "hip error",
    "cudaerror",
    "hiperror",
    "memory access",
    "ggml_",
    "llama_",
    "kv cache",
    "hsa_",
    "rocm",
    "hw exception",
];
/// The same for the kernel's log.
const KERNEL: [&str; 22] = [
    "amdgpu",
    "amdkfd",
    "kfd:",
    "[drm",
    "ttm",
    "nvidia",
    "nvrm",
    "xid",
    "nouveau",
    "i915",
    "out of memory",
    "oom",
    "killed process",
    "memory cgroup",
    "page allocation",
    "segfault",
    "general protection",
    "traps:",
    "vram",
    "iommu",
    "memory:",
    "linux version",
];

/// A text, and whether any of its lines are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// What is left.
    pub text: String,
    /// Lines that were left out.
    pub left_out: u64,
}

impl Redactor {
    /// A text beside the traces.
    pub fn evidence(&mut self, source: Source, place: &str, text: &str) -> Kept {
        let stays: &dyn Fn(&str) -> bool = match source {
            _ if self.keep.evidence => &|_| true,
            Source::TorchLog => &|line| is_frame(line) || has(line, &OUTPUT),
            Source::KernelLog => &|line| has(line, &KERNEL),
            Source::Smi | Source::TorchSnapshot | Source::Gguf | Source::ModelFacts => &|_| true,
        };
        let mut kept = Kept { text: String::with_capacity(text.len().min(1 << 20)), left_out: 0 };
        let mut pause = 0u64;
        let blank = blanked(source, text);
        for line in text.split_inclusive('\n') {
            if !stays(line) {
                pause += 1;
                continue;
            }
            say_left_out(&mut kept, &mut pause);
            let line = blank_columns(line, &blank);
            let line = self.programs(place, &line);
            let line = self.text(place, &line);
            kept.text.push_str(&line);
        }
        say_left_out(&mut kept, &mut pause);
        self.log.note_many(Sort::Line, place, kept.left_out);
        kept
    }

    /// A file was left out as a whole.
    pub fn left_out(&mut self, place: &str) {
        self.log.note(Sort::File, place);
    }
}

fn say_left_out(kept: &mut Kept, pause: &mut u64) {
    if *pause > 0 {
        kept.text.push_str(&format!("[{pause} {} left out]\n", if *pause == 1 { "line" } else { "lines" }));
        kept.left_out += *pause;
        *pause = 0;
    }
}

fn has(line: &str, words: &[&str]) -> bool {
    let lower = line.to_ascii_lowercase();
    words.iter().any(|word| lower.contains(word))
}

/// A frame of a Python traceback, without the line of code below it.
fn is_frame(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("File \"") || line.starts_with("Traceback (most recent call last)")
}

/// Columns of a table with commas that hold identifiers, by its first line.
fn blanked(source: Source, text: &str) -> Vec<usize> {
    let head = text
        .lines()
        .next()
        .filter(|line| source == Source::Smi && line.matches(',').count() >= 2 && !line.contains('{'));
    let is_field = |name: &str| name.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(is_identifier_field);
    let columns = head.into_iter().flat_map(|line| line.split(',').enumerate());
    columns.filter(|(_, name)| is_field(name)).map(|(column, _)| column).collect()
}

fn blank_columns(line: &str, columns: &[usize]) -> String {
    if columns.is_empty() {
        return line.to_owned();
    }
    let end = &line[line.trim_end_matches(['\n', '\r']).len()..];
    let fields = line.trim_end_matches(['\n', '\r']).split(',').enumerate();
    let fields: Vec<&str> = fields
        .map(|(column, field)| match columns.contains(&column) && field.bytes().any(|byte| byte.is_ascii_digit()) {
            true => "<id>",
            false => field,
        })
        .collect();
    format!("{}{end}", fields.join(","))
}
