//! All branches of a store.

use super::{BranchInfo, BranchRecord, CreateOptions, ForkFrom, ForkOptions, ForkReport, Origin};
use crate::environment::Environment;
use crate::error::Result;
use crate::progress::Control;
use crate::store::Store;

/// The branches of one store, on this machine. Opening reconciles records with what is on disk: half-made branches whose
/// maker is dead are removed, nothing else.
#[derive(Debug, Clone)]
pub struct Branches {}

/// One branch.
#[derive(Debug, Clone)]
pub struct Branch {}

impl Branches {
    /// Of this store, with programs found through this environment.
    pub fn open(store: &Store, environment: &Environment) -> Result<Self> {
        let _ = (store, environment);
        todo!()
    }
    /// Makes a branch. Its server is left stopped. On failure nothing is left.
    pub fn create(&self, name: &str, origin: &Origin, options: &CreateOptions, control: &Control) -> Result<Branch> {
        let _ = (name, origin, options, control);
        todo!()
    }
    /// Forks a branch or a checkpoint; a running source is never interrupted. The fork's server is left stopped.
    pub fn fork(&self, name: &str, from: &ForkFrom, options: &ForkOptions, control: &Control) -> Result<(Branch, ForkReport)> {
        let _ = (name, from, options, control);
        todo!()
    }
    /// By name (or id). `NotFound` lists what there is.
    pub fn find(&self, name: &str) -> Result<Branch> {
        let _ = name;
        todo!()
    }
    /// All, by name.
    pub fn list(&self) -> Result<Vec<BranchInfo>> {
        todo!()
    }
    /// Stops its server and removes it. `HasDependents` names the forks and the project that depend on it.
    pub fn delete(&self, name: &str, control: &Control) -> Result<()> {
        let _ = (name, control);
        todo!()
    }
}

impl Branch {
    /// Its record.
    #[must_use]
    pub fn record(&self) -> &BranchRecord {
        todo!()
    }
    /// What `inspect` shows.
    pub fn info(&self) -> Result<BranchInfo> {
        todo!()
    }
    /// Binds it to a project.
    pub fn bind(&self, project: Option<&str>) -> Result<()> {
        let _ = project;
        todo!()
    }
}
