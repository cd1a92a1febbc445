//! Names, listing and deleting.

use forklift::ErrorKind;
use forklift::branch::{CreateOptions, ForkFrom, ForkOptions, Origin};

use super::{Place, client, silent, start};

#[test]
fn names_are_unique_also_when_two_are_made_at_once() {
    let place = Place::new();
    let create = |name: &str| place.branches.create(name, &Origin::Empty, &CreateOptions::default(), &silent());
    for bad in ["a/b", "", "..", "a\nb", "-x"] {
        assert_eq!(create(bad).unwrap_err().kind(), ErrorKind::InvalidArgument, "{bad:?}");
    }
    let results = std::thread::scope(|scope| {
        let both = [scope.spawn(|| create("main")), scope.spawn(|| create("main"))];
        both.map(|one| one.join().unwrap())
    });
    let failed: Vec<_> = results.iter().filter_map(|result| result.as_ref().err()).collect();
    assert_eq!(failed.len(), 1, "{results:?}");
    assert_eq!(failed[0].kind(), ErrorKind::AlreadyExists);
    assert!(failed[0].message().contains("main"), "{}", failed[0]);
    assert_eq!((place.names(), place.leftovers()), (vec!["main".to_owned()], Vec::new()));
    let found = place.branches.find("main").unwrap();
    assert_eq!(place.branches.find(&found.record().id).unwrap().record(), found.record());
}

#[test]
fn a_branch_that_others_depend_on_is_not_deleted() {
    let place = Place::new();
    let main = place.empty("main");
    let (child, _) = place.branches.fork("child", &ForkFrom::Branch("main".to_owned()), &ForkOptions::default(), &silent()).unwrap();
    start(&child);
    let error = place.branches.delete("main", &silent()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::HasDependents);
    assert!(error.message().contains("branch child") && error.hint_text().is_some(), "{error}");
    child.bind(Some("p1")).unwrap();
    assert_eq!(child.bind(Some("p2")).unwrap_err().kind(), ErrorKind::AlreadyExists);
    let error = place.branches.delete("child", &silent()).unwrap_err();
    assert!(error.message().contains("project p1"), "{error}");
    assert_eq!(place.branches.find("child").unwrap().record().project.as_deref(), Some("p1"));
    child.bind(None).unwrap();
    // A client that is connected does not keep it.
    let held = client(&child);
    let sockets = child.record().address.clone();
    place.branches.delete("child", &silent()).unwrap();
    assert!(!sockets.public.exists() && !sockets.private.exists());
    drop(held);
    assert_eq!(child.info().unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(child.start(Default::default(), &silent()).unwrap_err().kind(), ErrorKind::NotFound);
    place.branches.delete("main", &silent()).unwrap();
    assert_eq!(place.branches.delete("main", &silent()).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(main.info().is_err());
    assert_eq!((place.names(), place.leftovers()), (Vec::new(), Vec::new()));
}
