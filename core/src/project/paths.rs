//! Paths as text: for messages, and in our own JSON without losing bytes that are not UTF-8.

use std::fmt::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Raw bytes for people and JSON: what is not UTF-8 as `\xNN`.
pub(super) fn display(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Text {
    Utf8(String),
    Bytes(Vec<u8>),
}

/// For `#[serde(with)]`: a string, or an array of bytes where the path is not UTF-8.
pub(super) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    let bytes = path.as_os_str().as_bytes();
    match std::str::from_utf8(bytes) {
        Ok(text) => Text::Utf8(text.to_owned()),
        Err(_) => Text::Bytes(bytes.to_vec()),
    }
    .serialize(serializer)
}

/// See [`serialize`].
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    Ok(match Text::deserialize(deserializer)? {
        Text::Utf8(text) => PathBuf::from(text),
        Text::Bytes(bytes) => PathBuf::from(std::ffi::OsString::from_vec(bytes)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    struct Holder(#[serde(with = "super")] PathBuf);

    #[test]
    fn names_that_are_not_utf8_survive_json() {
        for bytes in [&b"/a/b"[..], b"/a/\xff\n\"", "/日本".as_bytes()] {
            let holder = Holder(PathBuf::from(std::ffi::OsString::from_vec(bytes.to_vec())));
            let json = serde_json::to_string(&holder).unwrap();
            assert_eq!(serde_json::from_str::<Holder>(&json).unwrap(), holder);
        }
        assert_eq!(display(b"a\xffb"), "a\\xffb");
    }
}
