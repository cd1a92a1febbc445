//! Ignore rules: the .gitignore files of a tree, nearest first, on disk or in a manifest.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::error::{Error, ErrorKind, Result};
use crate::store::{Entry, EntryKind, Reader};

/// The name of the files that hold the rules.
pub(super) const RULES: &[u8] = b".gitignore";

/// The rules that hold in one folder: its own and those of the folders above it. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Chain(Option<Arc<Link>>);

#[derive(Debug)]
struct Link {
    above: Chain,
    /// Bytes of the folder's path with its slash.
    base: usize,
    rules: Gitignore,
}

impl Chain {
    /// With the rules file of `folder` added. Lines that are not UTF-8 or do not parse name nothing, as in git.
    pub(super) fn with(&self, folder: &[u8], content: &[u8]) -> Self {
        let mut builder = GitignoreBuilder::new("");
        for line in content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content).split(|byte| *byte == b'\n') {
            if let Ok(line) = std::str::from_utf8(line.strip_suffix(b"\r").unwrap_or(line)) {
                let _unparsed = builder.add_line(None, line);
            }
        }
        match builder.build() {
            Ok(rules) if !rules.is_empty() => {
                let base = if folder.is_empty() { 0 } else { folder.len() + 1 };
                Self(Some(Arc::new(Link { above: self.clone(), base, rules })))
            }
            _ => self.clone(),
        }
    }

    /// Whether the rules name this path itself (folders above it are the caller's affair).
    pub(super) fn names(&self, path: &[u8], is_folder: bool) -> bool {
        let mut next = self;
        while let Some(link) = &next.0 {
            let relative = path.get(link.base..).unwrap_or_default();
            match link.rules.matched(Path::new(OsStr::from_bytes(relative)), is_folder) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => next = &link.above,
            }
        }
        false
    }

    fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

/// The rules of a whole tree.
#[derive(Debug, Default)]
pub(super) struct Rules {
    /// Chains of the folders that have a rules file.
    chains: HashMap<Vec<u8>, Chain>,
}

impl Rules {
    /// Notes the chain of a folder that has a rules file.
    pub(super) fn add(&mut self, folder: &[u8], chain: Chain) {
        if !chain.is_empty() {
            self.chains.insert(folder.to_vec(), chain);
        }
    }

    /// The rules that the entries of a manifest hold; they must be in path order, so that folders come before what is in them.
    pub(super) fn of_manifest<'e>(reader: &Reader, entries: impl Iterator<Item = &'e Entry>) -> Result<Self> {
        let mut files: Vec<(&[u8], &Entry)> = entries
            .filter_map(|entry| match crate::sys::tree::split(&entry.path) {
                (folder, name) if name == RULES => Some((folder, entry)),
                _ => None,
            })
            .collect();
        // By depth of folder: `a.b/.gitignore` may come before `.gitignore`, whose rules it refines.
        files.sort_by_key(|(folder, _)| folder.len());
        let mut rules = Self::default();
        for (folder, entry) in files {
            if let EntryKind::File { chunks, .. } = &entry.kind {
                let mut content = Vec::new();
                reader.copy(chunks, &mut content)?;
                let chain = rules.chain(folder).with(folder, &content);
                rules.add(folder, chain);
            }
        }
        Ok(rules)
    }

    /// Whether the rules name the path, or a folder above it.
    pub(super) fn names(&self, path: &[u8], is_folder: bool) -> bool {
        if self.chains.is_empty() {
            return false;
        }
        let names = |path: &[u8], is_folder| self.chain(crate::sys::tree::split(path).0).names(path, is_folder);
        prefixes(path).any(|folder| names(folder, true)) || names(path, is_folder)
    }

    fn chain(&self, folder: &[u8]) -> Chain {
        let mut folder = folder;
        loop {
            if let Some(chain) = self.chains.get(folder) {
                return chain.clone();
            }
            if folder.is_empty() {
                return Chain::default();
            }
            folder = crate::sys::tree::split(folder).0;
        }
    }
}

/// The folders above a path, from the top down, without the root and the path itself.
pub(super) fn prefixes(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.iter().enumerate().filter(|(_, byte)| **byte == b'/').filter_map(|(at, _)| path.get(..at))
}

/// Whether exclude patterns name the path, or a folder above it.
pub(super) fn excluded(patterns: &Gitignore, path: &[u8], is_folder: bool) -> bool {
    let names = |path: &[u8], is_folder| patterns.matched(Path::new(OsStr::from_bytes(path)), is_folder).is_ignore();
    !patterns.is_empty() && (prefixes(path).any(|folder| names(folder, true)) || names(path, is_folder))
}

/// Compiles exclude patterns.
pub(super) fn excludes(patterns: &[String]) -> Result<Gitignore> {
    let refuse = |pattern: &str, source: ignore::Error| {
        Error::new(ErrorKind::Config, format!("exclude pattern {pattern:?} does not parse: {source}"))
            .with("pattern", pattern)
            .hint("use the syntax of .gitignore")
    };
    let mut builder = GitignoreBuilder::new("");
    builder.allow_unclosed_class(false);
    for pattern in patterns {
        builder.add_line(None, pattern).map_err(|source| refuse(pattern, source))?;
    }
    builder.build().map_err(|source| refuse(&patterns.join(", "), source))
}
