//! The restore drill of a store with clusters: each captured cluster is started as a fork of its checkpoint would be.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::create::credentials;
use super::facts::CapturedCluster;
use super::fork::place_of;
use super::layout::{self, FORMAT};
use super::making::run_once;
use super::record::BranchRecord;
use super::registry::Branches;
use super::shared::{Place, Shared};
use crate::error::{Error, Result};
use crate::postgres::{self, Address, RunAs, Server};
use crate::progress::Control;
use crate::store::{Drilled, VerifyOptions, VerifyReport};

impl Branches {
    /// As [`Store::drill`](crate::store::Store::drill), with the cluster of each restored checkpoint started in private: recovered, its
    /// sequences put back, every database connected to and its catalog read, stopped cleanly, and removed. One that does not start is
    /// a finding. Nothing is written outside of the scratch folder; the servers end with this process.
    ///
    /// # Errors
    /// As [`Store::verify`](crate::store::Store::verify); `Permission` where those who run servers cannot come to the scratch folder.
    pub fn drill(&self, options: &VerifyOptions, control: &Control) -> Result<VerifyReport> {
        self.shared.store.drill(options, &mut |drilled| start(&self.shared, drilled, control), control)
    }
}

fn start(shared: &Shared, drilled: &Drilled<'_>, control: &Control) -> Result<()> {
    let (Some(half), Some(data)) = (&drilled.checkpoint.cluster, &drilled.cluster) else { return Ok(()) };
    let folder = data.parent().unwrap_or(data);
    let captured = CapturedCluster::of(half)?;
    let (installation, _) = place_of(shared, drilled.checkpoint, &captured)?;
    captured.facts.check(&installation)?;
    set_mode(data, captured.root_mode)?;
    if captured.report.mode == "online" {
        postgres::check_online_copy(data)?;
    }
    postgres::prepare_copy(data, false)?;
    let run_as = shared.run_as()?;
    if matches!(run_as, RunAs::Account { .. }) {
        set_mode(folder, 0o711)?;
    }
    run_as.give(data)?;
    // In the scratch folder, or below the one for long paths: the store may be read-only.
    let address = Address::new(&folder.join("sockets"), &drilled.checkpoint.id, false)?;
    let record = BranchRecord {
        format: FORMAT,
        id: drilled.checkpoint.id.clone(),
        name: drilled.checkpoint.id.clone(),
        created_ms: 0,
        origin: format!("checkpoint:{}", drilled.checkpoint.id),
        parent: None,
        address: address.clone(),
        postgres: installation.bin.clone(),
        version: installation.version,
        fork: true,
        keep_replication: false,
        settings: Vec::new(),
        project: None,
    };
    let run = folder.join("run");
    run_as.make_folder(&run)?;
    let own = credentials(&captured.superuser, &captured.user, &captured.database)?;
    let place = Place { data, run: &run, address: &address };
    let spec = shared.spec(&record, &place, &own, true, true)?;
    let inside = |server: &Server| {
        postgres::put_back(server, &captured.report.sequences)?;
        read_catalogs(server)
    };
    let started = run_once(&spec, inside, |_| Ok(()), control);
    let removed = layout::remove_address(&address);
    started.map_err(|error| error.while_doing(format!("the cluster of checkpoint {}", drilled.checkpoint.id)))?;
    removed
}

/// Reads the catalog of every database that takes connections.
fn read_catalogs(server: &Server) -> Result<()> {
    let sql = "select datname from pg_catalog.pg_database where datallowconn order by 1";
    for row in super::facts::session(server)?.rows(sql)? {
        let Some(Some(database)) = row.into_iter().next() else { continue };
        server
            .connect(&database)?
            .run("select count(*) from pg_catalog.pg_class join pg_catalog.pg_attribute on attrelid = pg_class.oid")?;
    }
    Ok(())
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(|source| Error::io("set the mode of", path, source))
}
