//! The command-line tool. Everything is in the library.

fn main() -> std::process::ExitCode {
    gpuoom_analyze::commands::main()
}
