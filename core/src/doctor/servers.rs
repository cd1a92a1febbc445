//! Postgres: its programs, as whom they run, their sockets.

use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use super::place::Place;
use super::{Best, Check, Programs, State};
use crate::branch;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::postgres::{self, Address, Installation, RunAs};
use crate::store::Store;

/// Adds the checks, notes the best choices, and gives the installations.
pub(super) fn check(
    place: &Place,
    store: Option<&Store>,
    environment: &Environment,
    best: &mut Best,
    checks: &mut Vec<Check>,
) -> Vec<Programs> {
    let (found, broken) = postgres::find(environment);
    let chosen = postgres::choose(environment, None);
    let needed = store.map(branch::needed_versions).unwrap_or_default();
    checks.push(installations(&found, &chosen, broken.iter().map(|(_, error)| error), &needed));
    best.postgres = chosen.as_ref().ok().map(|one| one.bin.display().to_string());
    let keeper = postgres::keeper::locate(environment);
    checks.push(Check::tried("server", "keeper", keeper.map_err(|error| error.message().to_owned()), |path| path.display().to_string()));
    checks.push(identity(place, chosen.as_ref().ok(), environment, best));
    checks.push(socket_path(place));
    checks.push(match place.work() {
        Ok(work) => Check::tried("server", "sockets", sockets(work), |()| "a socket was made, linked and connected to".to_owned()),
        Err(why) => Check::new("server", "sockets", State::Unknown, format!("not tried: {why}")),
    });
    // Where clusters are in the store already it is of no use without what runs them.
    if !needed.is_empty() {
        for check in checks.iter_mut().filter(|check| matches!(check.name, "postgres" | "keeper" | "identity")) {
            check.required = true;
        }
    }
    found.iter().map(programs).collect()
}

fn installations<'a>(
    found: &[Installation],
    chosen: &Result<Installation>,
    broken: impl Iterator<Item = &'a Error>,
    needed: &[(String, u32)],
) -> Check {
    let lacking: Vec<String> = needed
        .iter()
        .filter(|(_, major)| !found.iter().any(|one| one.version.major == *major))
        .map(|(branch, major)| format!("branch {branch} needs Postgres {major}"))
        .collect();
    let broken: Vec<String> = broken.map(|error| error.message().to_owned()).collect();
    let versions: Vec<String> = found.iter().map(|one| one.version.to_string()).collect();
    let check = match chosen {
        _ if !lacking.is_empty() => Check::new("server", "postgres", State::Unavailable, lacking.join("; ")),
        Err(error) => Check::new("server", "postgres", State::Unavailable, error.message()),
        Ok(best) => {
            let all = if versions.len() > 1 { format!(" (of {})", versions.join(", ")) } else { String::new() };
            Check::new("server", "postgres", State::Available, format!("{} in {}{all}", best.version, best.bin.display()))
        }
    };
    check.fact("versions", versions).fact("not_usable", broken)
}

fn identity(place: &Place, installation: Option<&Installation>, environment: &Environment, best: &mut Best) -> Check {
    let run_as = match RunAs::detect(environment) {
        Ok(run_as) => run_as,
        Err(error) => return Check::new("server", "identity", State::Unavailable, error.message()),
    };
    let (name, uid) = match &run_as {
        RunAs::Caller => ("caller", rustix::process::geteuid().as_raw()),
        RunAs::UserNamespace { uid, .. } => ("user_namespace", *uid),
        RunAs::Account { uid, .. } => ("account", *uid),
    };
    let way = installation.map(|installation| run_as.check_way(installation, &place.folder));
    if let Some(Err(error)) = way {
        return Check::new("server", "identity", State::Unavailable, error.message()).fact("runs_as", name).fact("uid", uid);
    }
    best.servers = Some(name.to_owned());
    Check::new("server", "identity", State::Available, format!("servers run as {}", run_as.describe()))
        .fact("runs_as", name)
        .fact("uid", uid)
}

fn socket_path(place: &Place) -> Check {
    let preferred = place.store.join("sockets");
    match Address::new(&preferred, "doctor", false) {
        Ok(address) => {
            let (length, most) = (address.longest_path(), Address::LONGEST_PATH);
            let (state, found) = if address.public.starts_with(&preferred) {
                (State::Available, format!("{length} of {most} bytes"))
            } else {
                let base = address.public.parent().unwrap_or(Path::new("/")).display().to_string();
                (State::Limited, format!("the store's path is too long for sockets in it: they are made in {base}"))
            };
            Check::new("server", "socket_path", state, found).fact("length", length).fact("most", most)
        }
        Err(error) => Check::new("server", "socket_path", State::Unavailable, error.message()),
    }
}

/// As the servers' sockets are made: one, with a second name, by which it is connected to.
fn sockets(work: &Path) -> Result<()> {
    let folder = std::fs::File::open(work).map_err(|source| Error::io("open", work, source))?;
    // By the descriptor, since the path may be longer than a socket's may be.
    let by_descriptor = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string());
    let short = if by_descriptor.exists() { by_descriptor } else { work.to_owned() };
    let (private, public) = (short.join("private"), short.join("public"));
    let listener = UnixListener::bind(&private).map_err(|source| Error::io("make a socket in", work, source))?;
    std::fs::hard_link(&private, &public).map_err(|source| Error::io("link a socket in", work, source))?;
    let client = UnixStream::connect(&public).map_err(|source| Error::io("connect to a socket in", work, source))?;
    let accepted = listener.accept().map_err(|source| Error::io("accept on a socket in", work, source))?;
    drop((client, accepted));
    Ok(())
}

fn programs(found: &Installation) -> Programs {
    let extensions = found.extensions().unwrap_or_default().into_iter();
    let extensions = extensions.map(|one| one.version.map_or(one.name.clone(), |version| format!("{} {version}", one.name)));
    let origin = serde_json::to_value(found.origin).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default();
    Programs { name: found.version.to_string(), origin, bin: found.bin.clone(), extensions: extensions.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn a_branch_of_a_version_that_is_not_there_is_named() {
        let chosen = Err(Error::new(ErrorKind::PostgresNotFound, "no usable Postgres"));
        let check = installations(&[], &chosen, [].into_iter(), &[("main".to_owned(), 16)]);
        assert_eq!((check.state, check.found.as_str()), (State::Unavailable, "branch main needs Postgres 16"));
        let check = installations(&[], &chosen, [].into_iter(), &[]);
        assert_eq!((check.state, check.found.as_str()), (State::Unavailable, "no usable Postgres"));
    }
}
