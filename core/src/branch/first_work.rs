//! What is done in a fork before anybody can connect to it: sequences, credentials, the caller's own SQL, ranges of sequences.

use std::path::Path;

use super::making::Making;
use super::{ForkOptions, ForkReport, program, settings, url};
use crate::error::{Error, ErrorKind, Result};
use crate::postgres::{self, Credentials, Ranges, SafeMode, SequenceState, Server};
use crate::progress::{Control, Unit};

/// What a fork is asked to be, beside a copy.
pub(super) struct FirstWork<'a> {
    pub(super) options: &'a ForkOptions,
    /// Of the source, to put back.
    pub(super) sequences: &'a [SequenceState],
    /// The ranges of sequences that the source has.
    pub(super) ranges: Option<Ranges>,
}

/// Settings whose values are logins or hold some.
const LOGINS: &[&str] = &[
    "primary_conninfo",
    "restore_command",
    "archive_command",
    "archive_cleanup_command",
    "recovery_end_command",
    "ssl_passphrase_command",
];

impl FirstWork<'_> {
    /// Whether the fork differs from a plain copy by it, so that it is no cache of its checkpoint.
    pub(super) fn changes_the_copy(&self) -> bool {
        self.options.blank_credentials || self.options.run.is_some() || self.options.disjoint_sequences
    }

    /// Before the first start, on the files.
    pub(super) fn on_files(&self, making: &Making, report: &mut ForkReport) -> Result<()> {
        if self.options.blank_credentials {
            let data = making.cluster_folder().data();
            report.blanked = postgres::blank_files(&data, LOGINS)?;
            making.shared.run_as()?.give(&data)?;
        }
        Ok(())
    }

    /// On the private server; gives how many sequences were put back.
    pub(super) fn on_server(
        &self,
        making: &Making,
        server: &Server,
        credentials: &Credentials,
        report: &mut ForkReport,
        control: &Control,
    ) -> Result<u64> {
        let put_back = postgres::put_back(server, self.sequences)?;
        if !self.options.keep_replication {
            report.switched_off.extend(settings::subscriptions(server)?);
        }
        if making.record.safe != SafeMode::Off {
            report.switched_off.extend(postgres::scheduled_jobs(server)?);
        }
        if self.options.blank_credentials {
            report.blanked.extend(postgres::blank_databases(server)?);
            report.warnings.push("credentials that were cleared may still lie in the fork's WAL until it is recycled".to_owned());
        }
        if let Some(script) = &self.options.run {
            run(making, server, credentials, script, control)?;
            report.ran = Some(script.clone());
            report.warnings.push("rows that the SQL file changed or removed may still lie in the fork's pages and WAL".to_owned());
        }
        if let Some(ranges) = making.record.ranges.as_ref().filter(|_| self.options.disjoint_sequences) {
            let (moved, without_room) = postgres::make_disjoint(server, self.ranges.as_ref(), ranges)?;
            report.ranges = moved;
            if !without_room.is_empty() {
                report.warnings.push(format!("sequences without room for a range of their own stay: {}", without_room.join(", ")));
            }
        }
        Ok(put_back)
    }
}

/// Refuses, before anything is made, what cannot be.
pub(super) fn check(options: &ForkOptions) -> Result<()> {
    let refuse = |what: &str| {
        Err(Error::new(ErrorKind::InvalidArgument, format!("{what} and kept replication exclude each other"))
            .hint("leave one of the two out"))
    };
    if options.keep_replication && options.blank_credentials {
        return refuse("cleared credentials");
    }
    if options.keep_replication && options.safe.is_some_and(|safe| safe != SafeMode::Off) {
        return refuse("safe mode");
    }
    match &options.run {
        Some(script) if !script.is_file() => {
            Err(Error::new(ErrorKind::NotFound, format!("the SQL file {} does not exist", script.display())).with("path", script.display()))
        }
        _ => Ok(()),
    }
}

/// As forklift's superuser in the URL's database; the first statement that fails ends it.
fn run(making: &Making, server: &Server, credentials: &Credentials, script: &Path, control: &Control) -> Result<()> {
    control.report("run SQL", 0, 1, Unit::Items);
    let installation = making.shared.installation(&making.record.postgres, making.record.version)?;
    let role = &credentials.ours;
    let mut command = url::client(&installation, "psql", Some(&role.password))?;
    command.args(["-X", "-q", "-w", "-v", "ON_ERROR_STOP=1", "-h"]).arg(&server.address().private);
    command.args(["-p", "5432", "-U", &role.name, "-d", &credentials.database, "-f"]).arg(script);
    let done = program::run("psql", &mut command, making.folder.path(), &program::Streams::default(), control);
    control.report("run SQL", 1, 1, Unit::Items);
    done.map(drop).map_err(|error| match error.kind() {
        ErrorKind::Cancelled => error,
        _ => error
            .while_doing(format!("run {}", script.display()))
            .with("path", script.display())
            .hint("nothing was left; correct the SQL file and fork again"),
    })
}
