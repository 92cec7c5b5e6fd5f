//! The reader threads, each with its own connection, so that neither the writer nor an async worker ever waits for a
//! query. Point queries and lists have separate threads, every query has a deadline, and the queues are bounded. Not
//! here: the queries ([`super::reader`]).

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};
use tokio::sync::oneshot;

use super::reader::QueryError;
use super::schema::{Database, file_error};
use interlingua_store::local::lock;
use interlingua_store::{StoreError, StoreFuture};

/// Maximum time of a query, including its time in the queue.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);

/// Number of SQLite virtual machine steps between two checks of the deadline: some tenths of a millisecond.
const STEPS_PER_CHECK: std::ffi::c_int = 20_000;

/// The kind of a query, which determines its threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueryKind {
    /// One item, found by its key.
    Fetch,
    /// Many items.
    List,
}

impl QueryKind {
    const ALL: [Self; 2] = [Self::Fetch, Self::List];

    /// Number of queries that run at the same time.
    const fn threads(self) -> usize {
        match self {
            Self::Fetch => 2,
            Self::List => 1,
        }
    }

    /// Maximum number of queued queries; further ones are refused.
    const fn max_queued(self) -> usize {
        match self {
            Self::Fetch => 4096,
            Self::List => 256,
        }
    }
}

/// A queued query.
type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// The reader threads and their queues.
pub(super) struct Readers {
    lanes: [Arc<Lane>; 2],
    threads: Mutex<Vec<JoinHandle<()>>>,
    path: Arc<Path>,
    timeout: Duration,
}

/// The queue of one kind of query.
struct Lane {
    queue: Mutex<Queue>,
    wakeup: Condvar,
    max_queued: usize,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    closed: bool,
}

impl Readers {
    pub(super) fn start(database: &Database) -> Result<Self, StoreError> {
        let lane = |kind: QueryKind| {
            Arc::new(Lane { queue: Mutex::default(), wakeup: Condvar::new(), max_queued: kind.max_queued() })
        };
        let readers = Self {
            lanes: QueryKind::ALL.map(lane),
            threads: Mutex::default(),
            path: database.path.as_path().into(),
            timeout: QUERY_TIMEOUT,
        };
        for kind in QueryKind::ALL {
            for _ in 0..kind.threads() {
                let connection = database.connect()?;
                let lane = Arc::clone(readers.lane(kind));
                let thread = std::thread::Builder::new().name("store-read".into());
                let thread = thread.spawn(move || serve(&lane, connection));
                let thread = thread.map_err(|error| file_error("start a thread for", &database.path, error))?;
                lock(&readers.threads).push(thread);
            }
        }
        Ok(readers)
    }

    const fn lane(&self, kind: QueryKind) -> &Arc<Lane> {
        match kind {
            QueryKind::Fetch => &self.lanes[0],
            QueryKind::List => &self.lanes[1],
        }
    }

    /// Runs a query on a reader thread.
    pub(super) fn run<T: Send + 'static>(
        &self,
        kind: QueryKind,
        query: impl FnOnce(&mut Connection) -> Result<T, QueryError> + Send + 'static,
    ) -> StoreFuture<T> {
        let (reply, receiver) = oneshot::channel();
        let (path, timeout) = (Arc::clone(&self.path), self.timeout);
        let deadline = Instant::now() + timeout;
        let job: Job = Box::new(move |connection| {
            if reply.is_closed() {
                return;
            }
            let outcome = catch_unwind(AssertUnwindSafe(|| run_until(connection, deadline, query)));
            let outcome = outcome.unwrap_or_else(|panic| Err(StoreError::Internal(panic_message(&*panic)).into()));

            // The caller may have stopped waiting; then there is no one to report to.
            let _ = reply.send(outcome.map_err(|failure| match failure {
                QueryError::Sql(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
                    StoreError::Timeout { after: timeout }
                }
                QueryError::Sql(error) => file_error("read the database", &path, error),
                QueryError::Store(error) | QueryError::Gone(error) => error,
            }));
        });

        let lane = self.lane(kind);
        let mut queue = lock(&lane.queue);
        if queue.jobs.len() >= lane.max_queued {
            return Box::pin(std::future::ready(Err(StoreError::Overloaded)));
        }
        if !queue.closed {
            queue.jobs.push_back(job);
            lane.wakeup.notify_one();
        }

        drop(queue);
        Box::pin(async move {
            match tokio::time::timeout_at(deadline.into(), receiver).await {
                Ok(result) => result.unwrap_or(Err(StoreError::Closed)),
                Err(_) => Err(StoreError::Timeout { after: timeout }),
            }
        })
    }

    /// Runs the queued queries, then ends the threads.
    pub(super) fn close(&self) {
        for lane in &self.lanes {
            lock(&lane.queue).closed = true;
            lane.wakeup.notify_all();
        }
        for thread in lock(&self.threads).drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.close();
    }
}

/// Runs a query and interrupts it at the deadline.
fn run_until<T>(
    connection: &mut Connection,
    deadline: Instant,
    query: impl FnOnce(&mut Connection) -> Result<T, QueryError>,
) -> Result<T, QueryError> {
    connection.progress_handler(STEPS_PER_CHECK, Some(move || Instant::now() >= deadline))?;
    query(connection)
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

fn serve(lane: &Lane, mut connection: Connection) {
    loop {
        let mut queue = lock(&lane.queue);
        let job = loop {
            match queue.jobs.pop_front() {
                Some(job) => break job,
                None if queue.closed => return,
                None => queue = lane.wakeup.wait(queue).unwrap_or_else(PoisonError::into_inner),
            }
        };

        drop(queue);
        job(&mut connection);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use crate::SqliteOptions;

    use super::*;

    fn readers(timeout: Duration) -> (tempfile::TempDir, Readers) {
        let folder = tempfile::tempdir().expect("a folder");
        let (database, _) = Database::open(&folder.path().join("store.db"), &SqliteOptions::default()).expect("a file");
        let mut readers = Readers::start(&database).expect("threads");
        readers.timeout = timeout;
        (folder, readers)
    }

    fn one(connection: &mut Connection) -> Result<i64, QueryError> {
        Ok(connection.query_row("SELECT 1", [], |row| row.get(0))?)
    }

    #[tokio::test]
    async fn a_panic_in_a_query_does_not_end_its_thread() {
        let (_folder, readers) = readers(QUERY_TIMEOUT);
        for _ in 0..10 {
            let broken = readers.run::<()>(QueryKind::Fetch, |connection| {
                let _open = connection.transaction()?;
                panic!("a bug");
            });
            let error = broken.await.expect_err("it panicked");
            assert_eq!(error.to_string(), "internal error in the store: a bug");
        }

        for _ in 0..10 {
            assert_eq!(readers.run(QueryKind::Fetch, one).await.expect("a thread responds"), 1);
        }
    }

    #[tokio::test]
    async fn a_slow_query_is_interrupted_and_does_not_delay_others() {
        let (_folder, readers) = readers(Duration::from_millis(300));
        let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n";
        let finished = Arc::new(AtomicBool::new(false));
        let lists: Vec<_> = (0..3)
            .map(|_| {
                let finished = Arc::clone(&finished);
                readers.run(QueryKind::List, move |connection| {
                    let result = connection.query_row(endless, [], |row| row.get::<_, i64>(0));
                    finished.store(true, Ordering::Release);
                    Ok(result?)
                })
            })
            .collect();
        assert_eq!(readers.run(QueryKind::Fetch, one).await.expect("fetches do not wait for lists"), 1);
        for list in lists {
            assert!(matches!(list.await, Err(StoreError::Timeout { .. })));
        }

        let start = Instant::now();
        while !finished.load(Ordering::Acquire) {
            assert!(start.elapsed() < Duration::from_secs(10), "the thread is still running the query");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn the_number_of_queued_queries_is_bounded() {
        let (_folder, readers) = readers(Duration::from_secs(2));
        let (release, held) = std::sync::mpsc::channel::<()>();
        let held = readers.run(QueryKind::List, move |_| Ok(held.recv().is_ok()));
        let waiting: Vec<_> =
            (0..2 * QueryKind::List.max_queued()).map(|_| readers.run(QueryKind::List, one)).collect();
        assert_eq!(readers.run(QueryKind::Fetch, one).await.expect("fetches do not wait for lists"), 1);
        release.send(()).expect("it is held");
        assert!(held.await.expect("a result"));

        let mut refused = 0;
        for result in waiting {
            match result.await {
                Ok(value) => assert_eq!(value, 1),
                Err(StoreError::Overloaded) => refused += 1,
                Err(other) => panic!("{other}"),
            }
        }
        // The held query may have been queued for a moment.
        assert!((1..=QueryKind::List.max_queued() + 1).contains(&refused), "{refused}");
    }
}
