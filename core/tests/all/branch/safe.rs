//! Safe forks: probes that try to reach outside, and what of the source's goes on there and not here.

use std::io::Read;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};

use forklift::branch::{Branch, ForkFrom, ForkOptions, ForkReport};
use forklift::postgres::SafeMode;

use super::{Place, client, rows, run, silent, start, value};

/// A source with what the probes need, and places outside that they try to reach.
struct Range {
    place: Place,
    source: Branch,
    outside: PathBuf,
}

impl Range {
    fn new() -> Self {
        Self::at(Place::new())
    }

    fn at(place: Place) -> Self {
        let outside = place.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        open(&outside, 0o777);
        let source = place.branches.create("main", &forklift::branch::Origin::Empty, &tcp(), &silent()).unwrap();
        start(&source);
        run(&source, "create extension dblink; create table t (x int)");
        Self { place, source, outside }
    }

    fn fork(&self, name: &str, safe: SafeMode) -> (Branch, ForkReport) {
        let options = ForkOptions { safe: Some(safe), ..ForkOptions::default() };
        let (branch, report) = self.place.branches.fork(name, &ForkFrom::Branch("main".to_owned()), &options, &silent()).unwrap();
        start(&branch);
        (branch, report)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.outside.join(name)
    }
}

fn tcp() -> forklift::branch::CreateOptions {
    forklift::branch::CreateOptions { tcp: true, ..forklift::branch::CreateOptions::default() }
}

fn open(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// The error of a statement, empty where it succeeds.
fn error_of(branch: &Branch, sql: &str) -> String {
    match client(branch).batch_execute(sql) {
        Ok(()) => String::new(),
        Err(error) => error.as_db_error().map_or_else(|| error.to_string(), |error| format!("{} {:?}", error.message(), error.detail())),
    }
}

/// Each probe, and whether it got out. Every one of them does from a fork that is not safe.
fn probes(range: &Range, fork: &Branch, name: &str) -> Vec<(&'static str, bool)> {
    let source = &range.source;
    let rows_before = || value(source, "select count(*) from t").parse::<u32>().unwrap();
    let credentials = source.credentials().unwrap();
    let address = &source.record().address;
    let dblink = |host: &str, port: u16| {
        let before = rows_before();
        let login = format!(
            "host={host} port={port} user={} password={} dbname=app connect_timeout=5",
            credentials.url.name, credentials.url.password
        );
        let error = error_of(fork, &format!("select dblink_exec('{login}', 'insert into t values (1)')"));
        let out = rows_before() > before;
        assert_eq!(out, error.is_empty(), "{error}");
        out
    };
    let program = |line: &str| error_of(fork, &format!("copy (select 1) to program $$ {line} $$"));
    let by_tcp = dblink("127.0.0.1", address.port.unwrap());
    let by_socket = dblink(&address.public.display().to_string(), 5432);

    // A program that is started by SQL, over a stream to a listener outside.
    let path = range.file(&format!("{name}.stream"));
    let listener = UnixListener::bind(&path).unwrap();
    open(&path, 0o777);
    listener.set_nonblocking(true).unwrap();
    let refused = program(&format!(
        "python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect(\"{}\"); s.sendall(b\"x\")'",
        path.display()
    ));
    let by_program = listener.accept().is_ok_and(|(mut stream, _)| {
        let mut byte = [0; 1];
        stream.set_nonblocking(false).unwrap();
        stream.read_exact(&mut byte).is_ok()
    });
    assert_eq!(by_program, refused.is_empty(), "{refused}");

    let file = range.file(&format!("{name}.file"));
    let refused = error_of(fork, &format!("copy (select 1) to '{}'", file.display()));
    let by_file = file.exists();
    assert_eq!(by_file, refused.is_empty(), "{refused}");

    // A signal that a postmaster takes for "read your configuration again".
    let pid = source.info().unwrap().pid.unwrap();
    let by_signal = program(&format!("kill -HUP {pid}")).is_empty();

    // A packet to ourselves needs nobody who listens.
    let families =
        ["AF_INET, socket.SOCK_DGRAM", "AF_INET, socket.SOCK_STREAM", "AF_INET6, socket.SOCK_DGRAM", "AF_NETLINK, socket.SOCK_RAW"];
    let by_family =
        families.iter().any(|family| program(&format!("python3 -c 'import socket; socket.socket(socket.{family})'")).is_empty());

    let path = range.file(&format!("{name}.datagram"));
    let receiver = UnixDatagram::bind(&path).unwrap();
    open(&path, 0o777);
    receiver.set_nonblocking(true).unwrap();
    for socket in ["s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)", "s = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0]"] {
        program(&format!("python3 -c 'import socket; {socket}; s.sendto(b\"x\", \"{}\")'", path.display()));
    }
    let by_datagram = receiver.recv(&mut [0; 8]).is_ok();

    // What no rule about files covers: the mode, owner and times of files outside.
    let file = range.file(&format!("{name}.mode"));
    std::fs::write(&file, "x").unwrap();
    source_owns(range, &file);
    open(&file, 0o640);
    program(&format!("chmod 000 {}", file.display()));
    let by_mode = {
        use std::os::unix::fs::PermissionsExt;
        std::fs::metadata(&file).unwrap().permissions().mode() & 0o777 != 0o640
    };
    vec![
        ("dblink over TCP", by_tcp),
        ("dblink over the source's socket folder", by_socket),
        ("COPY TO PROGRAM", by_program),
        ("COPY to a file", by_file),
        ("a signal to the source's postmaster", by_signal),
        ("a socket of another family", by_family),
        ("a Unix datagram", by_datagram),
        ("the mode of a file", by_mode),
    ]
}

/// Gives a file to whoever owns the data of the branches.
fn source_owns(range: &Range, file: &Path) {
    use std::os::unix::fs::MetadataExt;
    let owner = std::fs::metadata(range.source.info().unwrap().data).unwrap();
    std::os::unix::fs::chown(file, Some(owner.uid()), Some(owner.gid())).unwrap();
}

/// Whether this kernel keeps signals in (Landlock 6, Linux 6.12).
fn signals_are_kept() -> bool {
    forklift::sys::cage::landlock_abi().is_ok_and(|version| version >= 6)
}

fn all_blocked(range: &Range) -> forklift::postgres::SafeReport {
    let (fork, report) = range.fork("safe", SafeMode::Strict);
    let safe = report.safe.unwrap();
    for name in ["seccomp", "landlock"] {
        assert!(safe.layers.iter().any(|layer| layer.name == name && layer.holds), "{safe:?}");
    }
    for (probe, out) in probes(range, &fork, "safe") {
        if probe.starts_with("a signal") && !signals_are_kept() {
            println!("SKIPPED signal_probe: this kernel is older than Linux 6.12");
            assert!(safe.open.iter().any(|open| open.starts_with("signals")), "{safe:?}");
            continue;
        }
        assert!(!out, "{probe} got out of a safe fork");
    }
    safe
}

#[test]
fn every_probe_gets_out_of_a_fork_that_is_not_safe() {
    let range = Range::new();
    let (fork, report) = range.fork("open", SafeMode::Off);
    assert_eq!(report.safe, None);
    for (probe, out) in probes(&range, &fork, "open") {
        assert!(out, "{probe} does not show that anything is blocked");
    }
}

#[test]
fn no_probe_gets_out_of_a_safe_fork() {
    let safe = all_blocked(&Range::new());
    if signals_are_kept() && safe.layers.iter().all(|layer| layer.holds) {
        assert_eq!(safe.open, Vec::<String>::new());
    }
}

#[test]
fn no_probe_gets_out_of_a_safe_fork_without_user_namespaces() {
    let safe = all_blocked(&Range::at(Place::without_namespaces()));
    assert!(safe.layers.iter().any(|layer| layer.name == "namespaces" && !layer.holds), "{safe:?}");
    assert!(safe.open.iter().any(|open| open.starts_with("System V")), "{safe:?}");
}

#[test]
fn a_safe_fork_works_is_safe_at_every_start_and_passes_it_on() {
    let range = Range::new();
    run(&range.source, "create table big as select i, md5(i::text) as m from generate_series(1, 20000) i");
    let (fork, _) = range.fork("safe", SafeMode::Strict);
    for sql in ["create index on big (m); analyze big; create temp table scratch (x int)", "create database other", "vacuum full big"] {
        run(&fork, sql);
    }
    run(&fork, "create table note (x text); copy note from program 'echo hello'; copy big to '/dev/null'");
    assert_eq!(value(&fork, "select x from note"), "hello");
    let inside = fork.info().unwrap().data.join("inside.csv");
    run(&fork, &format!("copy big to '{}'", inside.display()));
    let shown = "select current_setting('max_worker_processes'), current_setting('dynamic_shared_memory_type'), \
                 current_setting('ssl'), (select count(*) from pg_timezone_names) > 100, \
                 to_char(timestamptz '2024-07-01 12:00+00' at time zone 'Europe/Paris', 'HH24')";
    assert_eq!(rows(&fork, shown), ["0|mmap|off|t|14"]);
    assert_eq!(fork.info().unwrap().safe, SafeMode::Strict);

    // A later start, and a handle that only knows the record.
    super::stop(&fork);
    let again = range.place.reopen().find("safe").unwrap();
    start(&again);
    let outside = range.file("later");
    assert!(!error_of(&again, &format!("copy big to '{}'", outside.display())).is_empty());
    assert!(!outside.exists());

    // A fork of it is as safe, unless said otherwise.
    let from = ForkFrom::Branch("safe".to_owned());
    let (child, report) = range.place.branches.fork("child", &from, &ForkOptions::default(), &silent()).unwrap();
    assert!(report.safe.is_some());
    assert_eq!(child.record().safe, SafeMode::Strict);
    let off = ForkOptions { safe: Some(SafeMode::Off), ..ForkOptions::default() };
    let (free, report) = range.place.branches.fork("free", &from, &off, &silent()).unwrap();
    assert_eq!((free.record().safe, report.safe), (SafeMode::Off, None));

    for setting in ["max_worker_processes", "IO_method", "dynamic_shared_memory_type"] {
        let options =
            ForkOptions { safe: Some(SafeMode::Strict), settings: vec![(setting.to_owned(), "8".to_owned())], ..ForkOptions::default() };
        let error = range.place.branches.fork("bad", &from, &options, &silent()).unwrap_err();
        assert!(error.kind() == forklift::ErrorKind::InvalidArgument && error.message().contains(setting), "{error}");
    }
}

#[test]
fn files_of_other_branches_and_of_the_store_cannot_be_read() {
    let range = Range::new();
    let store = range.place.store.path();
    let source = range.source.info().unwrap();
    let secret = range.file("secret");
    std::fs::write(&secret, "secret").unwrap();
    source_owns(&range, &secret);
    let of_source = store.join("branches").join(&source.id);
    let (fork, _) = range.fork("safe", SafeMode::Strict);
    let own = store.join("branches").join(fork.info().unwrap().id);
    let refused = [
        source.data.join("PG_VERSION"),
        of_source.join("credentials.json"),
        own.join("credentials.json"),
        own.join("branch.json"),
        store.join("FORMAT"),
        secret.clone(),
        PathBuf::from("/etc/shadow"),
        PathBuf::from(format!("/proc/{}/environ", source.pid.unwrap())),
        PathBuf::from(format!("/proc/{}/cwd/PG_VERSION", source.pid.unwrap())),
        PathBuf::from("/dev/shm"),
    ];
    for path in &refused {
        for sql in [format!("select pg_read_file('{}')", path.display()), format!("copy (select 1) to program 'cat {}'", path.display())] {
            assert!(!error_of(&fork, &sql).is_empty(), "{sql}");
        }
    }
    assert!(!error_of(&fork, &format!("select pg_ls_dir('{}')", store.join("branches").display())).is_empty());
    // Its own files, and those of the machine that it needs.
    for path in ["PG_VERSION", "/etc/passwd", "/proc/self/status"] {
        assert_eq!(error_of(&fork, &format!("select pg_read_file('{path}')")), "");
    }
    // The same is readable where nothing keeps it in.
    let (open, _) = range.fork("open", SafeMode::Off);
    assert_eq!(error_of(&open, &format!("select pg_read_file('{}')", secret.display())), "");
    assert_eq!(error_of(&open, &format!("select pg_read_file('{}')", source.data.join("PG_VERSION").display())), "");
}

/// A place of the machine where pg_cron is installed for the Postgres of these tests.
fn has_cron() -> bool {
    let there = super::super::support::installation().modules().is_some_and(|modules| modules.join("pg_cron.so").exists());
    if !there {
        println!("SKIPPED pg_cron: the extension is not installed for this Postgres");
    }
    there
}

#[test]
fn jobs_subscriptions_archiving_and_slots_of_the_source_do_nothing_in_a_safe_fork_and_go_on_in_the_source() {
    let place = Place::new();
    let archive = place.path().join("archive");
    std::fs::create_dir(&archive).unwrap();
    open(&archive, 0o777);
    let cron = has_cron();
    let settings = vec![("wal_level".to_owned(), "logical".to_owned())];
    let options = forklift::branch::CreateOptions { settings, ..forklift::branch::CreateOptions::default() };
    let main = place.branches.create("main", &forklift::branch::Origin::Empty, &options, &silent()).unwrap();
    start(&main);
    run(&main, "alter system set archive_mode = on");
    run(&main, &format!("alter system set archive_command = 'cp %p {}/%f-$PPID'", archive.display()));
    if cron {
        // In its files, which the fork has too.
        run(&main, "alter system set shared_preload_libraries = 'pg_cron'");
        super::stop(&main);
        start(&main);
        run(&main, "alter system set cron.database_name = 'app'");
        run(&main, "alter system set cron.use_background_workers = on");
    }
    super::stop(&main);
    start(&main);
    run(&main, "create table t (x int); select pg_create_physical_replication_slot('standby', true)");
    run(&main, "create subscription sub connection 'host=/nonexistent dbname=x' publication p with (connect = false, slot_name = none)");
    run(&main, "alter subscription sub set (slot_name = 'sub'); alter subscription sub enable");
    if cron {
        run(&main, "create extension pg_cron");
        run(&main, "select cron.schedule('tick', '* * * * *', 'insert into t values (1)')");
    }
    let safe = ForkOptions { safe: Some(SafeMode::Strict), ..ForkOptions::default() };
    let (fork, report) = place.branches.fork("fork", &ForkFrom::Branch("main".to_owned()), &safe, &silent()).unwrap();
    let mut named = vec!["archive_mode", "archive_command", "replication slot standby", "subscription sub"];
    if cron {
        named.extend(["background workers of pg_cron", "pg_cron job 1 in database app"]);
    }
    for off in named {
        assert!(report.switched_off.iter().any(|name| name == off), "{off}: {:?}", report.switched_off);
    }
    start(&fork);
    let workers = "select count(*) from pg_stat_activity where backend_type like 'logical%' or backend_type like '%cron%'";
    assert_eq!(value(&fork, workers), "0");
    super::super::support::wait_for("the source's workers", || value(&main, workers).parse::<u32>().unwrap() > u32::from(cron));
    assert_eq!(rows(&fork, "select current_setting('archive_mode'), (select count(*) from pg_replication_slots)"), ["off|0"]);
    assert_eq!(value(&main, "select count(*) from pg_replication_slots"), "1");
    if cron {
        // The extension can still be used.
        run(&fork, "select cron.schedule('tock', '* * * * *', 'insert into t values (2)')");
        assert_eq!(value(&fork, "select count(*) from cron.job"), "2");
    }
    let files = || std::fs::read_dir(&archive).unwrap().count();
    run(&fork, "insert into t values (3); select pg_switch_wal()");
    super::stop(&fork);
    let waiting = fork.info().unwrap().data.join("pg_wal/archive_status");
    assert_eq!(std::fs::read_dir(waiting).unwrap().count(), 0);
    let before = files();
    run(&main, "insert into t values (4)");
    run(&main, "select pg_switch_wal()");
    super::super::support::wait_for("the source's archive", || files() > before);
    if cron {
        // The job ran in the source as often as a minute passed, and in the fork never.
        start(&fork);
        assert_eq!(value(&fork, "select count(*) from t where x <= 2"), value(&fork, "select count(*) from cron.job_run_details"));
        assert_eq!(value(&fork, "select count(*) from t where x <= 2"), "0");
    }
}

#[test]
fn nothing_that_sql_started_outlives_a_safe_server_or_leads_a_copy_outside() {
    let range = Range::new();
    let (fork, _) = range.fork("safe", SafeMode::Strict);
    let data = fork.info().unwrap().data;
    let secret = range.file("secret");
    std::fs::write(&secret, "secret").unwrap();
    assert!(!error_of(&fork, &format!("copy (select 1) to program 'ln -s {} here'", secret.display())).is_empty());
    assert!(!error_of(&fork, "copy (select 1) to program 'mkfifo here'").is_empty());
    assert!(!data.join("here").exists());
    run(
        &fork,
        "copy (select 1) to program 'setsid python3 -c \"import os, time; open(\\\"stray\\\", \\\"w\\\").write(str(os.getpid())); time.sleep(600)\" > /dev/null 2>&1 &'",
    );
    let stray = data.join("stray");
    let pid = || std::fs::read_to_string(&stray).ok().and_then(|text| text.parse::<u32>().ok());
    super::super::support::wait_for("the program", || pid().is_some());
    let program = forklift::sys::process::Identity::of(pid().unwrap()).unwrap();
    super::stop(&fork);
    assert!(!program.is_alive());
}
