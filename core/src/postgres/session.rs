//! One connection, driven by the calling thread and by it alone: nothing happens between two calls.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, Config, Error, NoTls, SimpleQueryMessage};

/// How long a server may take to hear that a session ends.
const FAREWELL: Duration = Duration::from_millis(500);

/// Why there is no session.
#[derive(Debug)]
pub(super) enum Refused {
    /// The server, or the operating system.
    Error(Error),
    /// The server took the connection and then said nothing.
    Silent,
    /// This machine has no resources for it.
    Io(std::io::Error),
}

type Driver = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// A connection and what drives it.
pub(super) struct Session {
    client: Option<Client>,
    /// Absent once the connection has ended.
    driver: Option<Driver>,
    runtime: Runtime,
}

impl Session {
    /// Connects, with the whole login within `patience`.
    pub(super) fn open(config: &Config, patience: Duration) -> Result<Self, Refused> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(Refused::Io)?;
        let connected = runtime.block_on(async { tokio::time::timeout(patience, config.connect(NoTls)).await });
        match connected {
            Ok(Ok((client, connection))) => Ok(Self { client: Some(client), driver: Some(Box::pin(connection)), runtime }),
            Ok(Err(error)) => Err(Refused::Error(error)),
            Err(_) => Err(Refused::Silent),
        }
    }

    /// Runs statements by the simple protocol.
    pub(super) fn query(&mut self, sql: &str) -> Result<Vec<SimpleQueryMessage>, Error> {
        let Self { client, driver, runtime } = self;
        match client {
            Some(client) => runtime.block_on(drive(driver, client.simple_query(sql))),
            // Only while it is dropped.
            None => Ok(Vec::new()),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Without its client the connection says goodbye and ends.
        self.client = None;
        if let Some(driver) = self.driver.take() {
            drop(self.runtime.block_on(async { tokio::time::timeout(FAREWELL, driver).await }));
        }
    }
}

/// Waits for `request` while the connection moves; an error of the connection is the request's.
async fn drive<T>(driver: &mut Option<Driver>, request: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let mut request = pin!(request);
    poll_fn(|context| {
        let moved = driver.as_mut().map(|driver| driver.as_mut().poll(context));
        if let Some(Poll::Ready(ended)) = moved {
            *driver = None;
            if let Err(error) = ended {
                return Poll::Ready(Err(error));
            }
        }
        request.as_mut().poll(context)
    })
    .await
}
