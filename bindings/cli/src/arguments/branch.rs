//! `forklift branch`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};

/// What can be done with branches.
#[derive(Debug, Subcommand)]
pub(crate) enum BranchCommand {
    /// Make a branch: empty, from a command, from another cluster, or as a fork
    Create(Box<Create>),
    /// List all branches
    List,
    /// Show one branch
    Inspect(Named),
    /// Print the URL for clients; it stays the same for the branch's life
    Url(UrlArguments),
    /// Start the server; one that runs is left as it is
    Start(Named),
    /// Stop the server cleanly
    Stop(Named),
    /// Stop the server cleanly and start it again
    Restart(Named),
    /// Give it another name; its URL stays and its server goes on running
    Rename(Rename),
    /// Refuse to delete it from now on
    Protect(Named),
    /// Allow again to delete it
    Unprotect(Named),
    /// Stop the server and remove the branch; refused while others depend on it
    Delete(Named),
}

/// The same without the word `branch`.
#[derive(Debug, Subcommand)]
pub(crate) enum ShortCommand {
    /// Short for `branch create`
    Create(Box<Create>),
    /// Short for `branch list`
    List,
    /// Short for `branch inspect`
    Inspect(Named),
    /// Short for `branch start`
    Start(Named),
    /// Short for `branch stop`
    Stop(Named),
    /// Short for `branch delete`
    Delete(Named),
}

impl From<ShortCommand> for BranchCommand {
    fn from(short: ShortCommand) -> Self {
        match short {
            ShortCommand::Create(create) => BranchCommand::Create(create),
            ShortCommand::List => BranchCommand::List,
            ShortCommand::Inspect(named) => BranchCommand::Inspect(named),
            ShortCommand::Start(named) => BranchCommand::Start(named),
            ShortCommand::Stop(named) => BranchCommand::Stop(named),
            ShortCommand::Delete(named) => BranchCommand::Delete(named),
        }
    }
}

/// One branch.
#[derive(Debug, Args)]
pub(crate) struct Named {
    /// Name or id of the branch
    pub(crate) name: String,
}

/// `branch rename`.
#[derive(Debug, Args)]
pub(crate) struct Rename {
    /// Name or id of the branch
    pub(crate) name: String,
    /// Its new name: letters, digits, `.`, `_`, `-`
    pub(crate) to: String,
}

/// `branch create`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("source").args(["from", "at"]).multiple(true)))]
pub(crate) struct Create {
    /// Name of the new branch: letters, digits, `.`, `_`, `-`
    pub(crate) name: String,
    /// Fork this branch; a running one is not interrupted
    #[arg(long, value_name = "BRANCH", conflicts_with_all = ["seed", "from_datadir", "from_url"])]
    pub(crate) from: Option<String>,
    /// Fork this checkpoint: its name, or the start of its id; with --from, one of that branch
    #[arg(long, value_name = "CHECKPOINT", conflicts_with_all = ["seed", "from_datadir", "from_url"])]
    pub(crate) at: Option<String>,
    /// Fill it by this command, given to `sh -c` with DATABASE_URL and PGHOST, PGUSER and so on set
    #[arg(long, value_name = "CMD", conflicts_with_all = ["from_datadir", "from_url"])]
    pub(crate) seed: Option<String>,
    /// Copy the cluster of a stopped server; the data folder is only read
    #[arg(long, value_name = "DIR", conflicts_with = "from_url")]
    pub(crate) from_datadir: Option<PathBuf>,
    /// Copy a database of another server by pg_dump; of the same or an older major version
    #[arg(long, value_name = "URL")]
    pub(crate) from_url: Option<String>,
    /// Major version of Postgres
    #[arg(long, value_name = "N", conflicts_with_all = ["from", "at"])]
    pub(crate) postgres_major: Option<u32>,
    /// Database of the URL
    #[arg(long, conflicts_with_all = ["from", "at"])]
    pub(crate) database: Option<String>,
    /// Role of the URL
    #[arg(long, conflicts_with_all = ["from", "at"])]
    pub(crate) user: Option<String>,
    /// Also listen on a TCP port of the loopback address
    #[arg(long)]
    pub(crate) tcp: bool,
    /// A setting of the server; may be given several times
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = setting)]
    pub(crate) settings: Vec<(String, String)>,
    /// How to copy a running --from; a stopped one is copied as it is
    #[arg(long, value_enum, default_value_t = ForkMode::Auto, requires = "from", conflicts_with = "at")]
    pub(crate) mode: ForkMode,
    /// Keep slots, subscriptions, archiving and standbys as the source has them
    #[arg(long)]
    pub(crate) keep_replication: bool,
    /// Keep the fork's server, and what its SQL starts, from reaching outside, now and at every later start
    #[arg(long, value_enum, value_name = "MODE", num_args = 0..=1, require_equals = true, default_missing_value = "strict",
        requires = "source")]
    pub(crate) safe: Option<Safe>,
    /// Clear what opens other systems from the fork: user mappings, foreign servers, subscriptions, logins, keys of vaults
    #[arg(long, requires = "source", conflicts_with = "keep_replication")]
    pub(crate) blank_credentials: bool,
    /// Run this SQL file by psql before anybody can connect to the fork; where it fails there is no fork
    #[arg(long, value_name = "FILE", requires = "source")]
    pub(crate) run: Option<PathBuf>,
    /// Give the fork's sequences ranges that no other branch has
    #[arg(long, requires = "source")]
    pub(crate) disjoint_sequences: bool,
    /// Stop the server this long after each start, such as 2h
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) ttl: Option<u64>,
    /// Stop the server once nobody has been connected for this long, such as 10m
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) idle_stop: Option<u64>,
}

/// What keeps a fork from reaching outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Safe {
    /// Both the system call filter and Landlock; refused where the machine lacks one
    Strict,
    /// What the machine has, which may be nothing
    BestEffort,
    /// Nothing, also where the source is a safe fork itself
    Off,
}

/// How to copy a running source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ForkMode {
    /// The way that suits it; online
    Auto,
    /// Through Postgres's backup interface: on every file system
    Online,
    /// By one snapshot, then a recovery as after a crash: on btrfs
    Atomic,
}

/// `branch url`.
#[derive(Debug, Args)]
pub(crate) struct UrlArguments {
    /// Name or id of the branch
    pub(crate) name: String,
    /// How it names the server
    #[arg(long, value_enum, default_value_t = UrlForm::Socket)]
    pub(crate) form: UrlForm,
}

/// How a URL names the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum UrlForm {
    /// By the folder of its socket: libpq, psycopg, asyncpg, SQLAlchemy, node-postgres
    Socket,
    /// By `localhost` and the folder of its socket: Prisma
    Localhost,
    /// By address and port, for a branch made with --tcp: everything
    Tcp,
}

/// Milliseconds.
fn time(text: &str) -> Result<u64, String> {
    let time = humantime::parse_duration(text).map_err(|error| format!("{error}; write a time such as 90s, 10m or 2h"))?;
    match u64::try_from(time.as_millis()) {
        Ok(ms @ 1..=MOST_MS) => Ok(ms),
        _ => Err("a time is between 1ms and 10 years".to_owned()),
    }
}

/// Ten years.
const MOST_MS: u64 = 10 * 366 * 24 * 3600 * 1000;

fn setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("a setting has the form NAME=VALUE, such as work_mem=64MB".to_owned()),
    }
}
