//! Sizes, times, names and paths as people read them.

use std::borrow::Cow;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Text without control characters: a name cannot move the cursor or forge a line.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    if !text.chars().any(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            plain.extend(character.escape_default());
        } else {
            plain.push(character);
        }
    }
    Cow::Owned(plain)
}

/// A word of a command to be typed: quoted where a shell would make something else of it.
pub(crate) fn word(text: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:@%+=,".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("'{}'", text.replace('\'', r"'\''")))
}

/// A path, losslessly: bytes that are not UTF-8 as `\xNN`, control characters and backslashes escaped.
pub(crate) fn path(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        text.push_str(&plain(&chunk.valid().replace('\\', "\\\\")));
        for byte in chunk.invalid() {
            _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Bytes with three digits: `39.2 MB`.
#[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(crate) fn bytes(bytes: u64) -> String {
    let mut size = bytes as f64;
    let mut unit = "B";
    for larger in ["kB", "MB", "GB", "TB"] {
        // 999.95 would be shown as 1000.0
        if size < 999.95 {
            break;
        }
        size /= 1000.0;
        unit = larger;
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{size:.1} {unit}") }
}

/// A duration: `210 ms`, `1.2 s`.
#[allow(clippy::cast_precision_loss, reason = "one decimal is shown")]
pub(crate) fn milliseconds(ms: u64) -> String {
    if ms < 1000 { format!("{ms} ms") } else { format!("{:.1} s", ms as f64 / 1000.0) }
}

/// `1 path`, `2 paths`.
pub(crate) fn count(number: u64, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn a_path_is_shown_without_losing_a_byte() {
        for (raw, shown) in [
            (&b"plain/\xc3\xa4"[..], "plain/ä"),
            (b"a\xffb", "a\\xffb"),
            (b"a\\xffb", "a\\\\xffb"),
            (b"two\nlines\x1b[2J", "two\\nlines\\u{1b}[2J"),
        ] {
            assert_eq!(path(Path::new(OsStr::from_bytes(raw))), shown);
        }
    }

    #[test]
    fn a_word_is_quoted_where_it_must_be() {
        for (raw, shown) in [("chat-1", "chat-1"), ("a b", "'a b'"), ("it's", r"'it'\''s'"), ("", "''")] {
            assert_eq!(word(raw), shown);
        }
    }

    #[test]
    fn sizes_have_at_most_four_digits() {
        for (size, shown) in
            [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_949, "999.9 kB"), (999_960, "1.0 MB"), (39_200_000, "39.2 MB")]
        {
            assert_eq!(bytes(size), shown);
        }
    }

    #[test]
    fn durations_and_counts() {
        assert_eq!((milliseconds(999), milliseconds(1250)), ("999 ms".to_owned(), "1.2 s".to_owned()));
        assert_eq!((count(1, "path"), count(0, "path")), ("1 path".to_owned(), "0 paths".to_owned()));
    }
}
