use std::path::{Path, PathBuf};

use super::testing::Cluster;
use crate::ErrorKind;
use crate::postgres::{check_online_copy, prepare_copy};
use crate::sys::fs;

fn put(path: &Path, text: &str) {
    fs::replace(path, text.as_bytes(), 0o600, &fs::Syncs::new()).unwrap();
}

/// A folder in which everything that prepare_copy looks at is there.
fn copy() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    for name in ["pg_replslot/one", "pg_replslot/two.tmp", "pg_tblspc/16384", "pg_wal", "global"] {
        fs::make_folder(&data.join(name), 0o700).unwrap();
    }
    put(&data.join("pg_replslot/one/state"), "x");
    (folder, data)
}

#[test]
fn row_1_the_pid_file_of_a_living_parent_goes_from_the_copy_and_stays_in_the_parent() {
    let Some(cluster) = Cluster::new("row_1_the_pid_file_of_a_living_parent_goes_from_the_copy_and_stays_in_the_parent", &[]) else {
        return;
    };
    let copy = cluster.copy("copy", true);
    let mut server = cluster.start(&[]);
    let pid_file = fs::read(&cluster.data.join("postmaster.pid")).unwrap();
    put(&copy.join("postmaster.pid"), &String::from_utf8(pid_file.clone()).unwrap());
    put(&copy.join("standby.signal"), "");
    let mut removed = prepare_copy(&copy, true).unwrap();
    removed.sort();
    assert_eq!(removed, [PathBuf::from("postmaster.pid"), PathBuf::from("standby.signal")]);
    assert_eq!(fs::read(&cluster.data.join("postmaster.pid")).unwrap(), pid_file);
    assert_eq!(server.value("select 1"), "1");
    let other = super::testing::Server::start(&cluster.installation, &copy, &[]).unwrap();
    let error = prepare_copy(&copy, true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(copy.join("postmaster.pid").exists());
    other.stop();
    server.stop();
}

#[test]
fn slots_are_emptied_and_their_folder_stays_unless_they_are_kept() {
    let (_folder, data) = copy();
    assert!(prepare_copy(&data, true).unwrap().is_empty());
    assert_eq!(fs::names(&data.join("pg_replslot")).unwrap().len(), 2);
    prepare_copy(&data, false).unwrap();
    assert!(fs::names(&data.join("pg_replslot")).unwrap().is_empty());
}

#[test]
fn a_link_that_leaves_the_copy_is_refused_by_name_and_nothing_is_changed() {
    let outside = tempfile::tempdir().unwrap();
    for link in ["pg_tblspc/16385", "server.crt", "global/1262"] {
        let (_folder, data) = copy();
        put(&data.join("postmaster.pid"), "1\n");
        std::os::unix::fs::symlink(outside.path(), data.join(link)).unwrap();
        let error = prepare_copy(&data, false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PostgresMismatch);
        assert!(error.message().contains(link) && error.message().contains(&outside.path().display().to_string()), "{error}");
        assert!(data.join("postmaster.pid").exists() && data.join("pg_replslot/one").exists());
    }
    let (_folder, data) = copy();
    fs::remove_tree(&data.join("pg_wal")).unwrap();
    fs::make_folder(&data.join("wal"), 0o700).unwrap();
    std::os::unix::fs::symlink("wal", data.join("pg_wal")).unwrap();
    assert!(prepare_copy(&data, false).unwrap_err().message().contains("pg_wal"));
}

#[test]
fn row_23_the_map_goes_only_where_every_tablespace_it_names_is_in_the_copy() {
    let (_folder, data) = copy();
    put(&data.join("tablespace_map"), "16384 /far/away\\\n99999 is part of the path\n");
    assert_eq!(prepare_copy(&data, true).unwrap(), [PathBuf::from("tablespace_map")]);
    put(&data.join("tablespace_map"), "16384 /far/away\n16390 /elsewhere\n");
    let error = prepare_copy(&data, true).unwrap_err();
    assert!(error.message().contains("16390"), "{error}");
    assert!(data.join("tablespace_map").exists());
}

#[test]
fn row_21_an_online_copy_without_its_label_is_not_started() {
    let (_folder, data) = copy();
    let error = check_online_copy(&data).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains("backup_label"), "{error}");
    put(&data.join("backup_label"), "START WAL LOCATION: 0/2000028 (file 000000010000000000000002)\n");
    check_online_copy(&data).unwrap();
}
