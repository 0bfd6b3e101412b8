//! The Pythons of this machine.

use std::path::PathBuf;
use std::process::Command;

/// Each Python from 3.9 on that this machine has, whether its interpreter is a library or part of the program.
pub fn pythons() -> Vec<PathBuf> {
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    let versions = std::fs::read_dir(home.join(".pyenv/versions")).into_iter().flatten().flatten();
    let installed = versions.map(|version| version.path().join("bin/python3"));
    let all = ["python3".into(), "/usr/bin/python3".into()].into_iter().chain(installed);
    all.filter(|python: &PathBuf| {
        let program = "import sys; print(sys.version_info[:2] >= (3, 9) and sys.version_info[:2] <= (3, 14))";
        Command::new(python).args(["-c", program]).output().is_ok_and(|output| output.stdout == b"True\n")
    })
    .collect()
}
