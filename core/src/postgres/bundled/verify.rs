//! Whether the bytes that came are those that the package declares.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256, Sha512};

use crate::error::{Error, ErrorKind, Result};
use crate::sys::fs;

const URL_SAFE: [char; 2] = ['-', '_'];
const STANDARD: [char; 2] = ['+', '/'];

/// Checks every file of an unpacked wheel against its RECORD: none more, none less, each with its SHA-256 and size.
pub(super) fn wheel(folder: &Path) -> Result<()> {
    let names = fs::names(folder)?;
    let information = names
        .iter()
        .find(|name| name.as_encoded_bytes().ends_with(b".dist-info"))
        .ok_or_else(|| wrong(folder, "it has no .dist-info folder"))?;
    let record_path = Path::new(information).join("RECORD");
    let record = fs::read(&folder.join(&record_path))?;
    let record = String::from_utf8(record).map_err(|_| wrong(folder, "its RECORD is not text"))?;
    let mut declared: BTreeMap<PathBuf, (String, String)> = BTreeMap::new();
    for line in record.lines().filter(|line| !line.is_empty()) {
        // Names with commas would be quoted; this package has none.
        let mut parts = line.rsplitn(3, ',');
        let (Some(size), Some(hash), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(wrong(folder, &format!("its RECORD has the line {line:?}")));
        };
        declared.insert(PathBuf::from(path), (hash.to_owned(), size.to_owned()));
    }
    let mut files = Vec::new();
    list(folder, Path::new(""), &mut files)?;
    for file in files.into_iter().filter(|file| *file != record_path) {
        let (hash, size) = declared.remove(&file).ok_or_else(|| wrong(folder, &format!("{} is not in its RECORD", file.display())))?;
        let bytes = fs::read(&folder.join(&file))?;
        let actual = format!("sha256={}", base64(&Sha256::digest(&bytes), URL_SAFE));
        if actual != hash.trim_end_matches('=') || bytes.len().to_string() != size {
            return Err(wrong(folder, &format!("{} is not as its RECORD says", file.display())));
        }
    }
    declared.remove(&record_path);
    match declared.keys().next() {
        Some(missing) => Err(wrong(folder, &format!("{} is missing", missing.display()))),
        None => Ok(()),
    }
}

/// Checks a file against an integrity text, `sha512-` and standard base64.
pub(super) fn integrity(path: &Path, integrity: &str) -> Result<()> {
    let expected = integrity
        .split_whitespace()
        .find_map(|one| one.strip_prefix("sha512-"))
        .ok_or_else(|| wrong(path, "npm gives no sha512 for it"))?;
    let actual = base64(&Sha512::digest(fs::read(path)?), STANDARD);
    if actual == expected.trim_end_matches('=') { Ok(()) } else { Err(wrong(path, "its sha512 is not the one that npm gives")) }
}

fn list(root: &Path, relative: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for name in fs::names(&root.join(relative))? {
        let path = relative.join(name);
        if root.join(&path).is_dir() { list(root, &path, files)? } else { files.push(path) }
    }
    Ok(())
}

/// Base64 without padding.
fn base64(bytes: &[u8], last: [char; 2]) -> String {
    let digits: Vec<char> = ('A'..='Z').chain('a'..='z').chain('0'..='9').chain(last).collect();
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for place in 0..=group.len() {
            let digit = usize::try_from(bits >> (18 - 6 * place) & 63).unwrap_or_default();
            text.extend(digits.get(digit));
        }
    }
    text
}

fn wrong(path: &Path, why: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("the package in {} cannot be trusted: {why}", path.display()))
        .hint("empty the package manager's cache and try again; if it comes again, install Postgres from the distribution")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::disallowed_methods, reason = "a test makes its files")]
    fn package() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("p-1.dist-info")).unwrap();
        std::fs::write(folder.path().join("a"), b"abc").unwrap();
        let record = "a,sha256=ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0,3\np-1.dist-info/RECORD,,\n";
        std::fs::write(folder.path().join("p-1.dist-info/RECORD"), record).unwrap();
        folder
    }

    #[test]
    fn a_whole_package_passes() {
        wheel(package().path()).unwrap();
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "a test changes its files")]
    fn a_changed_an_added_and_a_missing_file_are_named() {
        let folder = package();
        std::fs::write(folder.path().join("a"), b"abd").unwrap();
        assert!(wheel(folder.path()).unwrap_err().message().contains("a is not as its RECORD says"));
        let folder = package();
        std::fs::write(folder.path().join("extra"), b"").unwrap();
        assert!(wheel(folder.path()).unwrap_err().message().contains("extra is not in its RECORD"));
        let folder = package();
        std::fs::remove_file(folder.path().join("a")).unwrap();
        let error = wheel(folder.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.message().contains("a is missing"), "{error}");
    }

    #[test]
    fn an_archive_is_checked_against_npms_integrity() {
        let folder = package();
        let path = folder.path().join("a");
        let right = "sha512-3a81oZNherrMQXNJriBBMRLm+k6JqX6iCp7u5ktV05ohkpkqJ0/BqDa6PCOj/uu9RU1EI2Q86A4qmslPpUyknw==";
        integrity(&path, right).unwrap();
        assert!(integrity(&path, &right.replace("3a8", "3a9")).is_err());
        assert!(integrity(&path, "sha1-abc").is_err());
    }
}
