//! The connections for reading, shared by all who read: each sends its statement without waiting for the results of
//! others. Not here: the statements ([`super::reader`]).

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_postgres::Error;

use super::connect::Connector;
use super::database::Database;
use super::error::{Failure, store_error};
use super::health::WriterHealth;
use interlingua_store::{Health, StoreError};

/// Time that a caller waits for a connection, and for a result while the database does not answer the writer either.
/// While the database is away, reads fail after this time.
const WAIT: Duration = Duration::from_secs(2);
/// Timeout of a statement.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Why a read failed.
pub(super) enum ReadError {
    Sql(Error),
    Store(StoreError),
}

impl From<Error> for ReadError {
    fn from(error: Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for ReadError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl ReadError {
    fn into_store_error(self) -> StoreError {
        match self {
            Self::Sql(error) => store_error(&error),
            Self::Store(error) => error,
        }
    }

    /// True if the statement changed nothing and can be sent again over another connection.
    fn is_disconnected(&self) -> bool {
        matches!(self, Self::Sql(error) if Failure::from_error(error) == Failure::Disconnected)
    }
}

/// All connections for reading.
pub(super) struct Reads {
    connector: Connector,
    health: Arc<WriterHealth>,
    connections: Vec<Arc<Mutex<Option<Arc<Database>>>>>,
    next: AtomicUsize,
}

impl Reads {
    pub(super) fn new(connector: Connector, connections: usize, health: Arc<WriterHealth>) -> Self {
        let connections = (0..connections.max(1)).map(|_| Arc::default()).collect();
        Self { connector, health, connections, next: AtomicUsize::new(0) }
    }

    /// True if no replica can notify another one.
    pub(super) fn is_pooled(&self) -> bool {
        self.connector.is_pooled()
    }

    /// Reads with a connection. A connection that is lost meanwhile is opened again, once.
    pub(super) async fn read<T>(&self, read: impl AsyncFn(&Database) -> Result<T, ReadError>) -> Result<T, StoreError> {
        for attempt in 0.. {
            let database = self.connection().await?;
            match self.await_read(read(&database)).await {
                Some(Ok(value)) => return Ok(value),
                Some(Err(error)) if attempt == 0 && error.is_disconnected() => {}
                Some(Err(error)) => return Err(error.into_store_error()),
                None => {
                    // Others must not wait for it as well.
                    database.give_up();
                    return Err(unavailable("the database does not answer"));
                }
            }
        }
        unreachable!("it returns after the second attempt")
    }

    /// Waits for the result of a read. `None`: it takes too long.
    async fn await_read<T>(&self, read: impl Future<Output = T>) -> Option<T> {
        let (mut read, began) = (pin!(read), Instant::now());
        loop {
            if let Ok(result) = timeout(WAIT, &mut read).await {
                return Some(result);
            }
            if began.elapsed() >= TIMEOUT || matches!(self.health.current(), Health::Failing { .. }) {
                return None;
            }
        }
    }

    /// A connection. Without one, a task of its own opens it: that may take longer than a caller waits if the first of
    /// several hosts does not answer, and the next caller can then use it.
    async fn connection(&self) -> Result<Arc<Database>, StoreError> {
        let place = self.next.fetch_add(1, Ordering::Relaxed) % self.connections.len();
        let (slot, connector) = (Arc::clone(&self.connections[place]), self.connector.clone());
        let connecting = async {
            let mut connection = slot.lock_owned().await;
            if let Some(database) = connection.as_ref().filter(|database| !database.is_closed()) {
                return Ok(Arc::clone(database));
            }
            let connecting = tokio::spawn(async move {
                let database = Arc::new(connector.connect().await?);
                *connection = Some(Arc::clone(&database));
                Ok(database)
            });
            connecting.await.unwrap_or_else(|error| Err(StoreError::Internal(error.to_string())))
        };
        let connected = timeout(WAIT, connecting).await;
        connected.unwrap_or_else(|_| Err(unavailable("no connection to the database")))
    }
}

fn unavailable(reason: &str) -> StoreError {
    StoreError::Unavailable { reason: reason.to_owned() }
}
