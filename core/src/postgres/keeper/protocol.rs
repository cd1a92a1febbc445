//! What library and keeper say to each other: orders as JSON lines one way, status lines the other way.

use std::path::PathBuf;

use super::super::{Address, Containment, Installation, Limits, Origin, RunAs, Version};
use crate::sys::process::Identity;

/// An order of the library.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Order {
    /// The first one: start the server on its private socket.
    Start(Box<Start>),
    /// Let clients in.
    Publish,
}

/// What the keeper must know. No secret is in it.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Start {
    pub(crate) programs: Programs,
    pub(crate) run_as: RunAs,
    /// The server is kept from reaching outside.
    pub(crate) contain: Option<Containment>,
    pub(crate) data: PathBuf,
    pub(crate) run: PathBuf,
    pub(crate) address: Address,
    pub(crate) limits: Limits,
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) system_identifier: u64,
    pub(crate) patience_ms: u64,
    /// The server ends with this process.
    pub(crate) owner: Option<Identity>,
}

/// An [`Installation`] on the wire.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Programs {
    bin: PathBuf,
    library_path: Option<PathBuf>,
    share: PathBuf,
    version: Version,
    origin: Origin,
}

impl From<&Installation> for Programs {
    fn from(installation: &Installation) -> Self {
        let Installation { bin, library_path, share, version, origin } = installation.clone();
        Self { bin, library_path, share, version, origin }
    }
}

impl Programs {
    pub(super) fn installation(&self) -> Installation {
        Installation {
            bin: self.bin.clone(),
            library_path: self.library_path.clone(),
            share: self.share.clone(),
            version: self.version,
            origin: self.origin,
        }
    }
}

/// A line of the keeper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    /// `started PID TICKS`: the postmaster executes.
    Started(Identity),
    /// `ready`: it accepts sessions on the private socket.
    Ready,
    /// `published`: clients are let in.
    Published,
    /// `failed JSON`: it did not come up, or could not be published; the keeper ends.
    Failed(Refusal),
}

/// Why the keeper gave up.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Refusal {
    /// One line.
    pub(crate) message: String,
    /// The end of the server's log, as far as this start wrote it.
    pub(crate) tail: String,
    /// Somebody else holds the port or the data folder.
    pub(crate) busy: bool,
    /// What to do next.
    pub(crate) hint: Option<String>,
}

impl Line {
    pub(super) fn text(&self) -> String {
        match self {
            Self::Started(Identity { pid, ticks }) => format!("started {pid} {ticks}\n"),
            Self::Ready => "ready\n".to_owned(),
            Self::Published => "published\n".to_owned(),
            Self::Failed(refusal) => format!("failed {}\n", serde_json::to_string(refusal).unwrap_or_default()),
        }
    }

    pub(super) fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "started" => {
                let (pid, ticks) = rest.split_once(' ')?;
                Some(Self::Started(Identity { pid: pid.parse().ok()?, ticks: ticks.parse().ok()? }))
            }
            "ready" => Some(Self::Ready),
            "published" => Some(Self::Published),
            "failed" => Some(Self::Failed(serde_json::from_str(rest).ok()?)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_read_back() {
        let refusal = Refusal { message: "no \"x\"\nnot at all".to_owned(), tail: "FATAL: a\nb".to_owned(), busy: true, hint: None };
        for line in [Line::Started(Identity { pid: 7, ticks: 99 }), Line::Ready, Line::Published, Line::Failed(refusal)] {
            let text = line.text();
            assert_eq!(text.matches('\n').count(), 1);
            assert_eq!(Line::parse(text.trim_end()), Some(line));
        }
        assert_eq!(Line::parse("started 7"), None);
        assert_eq!(Line::parse(""), None);
    }
}
