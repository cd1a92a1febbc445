//! How what reports hold is written: paths as text that tells every path from every other, times by part, and why files were read.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

/// Why a capture read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// The last capture did not have it.
    New,
    /// Its size is another one.
    SizeChanged,
    /// Its times, its mode or its owner are others.
    TimesChanged,
    /// It looks the same, and was changed so shortly before it was read that a later change may look the same too.
    Racy,
    /// It looks the same, and the machine was started since: what was written last may be lost.
    OtherBoot,
    /// It looks the same, but the store lacks its content; or what is known of its blocks is not to be trusted.
    InDoubt,
    /// It changed, and was read only where its blocks are others than those of the last capture's clone.
    Extents,
}

/// What a capture read, and why. A file counts once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Reads {
    /// Files whose content was read, in whole or in part.
    pub files_opened: u64,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// How many of them by [`Why`].
    pub why: Reasons,
}

/// Files by the reason for which they were read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Reasons {
    /// [`Why::New`].
    pub new: u64,
    /// [`Why::SizeChanged`].
    pub size_changed: u64,
    /// [`Why::TimesChanged`].
    pub times_changed: u64,
    /// [`Why::Racy`].
    pub racy: u64,
    /// [`Why::OtherBoot`].
    pub other_boot: u64,
    /// [`Why::InDoubt`].
    pub in_doubt: u64,
    /// [`Why::Extents`].
    pub extents: u64,
}

impl Reads {
    /// Counts one file.
    pub(crate) fn count(&mut self, why: Why, bytes: u64) {
        self.files_opened += 1;
        self.bytes_read += bytes;
        let files = match why {
            Why::New => &mut self.why.new,
            Why::SizeChanged => &mut self.why.size_changed,
            Why::TimesChanged => &mut self.why.times_changed,
            Why::Racy => &mut self.why.racy,
            Why::OtherBoot => &mut self.why.other_boot,
            Why::InDoubt => &mut self.why.in_doubt,
            Why::Extents => &mut self.why.extents,
        };
        *files += 1;
    }

    /// Adds those of another attempt or half.
    pub(crate) fn add(&mut self, other: &Self) {
        self.files_opened += other.files_opened;
        self.bytes_read += other.bytes_read;
        let (mine, others) = (&mut self.why, &other.why);
        mine.new += others.new;
        mine.size_changed += others.size_changed;
        mine.times_changed += others.times_changed;
        mine.racy += others.racy;
        mine.other_boot += others.other_boot;
        mine.in_doubt += others.in_doubt;
        mine.extents += others.extents;
    }
}

/// Raw bytes for people and JSON, from which the bytes can be told: a backslash as `\\`, what is not UTF-8 and control characters as
/// `\xNN` byte by byte, everything else as it is.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\\' => text.push_str("\\\\"),
                letter if letter.is_control() => number(&mut text, letter.encode_utf8(&mut [0; 4]).as_bytes()),
                letter => text.push(letter),
            }
        }
        number(&mut text, chunk.invalid());
    }
    text
}

fn number(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "\\x{byte:02x}");
    }
}

/// For `#[serde(serialize_with)]`: a path as [`escape`] gives it.
pub(crate) fn path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&escape(path.as_os_str().as_bytes()))
}

/// The same where there may be none.
#[allow(clippy::ref_option, reason = "what serde calls")]
pub(crate) fn optional_path<S: Serializer>(found: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    match found {
        Some(found) => path(found, serializer),
        None => serializer.serialize_none(),
    }
}

/// Milliseconds by part, each part once, in the order of their first occurrence.
pub(crate) fn add_up(parts: impl IntoIterator<Item = (String, u64)>) -> Vec<(String, u64)> {
    let mut sums: Vec<(String, u64)> = Vec::new();
    for (name, ms) in parts {
        match sums.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += ms,
            None => sums.push((name, ms)),
        }
    }
    sums
}

/// For `#[serde(serialize_with)]`: an object of milliseconds by part.
pub(crate) fn parts<S: Serializer>(parts: &[(String, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(add_up(parts.iter().cloned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_has_a_text_of_its_own() {
        let texts = [
            (&b"a\xffb"[..], r"a\xffb"),
            (br"a\xffb", r"a\\xffb"),
            (b"a\nb", r"a\x0ab"),
            (br"a\nb", r"a\\nb"),
            ("a\u{85}b".as_bytes(), r"a\xc2\x85b"),
            ("日本".as_bytes(), "日本"),
        ];
        for (bytes, text) in texts {
            assert_eq!(escape(bytes), text);
        }
    }

    #[test]
    fn parts_are_an_object_in_order() {
        #[derive(serde::Serialize)]
        struct Report(#[serde(serialize_with = "parts")] Vec<(String, u64)>);
        let report = Report([("stop", 1), ("files", 2), ("stop", 3)].map(|(name, ms)| (name.to_owned(), ms)).to_vec());
        assert_eq!(serde_json::to_string(&report).unwrap(), r#"{"stop":4,"files":2}"#);
    }
}
