//! The names under which a restore works beside a file: `.forklift-<24 hex>.new` while its content is being written (worth
//! nothing), `.forklift-<24 hex>.old` from then on (the whole new content before the exchange, what it displaced after it).

use crate::error::Result;
use crate::sys::id;

const PREFIX: &[u8] = b".forklift-";
const DIGITS: usize = 24;
/// Of the digits, those that tell the path; the rest is random.
const TELLING: usize = 16;

/// Whether a name is one of these.
pub(super) fn is_one(name: &[u8]) -> bool {
    is_unfinished(name) || is_displaced(name)
}

/// Whether it is one whose content is worth nothing.
pub(super) fn is_unfinished(name: &[u8]) -> bool {
    digits(name, b".new").is_some()
}

/// Whether it is one that may hold somebody's only copy.
fn is_displaced(name: &[u8]) -> bool {
    digits(name, b".old").is_some()
}

/// A fresh pair of names, unfinished and displaced, for what is at `path`.
pub(super) fn pair(path: &[u8]) -> Result<(Vec<u8>, Vec<u8>)> {
    let random = u32::from_le_bytes(id::random()?);
    let name = |end: &str| format!(".forklift-{}{random:08x}{end}", telling(path)).into_bytes();
    Ok((name(".new"), name(".old")))
}

/// Whether the name was made for this path.
pub(super) fn is_for(name: &[u8], path: &[u8]) -> bool {
    let digits = digits(name, b".old").or_else(|| digits(name, b".new"));
    digits.is_some_and(|digits| digits.starts_with(telling(path).as_bytes()))
}

fn telling(path: &[u8]) -> String {
    blake3::hash(path).to_hex().chars().take(TELLING).collect()
}

fn digits<'n>(name: &'n [u8], end: &[u8]) -> Option<&'n [u8]> {
    let digits = name.strip_prefix(PREFIX)?.strip_suffix(end)?;
    (digits.len() == DIGITS && digits.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))).then_some(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_names_are_ours() {
        let (new, old) = pair(b"a/b").expect("names");
        assert!(is_unfinished(&new) && !is_displaced(&new) && is_displaced(&old) && !is_unfinished(&old));
        assert!(is_for(&old, b"a/b") && is_for(&new, b"a/b") && !is_for(&old, b"a/c"));
        for name in [&b".forklift.json"[..], b".forklift-.old", b".forklift-0123.old", b".forklift-0123456789abcdef0123456z.old", b"x"] {
            assert!(!is_one(name), "{}", String::from_utf8_lossy(name));
        }
    }
}
