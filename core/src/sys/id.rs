//! Identifiers: sortable by time where a person sees them, random elsewhere.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::{Error, ErrorKind, Result};

/// Random bytes of the kernel.
///
/// # Errors
/// `Io` where the kernel has none.
pub fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        filled += rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| Error::new(ErrorKind::Io, format!("getrandom: {errno}")))?;
    }
    Ok(bytes)
}

/// A new identifier: 26 lower-case letters and digits (a ULID) that sort by the time they were made.
///
/// # Errors
/// As [`random`].
pub fn sortable() -> Result<String> {
    let random = u128::from_le_bytes(random()?);
    Ok(ulid::Ulid::from_parts(now_ms(), random).to_string().to_lowercase())
}

/// As [`sortable`], and in any case after `earlier`, also where the clock was set back.
///
/// # Errors
/// As [`random`].
pub fn sortable_after(earlier: Option<&str>) -> Result<String> {
    let id = sortable()?;
    match earlier.filter(|earlier| id.as_str() <= *earlier).and_then(|earlier| ulid::Ulid::from_string(earlier).ok()) {
        Some(earlier) => Ok(ulid::Ulid(earlier.0.saturating_add(1)).to_string().to_lowercase()),
        None => Ok(id),
    }
}

/// Milliseconds since 1970 by the wall clock: for people, never for a decision.
#[must_use]
pub fn now_ms() -> u64 {
    let age = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
}

/// A moment in milliseconds as RFC 3339 text in UTC.
#[must_use]
pub fn rfc3339(ms: u64) -> String {
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(ms)).to_string()
}
