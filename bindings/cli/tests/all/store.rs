//! The store as a whole.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::harness::{Place, keys, write};

/// A project of files with two checkpoints, the first of which is forgotten.
fn place() -> (Place, PathBuf) {
    let place = Place::new();
    let folder = place.path().join("work");
    std::fs::create_dir(&folder).unwrap();
    let lines: String = (0..3000).map(|number| format!("{}\n", number * 7919 % 10_007)).collect();
    write(&folder.join("a.txt"), &lines);
    place.run(&["project", "setup", "work", "--files-only"]).text();
    let run = |arguments: &[&str]| place.run_in(&folder, arguments).text().to_owned();
    run(&["project", "capture", "first"]);
    write(&folder.join("a.txt"), "short\n");
    run(&["project", "capture", "second"]);
    run(&["project", "forget", "first", "--yes"]);
    (place, folder)
}

fn packs(place: &Place) -> Vec<PathBuf> {
    let folders = place.store().join("packs").read_dir().unwrap().map(|entry| entry.unwrap().path());
    folders.flat_map(|folder| folder.read_dir().unwrap().map(|entry| entry.unwrap().path())).collect()
}

/// Flips a byte of the first chunk in a pack.
fn damage(path: &Path) {
    use std::os::unix::fs::{FileExt, PermissionsExt};
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 90).unwrap();
    file.write_all_at(&[byte[0] ^ 1], 90).unwrap();
}

#[test]
fn a_store_is_counted_pruned_and_verified() {
    let (place, _) = place();
    let stats = place.run(&["store", "stats", "--json"]).facts();
    assert_eq!((stats["checkpoints"].as_array().unwrap().len(), &stats["packs"]), (1, &json!(2)));
    assert!(place.run(&["store", "stats"]).text().starts_with("CHECKPOINT"));

    let dry = place.run(&["store", "prune", "--json"]).facts();
    assert_eq!((&dry["applied"], &dry["packs_rewritten"]), (&json!(false), &json!(1)), "both have .forklift.json");
    assert_eq!(packs(&place).len(), 2);
    let said = place.run(&["store", "prune", "--yes"]);
    assert!(said.text().contains("needed in part    1 pack") && said.err.contains("--now"), "{said:?}");
    assert_eq!(packs(&place).len(), 2);
    let again = place.run(&["store", "prune", "--yes", "--json"]).facts();
    assert!(again["trash_emptied"].as_u64().unwrap() > 1000);

    for level in ["refs", "metadata"] {
        assert!(place.run(&["store", "verify", "--level", level]).text().ends_with("no content was read: --level full reads it\n"));
    }
    for level in ["packs", "full"] {
        assert!(place.run(&["store", "verify", "--level", level]).text().ends_with(": whole\n"));
    }
    let verify = place.run(&["store", "verify", "--level", "full", "--budget", "1M", "--json"]).facts();
    keys(
        &verify,
        &[
            "whole",
            "level",
            "checkpoints",
            "packs",
            "packs_read",
            "bytes_read",
            "packs_left",
            "drilled",
            "drills_left",
            "findings",
            "losses",
        ],
    );
    assert_eq!((&verify["whole"], &verify["packs_read"]), (&json!(true), &json!(2)));
    assert_eq!(place.run(&["store", "verify", "--level", "drill"]).code, 2, "a drill needs a folder");
    let drill = place.run(&["store", "verify", "--level", "drill", "--scratch", "."]);
    assert!(drill.text().contains("1 checkpoint restored: whole"), "{drill:?}");
}

#[test]
fn a_drill_starts_the_database_of_a_checkpoint_a_day() {
    let place = Place::new();
    let folder = place.project("pair");
    for name in ["first", "second"] {
        write(&folder.join("code.txt"), name);
        place.run_in(&folder, &["project", "capture", name]).text();
    }
    let arguments = ["store", "verify", "--level", "drill", "--scratch", ".", "--budget", "1", "--json"];
    let left = || {
        let facts = place.run(&arguments).facts();
        (facts["drilled"].as_u64().unwrap(), facts["drills_left"].as_u64().unwrap())
    };
    assert_eq!([left(), left()], [(1, 1), (1, 1)]);
    // A checkpoint whose server cannot be started is not whole.
    let said = place.command(place.path(), &arguments).env("FORKLIFT_KEEPER", place.path().join("absent")).output().unwrap();
    let told: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!((said.status.code(), &told["findings"][0]["kind"]), (Some(1), &json!("drill")), "{told}");
    let remaining: Vec<_> = place.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(remaining.iter().all(|name| !name.to_string_lossy().starts_with("forklift-drill")), "{remaining:?}");
}

#[test]
fn damage_is_a_negative_answer() {
    let (place, _) = place();
    place.run(&["store", "prune", "--yes", "--now"]).text();
    packs(&place).iter().for_each(|pack| damage(pack));
    let said = place.run(&["store", "verify", "--level", "packs"]);
    assert!(said.code == 1 && said.out.contains("pack damaged") && said.err.contains("store repair"), "{said:?}");
    let said = place.run(&["store", "verify", "--level", "packs", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((said.code, &told["whole"], &told["findings"][0]["kind"]), (1, &json!(false), &json!("pack_damaged")));
    assert_eq!(told["losses"].as_array().unwrap().len(), 1);
    let said = place.run(&["store", "repair", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((said.code, told["quarantined"].as_array().unwrap().len()), (1, 2), "{told}");
    let said = place.run(&["store", "repair"]);
    assert!(said.code == 1 && said.out.contains("not every checkpoint is whole") && !said.err.is_empty(), "{said:?}");
}

/// One ref that cannot be read keeps the whole store from being pruned; each message names the next step.
#[test]
fn an_unreadable_ref_is_set_aside_and_the_store_pruned() {
    let (place, _) = place();
    let path = place.store().join("refs").read_dir().unwrap().next().unwrap().unwrap().path();
    std::fs::remove_file(&path).unwrap();
    write(&path, "not what it was");
    let error = place.run(&["store", "prune", "--yes"]);
    assert!(error.code == 3 && error.err.contains("forklift store repair --set-aside-refs"), "{error:?}");
    let said = place.run(&["store", "repair"]);
    assert!(said.code == 1 && said.out.contains("cannot be read") && said.err.contains("--set-aside-refs"), "{said:?}");
    assert!(path.exists());
    let said = place.run(&["store", "repair", "--set-aside-refs"]);
    assert!(said.code == 1 && said.out.contains("put aside") && !path.exists(), "{said:?}");
    place.run(&["store", "prune", "--yes"]).text();
    assert!(place.run(&["store", "verify", "--level", "full"]).text().ends_with(": whole\n"));
    assert_eq!(place.store().join("quarantine").read_dir().unwrap().count(), 1);
}

#[test]
fn a_store_is_not_made_by_looking_at_it() {
    let place = Place::new();
    for command in ["verify", "repair", "prune", "stats"] {
        assert_eq!(place.run(&["store", command, "--json"]).error(3)["kind"], "not_found");
    }
    assert!(!place.store().exists());
}
