//! What an interpreter runs: `python train.py` is `train.py` to people, and `python3.11` to the system.

use super::sites::file_name;

/// Beginnings of the names of programs that run scripts, with their options that have a value of their own.
const INTERPRETERS: [(&str, &[&str]); 6] = [
    ("python", &["-W", "-X", "--check-hash-based-pycs"]),
    ("pypy", &["-W", "-X"]),
    ("node", &["-r", "--require", "--import", "--loader"]),
    ("julia", &["-L", "--load", "-J", "--sysimage", "-t", "--threads", "-p", "--procs"]),
    ("perl", &["-I"]),
    ("ruby", &["-I", "-r"]),
];

/// The script or module of a command line; `None` where the program is no interpreter, or what it runs has no name (`-c`).
pub(super) fn script(executable: &str, command_line: &[String]) -> Option<String> {
    let program = file_name(executable);
    let (_, with_value) = INTERPRETERS.iter().find(|(name, _)| program.starts_with(name))?;
    let mut words = command_line.iter().skip(1).map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "-m" => return words.next().map(str::to_owned),
            "-c" | "-e" | "-" => return None,
            _ if with_value.contains(&word) => drop(words.next()),
            _ if word.starts_with('-') => {}
            _ => return Some(file_name(word).to_owned()),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_or_a_module_is_what_an_interpreter_runs() {
        let of = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            script(&words[0], &words)
        };
        for (line, expected) in [
            ("/usr/bin/python3.11 -u -W ignore /home/me/train.py --steps 5", Some("train.py")),
            ("python -m torch.distributed.run train.py", Some("torch.distributed.run")),
            ("python3 -c pass", None),
            ("python3", None),
            ("node --expose-gc run.mjs", Some("run.mjs")),
            ("/opt/bin/llama-cli -m model.gguf", None),
        ] {
            assert_eq!(of(line).as_deref(), expected, "{line}");
        }
    }
}
