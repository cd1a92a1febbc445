//! A mount and pid namespace for the whole run, so that nothing of it outlives this program, however that ends.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use crate::image;

/// Runs this program again with `arguments`, enclosed where this is root; gives its exit code.
pub fn run(arguments: &[&str]) -> ExitCode {
    let program = std::env::current_exe().expect("the path of this program");
    let first = if is_possible() { "enclose" } else { "enclosed" };
    let status = Command::new(program).arg(first).args(arguments).stdin(Stdio::null()).status();
    match status.map(|status| status.code()) {
        Ok(Some(code)) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        _ => ExitCode::FAILURE,
    }
}

/// Whether file systems can be mounted in a namespace here.
fn is_possible() -> bool {
    rustix::process::geteuid().is_root()
        && image::run(Command::new("unshare").args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "true"])).is_ok()
}

/// Becomes `unshare`, which starts this program as the first process of its namespaces. All of it is killed with whoever
/// called this: the kernel kills `unshare` with its parent, that kills the first process, and with that go all others.
pub fn enclose(arguments: &[&str]) -> ExitCode {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).expect("a signal at the parent's death");
    let program = std::env::current_exe().expect("the path of this program");
    let namespaces = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"];
    let error = Command::new("unshare").args(namespaces).arg(program).arg("enclosed").args(arguments).exec();
    eprintln!("unshare: {error}");
    ExitCode::FAILURE
}

/// Gives the work folder memory of its own, which goes with the namespace: images are fast there and no disk is worn.
pub fn mount_memory(folder: &Path) -> Result<(), String> {
    if rustix::process::getpid().is_init() {
        image::run(Command::new("mount").args(["-t", "tmpfs", "-o", "mode=0711", "tmpfs"]).arg(folder))
    } else {
        Err("no mount namespace of its own: that needs root".to_owned())
    }
}
