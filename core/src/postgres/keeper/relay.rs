//! Local TCP for clients that know nothing else: bytes between a port of the loopback and the public socket.

use std::io::{ErrorKind as Io, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::error::{Error, ErrorKind, Result};

/// Bytes held per direction; a receiver that does not read stops its sender.
const BUFFER: usize = 64 * 1024;

/// Connections at once: two descriptors each must stay below the usual limit of 1024.
const CONNECTIONS: usize = 450;

/// How long a full queue of the server is waited for.
const QUEUE: Duration = Duration::from_secs(10);

/// All of one port; nothing in it blocks.
pub(super) struct Relay {
    listener: Option<OwnedFd>,
    listening: bool,
    target: PathBuf,
    connections: Vec<Connection>,
    /// Out of descriptors: the next connections wait until one ends.
    resting: Option<Instant>,
}

impl Relay {
    /// Takes the port; nobody can connect yet.
    pub(super) fn bind(port: u16, target: PathBuf) -> Result<Self> {
        let address = std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, port);
        let bound = || -> rustix::io::Result<OwnedFd> {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
            // Connections of a server that has just stopped may still linger.
            rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
            rustix::net::bind(&socket, &address)?;
            Ok(socket)
        };
        let listener = bound().map_err(|errno| port_error(port, errno))?;
        Ok(Self { listener: Some(listener), listening: false, target, connections: Vec::new(), resting: None })
    }

    /// Lets clients connect.
    pub(super) fn listen(&mut self, port: u16) -> Result<()> {
        if let Some(listener) = &self.listener {
            rustix::net::listen(listener, 128).map_err(|errno| port_error(port, errno))?;
            self.listening = true;
        }
        Ok(())
    }

    /// Gives the port up; who is connected stays so, and hears what the server says last.
    pub(super) fn close(&mut self) {
        self.listening = false;
        self.listener = None;
    }

    /// Every descriptor with something to wait for.
    pub(super) fn interests(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let mut interests = Vec::new();
        if let Some(listener) = self.listener.as_ref().filter(|_| self.accepts()) {
            interests.push((listener.as_fd(), PollFlags::IN));
        }
        for connection in &self.connections {
            connection.interests(&mut interests);
        }
        interests
    }

    /// How soon [`Relay::advance`] wants to be called even if nothing happens.
    pub(super) fn urgency(&self) -> Option<Duration> {
        let waiting = self.resting.is_some() || self.connections.iter().any(|connection| connection.server.is_none());
        waiting.then_some(Duration::from_millis(5))
    }

    /// Does all that can be done without waiting.
    pub(super) fn advance(&mut self) {
        if self.resting.is_some_and(|since| since.elapsed() > Duration::from_millis(100)) {
            self.resting = None;
        }
        while let Some(listener) = self.listener.as_ref().filter(|_| self.accepts()) {
            match rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => self.connections.push(Connection::new(TcpStream::from(socket))),
                Err(rustix::io::Errno::AGAIN) => break,
                Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED) => {}
                Err(_) => self.resting = Some(Instant::now()),
            }
        }
        let target = &self.target;
        self.connections.retain_mut(|connection| connection.advance(target));
    }

    fn accepts(&self) -> bool {
        self.listening && self.resting.is_none() && self.connections.len() < CONNECTIONS
    }
}

fn port_error(port: u16, errno: rustix::io::Errno) -> Error {
    if errno != rustix::io::Errno::ADDRINUSE {
        return Error::new(ErrorKind::Io, format!("cannot listen on 127.0.0.1:{port}: {errno}"));
    }
    let holder = crate::sys::ports::listener(port);
    let who = match &holder {
        Some((pid, name)) => format!("process {pid} ({name})"),
        None => "another process".to_owned(),
    };
    let error = Error::new(ErrorKind::Busy, format!("TCP port {port} of this branch is taken by {who}")).with("port", port);
    let error = match holder {
        Some((pid, _)) => error.with("pid", pid),
        None => error,
    };
    error.hint("end that process, or use the socket form of the URL")
}

struct Connection {
    client: TcpStream,
    server: Option<UnixStream>,
    since: Instant,
    up: Pipe,
    down: Pipe,
}

impl Connection {
    fn new(client: TcpStream) -> Self {
        // Small messages both ways: waiting to fill a packet costs 40 ms each. Without it the connection works as well.
        drop(client.set_nodelay(true));
        Self { client, server: None, since: Instant::now(), up: Pipe::default(), down: Pipe::default() }
    }

    fn interests<'a>(&'a self, interests: &mut Vec<(BorrowedFd<'a>, PollFlags)>) {
        let Some(server) = &self.server else { return };
        // A descriptor without interest is left out: its hang-up would be reported again and again.
        for (descriptor, reads, writes) in [(self.client.as_fd(), &self.up, &self.down), (server.as_fd(), &self.down, &self.up)] {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, reads.wants_input());
            flags.set(PollFlags::OUT, writes.has_output());
            if !flags.is_empty() {
                interests.push((descriptor, flags));
            }
        }
    }

    /// Whether it lives on.
    fn advance(&mut self, target: &std::path::Path) -> bool {
        if self.server.is_none() {
            match connect(target) {
                Ok(stream) => self.server = Some(stream),
                // The server's queue is full.
                Err(rustix::io::Errno::AGAIN) => return self.since.elapsed() < QUEUE,
                Err(_) => return false,
            }
        }
        let Some(server) = &mut self.server else { return false };
        let up = self.up.advance(&mut self.client, server, |server| server.shutdown(Shutdown::Write));
        let down = self.down.advance(server, &mut self.client, |client| client.shutdown(Shutdown::Write));
        up.is_ok() && down.is_ok() && !(self.up.closed && self.down.closed)
    }
}

fn connect(target: &std::path::Path) -> rustix::io::Result<UnixStream> {
    let address = SocketAddrUnix::new(target)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &address)?;
    Ok(UnixStream::from(socket))
}

/// One direction.
#[derive(Default)]
struct Pipe {
    buffer: Vec<u8>,
    sent: usize,
    ended: bool,
    closed: bool,
}

impl Pipe {
    fn wants_input(&self) -> bool {
        !self.ended && self.buffer.is_empty()
    }

    fn has_output(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Moves what can be moved; the end of the sender is passed on once everything before it was sent.
    fn advance<A: Read, B: Write>(
        &mut self,
        from: &mut A,
        to: &mut B,
        close: impl FnOnce(&mut B) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        // Bounded, so that one busy connection does not starve the others.
        for _ in 0..8 {
            while let Some(rest) = self.buffer.get(self.sent..).filter(|rest| !rest.is_empty()) {
                match to.write(rest) {
                    Ok(count) => self.sent += count,
                    Err(error) if error.kind() == Io::Interrupted => {}
                    Err(error) if error.kind() == Io::WouldBlock => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
            self.buffer.clear();
            self.sent = 0;
            if self.ended {
                break;
            }
            self.buffer.resize(BUFFER, 0);
            let read = from.read(&mut self.buffer);
            self.buffer.truncate(read.as_ref().copied().unwrap_or(0));
            match read {
                Ok(0) => self.ended = true,
                Ok(_) => {}
                Err(error) if matches!(error.kind(), Io::Interrupted) => {}
                Err(error) if error.kind() == Io::WouldBlock => {
                    // An idle connection holds no memory.
                    self.buffer = Vec::new();
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        if self.ended && self.buffer.is_empty() && !self.closed {
            self.closed = true;
            // The other side may have closed first.
            drop(close(to));
        }
        Ok(())
    }
}
