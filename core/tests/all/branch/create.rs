//! The four origins.

use std::path::Path;

use forklift::branch::{CreateOptions, Origin, ServerState};
use forklift::postgres::UrlForm;
use forklift::{CancelToken, Control, ErrorKind};

use super::super::support::{self, Cluster, wait_for};
use super::{Place, client, rows, run, silent, start, stop, value};

fn shell(place: &Place, script: &str) -> Origin {
    let command = ["/bin/sh", "-c", script].into_iter().map(Into::into).collect();
    Origin::Seed { command, folder: place.path().to_owned() }
}

#[test]
fn an_empty_branch_has_its_role_and_database_and_is_stopped() {
    let place = Place::new();
    let options =
        CreateOptions { database: Some("shop".to_owned()), user: Some("Keeper \"x\"".to_owned()), tcp: true, ..CreateOptions::default() };
    let branch = place.branches.create("main", &Origin::Empty, &options, &silent()).unwrap();
    let info = branch.info().unwrap();
    assert_eq!((info.name.as_str(), info.origin.as_str(), info.state), ("main", "empty", ServerState::Stopped));
    assert_eq!((info.database.as_str(), info.user.as_str()), ("shop", "Keeper \"x\""));
    assert!(info.bytes > 1 << 20 && info.project.is_none() && info.held.is_none());
    let url = branch.url(UrlForm::Socket).unwrap();
    start(&branch);
    assert_eq!(rows(&branch, "select current_user, current_database()"), ["Keeper \"x\"|shop"]);
    let tcp = postgres::Client::connect(&branch.url(UrlForm::Tcp).unwrap(), postgres::NoTls);
    assert_eq!(tcp.unwrap().query_one("select 1", &[]).unwrap().get::<_, i32>(0), 1);
    assert_eq!(branch.url(UrlForm::Socket).unwrap(), url);
    // A server that runs is left as it is.
    let pid = branch.info().unwrap().pid;
    start(&branch);
    assert_eq!(branch.info().unwrap().pid, pid);
    stop(&branch);
}

#[test]
fn a_seed_fills_the_branch_and_its_failure_leaves_none() {
    let place = Place::new();
    let good = shell(&place, "psql -q -v ON_ERROR_STOP=1 -c 'create table t as select 7 as x' && echo \"$DATABASE_URL\" > url");
    let branch = place.branches.create("main", &good, &CreateOptions::default(), &silent()).unwrap();
    let written = std::fs::read_to_string(place.path().join("url")).unwrap();
    assert_eq!(written.trim(), branch.url(UrlForm::Socket).unwrap());
    start(&branch);
    assert_eq!(value(&branch, "select x from t"), "7");

    let error =
        place.branches.create("bad", &shell(&place, "echo no such luck >&2; exit 3"), &CreateOptions::default(), &silent()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Command);
    assert!(
        error.message().contains("bad") && error.message().contains("exit code 3") && error.message().contains("no such luck"),
        "{error}"
    );
    let missing = Origin::Seed { command: vec!["/no/such/program".into()], folder: place.path().to_owned() };
    let error = place.branches.create("bad", &missing, &CreateOptions::default(), &silent()).unwrap_err();
    assert!(error.message().contains("/no/such/program"), "{error}");

    let token = CancelToken::new();
    let marker = place.path().join("started");
    let waiting = shell(&place, "touch started; while :; do sleep 0.05; done");
    let cancelled = std::thread::scope(|scope| {
        let creating =
            scope.spawn(|| place.branches.create("slow", &waiting, &CreateOptions::default(), &Control::new(token.clone(), None)));
        wait_for("the seed", || marker.exists());
        token.cancel();
        creating.join().unwrap()
    });
    assert_eq!(cancelled.unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!(place.names(), ["main"]);
    assert_eq!(place.leftovers(), Vec::<String>::new());
}

#[test]
fn a_stopped_data_folder_is_copied_with_its_tablespace_and_never_touched() {
    let place = Place::new();
    let cluster = Cluster::new();
    let outside = cluster.root().join("space");
    cluster.spec.run_as.make_folder(&outside).unwrap();
    let server = cluster.start().unwrap();
    let mut session = cluster.client().unwrap();
    session.batch_execute(&format!("create tablespace space location '{}'", outside.display())).unwrap();
    session
        .batch_execute(
            "create role reader login; create table here as select generate_series(1, 10) as x; create extension pg_trgm; \
             create table there tablespace space as select generate_series(1, 1000) as x; grant select on here to reader",
        )
        .unwrap();
    session.batch_execute("alter system set archive_command = 'false'").unwrap();

    let origin = Origin::DataDir(cluster.spec.data.clone());
    let error = place.branches.create("copy", &origin, &CreateOptions::default(), &silent()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.message().contains(&server.pid().to_string()), "{error}");

    drop(session);
    support::stop(server);
    let before = digest(&cluster.spec.data);
    let options = CreateOptions { major: Some(cluster.spec.installation.version.major + 1), ..CreateOptions::default() };
    let error = place.branches.create("copy", &origin, &options, &silent()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PostgresMismatch);
    assert_eq!(place.names(), Vec::<String>::new());

    let branch = place.branches.create("copy", &origin, &CreateOptions::default(), &silent()).unwrap();
    assert!(branch.warnings().iter().any(|warning| warning.contains("archive_command")), "{:?}", branch.warnings());
    assert_eq!(digest(&cluster.spec.data), before);
    start(&branch);
    assert_eq!(rows(&branch, "select current_database(), current_user"), ["app|app"]);
    assert_eq!(rows(&branch, "select (select count(*) from here), (select count(*) from there), 'word' % 'word'"), ["10|1000|t"]);
    assert_eq!(value(&branch, "select has_table_privilege('reader', 'here', 'select')"), "t");
    assert_eq!(value(&branch, "show archive_command"), "(disabled)");
    run(&branch, "delete from there");
    stop(&branch);
    assert_eq!(digest(&cluster.spec.data), before);

    let error =
        place.branches.create("other", &Origin::DataDir(place.path().to_owned()), &CreateOptions::default(), &silent()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.message().contains("PG_VERSION") && error.message().contains("other"), "{error}");
}

#[test]
fn configuration_outside_the_data_folder_is_carried() {
    let place = Place::new();
    let mut cluster = Cluster::new();
    let etc = cluster.root().join("etc");
    cluster.spec.run_as.make_folder(&etc.join("conf.d")).unwrap();
    let data = cluster.spec.data.clone();
    std::fs::rename(data.join("postgresql.conf"), etc.join("base.conf")).unwrap();
    let main = format!(
        "include 'base.conf'\ninclude_dir 'conf.d'\ndata_directory = '{}'\nexternal_pid_file = '{}/pid'\n",
        data.display(),
        etc.display()
    );
    std::fs::write(etc.join("postgresql.conf"), main).unwrap();
    std::fs::write(etc.join("conf.d/own.conf"), "work_mem = '9MB'\narchive_mode = on\narchive_command = 'false'\n").unwrap();
    cluster.spec.run_as.give(&etc).unwrap();
    cluster.spec.settings.push(("config_file".to_owned(), etc.join("postgresql.conf").display().to_string()));
    let server = cluster.start().unwrap();
    support::stop(server);

    let branch = place.branches.create("copy", &Origin::DataDir(data.clone()), &CreateOptions::default(), &silent()).unwrap();
    let told = branch.warnings().join("; ");
    assert!(told.contains(&etc.join("postgresql.conf").display().to_string()) && told.contains("archive_mode"), "{told}");
    start(&branch);
    let shown = "select current_setting('work_mem'), current_setting('archive_mode'), current_setting('external_pid_file')";
    assert_eq!(rows(&branch, shown), ["9MB|off|"]);
    assert!(value(&branch, "show data_directory").starts_with(&place.path().display().to_string()));
    assert!(!data.join("postgresql.conf").exists() && !etc.join("pid").exists());

    // A configuration that says where the source is does not lead the copy there.
    std::fs::write(data.join("postgresql.conf"), format!("data_directory = '{}'\n", data.display())).unwrap();
    cluster.spec.run_as.give(&data).unwrap();
    let before = digest(&data);
    let branch = place.branches.create("again", &Origin::DataDir(data.clone()), &CreateOptions::default(), &silent()).unwrap();
    start(&branch);
    assert!(value(&branch, "show data_directory").starts_with(&place.path().display().to_string()));
    assert_eq!(digest(&data), before);
}

#[test]
fn a_dump_of_another_server_brings_rows_roles_owners_and_extensions() {
    let place = Place::new();
    let source = place.running(
        "source",
        "create role auditor; create role \"Odd Owner\" login; create extension pg_trgm; create table notes (id serial primary key, text text); \
         insert into notes (text) select 'note ' || n from generate_series(1, 100) n; alter table notes owner to \"Odd Owner\"; \
         grant select on notes to auditor; alter database app set work_mem = '7MB'; alter database app set search_path = public, \"Odd Schema\"",
    );
    let url = source.url(UrlForm::Socket).unwrap();
    let branch = place.branches.create("copy", &Origin::Url(url), &CreateOptions::default(), &silent()).unwrap();
    assert_eq!(branch.warnings(), Vec::<String>::new().as_slice());
    assert_eq!(branch.record().origin, "url");
    start(&branch);
    assert_eq!(rows(&branch, "select current_database(), current_user, count(*), max(id) from notes"), ["app|app|100|100"]);
    assert_eq!(value(&branch, "select tableowner from pg_tables where tablename = 'notes'"), "Odd Owner");
    assert_eq!(value(&branch, "select has_table_privilege('auditor', 'notes', 'select')"), "t");
    assert_eq!(value(&branch, "select extname from pg_extension where extname <> 'plpgsql'"), "pg_trgm");
    assert_eq!(value(&branch, "show work_mem"), "7MB");
    assert_eq!(value(&branch, "show search_path"), "public, \"Odd Schema\"");
    run(&branch, "insert into notes (text) values ('next')");
    assert_ne!(source.credentials().unwrap().url.password, branch.credentials().unwrap().url.password);

    stop(&source);
    let secret = "postgresql://app:sesame@/app?host=/nonexistent";
    let error = place.branches.create("none", &Origin::Url(secret.to_owned()), &CreateOptions::default(), &silent()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Command);
    assert!(!format!("{error} {error:?}").contains("sesame"), "{error:?}");
    assert_eq!(place.leftovers(), Vec::<String>::new());
    drop(client(&branch));
}

/// Names, sizes, times and the content of pg_control.
fn digest(data: &Path) -> Vec<String> {
    use std::os::unix::fs::MetadataExt;
    let mut lines = Vec::new();
    let mut folders = vec![data.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let metadata = entry.metadata().unwrap();
            if metadata.is_dir() {
                folders.push(entry.path());
            }
            lines.push(format!("{} {} {} {}", entry.path().display(), metadata.len(), metadata.mtime(), metadata.ctime_nsec()));
        }
    }
    lines.sort();
    lines
}
