//! Tablespaces of the source lie in the copy.

use forklift::postgres::{Server, StopMode, prepare_copy};
use forklift::{Control, ErrorKind};

use crate::copying::Source;
use crate::support::wait_for;

#[test]
fn a_copy_never_touches_the_tablespaces_of_its_source() {
    let mut source = Source::start(&[]);
    let folder = source.cluster.root().join("space");
    let empty = source.cluster.root().join("empty");
    for folder in [&folder, &empty] {
        source.cluster.spec.run_as.make_folder(folder).unwrap();
    }
    // What another major version has there is not ours.
    std::fs::create_dir(folder.join("PG_9.6_201608131")).unwrap();
    let mut sql = source.sql();
    sql.run(&format!("CREATE TABLESPACE space LOCATION '{}'", folder.display())).unwrap();
    sql.run(&format!("CREATE TABLESPACE hollow LOCATION '{}'", empty.display())).unwrap();
    sql.run("CREATE TABLE there (id int) TABLESPACE space; INSERT INTO there SELECT generate_series(1, 1000)").unwrap();
    let path = source.value("SELECT pg_relation_filepath('there')");
    drop(sql);

    let (mut copy, report) = source.copy();
    let spaces = copy.data().join("pg_tblspc");
    let kinds: Vec<bool> = std::fs::read_dir(&spaces).unwrap().map(|entry| entry.unwrap().file_type().unwrap().is_dir()).collect();
    assert_eq!(kinds, [true, true]);
    assert!(!std::fs::read_dir(&spaces).unwrap().any(|entry| entry.unwrap().path().join("PG_9.6_201608131").exists()));

    // Without being prepared it refuses to start, rather than link to the source's folders.
    assert!(copy.data().join("tablespace_map").exists());
    let refused = Server::start(&copy.cluster.spec, |_| Ok(()), &Control::silent()).unwrap_err();
    assert!(!refused.message().is_empty());
    assert!(std::fs::symlink_metadata(copy.data().join(&path)).unwrap().is_file());

    copy.start_copy(&report);
    assert_eq!(copy.value("SELECT count(*) FROM there"), "1000");
    copy.sql().run("DELETE FROM there").unwrap();
    copy.sql().run("VACUUM there").unwrap();
    copy.sql().run("CREATE TABLE new (id int) TABLESPACE hollow; INSERT INTO new VALUES (1)").unwrap();
    copy.sql().run("CHECKPOINT").unwrap();
    copy.stop_server(StopMode::Fast);
    prepare_copy(copy.data(), false).unwrap();
    copy.start_server(|_| Ok(()));
    assert_eq!(copy.value("SELECT count(*) FROM new"), "1");

    // A copy of the copy, whose tablespaces are real folders.
    let (mut second, report) = copy.copy();
    second.start_copy(&report);
    assert_eq!(second.value("SELECT (SELECT count(*) FROM new) + (SELECT count(*) FROM there)"), "1");

    source.stop_server(StopMode::Fast);
    source.start_server(|_| Ok(()));
    assert_eq!(source.value("SELECT count(*) FROM there"), "1000");
    assert_eq!(source.value("SELECT count(*) FROM pg_ls_dir('pg_tblspc')"), "2");
}

#[test]
fn a_tablespace_whose_folder_is_gone_and_one_that_is_being_made_are_named() {
    let source = Source::start(&[]);
    let folder = source.cluster.root().join("space");
    source.cluster.spec.run_as.make_folder(&folder).unwrap();
    let mut locker = source.sql();
    locker.run("BEGIN; LOCK TABLE pg_tablespace IN ROW EXCLUSIVE MODE").unwrap();
    let busy = source.copy_through(|sink| forklift::postgres::copy_online(source.server(), sink, &Control::silent())).1.unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy);
    assert!(busy.message().contains("pg_tablespace"));
    locker.run("ROLLBACK").unwrap();

    source.sql().run(&format!("CREATE TABLESPACE space LOCATION '{}'", folder.display())).unwrap();
    std::fs::rename(&folder, folder.with_extension("away")).unwrap();
    let gone = source.copy_through(|sink| forklift::postgres::copy_online(source.server(), sink, &Control::silent())).1.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound, "{gone}");
    assert!(gone.message().contains("pg_tblspc"), "{gone}");
    std::fs::rename(folder.with_extension("away"), &folder).unwrap();
    wait_for("the next copy to work", || {
        source.copy_through(|sink| forklift::postgres::copy_online(source.server(), sink, &Control::silent())).1.is_ok()
    });
}
