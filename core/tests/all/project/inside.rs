//! Managed commands with a database: their variables, the server's life, and captures and restores from within.

use forklift::ErrorKind;
use forklift::branch::ServerState;
use forklift::project::RunOptions;

use super::*;

#[test]
fn child_agent() {
    let Some(project) = inherited() else { return };
    let branch = project.branch().unwrap().unwrap();
    let before = state(project.root(), &branch);
    capture(&project, "inside");
    edit(project.root(), &branch);
    assert_ne!(state(project.root(), &branch), before);
    restore(&project, "inside");
    assert_eq!(branch.info().unwrap().state, ServerState::Running, "it runs on under the command");
    assert_eq!(state(project.root(), &branch), before);
}

fn shell(script: &str) -> RunOptions {
    RunOptions { command: vec!["sh".into(), "-c".into(), script.into()] }
}

#[test]
fn a_command_is_given_the_database_and_the_server_ends_with_it() {
    let (world, project) = World::with_project();
    let branch = project.branch().unwrap().unwrap();
    let psql = format!("{}/psql", super::super::support::installation().bin.display());
    let said = world.path("said");
    let script = format!(
        "{psql} -XAtc 'SELECT sum(amount) FROM invoices' > {0} && {psql} -XAtc 'SELECT 1' \"$DATABASE_URL\" >> {0}",
        said.display()
    );
    assert_eq!(project.run(&shell(&script), &silent()).unwrap().code, Some(0));
    assert_eq!(read(&said), "215\n1\n");
    assert_eq!(branch.info().unwrap().state, ServerState::Stopped);
    branch.start(StartOptions::default(), &silent()).unwrap();
    assert_eq!(project.run(&shell("exit 3"), &silent()).unwrap().code, Some(3));
    assert_eq!(branch.info().unwrap().state, ServerState::Running, "it ran before");
}

#[test]
fn an_agent_captures_and_restores_from_within() {
    let (world, project) = World::with_project();
    let branch = project.branch().unwrap().unwrap();
    let before = state(project.root(), &branch);
    let outcome = project.run(&RunOptions { command: world.words("inside::child_agent") }, &silent()).unwrap();
    assert_eq!(outcome.code, Some(0));
    assert_eq!(branch.info().unwrap().state, ServerState::Stopped, "the run that started it stops it");
    assert_eq!(state(project.root(), &branch), before);
}

#[test]
fn the_last_of_two_commands_stops_the_server_and_a_restore_names_the_command() {
    let (world, project) = World::with_project();
    let branch = project.branch().unwrap().unwrap();
    capture(&project, "start");
    let (ready, go) = (world.path("ready"), world.path("go"));
    std::thread::scope(|scope| {
        let script = format!("touch {}; while ! test -e {}; do sleep 0.01; done", ready.display(), go.display());
        let project = &project;
        let first = scope.spawn(move || project.run(&shell(&script), &silent()));
        while !ready.exists() {
            std::thread::yield_now();
        }
        let second = project.run(&shell("true"), &silent());
        let state = branch.info().unwrap().state;
        let refused = project.restore("start", &RestoreOptions::default(), &silent());
        write(&go, "");
        assert_eq!(first.join().unwrap().unwrap().code, Some(0));
        assert_eq!(second.unwrap().code, Some(0));
        assert_eq!(state, ServerState::Running, "the other command still uses it");
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert!(error.message().contains("touch"), "{error}");
    });
    assert_eq!(branch.info().unwrap().state, ServerState::Stopped);
}
