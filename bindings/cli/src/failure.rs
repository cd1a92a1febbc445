//! How a command fails, and how that is told.

use std::any::Any;
use std::collections::BTreeMap;
use std::error::Error as _;
use std::io;
use std::path::Path;
use std::sync::Mutex;

use clap::error::ErrorKind as UsageKind;
use forklift::{Error, ErrorKind};
use serde::Serialize;

use crate::exit;
use crate::output::Output;
use crate::text::plain;

/// Why a command did not answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An operation failed.
    Operation(Error),
    /// The command line did not parse, or asked for help or the version.
    Usage(clap::Error),
    /// Whoever read the results went away.
    BrokenPipe,
}

impl Failure {
    /// A failure to write results.
    pub(crate) fn of_output(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::BrokenPipe,
            _ => Failure::Operation(Error::io("write", Path::new("standard output"), error)),
        }
    }

    /// A panic that was caught: a defect of forklift.
    pub(crate) fn of_panic(payload: &(dyn Any + Send)) -> Self {
        let told = payload.downcast_ref::<String>().map(String::as_str).or_else(|| payload.downcast_ref::<&str>().copied());
        let place = PANIC.lock().ok().and_then(|mut place| place.take()).map(|place| format!(" at {place}")).unwrap_or_default();
        let message = format!("a defect of forklift{place}: {}", told.unwrap_or("no message"));
        let hint = "what was saved is intact; please report this line, and run `forklift project recover` if a restore was under way";
        Failure::Operation(Error::new(ErrorKind::Panic, message).hint(hint))
    }

    /// Tells it and gives the exit code.
    pub(crate) fn report(&self, output: &mut Output<'_>) -> u8 {
        match self {
            Failure::BrokenPipe => exit::DONE,
            Failure::Usage(error) => usage(error, output),
            Failure::Operation(error) => {
                if output.is_json() {
                    output.error_json(&as_json(error), &lines(error));
                } else {
                    output.error_lines(&lines(error));
                }
                exit::of(error.kind())
            }
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Operation(error)
    }
}

impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Self {
        Failure::Usage(error)
    }
}

static PANIC: Mutex<Option<String>> = Mutex::new(None);

/// Keeps panics from printing: [`crate::run`] catches them and tells them in one line, with the place that this remembers.
pub fn quiet_panics() {
    std::panic::set_hook(Box::new(|panic| {
        if let Ok(mut place) = PANIC.lock() {
            *place = panic.location().map(ToString::to_string);
        }
    }));
}

fn usage(error: &clap::Error, output: &mut Output<'_>) -> u8 {
    let text = error.render().to_string();
    if matches!(error.kind(), UsageKind::DisplayHelp | UsageKind::DisplayVersion) {
        return match output.raw(&text) {
            Ok(()) | Err(Failure::BrokenPipe) => exit::DONE,
            Err(_) => exit::FAILURE,
        };
    }
    if output.is_json() {
        let what: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
        let error = Error::new(ErrorKind::InvalidArgument, what.join(" ").trim_start_matches("error: "))
            .hint("`forklift help` lists the commands, `--help` after one its options");
        output.error_json(&as_json(&error), &lines(&error));
    } else {
        output.error_lines(text.trim_end());
    }
    exit::USAGE
}

fn lines(error: &Error) -> String {
    let mut lines = vec![format!("error: {}", plain(error.message()))];
    let mut told = error.message().to_owned();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !told.contains(&text) {
            lines.push(format!("caused by: {}", plain(&text)));
            told.push_str(&text);
        }
        cause = error.source();
    }
    lines.extend(error.hint_text().into_iter().flat_map(str::lines).map(|hint| format!("hint: {}", plain(hint))));
    lines.join("\n")
}

#[derive(Serialize)]
struct Told<'a> {
    error: ToldError<'a>,
}

#[derive(Serialize)]
struct ToldError<'a> {
    kind: &'static str,
    code: i32,
    message: &'a str,
    hint: Option<&'a str>,
    context: BTreeMap<&'static str, &'a str>,
}

/// The JSON of a failure, the same in every language.
fn as_json(error: &Error) -> String {
    let told = ToldError {
        kind: error.kind().name(),
        code: error.kind().code(),
        message: error.message(),
        hint: error.hint_text(),
        context: error.context().iter().map(|(key, value)| (*key, value.as_str())).collect(),
    };
    serde_json::to_string_pretty(&Told { error: told }).unwrap_or_default()
}
