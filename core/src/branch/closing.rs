//! Leaving a branch's database as it is while the files around it are put back: nobody may be left who can change it.

use super::Branch;
use super::capture::QUIET;
use super::shared::named;
use crate::error::Result;
use crate::postgres::{self, ServerStatus};
use crate::progress::Control;
use crate::store::Ref;
use crate::sys::lock::Mode;

/// How often it is looked whether clients that are just ending are gone.
const LOOKS: u32 = 20;

impl Branch {
    /// Whether [`Branch::close_at`] would be likely to succeed now; touches nothing. Clients that are just ending are waited for briefly.
    pub(crate) fn could_close_at(&self, reference: &Ref) -> Result<bool> {
        if !self.unchanged_since(reference)? {
            return Ok(false);
        }
        let Some(server) = self.server()? else { return Ok(true) };
        for _ in 0..LOOKS {
            if named(&self.record().name, server.writers())? == 0 {
                return Ok(true);
            }
            std::thread::sleep(QUIET);
        }
        Ok(false)
    }

    /// Takes the public socket away from a held branch whose server ran (or not) as `ran` says, and tells whether its database can be
    /// left alone: it is exactly what `reference` holds and nobody is connected, so that no open transaction can still commit into it.
    /// The mark alone cannot tell, since an open transaction does not move it. [`Branch::release`] and a start undo it in any case.
    pub(crate) fn close_at(&self, reference: &Ref, ran: bool) -> Result<bool> {
        named(&self.record().name, self.close(reference, ran))
    }

    fn close(&self, reference: &Ref, ran: bool) -> Result<bool> {
        let _lock = self.lock(Mode::Exclusive, &Control::silent())?;
        let Some((_, captured)) = self.comparable(reference, &self.read_current()?) else { return Ok(false) };
        let server = match self.status()? {
            ServerStatus::Stopped if !ran => return Ok(captured.mark.same(&postgres::mark_stopped(&self.data()?)?)),
            ServerStatus::Running { .. } if ran => self.attach()?,
            _ => None,
        };
        let Some(server) = server else { return Ok(false) };
        server.address().hide()?;
        std::thread::sleep(QUIET);
        // In this order: whoever comes between the two has no work of before, and shows in the mark.
        Ok(server.writers()? == 0 && captured.mark.same(&postgres::mark_running(&server, Some(&captured.mark))?))
    }

    /// Gives the public socket back that a killed capture took away from a running server that is not held.
    pub(crate) fn heal(&self, control: &Control) -> Result<()> {
        named(&self.record().name, self.heal_locked(control))
    }

    fn heal_locked(&self, control: &Control) -> Result<()> {
        if self.record().address.is_public() {
            return Ok(());
        }
        let _lock = self.lock(Mode::Exclusive, control)?;
        if self.folder.hold().exists() || !matches!(self.status()?, ServerStatus::Running { .. }) {
            return Ok(());
        }
        self.attach()?.as_ref().map_or(Ok(()), super::lifecycle::show)
    }
}
