//! The simulated disk of the library's own tests, with all of its enumeration and random sequences for the rest of the time.

use std::process::Command;

use crate::run::{Context, Stop};
use crate::tally::{Failure, Tally};

pub fn run(context: &Context, tally: &mut Tally) -> Result<(), Stop> {
    let program = context
        .core_tests
        .as_ref()
        .ok_or_else(|| Stop::Skipped("--core-tests does not name the test program of the library".to_owned()))?;
    let mut command = Command::new(program);
    command
        .args(["store::tests::simulated", "--nocapture"])
        .env("FORKLIFT_TORTURE_MINUTES", format!("{:.3}", context.seconds as f64 / 60.0));
    let output = command.output().map_err(|error| Stop::broken(format!("{}: {error}", program.display())))?;
    let text = String::from_utf8_lossy(&output.stdout);
    for line in text.lines() {
        count(line, "crash states", "crash states explored", tally);
        count(line, "different", "different crash states", tally);
        if let Some((_, rest)) = line.split_once("random sequences: ") {
            let mut numbers = rest.split(|letter: char| !letter.is_ascii_digit()).filter_map(|text| text.parse().ok());
            tally.add("random sequences", numbers.next().unwrap_or_default());
            tally.add("steps of random sequences", numbers.next().unwrap_or_default());
        }
        if line.contains("calls that fail") {
            let numbers = line.split(|letter: char| !letter.is_ascii_digit()).filter_map(|text| text.parse::<u64>().ok());
            // Each is followed by how many of them failed.
            tally.add("injected faults", numbers.step_by(2).sum());
        }
    }
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let tail: Vec<&str> = text.lines().chain(errors.lines()).filter(|line| !line.ends_with("... ok")).collect();
        return Err(Failure::new(format!("{}:\n{}", output.status, tail.join("\n"))).into());
    }
    Ok(())
}

/// The number before a word in a line of counts.
fn count(line: &str, word: &str, name: &'static str, tally: &mut Tally) {
    let Some((before, _)) = line.split_once(word) else { return };
    let number = before.trim_end().rsplit(|letter: char| !letter.is_ascii_digit()).next().and_then(|text| text.parse().ok());
    tally.add(name, number.unwrap_or_default());
}
