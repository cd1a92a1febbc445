//! Where a command's words go: results to standard output, all else to standard error.

use std::fmt::Display;
use std::io::Write;
use std::sync::Arc;

use forklift::{Error, ErrorKind};
use serde::Serialize;

use crate::arguments::Global;
use crate::failure::Failure;
use crate::progress::Bar;
use crate::text::plain;

/// The two streams and how to use them.
pub(crate) struct Output<'a> {
    stdout: &'a mut dyn Write,
    stderr: &'a mut dyn Write,
    json: bool,
    quiet: bool,
    bar: Option<Arc<Bar>>,
}

impl<'a> Output<'a> {
    pub(crate) fn new(stdout: &'a mut dyn Write, stderr: &'a mut dyn Write, json: bool, bar: Option<Arc<Bar>>) -> Self {
        Self { stdout, stderr, json, quiet: false, bar }
    }

    /// Takes what the command line says, once it is parsed.
    pub(crate) fn configure(&mut self, global: &Global) {
        self.json = global.json;
        self.quiet = global.quiet;
    }

    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// The result of a command: its facts as JSON, or the lines that `human` makes of them.
    pub(crate) fn result<T: Serialize>(&mut self, facts: &T, human: impl FnOnce(&T) -> String) -> Result<(), Failure> {
        if !self.json {
            let text = human(facts);
            return self.raw(text.trim_end_matches('\n'));
        }
        let text = serde_json::to_string_pretty(facts).map_err(|error| {
            Error::new(ErrorKind::Unsupported, format!("the result has no JSON form: {error}"))
                .hint("the command itself succeeded; leave out --json to see its result")
        })?;
        self.raw(&text)
    }

    /// Text on standard output, with a line end where it has any.
    pub(crate) fn raw(&mut self, text: &str) -> Result<(), Failure> {
        self.clear_bar();
        if text.is_empty() {
            return Ok(());
        }
        let end = if text.ends_with('\n') { "" } else { "\n" };
        write!(self.stdout, "{text}{end}").map_err(Failure::of_output)
    }

    /// Something that did not go as one may think.
    pub(crate) fn warning(&mut self, text: impl Display) {
        self.tell(&format!("warning: {text}"));
    }

    /// All of them.
    pub(crate) fn warnings(&mut self, texts: &[String]) {
        for text in texts {
            self.warning(text);
        }
    }

    /// What to do next.
    pub(crate) fn hint(&mut self, text: impl Display) {
        self.note(format!("hint: {text}"));
    }

    /// Something worth a line, unless quiet was asked for.
    pub(crate) fn note(&mut self, text: impl Display) {
        if !self.quiet {
            self.tell(&text.to_string());
        }
    }

    pub(crate) fn error_lines(&mut self, lines: &str) {
        self.clear_bar();
        // Nothing is left to tell a failure of standard error to.
        writeln!(self.stderr, "{lines}").ok();
    }

    /// An error as the result of a command; `lines` say it where results cannot be written.
    pub(crate) fn error_json(&mut self, json: &str, lines: &str) {
        self.clear_bar();
        if writeln!(self.stdout, "{json}").and_then(|()| self.stdout.flush()).is_err() {
            self.error_lines(lines);
        }
    }

    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.stdout.flush().map_err(Failure::of_output)
    }

    fn tell(&mut self, text: &str) {
        self.clear_bar();
        writeln!(self.stderr, "{}", plain(text)).ok();
    }

    fn clear_bar(&self) {
        if let Some(bar) = &self.bar {
            bar.clear();
        }
    }
}
