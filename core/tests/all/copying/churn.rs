//! Work beside pgbench that a copy of a running cluster has to get right, and what is looked at in such a copy.

use std::path::Path;

use forklift::postgres::Sql;

use crate::support::run_as;

/// Works for [`beside`](super::beside) in sessions of a superuser: tables, databases and tablespaces come and go, files are
/// rewritten. There is a table `filling`; `tablespace` is a folder that is made.
pub(crate) fn churn<'a>(connect: impl Fn() -> Sql, tablespace: &Path) -> Vec<Box<dyn FnMut() + Send + 'a>> {
    run_as().make_folder(tablespace).unwrap();
    let create = format!("CREATE TABLESPACE passing LOCATION '{}'", tablespace.display());
    let (mut tables, mut databases, mut tablespaces) = (connect(), connect(), connect());
    // It waits for the copy, as said in the documentation.
    tablespaces.run("SET lock_timeout = 0").unwrap();
    vec![
        Box::new(move || tables_come_and_go(&mut tables)),
        Box::new(move || {
            databases.run("CREATE DATABASE passing").unwrap();
            databases.run("DROP DATABASE passing").unwrap();
        }),
        Box::new(move || {
            tablespaces.run(&create).unwrap();
            tablespaces.run("CREATE TABLE there (id int) TABLESPACE passing; INSERT INTO there SELECT generate_series(1, 100)").unwrap();
            tablespaces.run("DROP TABLE there").unwrap();
            tablespaces.run("DROP TABLESPACE passing").unwrap();
        }),
    ]
}

fn tables_come_and_go(sql: &mut Sql) {
    sql.run("CREATE TABLE passing (id bigserial PRIMARY KEY, v text); INSERT INTO passing (v) SELECT repeat('y', 500) FROM generate_series(1, 500)").unwrap();
    sql.run("TRUNCATE passing RESTART IDENTITY").unwrap();
    sql.run("INSERT INTO passing (v) SELECT repeat('z', 500) FROM generate_series(1, 500); DELETE FROM passing WHERE id % 2 = 0").unwrap();
    sql.run("VACUUM FULL passing").unwrap();
    sql.run("VACUUM FULL filling").unwrap();
    sql.run("REINDEX TABLE filling").unwrap();
    sql.run("DROP TABLE passing").unwrap();
    sql.run("CHECKPOINT").unwrap();
}

/// Asserts that pgbench's sums agree, that no page of a table is broken and that every index has every row. Its extension
/// amcheck is installed.
pub(crate) fn assert_consistent(sql: &mut Sql) {
    let sums = "SELECT concat_ws(' ', (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(tbalance) FROM pgbench_tellers), \
                (SELECT sum(bbalance) FROM pgbench_branches), (SELECT sum(delta) FROM pgbench_history))";
    let sums = sql.value(sums).unwrap();
    let numbers: Vec<&str> = sums.split(' ').collect();
    assert!(numbers.len() == 4 && numbers.iter().all(|number| *number == numbers[0]), "{sums}");

    let broken = "SELECT count(*) FROM pg_class c, LATERAL verify_heapam(c.oid) WHERE c.relkind IN ('r', 't') AND c.relpersistence = 'p'";
    assert_eq!(sql.value(broken).unwrap(), "0");
    let indexes = "SELECT count(bt_index_check(c.oid, true)) FROM pg_class c JOIN pg_am a ON a.oid = c.relam JOIN pg_index i ON i.indexrelid = c.oid \
                   WHERE a.amname = 'btree' AND c.relpersistence <> 't' AND i.indisvalid";
    assert!(sql.value(indexes).unwrap().parse::<u32>().unwrap() > 100);
}
