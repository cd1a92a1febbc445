//! Two agents in two Git worktrees, each with a branch of its own.

use super::*;

fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .current_dir(folder)
        .args(["-c", "user.name=t", "-c", "user.email=t@example.org"])
        .args(arguments)
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .env_remove("GIT_INDEX_FILE")
        .output()
        .unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What Git says of a worktree, but for the files that differ.
fn git_state(folder: &Path) -> Vec<String> {
    [&["rev-parse", "HEAD"][..], &["for-each-ref"], &["stash", "list"], &["ls-files", "--stage"], &["config", "--list", "--local"]]
        .map(|arguments| git(folder, arguments))
        .to_vec()
}

#[test]
fn restoring_one_worktree_leaves_the_other_the_seed_and_git_alone() {
    let world = World::new();
    let (main, a, b) = (world.path("main"), world.path("a"), world.path("b"));
    write(&main.join("app.py"), "version = 1\n");
    write(&main.join("lib/util.py"), "one\n");
    git(&main, &["init", "-q", "-b", "main"]);
    git(&main, &["add", "-A"]);
    git(&main, &["commit", "-q", "-m", "one"]);
    for name in ["a", "b"] {
        git(&main, &["worktree", "add", "-q", "-b", name, &format!("../{name}")]);
    }
    let (project_a, _) = world.setup("a", &[]).unwrap();
    let (project_b, _) = world.setup("b", &[]).unwrap();
    let (branch_a, branch_b) = (project_a.branch().unwrap().unwrap(), project_b.branch().unwrap().unwrap());
    let seed = state(&main, &world.branch("main"));
    let gits = [git_state(&a), git_state(&b)];
    for branch in [&branch_a, &branch_b] {
        branch.start(StartOptions::default(), &silent()).unwrap();
    }
    capture(&project_a, "start");
    capture(&project_b, "start");
    let start = state(&a, &branch_a);
    edit(&a, &branch_a);
    write(&b.join("app.py"), "payments in a table\n");
    run(
        &branch_b,
        "CREATE TABLE payments (invoice bigint, amount int); INSERT INTO payments VALUES (2, 25); UPDATE invoices SET amount = 100 WHERE id = 2",
    );
    let state_b = state(&b, &branch_b);
    restore(&project_a, "start");
    assert_eq!(state(&a, &branch_a), start);
    assert_eq!(state(&b, &branch_b), state_b);
    assert_eq!(client(&branch_b).query_one("SELECT amount FROM payments", &[]).unwrap().get::<_, i32>(0), 25);
    assert_eq!(state(&main, &world.branch("main")), seed);
    assert_eq!([git_state(&a), git_state(&b)], gits);
    // A removed worktree's branch goes only by a prune that is told to.
    git(&main, &["worktree", "remove", "--force", "../b"]);
    assert_eq!(project_a.prune(false, &silent()).unwrap().orphans.len(), 1);
    assert_eq!(world.branches.list().unwrap().len(), 3);
    project_a.prune(true, &silent()).unwrap();
    assert_eq!(world.branches.list().unwrap().into_iter().map(|info| info.name).collect::<Vec<_>>(), ["a", "main"]);
    assert_eq!(state(&a, &branch_a), start);
}
