//! What clients of before a restore can do, and what of the database comes back with its rows.

use forklift::branch::CreateOptions;

use super::*;
use crate::support::wait_for;

/// Writes by one connection until the server is gone; gives how many rows were acknowledged.
fn write_until_cut(url: &str, table: &str) -> u32 {
    let mut client = postgres::Client::connect(url, postgres::NoTls).unwrap();
    let mut written = 0;
    while client.batch_execute(&format!("INSERT INTO {table} DEFAULT VALUES")).is_ok() {
        written += 1;
    }
    written
}

#[test]
fn writers_are_cut_before_what_is_retained_and_the_same_urls_show_what_was_restored() {
    let (world, project, branch) = shop();
    let urls = [("by_socket", branch.url(UrlForm::Socket).unwrap()), ("by_tcp", branch.url(UrlForm::Tcp).unwrap())];
    let count = |table: &str| -> i64 { client(&branch).query_one(&format!("SELECT count(*) FROM {table}"), &[]).unwrap().get(0) };
    run(&branch, "CREATE TABLE by_socket (id bigserial PRIMARY KEY); CREATE TABLE by_tcp (id bigserial PRIMARY KEY)");
    let before = about(&branch);
    capture(&project, "start");
    let mut sql = branch.server().unwrap().unwrap().connect("The Shop").unwrap();
    sql.run("DROP EXTENSION pg_trgm CASCADE; ALTER ROLE auditor LOGIN").unwrap();
    drop(sql);

    let (restored, written) = std::thread::scope(|scope| {
        let writers = urls.clone().map(|(table, url)| scope.spawn(move || write_until_cut(&url, table)));
        wait_for("both to write", || urls.iter().all(|(table, _)| count(table) > 5));
        let restored = restore(&project, "start");
        (restored, writers.map(|writer| writer.join().unwrap()))
    });
    for (table, url) in &urls {
        let mut client = postgres::Client::connect(url, postgres::NoTls).unwrap();
        assert_eq!(client.query_one(&format!("INSERT INTO {table} DEFAULT VALUES RETURNING id"), &[]).unwrap().get::<_, i64>(0), 1);
    }
    assert_eq!(urls.clone(), [("by_socket", branch.url(UrlForm::Socket).unwrap()), ("by_tcp", branch.url(UrlForm::Tcp).unwrap())]);
    assert_eq!(about(&branch), before);

    // The retained copy has every row that was acknowledged; one more may have been committed without a word.
    restore(&project, &restored.safety);
    for ((table, _), written) in urls.iter().zip(written) {
        let kept = count(table);
        assert!((i64::from(written)..=i64::from(written) + 1).contains(&kept), "{table}: {written} written, {kept} kept");
    }
    assert_eq!(client(&branch).query_one("SELECT count(*) FROM pg_extension WHERE extname = 'pg_trgm'", &[]).unwrap().get::<_, i64>(0), 0);
    drop(world);
}

/// Database, roles and extensions, and that they work.
fn about(branch: &Branch) -> Vec<String> {
    let questions = [
        "SELECT concat_ws(' ', current_database(), current_user, (SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = current_database()))",
        "SELECT string_agg(rolname || rolcanlogin || rolconnlimit, ' ' ORDER BY rolname) FROM pg_roles WHERE rolname !~ '^pg_'",
        "SELECT concat(pg_has_role('auditor', 'member'), has_table_privilege('auditor', 'words', 'SELECT'))",
        "SELECT string_agg(extname || extversion, ' ' ORDER BY extname) FROM pg_extension",
        "SELECT concat(similarity('word', 'world'), (SELECT string_agg(word, ' ' ORDER BY word) FROM words WHERE word % 'restor'))",
    ];
    let mut client = client(branch);
    let mut answers: Vec<String> = questions.map(|question| client.query_one(question, &[]).unwrap().get(0)).to_vec();
    if answers[3].contains("vector") {
        answers.push(client.query_one("SELECT (place <-> '[1,1]')::text FROM places", &[]).unwrap().get(0));
    }
    answers
}

/// A project with TCP whose database, role and extensions are not the usual ones. Its server runs.
fn shop() -> (World, Project, Branch) {
    let world = World::new();
    let options =
        CreateOptions { database: Some("The Shop".to_owned()), user: Some("Keeper \"x\"".to_owned()), ..CreateOptions::default() };
    let seed = world.branches.create("shop", &Origin::Empty, &options, &silent()).unwrap();
    seed.start(StartOptions::default(), &silent()).unwrap();
    {
        let mut sql = seed.server().unwrap().unwrap().connect("The Shop").unwrap();
        sql.run("SET search_path = public").unwrap();
        sql.run(
            "CREATE EXTENSION pg_trgm; CREATE ROLE auditor CONNECTION LIMIT 3; GRANT auditor TO \"Keeper \"\"x\"\"\" WITH ADMIN OPTION",
        )
        .unwrap();
        if sql.value("SELECT count(*) FROM pg_available_extensions WHERE name = 'vector'").unwrap() == "1" {
            sql.run("CREATE EXTENSION vector; CREATE TABLE places (place vector(2)); INSERT INTO places VALUES ('[1,2]'); GRANT SELECT ON places TO PUBLIC").unwrap();
        }
    }
    run(
        &seed,
        "CREATE TABLE words (word text); INSERT INTO words VALUES ('restore'), ('capture'); GRANT SELECT ON words TO auditor; \
         CREATE INDEX ON words USING gin (word gin_trgm_ops)",
    );
    seed.stop(&silent()).unwrap();
    write(&world.path("work/.forklift.json"), r#"{"format": 1, "connection": "tcp"}"#);
    let setup = SetupOptions { from: Some("shop".to_owned()), ..SetupOptions::default() };
    let (project, _) = Project::setup(&world.path("work"), &setup, &ProjectOptions::default(), &world.environment(&[]), &silent()).unwrap();
    let branch = project.branch().unwrap().unwrap();
    branch.start(StartOptions::default(), &silent()).unwrap();
    (world, project, branch)
}
