//! The doctor, and pools.

use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::{Place, keys};

#[test]
fn the_doctor_tells_what_it_found_and_changes_nothing() {
    let place = Place::new();
    let report = place.run(&["doctor", "--json"]).facts();
    keys(&report, &["store", "exists", "examined", "able", "lacking", "best", "checks", "postgres"]);
    keys(&report["best"], &["clone", "postgres", "servers", "containment"]);
    assert_eq!((&report["exists"], &report["able"]), (&Value::Bool(false), &Value::Bool(true)));
    assert_eq!(report["examined"], place.path().to_str().unwrap());
    let checks = report["checks"].as_array().unwrap();
    for check in checks {
        keys(check, &["group", "name", "state", "required", "found", "facts"]);
        assert!(["clone", "disk", "kernel", "server"].contains(&check["group"].as_str().unwrap()), "{check}");
        assert!(["available", "limited", "unavailable", "unknown"].contains(&check["state"].as_str().unwrap()), "{check}");
    }
    for name in [
        "snapshot",
        "reflink",
        "copy",
        "writable",
        "file_system",
        "space",
        "inodes",
        "locks",
        "sync",
        "exchange",
        "leases",
        "extents",
        "user_namespaces",
        "network_namespaces",
        "seccomp",
        "landlock",
        "pidfd",
        "openat2",
        "shared_memory",
        "shared_segments",
        "postgres",
        "keeper",
        "identity",
        "socket_path",
        "sockets",
    ] {
        assert_eq!(checks.iter().filter(|check| check["name"] == name).count(), 1, "{name}");
    }
    for found in report["postgres"].as_array().unwrap() {
        keys(found, &["name", "origin", "bin", "extensions"]);
    }
    assert_eq!(place.path().read_dir().unwrap().count(), 0);
    let told = place.run(&["doctor"]);
    assert!(told.text().contains("clone copy") && told.text().ends_with("this machine can run it\n"), "{told:?}");
}

#[test]
fn the_doctor_answers_no_where_a_store_cannot_be_run() {
    let place = Place::new();
    let said = place.run(&["--store", "/proc/sys/store", "doctor", "--json"]);
    assert_eq!(said.code, 1, "{said:?}");
    let report: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((&report["able"], &report["best"]["clone"]), (&Value::Bool(false), &Value::Null));
    assert!(report["lacking"].as_array().is_some_and(|lacking| !lacking.is_empty()));
    assert!(said.err.contains("lacking: "), "{said:?}");
}

#[test]
fn pools_that_are_not_there_or_cannot_be_are_told() {
    let place = Place::new();
    let error = place.run(&["pool", "status", "nothing", "--json"]).error(3);
    assert_eq!((error["kind"].as_str(), error["code"].as_i64()), (Some("not_found"), Some(-3)));
    assert_eq!(place.run(&["pool", "status", "with blank", "--json"]).error(2)["kind"], "invalid_argument");
    for size in ["many", "0", "-1G"] {
        assert_eq!(place.run(&["pool", "create", &format!("--size={size}"), "pool"]).code, 2, "{size}");
    }
    assert_eq!(place.run(&["pool", "create", "pool"]).code, 2);
    let small = place.run(&["pool", "create", "--size", "1M", "pool"]);
    assert_eq!(small.code, if is_root(&place) { 2 } else { 3 }, "{small:?}");
    assert_eq!(place.path().read_dir().unwrap().count(), 0);
}

fn is_root(place: &Place) -> bool {
    place.path().metadata().unwrap().uid() == 0
}

/// In a mount namespace of its own, with a copy of `/etc`: the machine's mount table is not touched.
#[test]
fn a_pool_is_made_used_by_a_store_and_removed() {
    let test = "a_pool_is_made_used_by_a_store_and_removed";
    let place = Place::new();
    if !is_root(&place) {
        eprintln!("SKIPPED {test}: mounting needs root");
        return;
    }
    if std::path::Path::new("/run/systemd/system").exists() {
        eprintln!("SKIPPED {test}: systemd runs, and has no copy that could be given units");
        return;
    }
    let script = r#"
        set -e
        cp -a /etc "$2/etc"; mount --bind "$2/etc" /etc
        truncate -s 512M "$2/try"; mkfs.xfs -q "$2/try"; mkdir "$2/here"
        mount -o loop "$2/try" "$2/here" || exit 77
        umount "$2/here"
        "$1" pool create --size 512M "$2/pool" --json
        grep -q "$2/pool/mount xfs loop" /etc/fstab
        "$1" --store "$2/pool/mount/store" doctor --json > "$2/doctor"
        "$1" --store "$2/pool/mount/store" branch create main -q > /dev/null
        "$1" --store "$2/pool/mount/store" branch create fork --from main --json > "$2/fork"
        if "$1" pool remove "$2/pool" 2> "$2/refused"; then exit 1; fi
        grep -q 'holds store' "$2/refused"
        "$1" pool grow --size 600M "$2/pool" > /dev/null
        umount "$2/pool/mount"
        if "$1" pool status "$2/pool" > "$2/status" 2> "$2/advice"; then exit 1; fi
        grep -q 'not mounted' "$2/status"; grep -q 'mount it: mount' "$2/advice"
        mount "$2/pool/mount"
        "$1" pool status "$2/pool" > /dev/null
        "$1" pool remove --with-contents "$2/pool" > /dev/null
        test ! -e "$2/pool"
        if grep -q forklift /etc/fstab; then exit 1; fi
    "#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]).arg(env!("CARGO_BIN_EXE_forklift")).arg(place.path());
    command.env("FORKLIFT_KEEPER", crate::harness::keeper()).env_remove("FORKLIFT_STORE").stdin(Stdio::null());
    let output = command.output().unwrap();
    if output.status.code() == Some(77) {
        eprintln!("SKIPPED {test}: no loop mounts here");
        return;
    }
    assert!(output.status.success(), "{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let made: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&made["state"], &made["mounted"], &made["comes_back_by"]), (&"ready".into(), &true.into(), &"fstab".into()));
    let read = |name: &str| serde_json::from_str::<Value>(&crate::harness::read(&place.path().join(name))).unwrap();
    assert_eq!(read("doctor")["best"]["clone"], "reflink");
    assert_eq!(read("fork")["fork"]["method"], "reflink");
}
