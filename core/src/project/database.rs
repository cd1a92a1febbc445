//! The branch of a project, as the other modules of this layer use it.

use crate::branch::{Branch, Branches, ForkFrom, ForkOptions, ServerState, StartOptions};
use crate::environment::Environment;
use crate::error::{Error, ErrorKind, Result};
use crate::postgres::UrlForm;
use crate::progress::Control;
use crate::store::{Half, Reader, Ref, Session, Store};

use super::configuration::ConnectionForm;

pub(super) use crate::branch::CaptureMode;
pub(super) use crate::branch::ClusterCapture;

/// How the safety checkpoint is taken: a stopped server as it is, an unchanged one without touching it.
pub(super) const SAFETY_MODE: CaptureMode = CaptureMode::Online;

/// How an edge of a turn is: no client is ever cut for one.
pub(super) const TURN_MODE: CaptureMode = CaptureMode::Online;

/// The branch of one project.
#[derive(Debug)]
pub(super) struct Database {
    branch: Branch,
}

impl Database {
    /// Finds it by its id.
    pub(super) fn open(store: &Store, environment: &Environment, branch: &str) -> Result<Self> {
        let branches = Branches::open(store, environment)?;
        let branch = branches.find(branch).map_err(|error| error.while_doing("the branch of this project"))?;
        Ok(Self { branch })
    }

    /// Forks a new one for a project. `name` is a wish where `exact` is false: a taken one gets a number.
    #[allow(clippy::too_many_arguments, reason = "one call site; a struct would only rename the arguments")]
    pub(super) fn fork(
        store: &Store,
        environment: &Environment,
        from: &str,
        name: &str,
        exact: bool,
        tcp: bool,
        project: &str,
        control: &Control,
    ) -> Result<(Self, Vec<String>)> {
        let branches = Branches::open(store, environment)?;
        let options = ForkOptions { tcp, ..ForkOptions::default() };
        let from = ForkFrom::Branch(from.to_owned());
        for number in 1..1000_u32 {
            let candidate = if number == 1 { name.to_owned() } else { numbered(name, number) };
            match branches.fork(&candidate, &from, &options, control) {
                Ok((branch, report)) => {
                    let made = Self { branch };
                    made.branch.bind(Some(project)).inspect_err(|_| drop(branches.delete(&candidate, control)))?;
                    return Ok((made, warnings_of(&report)));
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists && !exact => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(ErrorKind::AlreadyExists, format!("the names {name} to {name}-999 are taken")).hint("name the branch with --branch"))
    }

    /// Removes every branch that is bound to `project`.
    pub(super) fn remove_of_project(store: &Store, environment: &Environment, project: &str, control: &Control) -> Result<()> {
        let branches = Branches::open(store, environment)?;
        for info in branches.list()?.into_iter().filter(|info| info.project.as_deref() == Some(project)) {
            branches.find(&info.id)?.bind(None)?;
            if let Err(error) = branches.delete(&info.id, control) {
                branches.find(&info.id)?.bind(Some(project))?;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Bytes on disk of every cluster of the branches that are bound to `project`.
    pub(super) fn bytes_of_project(store: &Store, environment: &Environment, project: &str) -> Result<u64> {
        let branches = Branches::open(store, environment)?;
        let mut bytes = 0;
        for info in branches.list()?.into_iter().filter(|info| info.project.as_deref() == Some(project)) {
            let branch = branches.find(&info.id)?;
            bytes += branch.clusters()?.iter().map(|cluster| branch.cluster_bytes(cluster)).sum::<u64>();
        }
        Ok(bytes)
    }

    /// Bytes on disk of one cluster.
    pub(super) fn cluster_bytes(&self, cluster: &str) -> u64 {
        self.branch.cluster_bytes(cluster)
    }

    pub(super) fn branch(self) -> Branch {
        self.branch
    }

    pub(super) fn name(&self) -> &str {
        &self.branch.record().name
    }

    pub(super) fn id(&self) -> &str {
        &self.branch.record().id
    }

    pub(super) fn state(&self) -> Result<String> {
        Ok(match self.branch.info()?.state {
            ServerState::Stopped => "stopped",
            ServerState::Running => "running",
            ServerState::InTransition => "in_transition",
        }
        .to_owned())
    }

    pub(super) fn is_running(&self) -> Result<bool> {
        Ok(self.branch.server()?.is_some())
    }

    /// Clients that are connected.
    pub(super) fn clients(&self) -> Result<u32> {
        self.branch.server()?.map_or(Ok(0), |server| server.clients())
    }

    pub(super) fn start(&self, control: &Control) -> Result<()> {
        self.branch.start(StartOptions { bound_to_owner: false }, control).map(drop)
    }

    /// The same after a restore: what is written from then on is noticed.
    pub(super) fn start_marked(&self, control: &Control) -> Result<()> {
        self.branch.start_marked(control)
    }

    pub(super) fn stop(&self, control: &Control) -> Result<()> {
        self.branch.stop(control)
    }

    pub(super) fn hold(&self, reason: &str) -> Result<()> {
        self.branch.hold(reason)
    }

    pub(super) fn release(&self) -> Result<()> {
        self.branch.release()
    }

    pub(super) fn capture(
        &self,
        session: &Session,
        mode: CaptureMode,
        previous: Option<&Ref>,
        control: &Control,
    ) -> Result<ClusterCapture> {
        self.branch.capture(session, mode, previous, control)
    }

    /// Whether the current cluster is exactly what `reference` holds and nobody is connected who could still change it; `false` in
    /// every doubt. Touches nothing.
    pub(super) fn can_be_left(&self, reference: &Ref) -> Result<bool> {
        self.branch.could_close_at(reference)
    }

    /// Whether what is committed in the current cluster is what `reference` holds, by its mark; `false` in every doubt.
    pub(super) fn is_unchanged_since(&self, reference: &Ref) -> Result<bool> {
        self.branch.unchanged_since(reference)
    }

    /// Whether two checkpoints hold the same database, by their marks; `false` in every doubt.
    pub(super) fn is_same(&self, first: &Ref, second: &Ref) -> Result<bool> {
        self.branch.same_database(first, second)
    }

    /// The same of a held branch, after all clients were shut out of it.
    pub(super) fn shut_out(&self, reference: &Ref, ran: bool) -> Result<bool> {
        self.branch.shut_out(reference, ran)
    }

    /// As [`Database::can_be_left`], of a held branch, to which nobody can connect any more from now on.
    pub(super) fn close_at(&self, reference: &Ref, ran: bool) -> Result<bool> {
        self.branch.close_at(reference, ran)
    }

    /// Gives the public socket back that a killed capture took away.
    pub(super) fn heal(&self, control: &Control) -> Result<()> {
        self.branch.heal(control)
    }

    /// The id of a cluster made ready beside the current one, and warnings.
    pub(super) fn materialise(&self, reader: &Reader, checkpoint: &str, half: &Half, control: &Control) -> Result<(String, Vec<String>)> {
        let prepared = self.branch.materialise(reader, checkpoint, half, control)?;
        Ok((prepared.id, prepared.warnings))
    }

    /// Bytes on disk of the clones that speed up the next capture.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.branch.kept_bytes()
    }

    /// Removes those clones.
    pub(super) fn forget_kept(&self) -> Result<()> {
        self.branch.forget_kept()
    }

    pub(super) fn current(&self) -> Result<String> {
        self.branch.current()
    }

    pub(super) fn select(&self, cluster: &str) -> Result<()> {
        self.branch.select(cluster)
    }

    pub(super) fn discard(&self, cluster: &str) -> Result<()> {
        self.branch.discard(cluster)
    }

    /// Clusters of this branch that are not the current one.
    pub(super) fn leftovers(&self) -> Result<Vec<String>> {
        let current = self.current()?;
        Ok(self.branch.clusters()?.into_iter().filter(|cluster| *cluster != current).collect())
    }

    /// What a child of `run` is given: the URL and PG*.
    pub(super) fn variables(&self, form: ConnectionForm, url_variable: &str) -> Result<Vec<(String, String)>> {
        let form = match form {
            ConnectionForm::Socket => UrlForm::Socket,
            ConnectionForm::Tcp => UrlForm::Tcp,
        };
        let credentials = self.branch.credentials()?;
        let address = &self.branch.record().address;
        let (host, port) = match (form, address.port) {
            (UrlForm::Tcp, Some(port)) => ("127.0.0.1".to_owned(), port.to_string()),
            _ => (address.public.display().to_string(), "5432".to_owned()),
        };
        Ok(vec![
            (url_variable.to_owned(), self.branch.url(form)?),
            ("PGHOST".to_owned(), host),
            ("PGPORT".to_owned(), port),
            ("PGUSER".to_owned(), credentials.url.name),
            ("PGPASSWORD".to_owned(), credentials.url.password),
            ("PGDATABASE".to_owned(), credentials.database),
        ])
    }
}

/// What a capture of the cluster has to say.
pub(super) fn warnings_of_capture(capture: &ClusterCapture) -> Vec<String> {
    let mut warnings = capture.warnings.clone();
    if !capture.unlogged.is_empty() {
        warnings.push(format!("unlogged tables come up empty after a restore: {}", capture.unlogged.join(", ")));
    }
    if !capture.prepared.is_empty() {
        warnings.push(format!("prepared transactions are in it: {}", capture.prepared.join(", ")));
    }
    warnings
}

fn warnings_of(report: &crate::branch::ForkReport) -> Vec<String> {
    let mut warnings = report.warnings.clone();
    if !report.unlogged.is_empty() {
        warnings.push(format!("unlogged tables are empty in the fork: {}", report.unlogged.join(", ")));
    }
    if !report.prepared.is_empty() {
        warnings.push(format!("prepared transactions are in the fork: {}", report.prepared.join(", ")));
    }
    if !report.switched_off.is_empty() {
        warnings.push(format!("switched off in the fork: {}", report.switched_off.join(", ")));
    }
    warnings
}

/// `name-2` and so on, within the 63 letters of a branch name.
fn numbered(name: &str, number: u32) -> String {
    let suffix = format!("-{number}");
    let kept: String = name.chars().take(63 - suffix.len()).collect();
    kept + &suffix
}
