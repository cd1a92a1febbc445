//! After an interrupted restore.

use serde::Serialize;

use super::Project;
use crate::error::Result;
use crate::progress::Control;

/// What recovery did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecoverOutcome {
    /// There was nothing to do.
    Clean,
    /// The restore had not selected its pair: the old one is in place.
    RolledBack,
    /// It had: the new one is in place.
    Finished,
}

/// The result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RecoverReport {
    /// What was done.
    pub outcome: RecoverOutcome,
    /// The checkpoint that the restore was to.
    pub checkpoint: Option<String>,
    /// Anything worth knowing.
    pub warnings: Vec<String>,
}

impl Project {
    /// Rolls back a restore that had not selected its pair, finishes one that had. May itself be interrupted and run again.
    ///
    /// # Errors
    /// `Busy` names the managed command or the living restore in the way; what else failed leaves the journal, so that it
    /// can be run again.
    pub fn recover(&self, control: &Control) -> Result<RecoverReport> {
        self.check_root()?;
        let alone = self.alone("recover", control)?;
        let mut warnings = self.notices().to_vec();
        let Some(mut journal) = self.journal()? else {
            if let Some(database) = self.database()? {
                database.heal(control)?;
            }
            return Ok(RecoverReport { outcome: RecoverOutcome::Clean, checkpoint: None, warnings });
        };
        let checkpoint = Some(journal.checkpoint.clone());
        if !self.is_selected(&journal)? {
            warnings.extend(self.roll_back(&journal, control)?);
            if journal.start_hook.is_some() {
                warnings.push("the stop hook had stopped the app: start it yourself".to_owned());
            }
            return Ok(RecoverReport { outcome: RecoverOutcome::RolledBack, checkpoint, warnings });
        }
        let finished = self.finish(&mut journal, &control.uncancellable())?;
        warnings.extend(finished.warnings);
        if journal.rewind.is_some() {
            let kept = finished.items.iter().filter(|item| item.verdict.is_kept());
            warnings.extend(kept.map(|item| format!("{}: {}", crate::report::escape(&item.path), item.verdict.words())));
        }
        if let Some(kept) = &finished.kept {
            warnings.push(format!("content that is in no checkpoint was kept in {}", kept.display()));
        }
        drop(alone);
        self.start_app(&journal, &mut warnings);
        Ok(RecoverReport { outcome: RecoverOutcome::Finished, checkpoint, warnings })
    }
}
