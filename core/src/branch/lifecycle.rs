//! Starting and stopping a branch's server, and its URL.

use super::{Branch, BranchInfo};
use crate::error::Result;
use crate::postgres::{Credentials, Server, UrlForm};
use crate::progress::Control;

/// How to start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StartOptions {
    /// The server ends with this process.
    pub bound_to_owner: bool,
}

impl Branch {
    /// Starts the server; one that runs is left as it is. `RecoveryNeeded` while a restore is pending.
    pub fn start(&self, options: StartOptions, control: &Control) -> Result<BranchInfo> {
        let _ = (options, control);
        todo!()
    }
    /// Stops the server cleanly; one that is stopped is fine.
    pub fn stop(&self, control: &Control) -> Result<()> {
        let _ = control;
        todo!()
    }
    /// The running server, where it runs.
    pub fn server(&self) -> Result<Option<Server>> {
        todo!()
    }
    /// Its passwords.
    pub fn credentials(&self) -> Result<Credentials> {
        todo!()
    }
    /// The URL for clients; the same for the branch's life.
    pub fn url(&self, form: UrlForm) -> Result<String> {
        let _ = form;
        todo!()
    }
    /// Keeps it from being started (and says why) until [`Branch::release`]: durable, for a restore in progress.
    pub fn hold(&self, reason: &str) -> Result<()> {
        let _ = reason;
        todo!()
    }
    /// Ends a hold.
    pub fn release(&self) -> Result<()> {
        todo!()
    }
}
