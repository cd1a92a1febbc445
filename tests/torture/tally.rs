//! What was done and what went wrong.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Something that must not be.
#[derive(Debug)]
pub struct Failure {
    /// Acknowledged refs that are not there, or not whole.
    pub lost: usize,
    pub text: String,
}

impl Failure {
    pub fn new(text: String) -> Self {
        Self { lost: 0, text }
    }

    pub fn lost(lost: usize, text: String) -> Self {
        Self { lost, text }
    }

    /// Says where.
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        self.text = format!("{place}: {}", self.text);
        self
    }
}

/// Counts by name, printed at the end in this order.
#[derive(Debug, Default)]
pub struct Tally {
    counts: BTreeMap<&'static str, u64>,
    pub lost: u64,
    pub failures: Vec<String>,
}

/// The counts that are always printed.
const ALWAYS: [&str; 7] =
    ["crash states explored", "kills", "power cuts", "injected faults", "flips", "clusters captured", "clusters restored and started"];

impl Tally {
    pub fn add(&mut self, what: &'static str, count: u64) {
        *self.counts.entry(what).or_insert(0) += count;
    }

    /// Notes a failure and where what failed was kept.
    pub fn fail(&mut self, kind: &str, failure: &Failure, kept: Option<PathBuf>) {
        let kept = kept.map(|path| format!("\n  kept: {}", path.display())).unwrap_or_default();
        let text = format!("{kind}: {}{kept}", failure.text);
        eprintln!("FAILED {text}");
        self.lost += failure.lost as u64;
        self.failures.push(text);
    }

    /// The closing lines.
    pub fn print(&self) {
        let rest = self.counts.keys().filter(|name| !ALWAYS.contains(name));
        for name in ALWAYS.iter().chain(rest) {
            println!("{name:<40} {:>9}", self.counts.get(name).copied().unwrap_or_default());
        }
        println!("{:<40} {:>9}", "lost acknowledged refs", self.lost);
        println!("{:<40} {:>9}", "failures", self.failures.len());
    }
}
