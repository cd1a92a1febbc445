//! What grows: a store of 100,000 refs, a folder of 1,000,000 files, an index of 1,000,000 chunks. Each step is a process of its own,
//! so that its peak memory is its own. Prints a table, writes it as Markdown, and ends with 1 where a target is missed.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a program that people run, which may stop at the first thing that goes wrong"
)]

mod steps;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use serde_json::Value;

/// One line of the table.
struct Line {
    what: String,
    found: f64,
    limit: Option<f64>,
    unit: &'static str,
}

impl Line {
    fn is_missed(&self) -> bool {
        self.limit.is_some_and(|limit| self.found > limit)
    }
}

/// Removes everything that was made, whatever happens.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [step, folder, count] = arguments.as_slice() {
        println!("{}", steps::run(step, Path::new(folder), count.parse().expect("a count")));
        return ExitCode::SUCCESS;
    }
    let number = |name: &str, default: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (refs, files) = (number("REFS", 100_000), number("FILES", 1_000_000));
    let scratch = Scratch(std::env::temp_dir().join(format!("forklift-scale-{}", std::process::id())));
    std::fs::create_dir(&scratch.0).expect("a scratch folder");
    let mut lines = of_refs(&scratch.0, refs);
    lines.extend(of_files(&scratch.0, files));
    let table = table(&lines);
    print!("{table}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository").join("target/bench-scale.md");
    std::fs::write(&path, &table).expect("the table");
    eprintln!("written to {}", path.display());
    if lines.iter().any(Line::is_missed) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn of_refs(scratch: &Path, count: u64) -> Vec<Line> {
    step("make-refs", scratch, count);
    let found = step("refs", scratch, count);
    let line = |name: &str, what: &str, limit: Option<f64>| Line {
        what: format!("{count} refs: {what}"),
        found: found[name].as_f64().expect(name),
        limit,
        unit: "ms",
    };
    vec![
        line("open_ms", "open", Some(50.0)),
        line("last_ms", "list the last 50", Some(50.0)),
        line("recent_ms", "read the last 1,000 for a timeline", None),
        line("all_ms", "read all for a timeline", None),
    ]
}

fn of_files(scratch: &Path, count: u64) -> Vec<Line> {
    step("make-files", scratch, count);
    let (first, again) = (step("capture", scratch, count), step("capture", scratch, count));
    let index = step("index", scratch, count);
    let line = |found: &Value, name: &str, what: &str, limit, unit| Line {
        what: format!("{count} files in one folder: {what}"),
        found: found[name].as_f64().expect(name),
        limit,
        unit,
    };
    vec![
        line(&first, "peak_mb", "first capture, peak memory", Some(1000.0), "MB"),
        line(&first, "ms", "first capture", None, "ms"),
        line(&again, "peak_mb", "unchanged capture, peak memory", Some(1000.0), "MB"),
        line(&again, "ms", "unchanged capture", None, "ms"),
        line(&again, "opened", "files opened by the unchanged capture", Some(0.0), ""),
        line(&index, "mb_a_million", "index memory a million chunks", Some(64.0), "MB"),
    ]
}

/// Runs a step as a process of its own and gives what it printed.
fn step(name: &str, scratch: &Path, count: u64) -> Value {
    eprintln!("{name} ...");
    let program = std::env::current_exe().expect("this program");
    let output = Command::new(program)
        .args([name.as_ref(), scratch.as_os_str(), count.to_string().as_ref()])
        .stderr(Stdio::inherit())
        .output()
        .expect("this program runs");
    assert!(output.status.success(), "{name} failed");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn table(lines: &[Line]) -> String {
    let mut text = "| what | measured | at most | |\n| --- | ---: | ---: | --- |\n".to_owned();
    for line in lines {
        let limit = line.limit.map_or_else(String::new, |limit| format!("{limit} {}", line.unit));
        let verdict = if line.limit.is_none() {
            ""
        } else if line.is_missed() {
            "MISSED"
        } else {
            "ok"
        };
        text.push_str(&format!("| {} | {:.1} {} | {limit} | {verdict} |\n", line.what, line.found, line.unit));
    }
    text
}
