//! Changing a branch's record: its name, and whether it may be deleted.

use super::layout;
use super::registry::{lock_registry, making_records, records};
use super::shared::named;
use super::{Branch, BranchInfo, BranchRecord, StartOptions, name};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Control;
use crate::sys::lock::Mode;

impl Branch {
    /// Stops the server cleanly and starts it again, with nobody in between; one that is stopped is started.
    ///
    /// # Errors
    /// As [`Branch::stop`] and [`Branch::start`]; after a stop that succeeded and a start that failed it is stopped.
    pub fn restart(&self, options: StartOptions, control: &Control) -> Result<BranchInfo> {
        let again = || {
            self.refuse_held()?;
            let _lock = self.lock(Mode::Exclusive, control)?;
            self.refuse_held()?;
            self.sweep_locked()?;
            // What a start would refuse is found while the server runs.
            self.check_start()?;
            self.stop_locked(control)?;
            self.start_locked(options.bound_to_owner, |_| Ok(()), control)?;
            self.info()
        };
        named(&self.record.name, again())
    }

    /// Gives it another name, durably; its id, address and URL stay, and its server goes on running. This handle goes on too.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that cannot be, `AlreadyExists`, `NotFound`, `Io`.
    pub fn rename(&self, to: &str) -> Result<BranchRecord> {
        name::check(to)?;
        let change = |record: &mut BranchRecord| {
            let making = making_records(&self.shared)?;
            if records(&self.shared)?.iter().chain(&making).any(|other| other.name == to && other.id != record.id) {
                return Err(Error::new(ErrorKind::AlreadyExists, format!("branch {to} exists"))
                    .with("branch", to)
                    .hint("choose another name, or delete that branch first"));
            }
            to.clone_into(&mut record.name);
            Ok(())
        };
        named(&self.record.name, self.change(change))
    }

    /// Whether it is protected: then nothing deletes it until it is not any more. Durable.
    ///
    /// # Errors
    /// `NotFound`, `Io`.
    pub fn protect(&self, protected: bool) -> Result<BranchRecord> {
        let change = |record: &mut BranchRecord| {
            record.protected = protected;
            Ok(())
        };
        named(&self.record.name, self.change(change))
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut BranchRecord) -> Result<()>) -> Result<BranchRecord> {
        let _registry = lock_registry(&self.shared, &Control::silent())?;
        let mut record: BranchRecord = layout::load(&self.folder.record())?;
        let before = record.clone();
        change(&mut record)?;
        if record != before {
            layout::save(&self.folder.record(), &record)?;
        }
        Ok(record)
    }
}

/// Refuses what a protected branch must not suffer.
pub(super) fn refuse_protected(record: &BranchRecord) -> Result<()> {
    if record.protected {
        return Err(Error::new(ErrorKind::Protected, format!("branch {} is protected", record.name))
            .with("branch", &record.name)
            .hint(format!("allow it first: forklift branch unprotect {}", record.name)));
    }
    Ok(())
}
