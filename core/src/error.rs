//! The one error type of the library.
//!
//! Every failure carries a kind with a fixed number (the C status code), one line that names the path, pid or name
//! concerned, a hint that says what to do next, and the operating system's number where there is one.

use std::fmt;
use std::path::Path;

/// Result of every fallible operation of the library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        /// What kind of failure it was. The numbers are append-only and shared by every surface; retired ones stay reserved.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[repr(i32)]
        pub enum ErrorKind {
            $($(#[$doc])* $name = $number,)*
        }

        impl ErrorKind {
            /// Every kind, in the order of the numbers.
            pub const ALL: &'static [ErrorKind] = &[$(ErrorKind::$name,)*];

            /// The stable snake_case name used in JSON and in the other languages.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(ErrorKind::$name => $text,)* }
            }
        }
    };
}

kinds! {
    /// The cancel token was set; nothing half done is left behind.
    Cancelled = -1, "cancelled";
    /// An argument is malformed or contradicts another.
    InvalidArgument = -2, "invalid_argument";
    /// The named thing does not exist.
    NotFound = -3, "not_found";
    /// The name is taken.
    AlreadyExists = -4, "already_exists";
    /// The operating system denied access.
    Permission = -5, "permission";
    /// A read, write or other system call failed.
    Io = -6, "io";
    /// The disk, quota or inode table is full.
    NoSpace = -7, "no_space";
    /// The file system is mounted read-only.
    ReadOnly = -8, "read_only";
    /// Another process or command holds it.
    Busy = -9, "busy";
    /// Stored bytes do not match their hash or do not parse.
    Corrupt = -10, "corrupt";
    /// Written by a newer version, or with a feature this build does not know.
    UnsupportedFormat = -11, "unsupported_format";
    /// This machine, file system or build cannot do it.
    Unsupported = -12, "unsupported";
    /// `.forklift.json` is malformed or names something that is not allowed.
    Config = -13, "config";
    /// Refused because somebody's edit would be lost.
    Edited = -14, "edited";
    /// A restore was interrupted and `recover` has to run first.
    RecoveryNeeded = -15, "recovery_needed";
    /// No usable Postgres installation.
    PostgresNotFound = -16, "postgres_not_found";
    /// The cluster was made by another version or build than the one at hand.
    PostgresMismatch = -17, "postgres_mismatch";
    /// The server did not start; the message carries the tail of its log.
    ServerStart = -18, "server_start";
    /// The server did not stop, or not cleanly.
    ServerStop = -19, "server_stop";
    /// A statement failed in the database.
    Sql = -20, "sql";
    /// A capture could not be made consistent and was abandoned.
    Capture = -21, "capture";
    /// A seed, hook or named command ended with a failure.
    Command = -22, "command";
    /// Others depend on it.
    HasDependents = -23, "has_dependents";
    /// It took longer than its limit.
    Timeout = -24, "timeout";
    /// The handle was closed.
    Closed = -25, "closed";
    /// The handle was made before a fork of the process.
    Forked = -26, "forked";
    /// A panic was caught at the boundary; a defect of forklift.
    Panic = -27, "panic";
    /// An invariant of forklift does not hold; a defect of forklift.
    Internal = -28, "internal";
    /// It is protected against being deleted or replaced.
    Protected = -29, "protected";
}

impl ErrorKind {
    /// The fixed negative number: the status code of the C ABI.
    #[must_use]
    pub fn code(self) -> i32 {
        self as i32
    }

    /// Whether the same call may succeed later without a change by the caller.
    #[must_use]
    pub fn is_retryable(self) -> bool {
        matches!(self, ErrorKind::Busy | ErrorKind::Timeout)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A failure: kind, message, hint, context and source.
#[derive(Debug)]
pub struct Error {
    inner: Box<Inner>,
}

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    message: String,
    hint: Option<String>,
    context: Vec<(&'static str, String)>,
    os: Option<i32>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// A failure of `kind`; the message is one line without a trailing stop.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { inner: Box::new(Inner { kind, message: message.into(), hint: None, context: Vec::new(), os: None, source: None }) }
    }

    /// A failed system call on `path`: the kind is derived from the operating system's number.
    pub fn io(action: &str, path: &Path, source: impl Into<std::io::Error>) -> Self {
        let source = source.into();
        let kind = kind_of_io(&source);
        let mut error = Self::new(kind, format!("{action} {}: {source}", path.display())).with("path", path.display());
        error.inner.os = source.raw_os_error();
        error.inner.hint = match kind {
            ErrorKind::NoSpace => Some(format!("free space on the file system of {} and try again", path.display())),
            ErrorKind::ReadOnly => Some("use a place that can be written (for a store: --store), or mount this one writable".to_owned()),
            ErrorKind::Permission => Some(format!("give this user access to {}, or run as a user that has it", path.display())),
            _ => None,
        };
        error.inner.source = Some(Box::new(source));
        error
    }

    /// Adds what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.inner.hint = Some(hint.into());
        self
    }

    /// Adds a context pair, such as `("path", ...)`, `("pid", ...)` or `("branch", ...)`.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl fmt::Display) -> Self {
        self.inner.context.push((key, value.to_string()));
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.inner.source = Some(source.into());
        self
    }

    /// Puts `what` before the message, keeping kind, hint, context and cause.
    #[must_use]
    pub fn while_doing(mut self, what: impl fmt::Display) -> Self {
        self.inner.message = format!("{what}: {}", self.inner.message);
        self
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// The one-line message.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.inner.message
    }

    /// What to do next, where there is something.
    #[must_use]
    pub fn hint_text(&self) -> Option<&str> {
        self.inner.hint.as_deref()
    }

    /// The context pairs, in the order they were added.
    #[must_use]
    pub fn context(&self) -> &[(&'static str, String)] {
        &self.inner.context
    }

    /// The code of an error that a Postgres server gave, such as `28P01`.
    #[must_use]
    pub fn sqlstate(&self) -> Option<&str> {
        self.context().iter().find_map(|(key, value)| (*key == "sqlstate").then_some(value.as_str()))
    }

    /// The operating system's error number, where there is one.
    #[must_use]
    pub fn os(&self) -> Option<i32> {
        self.inner.os
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.inner.source.as_ref().map(|source| source.as_ref() as _)
    }
}

fn kind_of_io(error: &std::io::Error) -> ErrorKind {
    use std::io::ErrorKind as Io;
    match error.kind() {
        Io::NotFound => ErrorKind::NotFound,
        Io::PermissionDenied => ErrorKind::Permission,
        Io::AlreadyExists => ErrorKind::AlreadyExists,
        Io::StorageFull | Io::QuotaExceeded => ErrorKind::NoSpace,
        Io::ReadOnlyFilesystem => ErrorKind::ReadOnly,
        Io::TimedOut => ErrorKind::Timeout,
        Io::Unsupported => ErrorKind::Unsupported,
        _ => ErrorKind::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_negative_unique_and_in_order() {
        for (expected, kind) in (1..).zip(ErrorKind::ALL) {
            assert_eq!(kind.code(), -expected, "{kind}");
        }
    }

    #[test]
    fn a_full_disk_is_no_space_and_names_the_path() {
        let error = Error::io("write", Path::new("/x/y"), std::io::Error::from_raw_os_error(libc::ENOSPC));
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert!(error.message().contains("/x/y"));
        assert!(error.hint_text().is_some());
        assert_eq!(error.os(), Some(libc::ENOSPC));
    }
}
