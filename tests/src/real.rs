//! Real clients: software that this project did not write, built by `scripts/real-clients`.

use std::path::PathBuf;

use crate::artefacts::target_dir;
use crate::run::Client;

/// Set by `scripts/test --all`: a client that is not there is a failure and not a skip.
const REQUIRED: &str = "REAL_CLIENTS_REQUIRED";

/// Where `scripts/real-clients build` puts what it builds.
pub fn real_clients_dir() -> PathBuf {
    target_dir().join("real-clients")
}

/// A client on Debian's real HIP over the simulated thunk, which logs to `thunk.log` in the run's directory. `None`, said
/// on stderr, where it is not built.
pub fn rocm_client(name: &str) -> Option<Client> {
    let dir = real_clients_dir();
    let program = dir.join(name);
    if !program.exists() || !dir.join("thunk/libhsakmt.so.1").exists() {
        assert!(std::env::var_os(REQUIRED).is_none(), "{name} is not built: run scripts/real-clients install && build");
        eprintln!("skipped: {name} is not built (scripts/real-clients install, scripts/real-clients build)");
        return None;
    }
    Some(Client::new(program).env("LD_LIBRARY_PATH", dir.join("thunk")).env("SIMTHUNK_LOG", "thunk.log"))
}
