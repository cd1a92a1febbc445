//! The library's side: starting the program and talking to it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use super::protocol::{Line, Order, Start};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Control;
use crate::sys;
use crate::sys::lock::Lock;

/// The library's end. Closing it before the server is public stops the server; after that only one that is bound to its owner.
#[derive(Debug)]
pub(crate) struct Channel {
    stream: UnixStream,
    received: Vec<u8>,
}

impl Channel {
    /// Starts the program, which takes over `lock` (it holds it as long as it lives), and orders the start.
    pub(crate) fn open(program: &Path, start: Start, log: &File, lock: &Lock) -> Result<Self> {
        let (stream, theirs) = UnixStream::pair()
            .map_err(|source| Error::new(ErrorKind::Io, format!("cannot make a socket pair: {source}")).because(source))?;
        let null = File::open("/dev/null").map_err(|source| Error::io("open", Path::new("/dev/null"), source))?;
        let environment = [("PATH", OsStr::new("/usr/local/bin:/usr/bin:/bin")), ("LANG", OsStr::new("C.UTF-8"))];
        sys::spawn::detached(program.as_os_str(), &environment, &[theirs.as_fd(), null.as_fd(), log.as_fd(), lock.file().as_fd()])
            .map_err(|source| Error::io("execute", program, source))?;
        let mut channel = Self { stream, received: Vec::new() };
        channel.order(&Order::Start(Box::new(start)))?;
        Ok(channel)
    }

    /// Asks for the public socket and the relay.
    pub(crate) fn publish(&mut self) -> Result<()> {
        self.order(&Order::Publish)
    }

    /// The next line; end of file without one is `ServerStart`.
    pub(crate) fn line(&mut self, limit: Option<Duration>, control: &Control) -> Result<Line> {
        let start = Instant::now();
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                let text = String::from_utf8_lossy(&line);
                return Line::parse(text.trim_end())
                    .ok_or_else(|| Error::new(ErrorKind::Internal, format!("the keeper said: {}", text.trim_end())));
            }
            control.check()?;
            if limit.is_some_and(|limit| start.elapsed() >= limit) {
                return Err(Error::new(ErrorKind::Timeout, "the keeper does not answer"));
            }
            let timeout = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            match rustix::event::poll(&mut [PollFd::new(&self.stream, PollFlags::IN)], Some(&timeout)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                Ok(_) => {}
                Err(errno) => return Err(Error::new(ErrorKind::Io, format!("poll: {errno}"))),
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(count) if count > 0 => self.received.extend(bytes.iter().take(count)),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                _ => {
                    return Err(Error::new(ErrorKind::ServerStart, "the keeper ended without a word")
                        .hint("see the log in the branch's run folder"));
                }
            }
        }
    }

    fn order(&mut self, order: &Order) -> Result<()> {
        let mut bytes = serde_json::to_vec(order)
            .map_err(|error| Error::new(ErrorKind::InvalidArgument, format!("a path of the server is not UTF-8: {error}")))?;
        bytes.push(b'\n');
        // A closed socket must not send SIGPIPE to the host.
        while !bytes.is_empty() {
            match rustix::net::send(&self.stream, &bytes, rustix::net::SendFlags::NOSIGNAL) {
                Ok(count) => drop(bytes.drain(..count)),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return Err(Error::new(ErrorKind::ServerStart, "the keeper ended before it took its orders")),
            }
        }
        self.stream.flush().map_err(|source| Error::new(ErrorKind::Io, source.to_string()))
    }
}
