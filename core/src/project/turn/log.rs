//! The timeline of a project: reading it, opening it for writing, mending it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::super::Project;
use super::super::lock::HolderKind;
use crate::error::{ErrorKind, Result};
use crate::progress::Control;
use crate::store::Ref;
use crate::sys::fs::Syncs;
use crate::timeline::{Damage, Rebuilt, Timeline, TimelineLog, rebuild};

/// What a look at the timeline, or a rebuild of it, found.
#[derive(Debug, Clone, Serialize)]
pub struct TimelineReport {
    /// What was wrong with the log.
    pub damage: Damage,
    /// What was done about it.
    pub rebuilt: Rebuilt,
}

impl Project {
    /// The timeline as it is now, and what is wrong with its log. Writes nothing.
    ///
    /// # Errors
    /// `UnsupportedFormat` where a newer forklift wrote it; `Io` and its like.
    pub fn timeline(&self) -> Result<(Timeline, Damage)> {
        Timeline::open(&self.folder.timeline())
    }

    /// Takes all records of the refs into the timeline's log, and reports what was wrong. A damaged log is kept beside the new one.
    ///
    /// # Errors
    /// `Busy`, `RecoveryNeeded`, `NoSpace`, `ReadOnly`, `Io`; the log is then as it was.
    pub fn rebuild_timeline(&self, control: &Control) -> Result<TimelineReport> {
        let _holder = self.hold(HolderKind::Capture, "rebuild the log of turns", control)?;
        let mut log = TimelineLog::open(&self.folder.timeline(), &self.record.id, control)?;
        let damage = log.damage().clone();
        let rebuilt = rebuild(&mut log, &self.refs()?.0, &Syncs::new())?;
        log.announce(None);
        Ok(TimelineReport { damage, rebuilt })
    }

    /// The log for writing, mended: with the record of a checkpoint whose maker was killed, what a power cut took, and what is
    /// damaged, each from the refs. `warnings` gets what is worth a word.
    pub(in crate::project) fn timeline_log(&self, warnings: &mut Vec<String>, control: &Control) -> Result<TimelineLog> {
        self.mended_log(TimelineLog::open(&self.folder.timeline(), &self.record.id, control)?, warnings)
    }

    /// The same for an edge: of a long log only the end is read.
    pub(in crate::project) fn timeline_log_end(&self, warnings: &mut Vec<String>, control: &Control) -> Result<TimelineLog> {
        self.mended_log(TimelineLog::open_end(&self.folder.timeline(), &self.record.id, control)?, warnings)
    }

    fn mended_log(&self, mut log: TimelineLog, warnings: &mut Vec<String>) -> Result<TimelineLog> {
        let syncs = Syncs::new();
        if !log.damage().is_none() {
            let damage = log.damage().clone();
            let rebuilt = rebuild(&mut log, &self.refs()?.0, &syncs)?;
            warnings.push(mended(&damage, &rebuilt));
        } else if log.is_doubtful() {
            let newer = self.refs_after(log.timeline())?;
            let rebuilt = rebuild(&mut log, &newer, &syncs)?;
            if rebuilt.recovered > 0 {
                warnings.push(mended(&Damage::default(), &rebuilt));
            }
        }
        if let Some(announced) = log.announced() {
            match self.store.find_ref(&announced) {
                Ok(reference) => drop(rebuild(&mut log, &[reference], &syncs)?),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            log.announce(None);
        }
        Ok(log)
    }

    /// The refs of this project that sort after everything that the timeline names; older ones are not read.
    fn refs_after(&self, timeline: &Timeline) -> Result<Vec<Ref>> {
        let Some(newest) = timeline.newest_checkpoint() else { return Ok(self.refs()?.0) };
        let mut count = 64;
        loop {
            let (refs, _) = self.store.last_refs(count)?;
            let all = refs.len() < count || refs.first().is_some_and(|first| first.id <= *newest);
            if all || count > 1 << 24 {
                let ours = |reference: &Ref| reference.project.as_deref() == Some(&*self.record.id) && reference.id > *newest;
                let found: BTreeMap<String, Ref> =
                    refs.into_iter().filter(ours).map(|reference| (reference.id.clone(), reference)).collect();
                return Ok(found.into_values().collect());
            }
            count *= 8;
        }
    }
}

fn mended(damage: &Damage, rebuilt: &Rebuilt) -> String {
    let mut text = format!("the timeline was mended: {} came back from checkpoints", records(rebuilt.recovered));
    if damage.bad_lines > 0 {
        text.push_str(&format!(", {} of its log were damaged", damage.bad_lines));
    }
    let missing: u64 = rebuilt.missing.iter().map(|(first, last)| last - first + 1).sum();
    if missing > 0 {
        text.push_str(&format!(", {} stay lost", records(missing)));
    }
    if let Some(kept) = &rebuilt.kept {
        text.push_str(&format!("; the old log is {}", kept.display()));
    }
    text
}

fn records(count: u64) -> String {
    if count == 1 { "1 record".to_owned() } else { format!("{count} records") }
}
