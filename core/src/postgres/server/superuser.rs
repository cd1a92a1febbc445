//! The name of a foreign cluster's bootstrap superuser.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use super::super::{ControlFile, Installation, RunAs};
use super::{find, stop};
use crate::error::{Error, ErrorKind, Result};

/// What the source has set must decide neither what the question means, nor whether it is answered, nor who hears of it:
/// `(name, value, first major version that has it)`. Settings of roles and databases are not read by this backend, and it fires
/// no event triggers.
const OVERRIDES: &[(&str, &str, u32)] = &[
    ("search_path", "pg_catalog", 13),
    ("statement_timeout", "0", 13),
    ("lock_timeout", "0", 13),
    ("transaction_timeout", "0", 17),
    ("shared_preload_libraries", "", 13),
    ("session_preload_libraries", "", 13),
    ("local_preload_libraries", "", 13),
    ("huge_pages", "off", 13),
    ("jit", "off", 13),
    ("default_transaction_read_only", "off", 13),
    ("archive_mode", "off", 13),
    ("ssl", "off", 13),
    ("logging_collector", "off", 13),
    ("log_destination", "stderr", 13),
    ("log_line_prefix", "", 13),
    ("log_statement", "none", 13),
    ("log_min_messages", "warning", 13),
    ("log_error_verbosity", "default", 13),
];

/// In hexadecimal, as the backend quotes nothing; every name by its schema, as those of others may be found first.
const QUESTION: &[u8] = b"SELECT pg_catalog.encode(pg_catalog.convert_to(rolname::pg_catalog.text, 'UTF8'), 'hex') AS name \
    FROM pg_catalog.pg_authid WHERE oid OPERATOR(pg_catalog.=) 10::pg_catalog.oid;\n";

/// Asks the catalog with the single-user backend, which needs no password. The cluster must be stopped and our own copy: it
/// is opened for writing.
///
/// # Errors
/// `Busy` where it runs; `ServerStart` with what the backend said.
pub fn bootstrap_superuser(installation: &Installation, run_as: &RunAs, data: &Path) -> Result<String> {
    let found = find::look(Path::new("/nonexistent"), data)?;
    if let Some(pid) = found.postmaster.map(|postmaster| postmaster.pid).or(found.pids.first().copied()) {
        return Err(stop::foreign(data, pid));
    }
    run_as.check(installation, data)?;
    let mut command = run_as.command(installation, "postgres")?;
    // A copied configuration may name the data folder of its source, which would win over -D.
    let own = format!("data_directory={}", data.display());
    // The source may have had it on its command line; prepared transactions must find their places.
    let prepared = format!("max_prepared_transactions={}", ControlFile::read(data)?.max_prepared_transactions);
    command.args(["--single", "-D"]).arg(data).args(["-c", &own, "-c", &prepared]);
    for (name, value, _) in OVERRIDES.iter().filter(|(.., since)| installation.version.major >= *since) {
        command.args(["-c", &format!("{name}={value}")]);
    }
    command.arg("template1");
    let failed = |source: std::io::Error| Error::io("run the single-user backend on", data, source);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed)?;
    if let Some(mut input) = child.stdin.take() {
        // A backend that has ended says why on its other pipe.
        drop(input.write_all(QUESTION));
    }
    let output = child.wait_with_output().map_err(failed)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let name = text.lines().find_map(|line| unhex(line.split_once("name = \"")?.1.split_once('"')?.0));
    name.ok_or_else(|| {
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        let said = reason(&log);
        Error::new(ErrorKind::ServerStart, format!("the single-user backend did not name the superuser of {}: {said}", data.display()))
            .with("path", data.display())
            .with("log", log.trim_end())
            .hint("put right in the source's configuration what it names, and try again")
    })
}

/// Why the backend ended: its last FATAL, PANIC or ERROR; with what was wrong in the configuration where that is all it says.
fn reason(log: &str) -> String {
    let worst = log
        .lines()
        .rev()
        .find_map(|line| ["FATAL:", "PANIC:", "ERROR:"].iter().find_map(|level| line.find(level)).and_then(|at| line.get(at..)));
    let Some(worst) = worst else {
        return log.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it said nothing").to_owned();
    };
    if !worst.contains("configuration file") {
        return worst.to_owned();
    }
    let causes = log.lines().filter_map(|line| line.split_once("LOG:  ")).map(|(_, text)| text.trim());
    let causes: Vec<&str> = causes
        .filter(|text| ["invalid", "unrecognized", "parameter", "syntax error", "could not"].iter().any(|word| text.contains(word)))
        .collect();
    if causes.is_empty() { worst.to_owned() } else { format!("{worst}: {}", causes.join("; ")) }
}

fn unhex(text: &str) -> Option<String> {
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect();
    String::from_utf8(bytes?).ok().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_worst_line_and_not_the_last() {
        let log = "LOG:  starting\nFATAL:  could not map anonymous shared memory\nHINT:  less\nLOG:  database system is shut down\n";
        assert_eq!(reason(log), "FATAL:  could not map anonymous shared memory");
        let log = "LOG:  invalid value for parameter \"lc_time\": \"xx\"\nFATAL:  configuration file \"/c\" contains errors\n";
        assert_eq!(reason(log), "FATAL:  configuration file \"/c\" contains errors: invalid value for parameter \"lc_time\": \"xx\"");
        assert_eq!(reason("\nsome words\n\n"), "some words");
        assert_eq!(reason(""), "it said nothing");
    }
}
