//! Pools: create, status, grow, remove.

use forklift::clone::{Pool, PoolHost, PoolKind, PoolState, PoolStatus};

use crate::arguments::{PoolCommand, PoolPath, PoolSystem};
use crate::context::Context;
use crate::exit;
use crate::failure::Failure;
use crate::output::Output;
use crate::table::Table;
use crate::text;

pub(super) fn run(context: &Context, output: &mut Output<'_>, command: PoolCommand) -> Result<u8, Failure> {
    let control = context.control();
    match command {
        PoolCommand::Create(arguments) => {
            let kind = match arguments.fs {
                PoolSystem::Xfs => PoolKind::Xfs,
                PoolSystem::Btrfs => PoolKind::Btrfs,
            };
            let made = pool(context, &arguments.pool)?.create(arguments.size, kind, &control)?;
            output.result(&made, |made| {
                let status = &made.status;
                let what = match status.comes_back_by {
                    "systemd" => "a mount unit was written to",
                    _ => "two lines were written to",
                };
                format!(
                    "a pool of {} ({}) is mounted at {}\n{what} {}: it is mounted again after a boot",
                    text::bytes(status.size),
                    status.file_system.name(),
                    text::path(&status.mount),
                    text::path(&status.written)
                )
            })?;
            output.warnings(&made.warnings);
            let store = text::path(&made.status.mount.join("store"));
            output.hint(format!("use it by --store {store}, or for every command by FORKLIFT_STORE={store}"));
        }
        PoolCommand::Status(arguments) => {
            let status = pool(context, &arguments)?.status()?;
            output.result(&status, details)?;
            return Ok(advise(output, &status));
        }
        PoolCommand::Grow(arguments) => {
            let status = pool(context, &arguments.pool)?.grow(arguments.size, &control)?;
            output.result(&status, |status| {
                format!("the pool has {} now, {} of it free", text::bytes(status.size), text::bytes(status.free.unwrap_or_default()))
            })?;
        }
        PoolCommand::Remove(arguments) => {
            let removed = pool(context, &arguments.pool)?.remove(arguments.with_contents, &control)?;
            output.result(&removed, |removed| {
                let with = if removed.contents.is_empty() { String::new() } else { format!(" with {}", removed.contents.join(", ")) };
                let with = text::plain(&with).into_owned();
                format!(
                    "the pool in {} is removed{with}, and {} does not mount it any more",
                    text::path(&removed.folder),
                    text::path(&removed.written)
                )
            })?;
        }
    }
    Ok(exit::DONE)
}

fn pool(context: &Context, arguments: &PoolPath) -> Result<Pool, Failure> {
    let folder = match &arguments.path {
        Some(path) => context.folder().join(path),
        None => context.environment().data_folder()?.join("pool"),
    };
    Ok(Pool::at(&folder, PoolHost::detect())?)
}

fn details(status: &PoolStatus) -> String {
    let mut table = Table::plain();
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    row("folder", text::path(&status.folder));
    row(
        "state",
        match status.state {
            PoolState::Making => "half made",
            PoolState::Ready => "ready",
            PoolState::Removing => "half removed",
        }
        .to_owned(),
    );
    row("mount", format!("{} ({})", text::path(&status.mount), if status.mounted { "mounted" } else { "not mounted" }));
    row("file system", status.file_system.name().to_owned());
    row("size", format!("{}, of which {} are reserved on the disk", text::bytes(status.size), text::bytes(status.allocated)));
    if let Some(free) = status.free {
        row("free", text::bytes(free));
    }
    row("after a boot", format!("{} {}", if status.comes_back { "by" } else { "not any more by" }, text::path(&status.written)));
    if status.mounted {
        row("contents", if status.contents.is_empty() { "none".to_owned() } else { text::plain(&status.contents.join(", ")).into_owned() });
    }
    table.render()
}

/// Whether it can be used, with what to do where not.
fn advise(output: &mut Output<'_>, status: &PoolStatus) -> u8 {
    let folder = text::path(&status.folder);
    match status.state {
        PoolState::Ready if status.mounted => {
            if !status.comes_back {
                output.warning(format!(
                    "after a boot it has to be mounted by hand: {} says nothing of it any more",
                    text::path(&status.written)
                ));
            }
            return exit::DONE;
        }
        PoolState::Ready => output.hint(format!("mount it: mount {}", text::path(&status.mount))),
        PoolState::Making => output.hint(format!("`forklift pool create` makes it anew, `forklift pool remove {folder}` clears it away")),
        PoolState::Removing => output.hint(format!("`forklift pool remove {folder}` goes on")),
    }
    exit::NO
}
