//! Facts about the process for the trace: without secrets.

use std::ffi::{CStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use gpuoom_trace::metadata::{ProcessFacts, RANK_VARIABLES};

use crate::base::config;

/// Variables whose values are kept. Everything else stays out of the trace.
const ENVIRONMENT_PREFIXES: [&str; 26] = [
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
    "WORLD_SIZE",
    "XLA_",
];
/// What the name of an option or variable contains when its value is nobody's business.
const SECRET_PARTS: [&str; 7] = ["token", "key", "secret", "password", "passwd", "credential", "auth"];
const MASK: &str = "***";

/// Collects the facts of this process.
pub(crate) fn collect(pid: u32) -> ProcessFacts {
    let system = uname();
    let variables = std::env::vars_os().map(|(name, value)| (name.to_string_lossy().into_owned(), value));
    let is_kept =
        |name: &str| ENVIRONMENT_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || rank_in(name).is_some();
    let kept = variables.filter(|(name, _)| is_kept(name));
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
    std::fs::read_link("/proc/thread-self/exe").map(|path| path.to_string_lossy().into_owned()).unwrap_or_default()
}

fn command_line() -> Vec<String> {
    let bytes = std::fs::read("/proc/thread-self/cmdline").unwrap_or_default();
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
    RANK_VARIABLES.iter().find_map(|name| rank_in(name)).unwrap_or(0)
}

/// The rank that this variable tells, if it is one that does.
fn rank_in(name: &str) -> Option<u32> {
    RANK_VARIABLES.contains(&name).then(|| std::env::var(name).ok()?.trim().parse().ok()).flatten()
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

/// Where a pattern says that the trace goes. A directory gets a trace with the usual name in it.
pub(crate) fn trace_path(pattern: &Path, pid: u32) -> PathBuf {
    let path = expand_path(pattern, pid);
    match path.as_os_str().as_bytes().ends_with(b"/") || path.is_dir() {
        true => path.join(expand_path(Path::new(config::DEFAULT_TRACE), pid)),
        false => path,
    }
}

/// Replaces `%p`, `%e`, `%h`, `%r` and `%%` in a path.
fn expand_path(pattern: &Path, pid: u32) -> PathBuf {
    let mut path = Vec::with_capacity(pattern.as_os_str().len() + 16);
    let mut bytes = pattern.as_os_str().as_bytes().iter().copied();
    while let Some(byte) = bytes.next() {
        match (byte, if byte == b'%' { bytes.next() } else { None }) {
            (b'%', Some(b'p')) => path.extend(pid.to_string().bytes()),
            (b'%', Some(b'e')) => path.extend(executable().rsplit('/').next().unwrap_or("unknown").bytes()),
            (b'%', Some(b'h')) => path.extend(uname().0.bytes()),
            (b'%', Some(b'r')) => path.extend(rank().to_string().bytes()),
            (b'%', Some(b'%') | None) => path.push(b'%'),
            (b'%', Some(other)) => path.extend([b'%', other]),
            (plain, _) => path.push(plain),
        }
    }
    OsString::from_vec(path).into()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

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
        let expand = |pattern: &[u8]| expand_path(Path::new(OsStr::from_bytes(pattern)), 7).into_os_string().into_vec();
        assert_eq!(expand(b"/t/%e-%p.bin"), format!("/t/{name}-7.bin").as_bytes());
        assert_eq!(expand(b"/t/100%%-%x-%"), b"/t/100%-%x-%");
        assert_eq!(expand(b"/\xff/%p"), b"/\xff/7");
    }

    #[test]
    fn a_directory_gets_the_usual_name() {
        let directory = tempfile::tempdir().unwrap();
        let inside = expand_path(&directory.path().join(config::DEFAULT_TRACE), 7);
        assert_eq!(trace_path(directory.path(), 7), inside);
        let missing = directory.path().join("no/");
        assert_eq!(trace_path(&missing, 7), expand_path(&missing.join(config::DEFAULT_TRACE), 7));
        assert_eq!(trace_path(&directory.path().join("no"), 7), directory.path().join("no"));
    }
}
