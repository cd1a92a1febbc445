//! Installations of Postgres.

use std::path::PathBuf;

use forklift::postgres::{Extension, Installation, Origin, find, install_bundled};
use serde::Serialize;

use crate::arguments::PostgresCommand;
use crate::context::Context;
use crate::exit;
use crate::failure::Failure;
use crate::output::Output;
use crate::table::Table;
use crate::text;

/// One installation, the JSON shape of both commands.
#[derive(Serialize)]
struct Found {
    /// `15.18`.
    name: String,
    major: u32,
    minor: u32,
    origin: Origin,
    bin: PathBuf,
    library_path: Option<PathBuf>,
    extensions: Vec<Extension>,
}

pub(super) fn run(context: &Context, output: &mut Output<'_>, command: PostgresCommand) -> Result<u8, Failure> {
    match command {
        PostgresCommand::List => list(context, output)?,
        PostgresCommand::Install(arguments) => {
            let installation = install_bundled(context.environment(), arguments.version.as_deref(), &context.control())?;
            output.result(&Found::of(&installation)?, |found| format!("Postgres {} is in {}", found.name, text::path(&found.bin)))?;
        }
    }
    Ok(exit::DONE)
}

fn list(context: &Context, output: &mut Output<'_>) -> Result<(), Failure> {
    let (usable, broken) = find(context.environment());
    for (_, error) in broken {
        output.warning(format!("not usable: {error}"));
    }
    let found = usable.iter().map(Found::of).collect::<forklift::Result<Vec<Found>>>()?;
    if found.is_empty() {
        output.hint("no usable Postgres (13 to 18) was found: `forklift postgres install` puts one into your data folder");
    }
    output.result(&found, |found| if found.is_empty() { String::new() } else { table(found) })
}

fn table(found: &[Found]) -> String {
    let mut table = Table::new(["VERSION", "FOUND", "EXTENSIONS", "PROGRAMS"]);
    for found in found {
        let origin = format!("{:?}", found.origin).to_lowercase();
        table.row([found.name.clone(), origin, found.extensions.len().to_string(), text::path(&found.bin)]);
    }
    table.render()
}

impl Found {
    fn of(installation: &Installation) -> forklift::Result<Self> {
        let version = installation.version;
        Ok(Self {
            name: format!("{}.{}", version.major, version.minor),
            major: version.major,
            minor: version.minor,
            origin: installation.origin,
            bin: installation.bin.clone(),
            library_path: installation.library_path.clone(),
            extensions: installation.extensions()?,
        })
    }
}
