//! The program `forklift`: lends the library this process's streams, folder, environment and signals, and exits with its answer.

use std::io::{IsTerminal, stderr, stdin, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use forklift::Environment;
use forklift_cli::{Host, Signals, quiet_panics, run};

fn main() -> ExitCode {
    quiet_panics();
    let signals = Signals::watch();
    let answer = run(
        std::env::args_os(),
        Host {
            stdin: &mut stdin(),
            stdout: &mut stdout(),
            stderr: &mut stderr(),
            progress: stderr().is_terminal(),
            folder: std::env::current_dir().unwrap_or_else(|_| PathBuf::from(".")),
            environment: Environment::read(),
            signals,
        },
    );
    ExitCode::from(answer)
}
