//! Sequences: reading them and putting them back in a copy.

use crate::copying::{Source, beside};
use forklift::postgres::read_all;

fn state(cluster: &Source, name: &str) -> (String, String) {
    let rows = cluster.sql().rows(&format!("SELECT last_value, is_called FROM {name}")).unwrap();
    (rows[0][0].clone().unwrap(), rows[0][1].clone().unwrap())
}

#[test]
fn every_kind_of_sequence_is_exact_in_a_copy() {
    let source = Source::start(&[]);
    source
        .sql()
        .run(
            "CREATE SEQUENCE fresh; CREATE SEQUENCE once; CREATE SEQUENCE down INCREMENT -3; CREATE SEQUENCE cached CACHE 50; \
             CREATE SEQUENCE \"Odd \"\"name\" START 7; CREATE SEQUENCE wheel MINVALUE 1 MAXVALUE 5 CYCLE; CREATE SEQUENCE set_uncalled; \
             CREATE SEQUENCE top AS smallint START 32767; CREATE TEMP SEQUENCE temporary; CREATE UNLOGGED TABLE u (id bigserial)",
        )
        .unwrap();
    // After the checkpoint of the copy's start these are logged again, 32 ahead: it happens while the copy runs.
    let move_all = "SELECT nextval('once'), nextval('down'), nextval('down'), nextval('cached'), nextval('\"Odd \"\"name\"'), \
                    nextval('wheel'), setval('set_uncalled', 12, false), nextval('top'), nextval('u_id_seq')";
    let (mut copy, report) = source.copy_through(|sink| {
        let mut moving = Moving { inner: sink, source: &source, statement: move_all };
        forklift::postgres::copy_online(source.server(), &mut moving, &forklift::Control::silent())
    });
    let report = report.unwrap();
    let names = ["fresh", "once", "down", "cached", "\"Odd \"\"name\"", "wheel", "set_uncalled", "top", "u_id_seq"];
    let before: Vec<_> = names.iter().map(|name| state(&source, name)).collect();
    let count = copy.start_copy(&report);
    let after: Vec<_> = names.iter().map(|name| state(&copy, name)).collect();
    assert_eq!(before, after);
    assert!(count >= 6, "{count}");
    assert_eq!(after[2], ("-4".to_owned(), "t".to_owned()));
    assert_eq!(report.sequences.len(), 9);
}

/// Runs a statement in the source once files have been copied.
struct Moving<'a> {
    inner: &'a mut dyn forklift::postgres::Sink,
    source: &'a Source,
    statement: &'a str,
}

impl forklift::postgres::Sink for Moving<'_> {
    fn begin(&mut self, c0_ns: i64) {
        self.inner.begin(c0_ns);
    }
    fn folder(&mut self, path: &std::path::Path, mode: u32) -> forklift::Result<()> {
        self.inner.folder(path, mode)
    }
    fn files(&mut self, files: &[forklift::postgres::SourceFile], control: &forklift::Control) -> forklift::Result<()> {
        if files.iter().any(|file| file.live) {
            self.source.sql().run(self.statement).unwrap();
        }
        self.inner.files(files, control)
    }
    fn bytes(&mut self, path: &std::path::Path, mode: u32, bytes: &[u8]) -> forklift::Result<()> {
        self.inner.bytes(path, mode, bytes)
    }
    fn copied(&self) -> u64 {
        self.inner.copied()
    }
}

#[test]
fn two_thousand_sequences_are_read_with_few_locks_and_beside_an_exclusive_lock() {
    let source = Source::start(&[]);
    source
        .sql()
        .run(
            "DO $$ BEGIN FOR i IN 1..2000 LOOP EXECUTE format('CREATE SEQUENCE s%s', i); IF i % 200 = 0 THEN COMMIT; END IF; END LOOP; END $$",
        )
        .unwrap();
    let most = std::sync::atomic::AtomicU64::new(0);
    let watch = {
        let mut sql = source.sql_in("postgres");
        let most = &most;
        move || {
            let count = sql.value("SELECT count(*) FROM pg_locks WHERE locktype = 'relation' AND pid <> pg_backend_pid()").unwrap();
            most.fetch_max(count.parse().unwrap(), std::sync::atomic::Ordering::Relaxed);
        }
    };
    let states = beside(vec![Box::new(watch)], || (0..3).map(|_| read_all(source.server()).unwrap()).next_back().unwrap());
    assert_eq!(states.len(), 2000);
    let most = most.into_inner();
    assert!(most < 120, "{most} locks at once");

    let mut locker = source.sql();
    locker.run("BEGIN; ALTER SEQUENCE s7 OWNER TO CURRENT_USER; DROP SEQUENCE s8; TRUNCATE pg_temp.x").unwrap_err();
    locker.run("ROLLBACK").unwrap();
    locker.run("BEGIN; DROP SEQUENCE s8").unwrap();
    assert_eq!(read_all(source.server()).unwrap().len(), 1999);
    locker.run("COMMIT").unwrap();
    assert_eq!(read_all(source.server()).unwrap().len(), 1999);
}
