//! Data folders and servers whose own settings must not lead their copy.

use forklift::branch::{Branches, CreateOptions, Origin};
use forklift::{Environment, ErrorKind};

use super::super::support::{self, Cluster};
use super::{Place, rows, silent, start, value};

fn append(cluster: &Cluster, text: &str) {
    let file = cluster.spec.data.join("postgresql.conf");
    let old = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{old}\n{text}")).unwrap();
    cluster.spec.run_as.give(&cluster.spec.data).unwrap();
}

/// A cluster that has run once, with what this does to it.
fn stopped(sql: &str) -> Cluster {
    let cluster = Cluster::new();
    let server = cluster.start().unwrap();
    cluster.client().unwrap().batch_execute(sql).unwrap();
    support::stop(server);
    cluster
}

#[test]
fn settings_of_a_data_folder_decide_nothing_about_its_copy() {
    let place = Place::new();
    let cluster = Cluster::new();
    let server = cluster.start().unwrap();
    let trap = "create schema trap; create table trap.hit (x int); create table trap.pg_authid (oid oid, rolname name); \
                insert into trap.pg_authid values (10, 'intruder'); \
                create function trap.encode(bytea, text) returns text language plpgsql as \
                $$ begin insert into trap.hit values (1); return '696e747275646572'; end $$";
    let url = cluster.spec.address.url(forklift::postgres::UrlForm::Socket, &cluster.spec.credentials.url, "template1").unwrap();
    let mut template = postgres::Client::connect(&url, postgres::NoTls).unwrap();
    template.batch_execute(trap).unwrap();
    drop(template);
    support::stop(server);
    append(
        &cluster,
        "search_path = 'trap, pg_catalog'\nstatement_timeout = 1\nhuge_pages = on\nlc_messages = 'xx_YY.UTF-8'\nlc_monetary = 'xx_YY'\n\
         lc_time = 'C'\ndefault_transaction_read_only = on\nssl = off\narchive_mode = on\narchive_command = 'false'\n",
    );
    std::fs::write(cluster.spec.data.join("standby.signal"), "").unwrap();
    cluster.spec.run_as.give(&cluster.spec.data).unwrap();
    let branch = place.branches.create("copy", &Origin::DataDir(cluster.spec.data.clone()), &CreateOptions::default(), &silent()).unwrap();
    assert_eq!(branch.credentials().unwrap().ours.name, cluster.spec.credentials.ours.name);
    let told = branch.warnings().join("\n");
    for part in ["lc_messages is C", "lc_monetary is C", "xx_YY.UTF-8", "huge_pages", "archive_command", "archive_mode", "standby.signal"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!told.contains("lc_time"), "{told}");
}

#[test]
fn settings_that_do_not_fit_this_machine_are_replaced_in_the_copy() {
    let place = Place::new();
    let cluster = stopped("select 1");
    append(&cluster, "lc_numeric = 'xx_YY'\nhuge_pages = on\n");
    let branch = place.branches.create("copy", &Origin::DataDir(cluster.spec.data.clone()), &CreateOptions::default(), &silent()).unwrap();
    start(&branch);
    let shown = "select current_setting('lc_numeric'), current_setting('huge_pages')";
    assert_eq!(rows(&branch, shown), ["C|try"]);
}

#[test]
fn prepared_transactions_and_slots_of_a_data_folder_are_told() {
    let place = Place::new();
    let mut cluster = Cluster::new();
    cluster.spec.settings.push(("max_prepared_transactions".to_owned(), "3".to_owned()));
    let server = cluster.start().unwrap();
    let mut client = cluster.client().unwrap();
    client.batch_execute("begin; create table late (x int); prepare transaction 'two phases'").unwrap();
    client.batch_execute("select pg_create_physical_replication_slot('shelf', true)").unwrap();
    drop(client);
    support::stop(server);
    let branch = place.branches.create("copy", &Origin::DataDir(cluster.spec.data.clone()), &CreateOptions::default(), &silent()).unwrap();
    let told = branch.warnings().join("\n");
    assert!(told.contains("prepared transactions: two phases") && told.contains("replication slot shelf"), "{told}");
}

#[test]
fn libraries_that_are_missing_are_refused_by_name_before_anything_is_made() {
    let place = Place::new();
    let cluster = stopped("select 1");
    for setting in ["shared_preload_libraries", "session_preload_libraries", "local_preload_libraries"] {
        let file = cluster.spec.data.join("postgresql.auto.conf");
        std::fs::write(&file, format!("{setting} = 'no_such_library'\n")).unwrap();
        let origin = Origin::DataDir(cluster.spec.data.clone());
        let error = place.branches.create("copy", &origin, &CreateOptions::default(), &silent()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PostgresMismatch, "{error}");
        assert!(error.message().contains("no_such_library") && error.message().contains(setting), "{error}");
    }
    // What is wrong otherwise is told by what the server said of it.
    std::fs::write(cluster.spec.data.join("postgresql.auto.conf"), "work_mem = 'much'\n").unwrap();
    let origin = Origin::DataDir(cluster.spec.data.clone());
    let error = place.branches.create("copy", &origin, &CreateOptions::default(), &silent()).unwrap_err();
    assert!(error.message().contains("FATAL") && error.message().contains("work_mem"), "{error}");
    assert_eq!(place.names(), Vec::<String>::new());
    assert_eq!(place.leftovers(), Vec::<String>::new());
}

#[test]
fn comment_and_privileges_of_a_dumped_database_come_along_and_the_rest_is_told() {
    let place = Place::new();
    let source = place.running(
        "source",
        "create role \"Odd 'Reader\"; create role clerk login password 'x'; comment on database app is E'it''s \\\\ours\\ntwo lines'; \
         revoke all on database app from public; grant connect on database app to \"Odd 'Reader\"; \
         grant create on database app to clerk with grant option; create table t (x int); create publication news for table t",
    );
    super::run(&source, "create subscription \"far away\" connection 'host=/nonexistent' publication p with (connect = false)");
    let url = source.url(forklift::postgres::UrlForm::Socket).unwrap();
    let shown = "select datacl, pg_catalog.shobj_description(oid, 'pg_database') from pg_catalog.pg_database where datname = 'app'";
    let before = rows(&source, shown);
    let branch = place.branches.create("copy", &Origin::Url(url.clone()), &CreateOptions::default(), &silent()).unwrap();
    let told = branch.warnings().join("\n");
    assert!(told.contains("subscriptions are not carried: far away") && told.contains("clerk cannot log in"), "{told}");
    start(&branch);
    assert_eq!(rows(&branch, shown), before);
    assert_eq!(value(&branch, "select pubname from pg_publication"), "news");

    // An installation that was named is not passed over for another.
    let (old, _folder) = other_installation("14");
    let error = old(&place).create("old", &Origin::Url(url), &CreateOptions::default(), &silent()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PostgresMismatch, "{error}");
    super::stop(&source);
}

#[test]
fn a_data_folder_is_not_given_to_another_installation_than_the_one_named() {
    let place = Place::new();
    let cluster = stopped("select 1");
    let (old, folder) = other_installation("14");
    let origin = Origin::DataDir(cluster.spec.data.clone());
    let error = old(&place).create("copy", &origin, &CreateOptions::default(), &silent()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PostgresMismatch, "{error}");
    let major = cluster.spec.installation.version.major;
    let named = folder.path().canonicalize().unwrap().join("bin").display().to_string();
    assert!(error.message().contains(&format!("Postgres {major}")) && error.message().contains("14.1"), "{error}");
    assert!(error.message().contains(&named), "{error}");
    assert_eq!(place.names(), Vec::<String>::new());
}

/// What names an installation of another major, which only says its version.
fn other_installation(major: &str) -> (impl Fn(&Place) -> Branches, tempfile::TempDir) {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let (bin, share) = (folder.path().join("bin"), folder.path().join("share"));
    std::fs::create_dir(&bin).unwrap();
    std::fs::create_dir(&share).unwrap();
    std::fs::write(share.join("postgres.bki"), format!("# PostgreSQL {major}\n")).unwrap();
    for name in ["postgres", "initdb"] {
        std::fs::write(bin.join(name), format!("#!/bin/sh\necho 'postgres (PostgreSQL) {major}.1'\n")).unwrap();
        std::fs::set_permissions(bin.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let named = bin.display().to_string();
    let open = move |place: &Place| {
        let keeper = env!("CARGO_BIN_EXE_forklift-keeper");
        let path = "/usr/local/bin:/usr/bin:/bin";
        let environment = Environment::of([("PATH", path), ("FORKLIFT_KEEPER", keeper), ("FORKLIFT_POSTGRES", named.as_str())]);
        Branches::open(&place.store, &environment).unwrap()
    };
    (open, folder)
}
