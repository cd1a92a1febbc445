use std::collections::HashMap;

use super::testing::{Cluster, command};
use crate::ErrorKind;
use crate::environment::Environment;
use crate::postgres::{ClusterState, ControlFile, Installation, cluster, find};
use crate::sys::fs;

/// Every installation of the machine that has pg_controldata.
fn installations() -> Vec<Installation> {
    find(&Environment::read()).0.into_iter().filter(|one| one.bin.join("pg_controldata").is_file()).collect()
}

#[test]
fn every_field_is_what_pg_controldata_says() {
    for installation in installations() {
        let cluster = Cluster::with(&installation, &["--wal-segsize=2", "--data-checksums"]);
        let settings = [
            "max_connections=37",
            "max_worker_processes=5",
            "max_wal_senders=7",
            "max_prepared_transactions=3",
            "max_locks_per_transaction=71",
            "wal_level=logical",
        ];
        let server = cluster.start(&settings);
        compare(&cluster);
        server.stop();
        compare(&cluster);
        assert_eq!(cluster.control().state, ClusterState::ShutDown);
        assert_eq!(cluster.control().max_connections, 37);
        assert_eq!(Some(cluster.control().catalog_version), cluster::catalog_version_of(installation.version.major));
    }
}

fn compare(cluster: &Cluster) {
    let output = command(&cluster.installation, "pg_controldata").arg(&cluster.data).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let said: HashMap<&str, &str> =
        text.lines().filter_map(|line| line.split_once(':')).map(|(name, value)| (name.trim(), value.trim())).collect();
    let control = cluster.control();
    let lsn = |lsn: u64| format!("{:X}/{:X}", lsn >> 32, lsn & 0xFFFF_FFFF);
    // 19 pads the lower half; here it is compared as numbers.
    let number = |text: &str| {
        text.split_once('/').map(|(high, low)| (u64::from_str_radix(high, 16).unwrap(), u64::from_str_radix(low, 16).unwrap()))
    };
    for (name, value) in [("Latest checkpoint location", control.checkpoint), ("Latest checkpoint's REDO location", control.redo)] {
        assert_eq!(number(said[name]), number(&lsn(value)), "{name}");
    }
    for (name, value) in [
        ("Database system identifier", control.system_identifier.to_string()),
        ("pg_control version number", control.control_version.to_string()),
        ("Catalog version number", control.catalog_version.to_string()),
        ("Database cluster state", control.state.text().to_owned()),
        ("Latest checkpoint's TimeLineID", control.timeline.to_string()),
        ("max_connections setting", control.max_connections.to_string()),
        ("max_worker_processes setting", control.max_worker_processes.to_string()),
        ("max_wal_senders setting", control.max_wal_senders.to_string()),
        ("max_prepared_xacts setting", control.max_prepared_transactions.to_string()),
        ("max_locks_per_xact setting", control.max_locks_per_transaction.to_string()),
        ("wal_level setting", ["minimal", "replica", "logical"][usize::try_from(control.wal_level).unwrap()].to_owned()),
        ("Database block size", control.block_size.to_string()),
        ("Blocks per segment of large relation", control.segment_blocks.to_string()),
        ("WAL block size", control.wal_block_size.to_string()),
        ("Bytes per WAL segment", control.wal_segment_size.to_string()),
        ("Data page checksum version", control.checksum_version.to_string()),
    ] {
        assert_eq!(said[name], value, "{name}");
    }
}

#[test]
fn a_torn_short_or_foreign_file_is_refused_by_name() {
    let Some(cluster) = Cluster::new("a_torn_short_or_foreign_file_is_refused_by_name", &[]) else { return };
    let path = cluster.data.join("global/pg_control");
    let whole = fs::read(&path).unwrap();
    ControlFile::parse(&whole).unwrap();
    for at in [0, 16, 40, 100, 287] {
        let mut torn = whole.clone();
        torn[at] ^= 1;
        assert_eq!(ControlFile::parse(&torn).unwrap_err().kind(), ErrorKind::Corrupt, "byte {at}");
    }
    for length in [0, 7, 12, 200, 291] {
        assert_eq!(ControlFile::parse(&whole[..length]).unwrap_err().kind(), ErrorKind::Corrupt, "{length} bytes");
    }
    let mut newer = whole.clone();
    newer[8..12].copy_from_slice(&1900_u32.to_le_bytes());
    let error = ControlFile::parse(&newer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PostgresMismatch);
    assert!(error.message().contains("1900"));

    let mut torn = whole;
    torn[16] ^= 1;
    fs::replace(&path, &torn, 0o600, &fs::Syncs::new()).unwrap();
    let error = ControlFile::read(&cluster.data).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains("global/pg_control"), "{error}");
}

#[test]
fn a_torn_file_is_read_again_until_it_is_whole() {
    let Some(cluster) = Cluster::new("a_torn_file_is_read_again_until_it_is_whole", &[]) else { return };
    let path = cluster.data.join("global/pg_control");
    let whole = fs::read(&path).unwrap();
    let mut torn = whole.clone();
    torn[40] ^= 1;
    fs::replace(&path, &torn, 0o600, &fs::Syncs::new()).unwrap();
    let data = cluster.data.clone();
    let reader = std::thread::spawn(move || ControlFile::read(&data));
    std::thread::sleep(std::time::Duration::from_millis(30));
    fs::replace(&path, &whole, 0o600, &fs::Syncs::new()).unwrap();
    assert_eq!(reader.join().unwrap().unwrap(), ControlFile::parse(&whole).unwrap());
}
