//! Rewinds of the files of a session's steps.

use std::os::unix::fs::symlink;

use super::*;
use crate::files::rewind::*;

/// A lab with a session that works in it, step by step.
pub(super) struct Agent {
    pub(super) lab: Lab,
    steps: Vec<[Captured; 2]>,
    shared: Vec<usize>,
    claimed: Vec<Vec<u8>>,
}

impl Agent {
    pub(super) fn new(lab: Lab) -> Self {
        Self { lab, steps: Vec::new(), shared: Vec::new(), claimed: Vec::new() }
    }

    pub(super) fn step(&mut self, work: impl FnOnce(&Lab)) {
        let before = self.lab.capture();
        work(&self.lab);
        let after = self.lab.capture();
        self.steps.push([before, after]);
    }

    /// A step beside which another session was at work.
    fn shared_step(&mut self, work: impl FnOnce(&Lab)) {
        self.shared.push(self.steps.len());
        self.step(work);
    }

    pub(super) fn snapshot(&self, captured: &Captured) -> Snapshot {
        Snapshot { root: captured.half.root, scope: self.lab.scope_of(captured) }
    }

    /// A plan to before the step `first`, of the disk as a safety capture has it, and that capture.
    pub(super) fn plan(&mut self, first: usize, paths: Option<&[&str]>) -> (RewindPlan, Captured) {
        let safety = self.lab.capture();
        let disk = DiskState {
            entries: self.lab.reader().manifest(&safety.half.root).expect("manifest").map(|entry| entry.expect("entry")).collect(),
            scope: self.lab.scope_of(&safety),
        };
        let steps: Vec<Step> = (first..self.steps.len())
            .map(|at| {
                let [before, after] = &self.steps[at];
                Step { before: self.snapshot(before), after: self.snapshot(after), shared: self.shared.contains(&at) }
            })
            .collect();
        let target = steps[0].before.clone();
        let paths: Option<Vec<Vec<u8>>> = paths.map(|paths| paths.iter().map(|path| path.as_bytes().to_vec()).collect());
        let reader = self.lab.reader();
        let request =
            RewindRequest { reader: &reader, target: &target, steps: &steps, claimed: &self.claimed, disk: &disk, paths: paths.as_deref() };
        (plan_rewind(&request, &Control::silent()).expect("plan"), safety)
    }

    /// The tree that the plan leaves, as a checkpoint.
    pub(super) fn result(&self, plan: &RewindPlan, safety: &Captured) -> Captured {
        let control = Control::silent();
        let disk: Vec<_> = self.lab.reader().manifest(&safety.half.root).expect("manifest").map(|entry| entry.expect("entry")).collect();
        let session = self.lab.store.session(&control).expect("session");
        let mut manifest = session.manifest();
        for entry in plan.merged(&disk) {
            manifest.push(&entry).expect("entry");
        }
        let root = manifest.finish().expect("manifest");
        let result = Captured { half: Half { root, ..safety.half.clone() }, ..safety.clone() };
        session.commit(&reference(&result.half)).expect("commit");
        result
    }

    /// Stages, lets somebody do `meanwhile`, and installs.
    pub(super) fn apply(&mut self, plan: &RewindPlan, safety: &Captured, meanwhile: impl FnOnce(&Lab)) -> InstallReport {
        let result = self.result(plan, safety);
        let (reader, scope, folders, control) = (self.lab.reader(), self.lab.scope_of(safety), self.lab.folders(), Control::silent());
        let mut request = self.lab.request(&reader, &scope, &result, safety, &folders);
        request.extent = Extent::Differences;
        stage(&request, &control).expect("stage");
        meanwhile(&self.lab);
        install(&request, &control).expect("install")
    }

    fn rewind(&mut self, first: usize) -> (BTreeMap<String, Verdict>, BTreeMap<String, Verdict>) {
        let (plan, safety) = self.plan(first, None);
        let report = self.apply(&plan, &safety, |_| {});
        (verdicts(&plan.items), verdicts(&report.items))
    }
}

#[test]
fn a_step_is_taken_back_exactly() {
    let mut agent = Agent::new(Lab::new());
    for (path, content) in
        [("same", "s"), ("edit", "before"), ("gone", "x"), ("dir/in", "d"), ("becomes-folder", "f"), ("becomes-file/x", "in")]
    {
        agent.lab.write(path, content);
    }
    agent.lab.mode("edit", 0o600);
    symlink("same", agent.lab.at("link")).expect("link");
    fs::create_dir(agent.lab.at("empty")).expect("folder");
    let before = agent.lab.listing();
    agent.step(|lab| {
        lab.write("edit", "after!");
        lab.mode("edit", 0o755);
        fs::remove_file(lab.at("gone")).expect("remove");
        clear(lab.at("dir"));
        lab.write("made/deep/new", "n");
        fs::remove_file(lab.at("becomes-folder")).expect("remove");
        lab.write("becomes-folder/y", "y");
        clear(lab.at("becomes-file"));
        lab.write("becomes-file", "now a file");
        fs::remove_file(lab.at("link")).expect("remove");
        symlink("edit", lab.at("link")).expect("link");
        fs::remove_dir(lab.at("empty")).expect("remove");
    });
    let after = agent.lab.listing();
    // Beside what the step changed, a person works on.
    agent.lab.write("mine", "by hand");
    let times = fs::metadata(agent.lab.at("same")).expect("stat").mtime_nsec();
    let left = agent.lab.capture();
    let (planned, done) = agent.rewind(0);
    let mut expected = before;
    expected.insert("mine".into(), agent.lab.listing()[Path::new("mine")].clone());
    assert_eq!(agent.lab.listing(), expected);
    assert_eq!(planned, done);
    assert!(!planned.contains_key("mine") && !planned.contains_key("same"));
    assert_eq!(fs::metadata(agent.lab.at("same")).expect("stat").mtime_nsec(), times, "case 40: what does not differ is not touched");
    assert_eq!((planned["edit"], planned["gone"], planned["made/deep/new"]), (Verdict::Restore, Verdict::Create, Verdict::Delete));

    // And back again: what a rewind did is a step like any other.
    let rewound = agent.lab.capture();
    agent.steps = vec![[left, rewound]];
    let (_, done) = agent.rewind(0);
    let mut expected = after;
    expected.insert("mine".into(), agent.lab.listing()[Path::new("mine")].clone());
    assert_eq!(agent.lab.listing(), expected);
    assert_eq!((done["edit"], done["gone"], done["made/deep/new"]), (Verdict::Restore, Verdict::Delete, Verdict::Create));
}

#[test]
fn case_1_and_18_what_a_person_edited_after_the_step_stays() {
    let mut agent = Agent::new(Lab::new());
    for path in ["a", "b", "c"] {
        agent.lab.write(path, "before");
    }
    agent.step(|lab| {
        for path in ["a", "b", "c"] {
            lab.write(path, "agent");
        }
        lab.write("new/made", "agent");
    });
    agent.lab.write("a", "person");
    fs::remove_file(agent.lab.at("b")).expect("remove");
    agent.lab.write("new/mine", "person");
    let (planned, done) = agent.rewind(0);
    let after = Verdict::KeptAfter;
    assert_eq!(
        (planned["a"], planned["b"], planned["c"], planned["new/made"], planned["new"]),
        (after, after, Verdict::Restore, Verdict::Delete, after)
    );
    assert_eq!(done.keys().collect::<Vec<_>>(), ["c", "new/made"]);
    assert_eq!(
        (get(&agent.lab.at("a")), get(&agent.lab.at("c")), get(&agent.lab.at("new/mine"))),
        (b"person".to_vec(), b"before".to_vec(), b"person".to_vec())
    );
    assert!(!agent.lab.at("b").exists() && !agent.lab.kept().exists());
}

#[test]
fn what_a_person_edited_between_two_steps_is_found() {
    let mut agent = Agent::new(Lab::new());
    agent.lab.write("a", "one\n");
    agent.lab.write("b", "one\n");
    agent.step(|lab| {
        lab.write("a", "one\nagent\n");
        lab.write("b", "agent\n");
    });
    agent.lab.write("a", "one\nagent\nperson\n");
    agent.step(|lab| lab.write("a", "one\nagent\nperson\nagent again\n"));
    let (plan, _) = agent.plan(0, None);
    assert_eq!(verdicts(&plan.items), BTreeMap::from([("a".to_owned(), Verdict::KeptBetween), ("b".to_owned(), Verdict::Restore)]));
    assert!(plan.is_in_conflict() && plan.touched() == 1);
    let (plan, _) = agent.plan(1, None);
    assert_eq!(verdicts(&plan.items)["a"], Verdict::Restore, "the last step alone is only the agent's");
    agent.lab.write("a", "one\n");
    assert_eq!(verdicts(&agent.plan(0, None).0.items)["a"], Verdict::Unchanged, "somebody took it back already");
}

#[test]
fn an_edit_that_was_taken_back_before_the_next_step_is_in_nobodys_way() {
    let mut agent = Agent::new(Lab::new());
    agent.lab.write("a", "one\n");
    agent.step(|lab| lab.write("a", "agent\n"));
    agent.lab.write("a", "agent\nperson\n");
    agent.step(|lab| lab.write("b", "elsewhere\n"));
    assert_eq!(verdicts(&agent.plan(0, None).0.items)["a"], Verdict::KeptBetween, "before a later step began");
    agent.lab.write("a", "agent\n");
    assert_eq!(verdicts(&agent.plan(0, None).0.items)["a"], Verdict::Restore);
    agent.step(|lab| lab.write("a", "agent again\n"));
    agent.rewind(0);
    assert_eq!(get(&agent.lab.at("a")), b"one\n");
}

#[test]
fn what_changed_while_two_sessions_worked_is_nobodys() {
    let mut agent = Agent::new(Lab::new());
    agent.lab.write("a", "before");
    agent.lab.write("b", "before");
    agent.shared_step(|lab| lab.write("a", "whose?"));
    agent.step(|lab| lab.write("b", "agent"));
    let (planned, _) = agent.rewind(0);
    assert_eq!((planned["a"], planned["b"]), (Verdict::KeptBetween, Verdict::Restore));
    assert_eq!(get(&agent.lab.at("a")), b"whose?");
}

#[test]
fn what_a_person_says_they_edited_stays() {
    let mut agent = Agent::new(Lab::new());
    agent.lab.write("dir/a", "before");
    agent.lab.write("dir-b", "before");
    agent.step(|lab| {
        lab.write("dir/a", "agent, and a person meanwhile");
        lab.write("dir-b", "agent");
    });
    agent.claimed = vec![b"dir".to_vec()];
    let (planned, _) = agent.rewind(0);
    assert_eq!((planned["dir/a"], planned["dir-b"]), (Verdict::KeptBetween, Verdict::Restore));
    assert_eq!(get(&agent.lab.at("dir/a")), b"agent, and a person meanwhile");
}

#[test]
fn case_2_and_3_a_session_that_changed_nothing_takes_nothing_back() {
    let mut agent = Agent::new(Lab::new());
    agent.lab.write("a", "before");
    agent.step(|_| {});
    agent.lab.write("a", "person");
    let (plan, _) = agent.plan(0, None);
    assert_eq!((plan.items.len(), plan.touched()), (0, 0));
}

#[test]
fn case_13_a_file_that_was_not_captured_is_never_deleted() {
    let mut agent = Agent::new(Lab::new());
    agent.lab.write(".gitignore", "data.bin\n");
    agent.lab.write("data.bin", vec![1; 3 << 20]);
    agent.step(|lab| lab.write("data.bin", "shrunk"));
    let (planned, _) = agent.rewind(0);
    assert_eq!(planned["data.bin"], Verdict::NotCaptured);
    assert_eq!(get(&agent.lab.at("data.bin")), b"shrunk");
}

#[test]
fn case_12_a_rule_that_goes_takes_no_file_with_it() {
    let mut agent = Agent::new(Lab::new());
    agent.lab.write("code", "x");
    agent.step(|lab| lab.write(".gitignore", "private.txt\n"));
    agent.lab.write("private.txt", "the only copy");
    agent.rewind(0);
    assert!(!agent.lab.at(".gitignore").exists());
    assert_eq!(get(&agent.lab.at("private.txt")), b"the only copy");
}

#[test]
fn case_5_paths_that_are_named_are_all_that_is_touched() {
    let mut agent = Agent::new(Lab::new());
    for path in ["src/a", "src-old/a", "docs/a"] {
        agent.lab.write(path, "before");
    }
    agent.step(|lab| {
        for path in ["src/a", "src-old/a", "docs/a", "src/new"] {
            lab.write(path, "agent");
        }
    });
    let (plan, safety) = agent.plan(0, Some(&["src"]));
    agent.apply(&plan, &safety, |_| {});
    assert_eq!(verdicts(&plan.items).into_keys().collect::<Vec<_>>(), ["src/a", "src/new"]);
    assert_eq!(
        (get(&agent.lab.at("src/a")), get(&agent.lab.at("docs/a")), get(&agent.lab.at("src-old/a"))),
        (b"before".to_vec(), b"agent".to_vec(), b"agent".to_vec())
    );
    assert!(!agent.lab.at("src/new").exists());
}

#[test]
fn case_33_empty_folders_are_changes() {
    let mut agent = Agent::new(Lab::new());
    fs::create_dir(agent.lab.at("empty")).expect("folder");
    agent.step(|lab| fs::remove_dir(lab.at("empty")).expect("remove"));
    let (planned, done) = agent.rewind(0);
    assert_eq!(planned, BTreeMap::from([("empty".to_owned(), Verdict::Create)]));
    assert_eq!(planned, done);
    assert!(agent.lab.at("empty").is_dir());
}

#[test]
fn case_38_39_41_modes_and_names_come_back() {
    let mut agent = Agent::new(Lab::new());
    let odd = std::ffi::OsStr::from_bytes(b"odd \xff\n\"name\"");
    agent.lab.write("run.sh", "#!/bin/sh\n");
    agent.lab.mode("run.sh", 0o4755);
    agent.lab.write("secret", "key");
    agent.lab.mode("secret", 0o600);
    agent.lab.write("日本/😀", "x");
    put(&agent.lab.root().join(odd), b"before");
    let before = agent.lab.listing();
    agent.step(|lab| {
        lab.write("run.sh", "changed");
        lab.mode("run.sh", 0o644);
        fs::remove_file(lab.at("secret")).expect("remove");
        clear(lab.at("日本"));
        put(&lab.root().join(odd), b"agent");
    });
    agent.rewind(0);
    assert_eq!(agent.lab.listing(), before);
}

#[test]
fn hard_links_are_joined_again() {
    let mut agent = Agent::new(Lab::new());
    agent.lab.write("a", "before");
    for name in ["b", "c"] {
        fs::hard_link(agent.lab.at("a"), agent.lab.at(name)).expect("link");
    }
    agent.step(|lab| {
        // As editors save: the name leaves the others.
        lab.write("b.tmp", "agent");
        rustix::fs::rename(lab.at("b.tmp"), lab.at("b")).expect("rename");
    });
    agent.rewind(0);
    let inode = |name: &str| fs::metadata(agent.lab.at(name)).expect("stat").ino();
    assert_eq!(get(&agent.lab.at("b")), b"before");
    assert!(inode("a") == inode("b") && inode("b") == inode("c"));
    assert_eq!(agent.lab.listing().len(), 3);
}

#[test]
fn a_file_where_a_folder_was_is_not_built_over() {
    let mut agent = Agent::new(Lab::new());
    agent.lab.write("dir/a", "before");
    agent.step(|lab| clear(lab.at("dir")));
    agent.lab.write("dir", "a person's file");
    let (planned, _) = agent.rewind(0);
    assert_eq!((planned["dir"], planned["dir/a"]), (Verdict::KeptAfter, Verdict::KeptAfter));
    assert_eq!(get(&agent.lab.at("dir")), b"a person's file");
}

#[test]
fn case_43_a_link_in_the_way_is_not_followed() {
    let mut agent = Agent::new(Lab::new());
    agent.lab.write("dir/a", "before");
    agent.step(|lab| fs::remove_file(lab.at("dir/a")).expect("remove"));
    let outside = tempfile::tempdir().expect("folder");
    fs::remove_dir(agent.lab.at("dir")).expect("remove");
    symlink(outside.path(), agent.lab.at("dir")).expect("link");
    let (planned, _) = agent.rewind(0);
    assert_eq!(planned["dir/a"], Verdict::KeptAfter);
    assert_eq!(fs::read_dir(outside.path()).expect("list").count(), 0);

    // The same when it is planted at the last moment.
    fs::remove_file(agent.lab.at("dir")).expect("remove");
    fs::create_dir(agent.lab.at("dir")).expect("folder");
    let (plan, safety) = agent.plan(0, None);
    let report = agent.apply(&plan, &safety, |lab| {
        fs::remove_dir(lab.at("dir")).expect("remove");
        symlink(outside.path(), lab.at("dir")).expect("link");
    });
    assert_eq!(verdicts(&report.items)["dir/a"], Verdict::KeptAfter);
    assert_eq!(fs::read_dir(outside.path()).expect("list").count(), 0);
}

#[test]
fn the_plan_changes_with_what_it_saw_and_with_nothing_else() {
    let mut agent = Agent::new(Lab::new());
    agent.lab.write("a", "before");
    agent.step(|lab| lab.write("a", "agent"));
    let first = agent.plan(0, None).0.id;
    agent.lab.write("other", "by hand");
    assert_eq!(agent.plan(0, None).0.id, first);
    agent.lab.mode("a", 0o600);
    assert_ne!(agent.plan(0, None).0.id, first);
}
