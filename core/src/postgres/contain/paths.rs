//! The files of a contained server: a list of what is allowed, as Landlock refuses everything else.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, Scope, make_bitflags,
    path_beneath_rules,
};

use super::super::Installation;
use crate::error::{Error, ErrorKind, Result};

/// Where the server's own files lie.
pub(in crate::postgres) struct Places<'a> {
    /// Its programs.
    pub(in crate::postgres) installation: &'a Installation,
    /// PGDATA.
    pub(in crate::postgres) data: &'a Path,
    /// The folder it makes its socket in.
    pub(in crate::postgres) socket: &'a Path,
    /// Its access files.
    pub(in crate::postgres) run: &'a Path,
}

/// The newest version whose rights are handled; the kernel's own decides which of them there are.
const VERSION: ABI = ABI::V9;

/// Programs and libraries of the machine, the same for every user.
const PROGRAMS: &[&str] =
    &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store", "/home/linuxbrew/.linuxbrew"];

/// What libc, OpenSSL, ICU and the interpreters read; no passwords, no keys.
const CONFIGURATION: &[&str] = &[
    "/etc/alternatives",
    "/etc/crypto-policies",
    "/etc/gai.conf",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    "/etc/locale.alias",
    "/etc/locale.conf",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/perl",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/openssl.cnf",
    "/etc/protocols",
    "/etc/python3",
    "/etc/python3.11",
    "/etc/python3.12",
    "/etc/python3.13",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/timezone",
    // Text search dictionaries that Debian makes.
    "/var/cache/postgresql",
    // Landlock itself keeps it from what belongs to other processes there: environment, memory, descriptors.
    "/proc",
    "/sys/devices/system",
    "/sys/kernel/mm",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/zero",
];

/// Makes the ruleset for a server.
///
/// # Errors
/// `NotFound` where one of its own places is missing, `Unsupported` with what the kernel answered.
pub(super) fn ruleset(places: &Places<'_>, closed: &[PathBuf]) -> Result<OwnedFd> {
    for own in [places.data, places.socket, places.run] {
        if !own.is_dir() {
            return Err(Error::new(ErrorKind::NotFound, format!("{} is not a folder", own.display())).with("path", own.display()));
        }
    }
    let read = make_bitflags!(AccessFs::{ReadFile | ReadDir});
    let execute = read | AccessFs::Execute;
    // Files and folders are all that a server makes. A link to a file outside would be followed by a copy of the folder, and what
    // it writes is not executed.
    let write = AccessFs::from_all(VERSION)
        & !make_bitflags!(AccessFs::{Execute | MakeChar | MakeBlock | MakeFifo | MakeSock | MakeSym | IoctlDev});
    let allow = |rules: RulesetCreated, paths: &[PathBuf], access: BitFlags<AccessFs>| rules.add_rules(path_beneath_rules(paths, access));
    let owned = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
    let around = |paths: Vec<PathBuf>| paths.into_iter().flat_map(|path| around(path, closed)).collect::<Vec<_>>();
    let made = || {
        let rules = Ruleset::default()
            .handle_access(AccessFs::from_all(VERSION))?
            .handle_access(AccessNet::from_all(VERSION))?
            .scope(Scope::from_all(VERSION))?
            .create()?;
        let rules = allow(rules, &around(owned(PROGRAMS)), execute)?;
        let rules = allow(rules, &around(owned(CONFIGURATION)), read)?;
        let rules = allow(rules, &around(of_installation(places.installation)), execute)?;
        let rules = allow(rules, &[places.run.to_owned()], read)?;
        let rules = allow(rules, &owned(&["/dev/null"]), read | AccessFs::WriteFile | AccessFs::Truncate)?;
        let rules = allow(rules, &[places.data.to_owned()], write)?;
        allow(rules, &[places.socket.to_owned()], write | AccessFs::MakeSock)
    };
    let rules = made().map_err(|error: landlock::RulesetError| {
        Error::new(ErrorKind::Unsupported, format!("Landlock does not take the rules: {error}")).because(error)
    })?;
    Option::<OwnedFd>::from(rules).ok_or_else(|| Error::new(ErrorKind::Unsupported, "this kernel has no Landlock any more"))
}

/// The path, or where a closed folder lies below it, everything in it but the way there.
fn around(path: PathBuf, closed: &[PathBuf]) -> Vec<PathBuf> {
    let real = path.canonicalize().unwrap_or_else(|_| path.clone());
    if closed.iter().any(|closed| real.starts_with(closed)) {
        return Vec::new();
    }
    if !closed.iter().any(|closed| closed.starts_with(&real)) {
        return vec![path];
    }
    // What cannot be listed cannot be read.
    let names = crate::sys::fs::names(&real).unwrap_or_default();
    names.into_iter().flat_map(|name| around(real.join(name), closed)).collect()
}

/// The installation's own folders, both as they are called and as they lie; never the folder above, which may be a user's home.
fn of_installation(installation: &Installation) -> Vec<PathBuf> {
    let mut folders = vec![installation.bin.clone(), installation.share.clone()];
    folders.extend(installation.modules());
    folders.extend(installation.library_path.clone());
    folders.extend(installation.bin.canonicalize());
    let beside: Vec<PathBuf> =
        folders.iter().filter(|folder| folder.ends_with("bin")).filter_map(|bin| Some(bin.parent()?.join("lib"))).collect();
    folders.extend(beside);
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_a_closed_folder_is_left_out_and_its_siblings_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        for path in ["usr/lib", "usr/local/store/branches", "usr/local/bin"] {
            crate::sys::fs::make_folder(&top.join(path), 0o700).unwrap();
        }
        let mut found = around(top.join("usr"), &[top.join("usr/local/store")]);
        found.sort();
        assert_eq!(found, [top.join("usr/lib"), top.join("usr/local/bin")]);
        assert_eq!(around(top.join("usr"), &[top.join("other")]), [top.join("usr")]);
        assert_eq!(around(top.join("usr/local/store/branches"), &[top.join("usr/local/store")]), Vec::<PathBuf>::new());
    }
}
