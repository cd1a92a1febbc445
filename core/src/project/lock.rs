//! Who may do what at once in one project, across processes.
//!
//! `command.lock` is held alone for all of a restore, recovery, forget or prune. Whoever works beside others (a managed
//! command, a capture) is a *holder*: it takes `command.lock` shared just long enough to look for a journal and to register
//! `holders/<token>.json`, which it keeps locked. So whoever has `command.lock` alone sees every holder there is, and no new
//! one can begin; which of them are its own ancestors it knows by the token in its environment.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use super::Project;
use super::record::{FORMAT, read_json};
use crate::error::{Error, ErrorKind, Result};
use crate::json;
use crate::progress::Control;
use crate::sys::fs;
use crate::sys::lock::{Lock, Mode};

/// The variable that proves that a caller runs inside a managed command.
pub(super) const TOKEN_VARIABLE: &str = "FORKLIFT_RUN_TOKEN";
/// How long a shared registration may keep somebody waiting, and a restore a capture.
const BRIEFLY: Duration = Duration::from_secs(2);
/// How long a restore waits for a capture to end.
const CAPTURE_PATIENCE: Duration = Duration::from_secs(60);

/// What a holder does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum HolderKind {
    /// A managed command.
    Run,
    /// A capture: over soon.
    Capture,
}

/// What a holder's file says of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HolderRecord {
    pub(super) format: u32,
    pub(super) token: String,
    pub(super) kind: HolderKind,
    pub(super) pid: u32,
    pub(super) command: String,
    /// The managed command that this one runs inside of.
    pub(super) parent: Option<String>,
}

impl HolderRecord {
    pub(super) fn describe(&self) -> String {
        format!("{}: {}", self.pid, self.command)
    }
}

/// A registered holder; dropping it, or the death of the process, ends it.
#[derive(Debug)]
pub(super) struct Holder {
    path: PathBuf,
    token: String,
    _lock: Lock,
}

impl Holder {
    pub(super) fn token(&self) -> &str {
        &self.token
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // Where it cannot be removed, the next one that works alone removes it: it is not locked then.
        drop(fs::remove_file(&self.path));
    }
}

/// `command.lock` held alone, with nobody but ancestors at work.
#[derive(Debug)]
pub(super) struct Alone {
    lock: Lock,
}

impl Drop for Alone {
    fn drop(&mut self) {
        drop(self.lock.file().set_len(0));
    }
}

impl Project {
    /// Registers work beside others. `Busy` while somebody works alone, `RecoveryNeeded` while a journal is pending.
    pub(super) fn hold(&self, kind: HolderKind, command: &str, control: &Control) -> Result<Holder> {
        let _shared = self.beside_others(BRIEFLY, control)?;
        self.check_no_journal()?;
        let token = crate::sys::id::random::<16>()?.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let folder = self.folder.holders();
        fs::make_folder(&folder, 0o700)?;
        let path = folder.join(format!("{token}.json"));
        let record = HolderRecord {
            format: FORMAT,
            token: token.clone(),
            kind,
            pid: std::process::id(),
            command: command.to_owned(),
            parent: self.inside().map(|outer| outer.token),
        };
        let locked = write_and_lock(&path, &json::encode(&path, &record)?, control);
        match locked {
            Ok(lock) => Ok(Holder { path, token, _lock: lock }),
            Err(error) => {
                fs::remove_file(&path)?;
                Err(error)
            }
        }
    }

    /// `command.lock` shared.
    pub(super) fn beside_others(&self, patience: Duration, control: &Control) -> Result<Lock> {
        let path = self.folder.command_lock();
        Lock::wait(&path, Mode::Shared, patience, control).map_err(|error| self.name_who_is_alone(error, &path))
    }

    /// Takes the project alone for `what`. `Busy` names the managed command that is in the way; the caller's own do not count.
    pub(super) fn alone(&self, what: &str, control: &Control) -> Result<Alone> {
        self.try_alone(what, control)?.map_err(|other| in_the_way(&other, &self.root))
    }

    /// As [`Project::alone`], once `patience` is over; `command.lock` is let go in between, since commands need it to end.
    pub(super) fn alone_soon(&self, what: &str, patience: Duration, control: &Control) -> Result<Alone> {
        let start = Instant::now();
        loop {
            match self.try_alone(what, control)? {
                Ok(alone) => return Ok(alone),
                Err(other) if start.elapsed() > patience => return Err(in_the_way(&other, &self.root)),
                Err(_) => {}
            }
            control.check()?;
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The inner error is the managed command in the way (or the capture that does not end); nothing is held then.
    pub(super) fn try_alone(&self, what: &str, control: &Control) -> Result<std::result::Result<Alone, HolderRecord>> {
        let path = self.folder.command_lock();
        let lock = Lock::wait(&path, Mode::Exclusive, BRIEFLY, control).map_err(|error| self.name_who_is_alone(error, &path))?;
        let text = format!("{}: {what}\n", std::process::id());
        // Only for messages: a full disk must not keep a prune from freeing it.
        drop(lock.file().set_len(0).and_then(|()| lock.file().write_all(text.as_bytes())));
        let alone = Alone { lock };
        let own = self.own_tokens();
        let start = Instant::now();
        loop {
            let others: Vec<_> = self.holders(true)?.into_iter().filter(|holder| !own.contains(&holder.token)).collect();
            let Some(first) = others.iter().find(|holder| holder.kind == HolderKind::Run).or(others.first()) else { return Ok(Ok(alone)) };
            if first.kind == HolderKind::Run || start.elapsed() > CAPTURE_PATIENCE {
                return Ok(Err(first.clone()));
            }
            control.check()?;
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Everyone at work. With `reap` (only while `command.lock` is held alone) files that nobody holds are removed.
    pub(super) fn holders(&self, reap: bool) -> Result<Vec<HolderRecord>> {
        let folder = self.folder.holders();
        let mut live = Vec::new();
        if !folder.is_dir() {
            return Ok(live);
        }
        for name in fs::names(&folder)? {
            let path = folder.join(&name);
            if is_held(&path)? {
                live.push(read_json(&path).ok().flatten().unwrap_or_else(|| unreadable(&name.to_string_lossy())));
            } else if reap {
                fs::remove_file(&path)?;
            }
        }
        Ok(live)
    }

    /// The managed command of this project that the caller runs inside of.
    pub(super) fn inside(&self) -> Option<HolderRecord> {
        let token = self.environment.text(TOKEN_VARIABLE)?;
        self.live_run(token)
    }

    fn live_run(&self, token: &str) -> Option<HolderRecord> {
        if token.len() != 32 || !token.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let path = self.folder.holders().join(format!("{token}.json"));
        if !is_held(&path).ok()? {
            return None;
        }
        read_json::<HolderRecord>(&path).ok().flatten().filter(|holder| holder.kind == HolderKind::Run && holder.token == token)
    }

    /// The caller's managed command and those around it.
    fn own_tokens(&self) -> Vec<String> {
        let mut tokens: Vec<String> = Vec::new();
        let mut next = self.inside();
        while let Some(holder) = next.filter(|holder| !tokens.contains(&holder.token)) {
            next = holder.parent.as_deref().and_then(|parent| self.live_run(parent));
            tokens.push(holder.token);
        }
        tokens
    }

    fn name_who_is_alone(&self, error: Error, path: &Path) -> Error {
        if error.kind() != ErrorKind::Busy {
            return error;
        }
        let text = fs::read(path).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
        let who = text.trim();
        busy(if who.is_empty() { "another forklift command" } else { who }, &self.root)
    }
}

fn busy(who: &str, root: &Path) -> Error {
    Error::new(ErrorKind::Busy, format!("{} is in use by {who}", root.display()))
        .with("holder", who)
        .with("path", root.display())
        .hint("wait for it to end")
}

fn in_the_way(holder: &HolderRecord, root: &Path) -> Error {
    let error = busy(&holder.describe(), root).with("pid", holder.pid);
    match holder.kind {
        HolderKind::Capture => error,
        HolderKind::Run => {
            error.hint("end that command, call forklift from inside it, or let a restore stop it by `hooks.stop` in .forklift.json")
        }
    }
}

fn write_and_lock(path: &Path, bytes: &[u8], control: &Control) -> Result<Lock> {
    let mut file = fs::create_new(path, 0o600)?;
    file.write_all(bytes).map_err(|source| Error::io("write", path, source))?;
    Lock::wait(path, Mode::Exclusive, BRIEFLY, control)
}

fn unreadable(name: &str) -> HolderRecord {
    let token = name.trim_end_matches(".json").to_owned();
    HolderRecord { format: FORMAT, token, kind: HolderKind::Run, pid: 0, command: "a command that cannot be read".to_owned(), parent: None }
}

/// Whether some process holds the lock on `path`; never creates it.
fn is_held(path: &Path) -> Result<bool> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(source) => return Err(Error::io("open", path, source)),
    };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(false),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
        Err(errno) => Err(Error::io("lock", path, errno)),
    }
}
