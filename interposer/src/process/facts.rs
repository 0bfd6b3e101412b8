//! Facts about the process for the trace: without secrets.

use std::ffi::CStr;

use gpuoom_trace::metadata::ProcessFacts;

use crate::config;

/// Variables whose values are kept. Everything else stays out of the trace.
const ENVIRONMENT_PREFIXES: [&str; 25] = [
    "AMD_",
    "CUDA_",
    "DEBUG_CLR_",
    "DEBUG_HIP_",
    "GGML_",
    "GPUOOM_",
    "GPU_",
    "HIP",
    "HSA",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "LLAMA_",
    "MIOPEN_",
    "NCCL_",
    "NVIDIA_VISIBLE_DEVICES",
    "OLLAMA_",
    "PYTORCH_",
    "RCCL_",
    "ROCM",
    "ROCR_",
    "TF_FORCE_",
    "TF_GPU_",
    "TF_XLA_",
    "TORCH_",
    "XLA_",
];
/// Rank of a distributed job, in the order of preference.
const RANK_VARIABLES: [&str; 3] = ["RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"];
/// What the name of an option or variable contains when its value is nobody's business.
const SECRET_PARTS: [&str; 7] = ["token", "key", "secret", "password", "passwd", "credential", "auth"];
const MASK: &str = "***";

/// Collects the facts of this process.
pub(crate) fn collect(pid: u32) -> ProcessFacts {
    let system = uname();
    let variables = std::env::vars_os().map(|(name, value)| (name.to_string_lossy().into_owned(), value));
    let kept = variables.filter(|(name, _)| ENVIRONMENT_PREFIXES.iter().any(|prefix| name.starts_with(prefix)));
    let mut environment: Vec<(String, String)> = kept
        .map(|(name, value)| {
            let value = if is_secret(&name) { MASK.into() } else { value.to_string_lossy().into_owned() };
            (name, value)
        })
        .collect();
    environment.sort_unstable();
    ProcessFacts {
        pid,
        parent_pid: std::os::unix::process::parent_id(),
        rank: rank(),
        executable: executable(),
        command_line: mask_secrets(command_line()),
        environment,
        hostname: system.0,
        kernel: system.1,
        recorder_version: env!("CARGO_PKG_VERSION").into(),
        notes: config::get().complaints.clone(),
    }
}

fn executable() -> String {
    std::fs::read_link("/proc/self/exe").map(|path| path.to_string_lossy().into_owned()).unwrap_or_default()
}

fn command_line() -> Vec<String> {
    let bytes = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    text.split_terminator('\0').map(str::to_owned).collect()
}

fn uname() -> (String, String) {
    // SAFETY: all zero is a valid utsname, the call fills it, and its fields are terminated.
    unsafe {
        let mut name: libc::utsname = std::mem::zeroed();
        libc::uname(&mut name);
        let text = |field: &[libc::c_char]| CStr::from_ptr(field.as_ptr()).to_string_lossy().into_owned();
        (text(&name.nodename), format!("{} {}", text(&name.release), text(&name.version)))
    }
}

fn rank() -> u32 {
    let values = RANK_VARIABLES.iter().filter_map(|name| std::env::var(name).ok());
    values.filter_map(|value| value.trim().parse().ok()).next().unwrap_or(0)
}

/// A name is secret by its words: `--hf-token`, `API_KEY`, but not `--monkey` or `--keyboard`.
fn is_secret(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let mut words = lower.split(|c: char| !c.is_ascii_alphanumeric());
    words.any(|word| SECRET_PARTS.iter().any(|part| word == *part || word.strip_suffix('s') == Some(*part)))
        || ["apikey", "authtoken", "accesskey", "secretkey"].iter().any(|part| lower.contains(part))
}

/// Masks the values of options that are named like a secret: `--token=x`, `--token x`, `API_KEY=x`.
fn mask_secrets(arguments: Vec<String>) -> Vec<String> {
    let mut value_is_secret = false;
    let mask = |argument: String| {
        if std::mem::take(&mut value_is_secret) && !argument.starts_with("--") {
            return MASK.into();
        }
        match argument.split_once('=') {
            Some((name, _)) if is_secret(name) => format!("{name}={MASK}"),
            None if argument.starts_with('-') && is_secret(&argument) => {
                value_is_secret = true;
                argument
            }
            _ => argument,
        }
    };
    arguments.into_iter().map(mask).collect()
}

/// Replaces `%p`, `%e`, `%h`, `%r` and `%%` in a path.
pub(crate) fn expand_path(pattern: &str, pid: u32) -> String {
    let mut path = String::with_capacity(pattern.len() + 16);
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        match (character, if character == '%' { characters.next() } else { None }) {
            ('%', Some('p')) => path.push_str(&pid.to_string()),
            ('%', Some('e')) => path.push_str(executable().rsplit('/').next().unwrap_or("unknown")),
            ('%', Some('h')) => path.push_str(&uname().0),
            ('%', Some('r')) => path.push_str(&rank().to_string()),
            ('%', Some('%') | None) => path.push('%'),
            ('%', Some(other)) => path.extend(['%', other]),
            (plain, _) => path.push(plain),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(arguments: &[&str]) -> Vec<String> {
        mask_secrets(arguments.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn values_of_secrets_are_masked_and_nothing_else() {
        assert_eq!(masked(&["run", "--hf-token", "abc", "-n", "5"]), ["run", "--hf-token", "***", "-n", "5"]);
        assert_eq!(
            masked(&["--api-key=abc", "API_KEY=x", "--keyboard=de"]),
            ["--api-key=***", "API_KEY=***", "--keyboard=de"]
        );
        assert_eq!(masked(&["--password", "--verbose"]), ["--password", "--verbose"]);
        assert_eq!(masked(&["--tokens", "x", "--monkey", "y"]), ["--tokens", "***", "--monkey", "y"]);
    }

    #[test]
    fn paths_are_expanded() {
        let executable = executable();
        let name = executable.rsplit('/').next().unwrap();
        assert_eq!(expand_path("/t/%e-%p.bin", 7), format!("/t/{name}-7.bin"));
        assert_eq!(expand_path("/t/100%%-%x-%", 7), "/t/100%-%x-%");
    }
}
