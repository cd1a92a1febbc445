//! The restore drill: captured clusters really start.

use forklift::branch::{Branches, CaptureMode};
use forklift::store::{EntryKind, FindingKind, Half, Ref, VerifyOptions};

use super::{Place, commit, environment, run, silent, stop};

/// A checkpoint whose cluster has, in place of the file `path`, one without content: whole for the store, and of no use.
fn spoiled(place: &Place, of: &Ref, path: &str) -> Ref {
    let half = of.cluster.as_ref().unwrap();
    let session = place.store.session(&silent()).unwrap();
    let reader = place.store.reader(&silent()).unwrap();
    let mut manifest = session.manifest();
    for entry in reader.manifest(&half.root).unwrap() {
        let mut entry = entry.unwrap();
        if let EntryKind::File { size, chunks, .. } = &mut entry.kind
            && entry.path == path.as_bytes()
        {
            (*size, *chunks) = (0, Vec::new());
        }
        manifest.push(&entry).unwrap();
    }
    let root = manifest.finish().unwrap();
    let reference = Ref { id: forklift::sys::id::sortable().unwrap(), cluster: Some(Half { root, ..half.clone() }), ..of.clone() };
    session.commit(&reference).unwrap();
    reference
}

#[test]
fn every_captured_cluster_is_started_and_one_that_does_not_is_a_finding() {
    for (place, spoil) in [(Place::new(), true), (Place::without_namespaces(), false)] {
        let branch = place.running("main", "create table t (id bigserial primary key); insert into t select from generate_series(1, 100)");
        let capture = |mode| {
            let session = place.store.session(&silent()).unwrap();
            let half = branch.capture(&session, mode, None, &silent()).unwrap().half;
            commit(session, &branch, half)
        };
        capture(CaptureMode::Online);
        run(&branch, "create database other");
        let stopped = capture(CaptureMode::Stopped);
        stop(&branch);
        let scratch = place.path().join("scratch");
        std::fs::create_dir(&scratch).unwrap();
        let drill = |branches: &Branches| {
            let options = VerifyOptions { scratch: Some(scratch.clone()), ..VerifyOptions::default() };
            let report = branches.drill(&options, &silent()).unwrap();
            assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 0, "a drill leaves nothing");
            report
        };
        let report = drill(&place.branches);
        assert!(report.is_whole() && report.drilled == 2, "{report:?}");
        if !spoil {
            continue;
        }

        // Every byte is as it was captured, and still no server comes of it.
        let bad = ["global/pg_filenode.map", "PG_VERSION"].map(|path| spoiled(&place, &stopped, path).id);
        let report = drill(&Branches::open(&place.store, &environment()).unwrap());
        let found: Vec<&str> = report.findings.iter().flat_map(|found| &found.checkpoints).map(String::as_str).collect();
        assert_eq!((report.drilled, found), (2, bad.iter().map(String::as_str).collect()), "{report:?}");
        assert!(report.findings.iter().all(|found| found.kind == FindingKind::Drill && found.detail.contains("checkpoint")));
        assert!(report.losses.is_empty());
    }
}
