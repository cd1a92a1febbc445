//! Somebody edits while a rewind is being installed: what they wrote stays where they wrote it.

use std::fs::OpenOptions;
use std::io::{Seek, SeekFrom};

use super::rewinding::Agent;
use super::*;
use crate::sys::lease::{Asked, ask};

/// One file that the step changed, `meanwhile`, and what is at its path then.
fn race(meanwhile: impl FnOnce(&Lab)) -> (Agent, BTreeMap<String, Verdict>) {
    let mut agent = Agent::new(Lab::new());
    agent.lab.write("a", "before");
    agent.step(|lab| lab.write("a", "agent"));
    let (plan, safety) = agent.plan(0, None);
    assert_eq!(verdicts(&plan.items)["a"], Verdict::Restore);
    let report = agent.apply(&plan, &safety, meanwhile);
    let verdicts = verdicts(&report.items);
    (agent, verdicts)
}

fn leases_work() -> bool {
    let file = tempfile::NamedTempFile::new().expect("file");
    let found = std::fs::File::open(file.path()).expect("open");
    drop(file.into_file());
    !matches!(ask(&found), Asked::Unavailable)
}

#[test]
fn a_save_before_the_exchange_stays() {
    let (agent, verdicts) = race(|lab| lab.write("a", "person"));
    assert_eq!((get(&agent.lab.at("a")), verdicts["a"]), (b"person".to_vec(), Verdict::KeptAfter));
    let (agent, verdicts) = race(|lab| {
        lab.write("tmp", "person");
        rustix::fs::rename(lab.at("tmp"), lab.at("a")).expect("rename");
    });
    assert_eq!((get(&agent.lab.at("a")), verdicts["a"]), (b"person".to_vec(), Verdict::KeptAfter));
    let (agent, verdicts) = race(|lab| fs::remove_file(lab.at("a")).expect("remove"));
    assert_eq!((agent.lab.at("a").exists(), verdicts["a"]), (false, Verdict::KeptAfter));
    assert_eq!(agent.lab.listing().len(), 0, "nothing is left beside");
}

#[test]
fn a_file_that_is_open_for_writing_stays_and_takes_the_write() {
    if !leases_work() {
        eprintln!("SKIPPED a_file_that_is_open_for_writing_stays_and_takes_the_write: no leases here");
        return;
    }
    let mut writer = None;
    let (agent, verdicts) = race(|lab| writer = Some(OpenOptions::new().append(true).open(lab.at("a")).expect("open")));
    assert_eq!(verdicts["a"], Verdict::KeptOpen);
    writer.expect("writer").write_all(b" and a person").expect("append");
    assert_eq!(get(&agent.lab.at("a")), b"agent and a person");
    assert_eq!(agent.lab.listing().len(), 1);
}

#[test]
fn a_plan_sees_who_has_a_file_open() {
    if !leases_work() {
        eprintln!("SKIPPED a_plan_sees_who_has_a_file_open: no leases here");
        return;
    }
    let mut agent = Agent::new(Lab::new());
    agent.lab.write("a", "before");
    agent.step(|lab| {
        lab.write("a", "agent");
        lab.write("new", "agent");
    });
    let open = [
        OpenOptions::new().append(true).open(agent.lab.at("a")).expect("open"),
        OpenOptions::new().write(true).open(agent.lab.at("new")).expect("open"),
    ];
    let (plan, _) = agent.plan(0, None);
    assert_eq!(verdicts(&plan.items).into_values().collect::<Vec<_>>(), [Verdict::KeptOpen; 2]);
    drop(open);
    assert_eq!(agent.plan(0, None).0.touched(), 2);
}

#[test]
fn what_somebody_makes_where_something_comes_back_stays() {
    let mut agent = Agent::new(Lab::new());
    agent.lab.write("a", "before");
    agent.lab.write("dir/b", "before");
    agent.step(|lab| {
        fs::remove_file(lab.at("a")).expect("remove");
        clear(lab.at("dir"));
        lab.write("new/c", "agent");
    });
    let (plan, safety) = agent.plan(0, None);
    let report = agent.apply(&plan, &safety, |lab| {
        lab.write("a", "person");
        lab.write("dir", "person");
        lab.write("new/mine", "person");
    });
    let verdicts = verdicts(&report.items);
    let after = Verdict::KeptAfter;
    assert_eq!(
        (verdicts["a"], verdicts["dir"], verdicts["dir/b"], verdicts["new"], verdicts["new/c"]),
        (after, after, after, after, Verdict::Delete)
    );
    for path in ["a", "dir", "new/mine"] {
        assert_eq!(get(&agent.lab.at(path)), b"person", "{path}");
    }
    assert!(!agent.lab.at("new/c").exists());
}

#[test]
fn an_edit_of_what_is_to_go_stays() {
    let mut agent = Agent::new(Lab::new());
    agent.lab.write("folder/x", "before");
    agent.step(|lab| {
        lab.write("new", "agent");
        clear(lab.at("folder"));
        lab.write("folder", "a file now");
    });
    let (plan, safety) = agent.plan(0, None);
    let report = agent.apply(&plan, &safety, |lab| {
        lab.write("new", "person");
        lab.write("folder", "person");
    });
    assert_eq!(verdicts(&report.items), ["folder", "folder/x", "new"].map(|path| (path.to_owned(), Verdict::KeptAfter)).into());
    assert_eq!((get(&agent.lab.at("new")), get(&agent.lab.at("folder"))), (b"person".to_vec(), b"person".to_vec()));
}

#[test]
fn an_unfinished_install_is_finished_by_the_next() {
    let mut agent = Agent::new(Lab::new());
    for path in ["a", "b", "c"] {
        agent.lab.write(path, "before");
    }
    agent.step(|lab| {
        for path in ["a", "b", "c"] {
            lab.write(path, "agent");
        }
    });
    let (plan, safety) = agent.plan(0, None);
    let name = |path: &str, number: u32, end: &str| {
        let telling: String = blake3::hash(path.as_bytes()).to_hex().chars().take(16).collect();
        format!(".forklift-{telling}{number:08x}{end}")
    };
    // As kill -9 leaves them: exchanged and not looked at yet, moved away and not replaced, written and not exchanged; one
    // of what came out is somebody's.
    let report = agent.apply(&plan, &safety, |lab| {
        lab.write("a", "before");
        lab.write(&name("a", 1, ".old"), "person");
        rustix::fs::rename(lab.at("b"), lab.at(&name("b", 2, ".old"))).expect("rename");
        lab.write(&name("c", 3, ".old"), "before");
        lab.write(&name("c", 4, ".new"), "bef");
    });
    let verdicts = verdicts(&report.items);
    assert_eq!((verdicts["a"], verdicts["b"], verdicts["c"]), (Verdict::KeptAfter, Verdict::Create, Verdict::Restore));
    assert_eq!(
        (get(&agent.lab.at("a")), get(&agent.lab.at("b")), get(&agent.lab.at("c"))),
        (b"person".to_vec(), b"before".to_vec(), b"before".to_vec())
    );
    assert_eq!(agent.lab.listing().len(), 3);
}

/// How one editor saves.
type Save = fn(&Lab, &str);

fn by_rename(lab: &Lab, text: &str) {
    lab.write("a.tmp", text);
    // A rewind that is over may have removed what it made.
    rustix::fs::rename(lab.at("a.tmp"), lab.at("a")).expect("rename");
}

fn in_place(lab: &Lab, text: &str) {
    let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(lab.at("a")).expect("open");
    file.seek(SeekFrom::Start(0))
        .and_then(|_| file.write_all(text.as_bytes()))
        .and_then(|()| file.set_len(text.len() as u64))
        .expect("write");
}

fn by_append(lab: &Lab, text: &str) {
    let mut file = OpenOptions::new().append(true).create(true).open(lab.at("a")).expect("open");
    file.write_all(text.as_bytes()).expect("append");
}

fn by_mapping(lab: &Lab, text: &str) {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(lab.at("a")).expect("open");
    file.set_len(text.len() as u64).expect("length");
    crate::sys::shared_map::SharedPage::of(&file).put(text.as_bytes());
}

/// Rounds of each editor: a few in every run, thousands where asked for.
fn rounds() -> u32 {
    #[allow(clippy::disallowed_methods, reason = "a test run says how long it may take")]
    let asked = std::env::var("FORKLIFT_TORTURE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    asked.unwrap_or(24)
}

/// Everything that is anywhere: on disk and in the folder of kept files.
fn everywhere(lab: &Lab) -> Vec<Vec<u8>> {
    let kept = if lab.kept().exists() { listing(&lab.kept()) } else { Listing::new() };
    lab.listing().into_values().chain(kept.into_values()).map(|(_, _, content)| content).collect()
}

#[test]
fn a_save_in_the_middle_of_an_install_is_never_lost() {
    if !leases_work() {
        eprintln!("SKIPPED a_save_in_the_middle_of_an_install_is_never_lost: no leases here");
        return;
    }
    let savers: [(&str, Save); 4] = [("rename", by_rename), ("in place", in_place), ("append", by_append), ("mapping", by_mapping)];
    for (name, save) in savers {
        let mut agent = Agent::new(Lab::new());
        agent.lab.write("a", "before");
        agent.step(|lab| lab.write("a", "agent"));
        for round in 0..rounds() {
            clear(agent.lab.kept());
            agent.lab.write("a", "agent");
            let (plan, safety) = agent.plan(0, None);
            let result = agent.result(&plan, &safety);
            let (reader, scope, folders, control) =
                (agent.lab.reader(), agent.lab.scope_of(&safety), agent.lab.folders(), Control::silent());
            let mut request = agent.lab.request(&reader, &scope, &result, &safety, &folders);
            request.extent = Extent::Differences;
            stage(&request, &control).expect("stage");
            let text = format!("person, round {round}");
            let report = std::thread::scope(|threads| {
                let lab = &agent.lab;
                let writer = threads.spawn(|| {
                    // Spread over the time of an install.
                    for _ in 0..(round % 16) * 400 {
                        std::hint::spin_loop();
                    }
                    save(lab, &text);
                });
                let report = install(&request, &control).expect("install");
                writer.join().expect("writer");
                report
            });
            let found = everywhere(&agent.lab);
            let has = |text: &[u8]| found.iter().any(|content| content.windows(text.len()).any(|window| window == text));
            assert!(has(text.as_bytes()), "{name}, round {round}: {report:?} {found:?}");
            assert!(agent.lab.listing().keys().all(|path| path == Path::new("a")), "{name}, round {round}: {:?}", agent.lab.listing());
        }
    }
}
