//! The branch of a project in a build without Postgres: there is never one.

use crate::environment::Environment;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Control;
use crate::store::{Half, Reader, Ref, Session, Store};

use super::configuration::ConnectionForm;

/// There is nothing to choose.
#[derive(Debug, Clone, Copy)]
pub(super) struct CaptureMode;
pub(super) const SAFETY_MODE: CaptureMode = CaptureMode;

pub(super) const TURN_MODE: CaptureMode = CaptureMode;

/// A captured cluster.
#[derive(Debug, Clone)]
pub(super) struct ClusterCapture {
    pub(super) half: Half,
    pub(super) mode: String,
    pub(super) downtime_ms: u64,
    pub(super) parts_ms: Vec<(String, u64)>,
    pub(super) reads: crate::report::Reads,
}

/// No value of this type exists.
#[derive(Debug)]
pub(super) enum Database {}

fn absent<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, "this build of forklift has no Postgres parts").hint("use a build with the feature `postgres`"))
}

impl Database {
    pub(super) fn open(_: &Store, _: &Environment, _: &str) -> Result<Self> {
        absent()
    }

    #[allow(clippy::too_many_arguments, reason = "the same face as the one with Postgres")]
    pub(super) fn fork(
        _: &Store,
        _: &Environment,
        _: &str,
        _: &str,
        _: bool,
        _: bool,
        _: &str,
        _: &Control,
    ) -> Result<(Self, Vec<String>)> {
        absent()
    }

    /// The build that made it has to remove it.
    pub(super) fn remove_of_project(_: &Store, _: &Environment, _: &str, _: &Control) -> Result<()> {
        absent()
    }

    pub(super) fn bytes_of_project(_: &Store, _: &Environment, _: &str) -> Result<u64> {
        Ok(0)
    }

    pub(super) fn cluster_bytes(&self, _: &str) -> u64 {
        match *self {}
    }

    pub(super) fn kept_bytes(&self) -> u64 {
        match *self {}
    }

    pub(super) fn forget_kept(&self) -> Result<()> {
        match *self {}
    }

    pub(super) fn name(&self) -> &str {
        match *self {}
    }

    pub(super) fn id(&self) -> &str {
        match *self {}
    }

    pub(super) fn state(&self) -> Result<String> {
        match *self {}
    }

    pub(super) fn is_running(&self) -> Result<bool> {
        match *self {}
    }

    pub(super) fn clients(&self) -> Result<u32> {
        match *self {}
    }

    pub(super) fn start(&self, _: &Control) -> Result<()> {
        match *self {}
    }

    pub(super) fn start_marked(&self, _: &Control) -> Result<()> {
        match *self {}
    }

    pub(super) fn stop(&self, _: &Control) -> Result<()> {
        match *self {}
    }

    pub(super) fn hold(&self, _: &str) -> Result<()> {
        match *self {}
    }

    pub(super) fn release(&self) -> Result<()> {
        match *self {}
    }

    pub(super) fn capture(&self, _: &Session, _: CaptureMode, _: Option<&Ref>, _: &Control) -> Result<ClusterCapture> {
        match *self {}
    }

    pub(super) fn can_be_left(&self, _: &Ref) -> Result<bool> {
        match *self {}
    }

    pub(super) fn is_unchanged_since(&self, _: &Ref) -> Result<bool> {
        match *self {}
    }

    pub(super) fn is_same(&self, _: &Ref, _: &Ref) -> Result<bool> {
        match *self {}
    }

    pub(super) fn shut_out(&self, _: &Ref, _: bool) -> Result<bool> {
        match *self {}
    }

    pub(super) fn close_at(&self, _: &Ref, _: bool) -> Result<bool> {
        match *self {}
    }

    pub(super) fn heal(&self, _: &Control) -> Result<()> {
        match *self {}
    }

    pub(super) fn materialise(&self, _: &Reader, _: &str, _: &Half, _: &Control) -> Result<(String, Vec<String>)> {
        match *self {}
    }

    pub(super) fn current(&self) -> Result<String> {
        match *self {}
    }

    pub(super) fn select(&self, _: &str) -> Result<()> {
        match *self {}
    }

    pub(super) fn discard(&self, _: &str) -> Result<()> {
        match *self {}
    }

    pub(super) fn leftovers(&self) -> Result<Vec<String>> {
        match *self {}
    }

    pub(super) fn variables(&self, _: ConnectionForm, _: &str) -> Result<Vec<(String, String)>> {
        match *self {}
    }
}

pub(super) fn warnings_of_capture(_: &ClusterCapture) -> Vec<String> {
    Vec::new()
}
