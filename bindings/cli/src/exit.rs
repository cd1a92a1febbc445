//! Every exit code of the program. `project run` is the exception: it passes on the code of the command it ran, 128 and the
//! number of the signal where the command was killed by one.

use forklift::ErrorKind;

/// Done. Also a reader that went away (`forklift project log | head`).
pub const DONE: u8 = 0;
/// A question was answered with no: `store verify` found damage, `store repair` left some, `doctor` found something lacking, the
/// pool of `pool status` cannot be used. `project diff` answers 0, with or
/// without differences.
pub const NO: u8 = 1;
/// The command line, a name or another argument is malformed.
pub const USAGE: u8 = 2;
/// It failed, and everything is as it was.
pub const FAILURE: u8 = 3;
/// Another process or command holds it; the same command may succeed later.
pub const BUSY: u8 = 4;
/// Refused, because somebody's edit would be lost.
pub const REFUSED: u8 = 5;
/// Ctrl-C or a request to terminate.
pub const INTERRUPTED: u8 = 130;

/// The exit code for a kind of failure.
#[must_use]
pub fn of(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Cancelled => INTERRUPTED,
        ErrorKind::InvalidArgument => USAGE,
        ErrorKind::Busy => BUSY,
        ErrorKind::Edited => REFUSED,
        _ => FAILURE,
    }
}

/// The exit code that stands for a command's own end.
#[must_use]
pub fn of_command(code: Option<i32>, signal: Option<i32>) -> u8 {
    let number = code.or(signal.map(|signal| 128 + signal)).unwrap_or(i32::from(FAILURE));
    u8::try_from(number & 0xff).unwrap_or(FAILURE)
}
