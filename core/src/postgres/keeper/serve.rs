//! The program's loop: one thread, which polls the library's socket, signals and the relay. It must stay one thread, since
//! the server is told to die with the thread that made it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal;

use super::super::Limits;
use super::super::lock_file::LockFile;
use super::super::record::Record;
use super::limits::Watch;
use super::postmaster::Postmaster;
use super::protocol::{Line, Order, Refusal, Start};
use super::relay::Relay;
use crate::error::{Error, ErrorKind, Result};
use crate::sys;
use crate::sys::process::{Handle, Identity};
use crate::sys::signals::Signals;

/// How long a fast stop may take once nobody waits for the server any more, before it is made an immediate one.
const FAST: Duration = Duration::from_secs(20);

/// How often it is looked whether a recovery advances.
const LOOK: Duration = Duration::from_millis(250);

pub(super) fn serve() -> ExitCode {
    let (Some(orders), Some(_), Some(log), Some(lock)) =
        (sys::spawn::inherited(0), sys::spawn::inherited(1), sys::spawn::inherited(2), sys::spawn::inherited(3))
    else {
        return ExitCode::from(2);
    };
    let mut library = Library { stream: Some(UnixStream::from(orders)), received: Vec::new() };
    let Some(start) = library.first_order() else { return ExitCode::from(2) };
    let code = match Keeper::begin(*start, library, File::from(log)) {
        Ok(mut keeper) => keeper.run(),
        Err(mut failed) => {
            failed.0.tell(&Line::Failed(failed.1));
            ExitCode::from(3)
        }
    };
    // Held to the very end: whoever gets it next finds nothing of this server.
    drop(lock);
    code
}

/// Where the server is in its life.
enum State {
    /// Not yet accepting sessions; since when it stands still, at which progress, and when that was last looked at.
    Starting { since: Instant, progress: u64, looked: Instant },
    /// Ready on the private socket.
    Private,
    /// Clients are let in.
    Public,
    /// Told to stop.
    Stopping { since: Instant, harder: bool },
}

struct Keeper {
    start: Start,
    library: Library,
    signals: Signals,
    postmaster: Postmaster,
    relay: Option<Relay>,
    /// Of a public server.
    watch: Option<Watch>,
    owner: Option<Handle>,
    state: State,
    refusal: Option<Refusal>,
    /// Device and inode of the public link.
    link: Option<(u64, u64)>,
}

impl Keeper {
    fn begin(start: Start, library: Library, log: File) -> std::result::Result<Self, Box<(Library, Refusal)>> {
        match Self::parts(&start, log) {
            Ok((signals, owner, relay, postmaster)) => {
                let state = State::Starting { since: Instant::now(), progress: 0, looked: Instant::now() };
                Ok(Self { start, library, signals, postmaster, relay, watch: None, owner, state, refusal: None, link: None })
            }
            Err(error) => Err(Box::new((library, refusal_of(&error)))),
        }
    }

    fn parts(start: &Start, log: File) -> Result<(Signals, Option<Handle>, Option<Relay>, Postmaster)> {
        let signals = Signals::collect(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGCHLD])
            .map_err(|source| Error::new(ErrorKind::Io, format!("signalfd: {source}")))?;
        let owner = match start.owner {
            None => None,
            Some(owner) => Some(Handle::open(owner).ok_or_else(|| Error::new(ErrorKind::Cancelled, "the owner of the server has ended"))?),
        };
        let relay = start.address.port.map(|port| Relay::bind(port, start.address.public_socket())).transpose()?;
        let (keeper, boot_id) = (Identity::own()?, sys::process::boot_id()?);
        if start.contain.is_some() {
            // What its SQL started must not outlive it.
            sys::orphans::adopt().map_err(|source| Error::new(ErrorKind::Io, format!("cannot take over orphans: {source}")))?;
        }
        let postmaster = Postmaster::spawn(start, log)?;
        let record = Record {
            postmaster: postmaster.identity(),
            keeper,
            boot_id,
            data: start.data.clone(),
            system_identifier: start.system_identifier,
        };
        match record.write(&start.run) {
            Ok(()) => Ok((signals, owner, relay, postmaster)),
            Err(error) => {
                // This thread ends soon, and with it the server.
                postmaster.signal(Signal::INT);
                Err(error)
            }
        }
    }

    fn run(&mut self) -> ExitCode {
        self.library.tell(&Line::Started(self.postmaster.identity()));
        let born = Instant::now();
        loop {
            self.wait(born.elapsed());
            while let Some(signal) = self.signals.next() {
                if signal != libc::SIGCHLD {
                    self.stop();
                } else if self.start.contain.is_some() {
                    sys::orphans::reap(self.postmaster.identity().pid);
                }
            }
            if self.postmaster.ended().is_some() {
                return self.finish();
            }
            self.hear();
            if self.owner.as_ref().is_some_and(|owner| !owner.identity().is_alive()) {
                self.stop();
            }
            if let Some(relay) = &mut self.relay {
                relay.advance();
            }
            self.step();
        }
    }

    /// Waits for something to happen, or for the next look.
    fn wait(&self, age: Duration) {
        let mut waiting = vec![PollFd::new(&self.signals, PollFlags::IN)];
        waiting.extend(self.library.stream.as_ref().map(|stream| PollFd::new(stream, PollFlags::IN)));
        waiting.extend(self.owner.as_ref().and_then(Handle::descriptor).map(|descriptor| PollFd::new(descriptor, PollFlags::IN)));
        let mut limit = match self.state {
            State::Starting { .. } if age < Duration::from_millis(300) => Duration::from_millis(1),
            State::Starting { .. } => Duration::from_millis(10),
            State::Stopping { .. } => Duration::from_millis(500),
            // An owner is also watched where the kernel has no descriptor for it.
            State::Private | State::Public if self.owner.is_some() => Duration::from_millis(500),
            State::Private | State::Public => Duration::from_secs(3600),
        };
        if let Some(relay) = &self.relay {
            limit = limit.min(relay.urgency().unwrap_or(limit));
            waiting.extend(relay.interests().into_iter().map(|(descriptor, flags)| PollFd::from_borrowed_fd(descriptor, flags)));
        }
        if matches!(self.state, State::Public) {
            limit = limit.min(self.watch.as_ref().and_then(Watch::patience).unwrap_or(limit));
        }
        let timeout = Timespec { tv_sec: i64::try_from(limit.as_secs()).unwrap_or(1), tv_nsec: i64::from(limit.subsec_nanos()) };
        if rustix::event::poll(&mut waiting, Some(&timeout)).is_err_and(|errno| errno != rustix::io::Errno::INTR) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Orders, and the library's end.
    fn hear(&mut self) {
        while let Some(order) = self.library.order() {
            match order {
                Some(Order::Publish) if matches!(self.state, State::Private) => match self.publish() {
                    Ok(()) => {
                        self.state = State::Public;
                        self.library.tell(&Line::Published);
                    }
                    Err(error) => {
                        self.refusal = Some(refusal_of(&error));
                        self.stop();
                    }
                },
                Some(_) => {}
                None if matches!(self.state, State::Public) && self.owner.is_none() => {}
                None => self.stop(),
            }
        }
    }

    fn publish(&mut self) -> Result<()> {
        if let (Some(relay), Some(port)) = (&mut self.relay, self.start.address.port) {
            relay.listen(port)?;
        }
        self.start.address.publish()?;
        self.link = inode(&self.start.address.public_socket());
        if self.watch.is_none() && self.start.limits != Limits::default() {
            let (data, socket) = (self.start.data.clone(), self.start.address.private_socket());
            self.watch = Some(Watch::new(self.start.limits, data, socket, self.postmaster.identity().pid));
        }
        Ok(())
    }

    /// Takes the public link away, unless it has become another server's. Where that fails the next start does it.
    fn hide(&mut self) {
        if self.link.take().is_some_and(|link| inode(&self.start.address.public_socket()) == Some(link)) {
            drop(self.start.address.hide());
        }
    }

    fn step(&mut self) {
        match &mut self.state {
            State::Starting { since, progress, looked } => {
                if self.postmaster.is_ready(&self.start) {
                    self.state = State::Private;
                    self.library.tell(&Line::Ready);
                    return;
                }
                if looked.elapsed() < LOOK {
                    return;
                }
                *looked = Instant::now();
                let now = self.postmaster.progress(&self.start);
                if now != *progress {
                    (*progress, *since) = (now, Instant::now());
                } else if since.elapsed() >= Duration::from_millis(self.start.patience_ms) {
                    let seconds = since.elapsed().as_secs();
                    self.refusal = Some(self.postmaster.refusal(&self.start, &format!("made no progress for {seconds} s")));
                    self.stop();
                }
            }
            State::Public => self.keep_to_limits(),
            State::Stopping { since, harder } if !*harder && since.elapsed() >= FAST => {
                *harder = true;
                self.postmaster.signal(Signal::QUIT);
            }
            _ => {}
        }
    }

    /// Stops a server whose time is over, or that nobody uses.
    fn keep_to_limits(&mut self) {
        let Some(watch) = &mut self.watch else { return };
        if watch.has_expired() {
            return self.stop();
        }
        if !watch.is_idle() {
            return;
        }
        // Nobody new from here on; who came in this moment is not cut off.
        drop(self.start.address.hide());
        if self.watch.as_ref().is_some_and(Watch::has_clients) {
            self.watch.as_mut().into_iter().for_each(Watch::begin_anew);
            if self.publish_again().is_ok() {
                return;
            }
        }
        self.stop();
    }

    fn publish_again(&mut self) -> Result<()> {
        self.start.address.publish()?;
        self.link = inode(&self.start.address.public_socket());
        Ok(())
    }

    fn stop(&mut self) {
        if matches!(self.state, State::Stopping { .. }) {
            return;
        }
        self.state = State::Stopping { since: Instant::now(), harder: false };
        if let Some(relay) = &mut self.relay {
            relay.close();
        }
        self.hide();
        self.postmaster.signal(Signal::INT);
    }

    /// The server has ended: nothing of it stays but its log.
    fn finish(&mut self) -> ExitCode {
        if self.start.contain.is_some() {
            sys::orphans::end_all("postgres", Duration::from_secs(5), FAST);
        }
        let started = matches!(self.state, State::Public | State::Stopping { .. }) && self.refusal.is_none();
        if let Some(relay) = &mut self.relay {
            // What the server said last.
            relay.advance();
        }
        self.hide();
        // A server that crashed leaves these. Each is done again by the next start where it fails now.
        let lock = self.start.address.private_lock();
        if LockFile::read(&lock).ok().flatten().is_some_and(|file| file.pid == self.postmaster.identity().pid) {
            drop(sys::fs::remove_file(&self.start.address.private_socket()));
            drop(sys::fs::remove_file(&lock));
        }
        drop(Record::remove(&self.start.run));
        if started {
            return ExitCode::SUCCESS;
        }
        let refusal = self.refusal.take().unwrap_or_else(|| self.postmaster.refusal(&self.start, "did not start"));
        self.library.tell(&Line::Failed(refusal));
        ExitCode::from(3)
    }
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    path.symlink_metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

fn refusal_of(error: &Error) -> Refusal {
    Refusal {
        message: error.message().to_owned(),
        tail: String::new(),
        busy: error.kind() == ErrorKind::Busy,
        hint: error.hint_text().map(str::to_owned),
    }
}

/// The library's socket; absent once its end was seen.
struct Library {
    stream: Option<UnixStream>,
    received: Vec<u8>,
}

impl Library {
    fn first_order(&mut self) -> Option<Box<Start>> {
        let found = loop {
            match self.order() {
                Some(Some(Order::Start(start))) => break Some(start),
                Some(_) => break None,
                None => {}
            }
        };
        self.stream.as_ref()?.set_nonblocking(true).ok()?;
        found
    }

    /// The next order, `Some(None)` for the library's end (once), `None` where there is nothing to read now.
    fn order(&mut self) -> Option<Option<Order>> {
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                if let Ok(order) = serde_json::from_slice(&line) {
                    return Some(Some(order));
                }
                self.stream = None;
                return Some(None);
            }
            let stream = self.stream.as_mut()?;
            let mut bytes = [0; 4096];
            match stream.read(&mut bytes) {
                Ok(count) if count > 0 => self.received.extend(bytes.iter().take(count)),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return None,
                _ => {
                    self.stream = None;
                    return Some(None);
                }
            }
        }
    }

    /// A library that has died hears nothing; its end is seen by the next read.
    fn tell(&mut self, line: &Line) {
        if let Some(stream) = &mut self.stream {
            drop(stream.write_all(line.text().as_bytes()));
        }
    }
}
