//! Workers as processes: started, listened to, killed by their id and reaped.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A line of a worker and when it was read.
#[derive(Debug, Clone)]
pub struct Line {
    pub at: Instant,
    pub text: String,
}

/// A worker; killed and reaped whatever happens.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    lines: Arc<Mutex<Vec<Line>>>,
    listener: Option<JoinHandle<()>>,
    errors: File,
}

/// What a worker said, and how it ended.
#[derive(Debug)]
pub struct Ended {
    pub lines: Vec<Line>,
    pub status: ExitStatus,
    /// The end of its standard error.
    pub errors: String,
}

/// This program, as a worker.
pub fn worker(store: &Path, seed: u64, operations: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
    command.arg("work").arg("--store").arg(store).args(["--seed", &seed.to_string(), "--operations", operations]);
    command
}

impl Worker {
    /// Starts a command that speaks as a worker does. Its standard error goes to a file without a name in `scratch`.
    pub fn start(mut command: Command, scratch: &Path) -> Self {
        let path = scratch.join(format!("errors-{}", forklift::sys::id::sortable().expect("an id")));
        let errors = File::options().read(true).append(true).create_new(true).open(&path).expect("a file for errors");
        std::fs::remove_file(&path).expect("unlink");
        let to = errors.try_clone().expect("a second descriptor");
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(to).spawn().expect("the worker starts");
        let out = child.stdout.take().expect("its output");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&lines);
        let listener = std::thread::spawn(move || {
            for text in BufReader::new(out).split(b'\n').map_while(Result::ok) {
                let line = Line { at: Instant::now(), text: String::from_utf8_lossy(&text).into_owned() };
                shared.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        Self { child, lines, listener: Some(listener), errors }
    }

    /// Waits until it has said something that begins so, has ended, or the patience is over.
    pub fn wait_for(&mut self, beginning: &str, patience: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < patience {
            let said = self.lines.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|line| line.text.starts_with(beginning));
            if said || self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return;
            }
            std::thread::sleep(Duration::from_micros(500));
        }
    }

    /// Waits for its end, at most so long.
    pub fn wait(&mut self, patience: Duration) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < patience {
            if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return true;
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        false
    }

    /// Kills it, if it lives, and gives all that it said.
    pub fn end(mut self) -> Ended {
        let status = self.reap();
        let lines = std::mem::take(&mut *self.lines.lock().unwrap_or_else(PoisonError::into_inner));
        let mut errors = String::new();
        self.errors.rewind().and_then(|()| self.errors.read_to_string(&mut errors)).ok();
        Ended { lines, status, errors }
    }

    fn reap(&mut self) -> ExitStatus {
        self.child.kill().ok();
        let status = self.child.wait().expect("the worker is ours to wait for");
        if let Some(listener) = self.listener.take() {
            listener.join().expect("the listener ends");
        }
        status
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.reap();
    }
}
