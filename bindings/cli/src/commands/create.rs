//! `branch create`: from nothing, a command, another cluster, or as a fork.

use forklift::branch::{BranchInfo, Branches, CreateOptions, ForkFrom, ForkOptions, ForkReport, Origin};
use forklift::postgres::{Limits, SafeMode, SafeReport};
use serde::Serialize;

use super::checkpoint;
use crate::arguments::{Create, ForkMode, Safe};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::Output;
use crate::text;

/// The new branch, and what the fork cost where it is one.
#[derive(Serialize)]
struct Created {
    #[serde(flatten)]
    info: BranchInfo,
    fork: Option<ForkReport>,
    /// What the making had to say, of any origin.
    warnings: Vec<String>,
}

pub(super) fn create(context: &Context, output: &mut Output<'_>, arguments: Create) -> Result<(), Failure> {
    let store = context.store()?;
    let branches = Branches::open(&store, context.environment())?;
    let name = arguments.name.clone();
    let source = match (&arguments.from, &arguments.at) {
        (Some(branch), None) => Some(ForkFrom::Branch(branch.clone())),
        (branch, Some(checkpoint)) => Some(ForkFrom::Checkpoint(checkpoint::find(&store, &branches, branch.as_deref(), checkpoint)?)),
        (None, None) => None,
    };
    let created = match source {
        Some(source) => {
            let options = ForkOptions {
                mode: match arguments.mode {
                    ForkMode::Auto => forklift::branch::ForkMode::Auto,
                    ForkMode::Online => forklift::branch::ForkMode::Online,
                    ForkMode::Atomic => forklift::branch::ForkMode::Atomic,
                },
                tcp: arguments.tcp,
                keep_replication: arguments.keep_replication,
                limits: Limits { ttl_ms: arguments.ttl, idle_ms: arguments.idle_stop },
                safe: arguments.safe.map(safe_mode),
                blank_credentials: arguments.blank_credentials,
                run: arguments.run.map(|file| context.folder().join(file)),
                disjoint_sequences: arguments.disjoint_sequences,
                settings: arguments.settings,
            };
            let (branch, report) = branches.fork(&name, &source, &options, &context.control())?;
            Created { info: branch.info()?, warnings: branch.warnings().to_vec(), fork: Some(report) }
        }
        None => {
            let (origin, options) = origin(context, arguments);
            // A program such as psql tells of errors there and may still end well.
            let branch = if output.is_json() || output.is_quiet() {
                branches.create(&name, &origin, &options, &context.control()).inspect_err(|error| {
                    // As JSON it is in the error's context.
                    let said = error.context().iter().find(|(key, _)| *key == "stderr" && !output.is_json());
                    said.into_iter().for_each(|(_, said)| output.pass_on(said.as_bytes()));
                })?
            } else {
                branches.create_told(&name, &origin, &options, &mut |bytes| output.pass_on(bytes), &context.control())?
            };
            Created { info: branch.info()?, warnings: branch.warnings().to_vec(), fork: None }
        }
    };
    output.result(&created, describe)?;
    match &created.fork {
        // These have the warnings among them.
        Some(fork) => output.warnings(&notes(fork)),
        None => output.warnings(&created.warnings),
    }
    output.hint(format!("`forklift branch start {name}` starts it, `forklift branch url {name}` prints its URL"));
    Ok(())
}

fn safe_mode(safe: Safe) -> SafeMode {
    match safe {
        Safe::Strict => SafeMode::Strict,
        Safe::BestEffort => SafeMode::BestEffort,
        Safe::Off => SafeMode::Off,
    }
}

fn origin(context: &Context, arguments: Create) -> (Origin, CreateOptions) {
    let options = CreateOptions {
        major: arguments.postgres_major,
        database: arguments.database,
        user: arguments.user,
        tcp: arguments.tcp,
        limits: Limits { ttl_ms: arguments.ttl, idle_ms: arguments.idle_stop },
        settings: arguments.settings,
    };
    let origin = if let Some(command) = arguments.seed {
        Origin::Seed { command: ["sh", "-c", &command].map(Into::into).to_vec(), folder: context.folder().to_owned() }
    } else if let Some(folder) = arguments.from_datadir {
        Origin::DataDir(context.folder().join(folder))
    } else if let Some(url) = arguments.from_url {
        Origin::Url(url)
    } else {
        Origin::Empty
    };
    (origin, options)
}

fn describe(created: &Created) -> String {
    let info = &created.info;
    let what = format!("{} is ready: Postgres {}, {}", info.name, info.version, text::bytes(info.bytes));
    match &created.fork {
        None => what,
        Some(fork) => format!("{what}, forked ({}, {}) in {}", fork.mode, fork.method, text::milliseconds(fork.total_ms)),
    }
}

fn notes(fork: &ForkReport) -> Vec<String> {
    let list = |what: &str, names: &[String]| (!names.is_empty()).then(|| format!("{what}: {}", names.join(", ")));
    [
        list("unlogged tables are empty in the fork", &fork.unlogged),
        list("the fork still holds prepared transactions", &fork.prepared),
        list("switched off in the fork", &fork.switched_off),
        list("cleared in the fork", &fork.blanked),
        ranges(fork),
    ]
    .into_iter()
    .flatten()
    .chain(fork.safe.iter().flat_map(contained))
    .chain(fork.warnings.iter().cloned())
    .collect()
}

/// The first of the sequences that have ranges of their own; `--json` has all.
fn ranges(fork: &ForkReport) -> Option<String> {
    const SHOWN: usize = 5;
    let shown: Vec<String> =
        fork.ranges.iter().take(SHOWN).map(|moved| format!("{} in {} from {}", moved.name, moved.database, moved.next)).collect();
    let more = fork.ranges.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!shown.is_empty()).then(|| format!("sequences with ranges of their own: {}{more}", shown.join(", ")))
}

/// What keeps a safe fork from reaching outside, and what does not.
fn contained(safe: &SafeReport) -> Vec<String> {
    let names = |holds: bool| {
        let of = safe.layers.iter().filter(|layer| layer.holds == holds);
        of.map(|layer| format!("{} ({})", layer.name, layer.detail)).collect::<Vec<_>>().join(", ")
    };
    [("safe mode: kept inside by", names(true)), ("safe mode: not there", names(false)), ("safe mode: left open", safe.open.join("; "))]
        .into_iter()
        .filter(|(_, text)| !text.is_empty())
        .map(|(what, text)| format!("{what}: {text}"))
        .collect()
}
