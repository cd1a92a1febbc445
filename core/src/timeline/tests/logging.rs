//! The file: what is read back, what is cut, what is reported.

use std::path::Path;

use super::*;
use crate::sys::fs;

fn written(folder: &Path) -> Vec<u8> {
    let mut log = log(folder);
    for what in sample() {
        log.append(what).unwrap();
    }
    drop(log);
    fs::read(&folder.join("log")).unwrap()
}

fn put(folder: &Path, bytes: &[u8]) {
    let path = folder.join("log");
    std::io::Write::write_all(&mut std::fs::File::create(&path).unwrap(), bytes).unwrap();
}

fn read(folder: &Path) -> Vec<What> {
    super::super::log::load(&folder.join("log")).unwrap().records.into_iter().map(|record| record.what).collect()
}

#[test]
fn what_is_written_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path());
    assert_eq!(read(folder.path()), sample());
    let (timeline, damage) = Timeline::open(folder.path()).unwrap();
    assert_eq!(damage, Damage::default());
    assert_eq!(timeline.last_number(), 7);
    assert_eq!(timeline.window("w2").unwrap().rewound.as_deref(), Some("r1"));
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(folder.path().join("log")).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_torn_end_is_cut_at_every_byte() {
    let folder = tempfile::tempdir().unwrap();
    let whole = written(folder.path());
    let ends: Vec<usize> = whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
    for cut in 0..=whole.len() {
        for zeros in if cut % 16 == 0 { &[0, 7][..] } else { &[0] } {
            let zeros = *zeros;
            put(folder.path(), &[&whole[..cut], &vec![0; zeros]].concat());
            // The first line is the header.
            let kept = ends.iter().filter(|end| **end <= cut).count().saturating_sub(1);
            let mut log = log(folder.path());
            assert!(log.damage().is_none(), "{cut}: {:?}", log.damage());
            let good = if cut < ends[0] { 0 } else { ends[kept] };
            assert_eq!(log.damage().torn, (cut + zeros - good) as u64, "{cut}");
            assert_eq!(log.is_doubtful(), log.damage().torn > 0 || kept == 0, "{cut}");
            assert_eq!(log.timeline().last_number(), kept as u64, "{cut}");
            log.append(edited("human", "after")).unwrap();
            drop(log);
            let mut expected = sample()[..kept].to_vec();
            expected.push(edited("human", "after"));
            assert_eq!(read(folder.path()), expected, "{cut}");
        }
    }
}

#[test]
fn damage_in_the_middle_is_reported_and_the_rest_stands() {
    let folder = tempfile::tempdir().unwrap();
    let whole = written(folder.path());
    let mut line = 0;
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x20;
        put(folder.path(), &damaged);
        // Without the end of the line before, the last two are one bad line.
        let last = line == 7 || (line == 6 && whole[at] == b'\n');
        let (timeline, damage) = Timeline::open(folder.path()).unwrap();
        if last {
            assert!(damage.is_none() && damage.torn > 0, "{at}: {damage:?}");
            assert_eq!(timeline.last_number(), line - 1, "{at}");
        } else {
            assert!(!damage.is_none() && damage.bad_lines > 0, "{at}: {damage:?}");
            assert_eq!(timeline.last_number(), 7, "{at}");
        }
        if whole[at] == b'\n' {
            line += 1;
        }
    }
    // A whole line that is gone.
    let second = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let third = second + whole[second..].iter().position(|byte| *byte == b'\n').unwrap() + 1;
    put(folder.path(), &[&whole[..second], &whole[third..]].concat());
    assert_eq!(Timeline::open(folder.path()).unwrap().1.missing, [(1, 1)]);
}

#[test]
fn a_newer_log_is_refused_and_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    for newer in [
        r#"{"magic":"forklift timeline","version":2,"project":"p"}"#,
        r#"{"magic":"forklift timeline","version":1,"project":"p","more":1}"#,
    ] {
        let hash = blake3::hash(newer.as_bytes()).to_hex();
        let line = format!("{},\"hash\":\"{}\"}}\n", newer.strip_suffix('}').unwrap(), &hash[..32]);
        put(folder.path(), line.as_bytes());
        assert_eq!(Timeline::open(folder.path()).unwrap_err().kind(), crate::ErrorKind::UnsupportedFormat);
        let refused = TimelineLog::open(folder.path(), "project", &Control::silent()).unwrap_err();
        assert_eq!(refused.kind(), crate::ErrorKind::UnsupportedFormat);
        assert_eq!(fs::read(&folder.path().join("log")).unwrap(), line.as_bytes());
    }
}

#[test]
fn a_full_disk_leaves_the_log_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let whole = written(folder.path());
    let mut log = log(folder.path());
    let long = What::Edited(Edited { author: "human".to_owned(), paths: vec![vec![b'x'; 2 << 20]] });
    assert_eq!(log.append(long).unwrap_err().kind(), crate::ErrorKind::InvalidArgument);
    assert_eq!(fs::read(&folder.path().join("log")).unwrap(), whole);
    log.append(edited("human", "x")).unwrap();
    assert_eq!(log.timeline().last_number(), 8);
}

/// What a writer of edges has to know.
fn writers_view(log: &TimelineLog) -> (Vec<Window>, Vec<u64>, u64, Option<String>, Option<String>) {
    let timeline = log.timeline();
    (
        timeline.open_windows().cloned().collect(),
        timeline.pending().map(|record| record.n).collect(),
        timeline.last_number(),
        timeline.last_checkpoint().cloned(),
        timeline.newest_checkpoint().cloned(),
    )
}

#[test]
fn the_end_of_a_long_log_is_all_that_a_writer_needs() {
    let folder = tempfile::tempdir().unwrap();
    let whole = || log(folder.path());
    let end_only = || TimelineLog::open_end(folder.path(), "project", &Control::silent()).unwrap();
    let mut log = whole();
    let mut random = 7_u64;
    let mut checkpoint = 0;
    let mut open: Vec<String> = Vec::new();
    for number in 0..3000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        checkpoint += u64::from(random >> 60 < 5);
        let id = format!("c{checkpoint:06}");
        match (random >> 33) % 8 {
            0..4 if open.len() < 3 => {
                open.push(format!("w{number}"));
                log.append(begin(open.last().unwrap(), "a", "1", &id)).unwrap();
            }
            0..6 if !open.is_empty() => {
                let window = open.remove(usize::try_from(random >> 40).unwrap() % open.len());
                log.append(end(&window, &id, WindowState::Ended)).unwrap();
            }
            6 => {
                checkpoint += 2;
                let ids = [format!("c{:06}", checkpoint - 1), format!("c{checkpoint:06}")];
                log.append(rewound("r", &[], [&ids[0], &ids[1]], None)).unwrap();
            }
            _ => log.append(edited("human", "x")).unwrap(),
        }
        if number % 500 == 499 {
            drop(log);
            // One after the other: each holds the lock.
            let all = writers_view(&whole());
            let end = end_only();
            assert_eq!(writers_view(&end), all, "{number}");
            if number > 1000 {
                assert!(end.timeline().windows().len() < 600, "{}", end.timeline().windows().len());
            }
            log = end;
        }
    }
    drop(log);
    assert!(whole().damage().is_none());
    // Torn, and damaged within the end.
    let path = folder.path().join("log");
    let bytes = fs::read(&path).unwrap();
    put(folder.path(), &bytes[..bytes.len() - 5]);
    let all = writers_view(&whole());
    let end = writers_view(&end_only());
    assert_eq!(end, all);
    assert!(end_only().damage().torn > 0);
    let mut damaged = bytes.clone();
    damaged[bytes.len() - 2000] ^= 1;
    put(folder.path(), &damaged);
    assert!(!end_only().damage().is_none());
}

#[test]
fn escaped_names_are_turned_back() {
    use super::super::record::unescape;
    for bytes in [&b"a\xffb"[..], br"a\xffb", b"a\nb", br"\\", "日本".as_bytes(), b"", b"\\x", &[0xc2, 0x85]] {
        assert_eq!(unescape(&crate::report::escape(bytes)).unwrap(), bytes);
    }
    for wrong in [r"\", r"\x1", r"\xg0", r"\n", r"\x+1", "\\x日"] {
        assert_eq!(unescape(wrong), None, "{wrong}");
    }
}

#[test]
fn a_folder_covers_what_is_in_it_and_nothing_beside_it() {
    let What::Edited(edited) = edited("human", "src") else { panic!() };
    for (path, covered) in [("src", true), ("src/a/b", true), ("src2", false), ("sr", false)] {
        assert_eq!(edited.covers(path.as_bytes()), covered, "{path}");
    }
}

#[test]
fn checkpoints_sort_by_the_log_whatever_the_clock_says() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = log(folder.path());
    let future = "7zzzzzzzzz0000000000000000";
    log.append(begin("w1", "a", "1", future)).unwrap();
    let next = log.next_checkpoint().unwrap();
    assert!(next.as_str() > future, "{next}");
    assert_eq!(next, "7zzzzzzzzz0000000000000001");
}
