//! `forklift hook`.

use clap::{Args, Subcommand, ValueEnum};

/// What a host calls, and how it is told to.
#[derive(Debug, Subcommand)]
pub(crate) enum HookCommand {
    /// Take an event of Claude Code from standard input
    ClaudeCode,
    /// Take an event of the Codex CLI from standard input
    Codex,
    /// Take an event of the Gemini CLI from standard input
    Gemini,
    /// Take an event of Cursor from standard input
    Cursor,
    /// Write into a host's settings that it calls us; what is there stays
    Install(HookSettings),
    /// Take that out again
    Uninstall(HookSettings),
}

/// Whose settings.
#[derive(Debug, Args)]
pub(crate) struct HookSettings {
    /// The host
    #[arg(value_enum)]
    pub(crate) host: HostName,
    /// The settings of this user, for all projects; else those of the worktree
    #[arg(long)]
    pub(crate) user: bool,
    /// Do it; without, only show the change
    #[arg(long)]
    pub(crate) yes: bool,
}

/// A program that runs agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum HostName {
    /// Claude Code
    ClaudeCode,
    /// Codex CLI
    Codex,
    /// Gemini CLI
    Gemini,
    /// Cursor
    Cursor,
}
