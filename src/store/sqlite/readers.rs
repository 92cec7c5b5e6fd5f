//! The threads that read: each with a connection of its own, so that neither the writer nor an async worker ever waits
//! for a query. Short queries and lists have threads of their own, every query has a deadline, and no more than so many
//! wait. Not here: the queries ([`super::reader`]).

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};
use tokio::sync::oneshot;

use super::reader::Failed;
use super::schema::{Database, failed};
use crate::store::local::lock;
use crate::store::{Later, StoreError};

/// A query that takes longer, its time in the queue included, is given up.
const DEADLINE: Duration = Duration::from_secs(10);

/// How many steps of its program SQLite takes between two looks at the clock: some tenths of a millisecond.
const STEPS: std::ffi::c_int = 20_000;

/// What a query is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// One thing, found by its key.
    Fetch,
    /// Many things.
    List,
}

impl Kind {
    const ALL: [Self; 2] = [Self::Fetch, Self::List];

    /// So many are answered at once.
    const fn threads(self) -> usize {
        match self {
            Self::Fetch => 2,
            Self::List => 1,
        }
    }

    /// So many wait; one more is refused.
    const fn most(self) -> usize {
        match self {
            Self::Fetch => 4096,
            Self::List => 256,
        }
    }
}

/// A query that waits for a thread.
type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// The reading threads.
pub(super) struct Readers {
    desks: [Arc<Desk>; 2],
    threads: Mutex<Vec<JoinHandle<()>>>,
    path: Arc<Path>,
    deadline: Duration,
}

/// The queries of one kind.
struct Desk {
    queue: Mutex<Queue>,
    bell: Condvar,
    most: usize,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    closed: bool,
}

impl Readers {
    pub(super) fn start(database: &Database) -> Result<Self, StoreError> {
        let desk = |kind: Kind| Arc::new(Desk { queue: Mutex::default(), bell: Condvar::new(), most: kind.most() });
        let readers = Self {
            desks: Kind::ALL.map(desk),
            threads: Mutex::default(),
            path: database.path.as_path().into(),
            deadline: DEADLINE,
        };
        for kind in Kind::ALL {
            for _ in 0..kind.threads() {
                let connection = database.connect()?;
                let desk = Arc::clone(readers.desk(kind));
                let thread = std::thread::Builder::new().name("store-read".into());
                let thread = thread.spawn(move || serve(&desk, connection));
                let thread = thread.map_err(|why| failed("start a thread for", &database.path, &why))?;
                lock(&readers.threads).push(thread);
            }
        }
        Ok(readers)
    }

    const fn desk(&self, kind: Kind) -> &Arc<Desk> {
        match kind {
            Kind::Fetch => &self.desks[0],
            Kind::List => &self.desks[1],
        }
    }

    /// Answers with what a query finds.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        kind: Kind,
        query: impl FnOnce(&mut Connection) -> Result<T, Failed> + Send + 'static,
    ) -> Later<T> {
        let (answer, later) = oneshot::channel();
        let (path, deadline) = (Arc::clone(&self.path), self.deadline);
        let until = Instant::now() + deadline;
        let job: Job = Box::new(move |connection| {
            if answer.is_closed() {
                return;
            }
            let found = catch_unwind(AssertUnwindSafe(|| within(connection, until, query)));
            let found = found.unwrap_or_else(|panic| Err(StoreError::Broken(said(&*panic)).into()));
            // Nobody waits any more for an answer that cannot be given.
            let _ = answer.send(found.map_err(|failure| match failure {
                Failed::Sql(why) if why.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
                    StoreError::Late { after: deadline }
                }
                Failed::Sql(why) => failed("read the database", &path, &why),
                Failed::Store(error) | Failed::Gone(error) => error,
            }));
        });
        let desk = self.desk(kind);
        let mut queue = lock(&desk.queue);
        if queue.jobs.len() >= desk.most {
            return Box::pin(std::future::ready(Err(StoreError::Overloaded)));
        }
        if !queue.closed {
            queue.jobs.push_back(job);
            desk.bell.notify_one();
        }
        drop(queue);
        Box::pin(async move {
            match tokio::time::timeout_at(until.into(), later).await {
                Ok(answer) => answer.unwrap_or(Err(StoreError::Closed)),
                Err(_) => Err(StoreError::Late { after: deadline }),
            }
        })
    }

    /// Answers what is queued, then ends the threads.
    pub(super) fn close(&self) {
        for desk in &self.desks {
            lock(&desk.queue).closed = true;
            desk.bell.notify_all();
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

/// Asks a query, and breaks it off when its time is up.
fn within<T>(
    connection: &mut Connection,
    until: Instant,
    query: impl FnOnce(&mut Connection) -> Result<T, Failed>,
) -> Result<T, Failed> {
    connection.progress_handler(STEPS, Some(move || Instant::now() >= until))?;
    query(connection)
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

fn serve(desk: &Desk, mut connection: Connection) {
    loop {
        let mut queue = lock(&desk.queue);
        let job = loop {
            match queue.jobs.pop_front() {
                Some(job) => break job,
                None if queue.closed => return,
                None => queue = desk.bell.wait(queue).unwrap_or_else(PoisonError::into_inner),
            }
        };
        drop(queue);
        job(&mut connection);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use crate::store::SqliteOptions;

    use super::*;

    fn readers(deadline: Duration) -> (tempfile::TempDir, Readers) {
        let folder = tempfile::tempdir().expect("a folder");
        let (database, _) = Database::open(&folder.path().join("store.db"), &SqliteOptions::default()).expect("a file");
        let mut readers = Readers::start(&database).expect("threads");
        readers.deadline = deadline;
        (folder, readers)
    }

    fn one(connection: &mut Connection) -> Result<i64, Failed> {
        Ok(connection.query_row("SELECT 1", [], |row| row.get(0))?)
    }

    #[tokio::test]
    async fn a_panic_in_a_query_ends_no_thread() {
        let (_folder, readers) = readers(DEADLINE);
        for _ in 0..10 {
            let broken = readers.ask::<()>(Kind::Fetch, |connection| {
                let _open = connection.transaction()?;
                panic!("a mistake");
            });
            let error = broken.await.expect_err("it panicked");
            assert_eq!(error.to_string(), "the store made a mistake: a mistake");
        }
        for _ in 0..10 {
            assert_eq!(readers.ask(Kind::Fetch, one).await.expect("a thread answers"), 1);
        }
    }

    #[tokio::test]
    async fn a_query_that_takes_too_long_is_broken_off_and_keeps_nobody() {
        let (_folder, readers) = readers(Duration::from_millis(300));
        let forever = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n";
        let over = Arc::new(AtomicBool::new(false));
        let lists: Vec<_> = (0..3)
            .map(|_| {
                let over = Arc::clone(&over);
                readers.ask(Kind::List, move |connection| {
                    let result = connection.query_row(forever, [], |row| row.get::<_, i64>(0));
                    over.store(true, Ordering::Release);
                    Ok(result?)
                })
            })
            .collect();
        assert_eq!(readers.ask(Kind::Fetch, one).await.expect("fetches do not wait for lists"), 1);
        for list in lists {
            assert!(matches!(list.await, Err(StoreError::Late { .. })));
        }
        let begun = Instant::now();
        while !over.load(Ordering::Acquire) {
            assert!(begun.elapsed() < Duration::from_secs(10), "the thread is still at it");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn no_more_wait_than_may() {
        let (_folder, readers) = readers(Duration::from_secs(2));
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let held = readers.ask(Kind::List, move |_| Ok(held.recv().is_ok()));
        let waiting: Vec<_> = (0..2 * Kind::List.most()).map(|_| readers.ask(Kind::List, one)).collect();
        assert_eq!(readers.ask(Kind::Fetch, one).await.expect("fetches do not wait for lists"), 1);
        hold.send(()).expect("it is held");
        assert!(held.await.expect("an answer"));
        let mut refused = 0;
        for answer in waiting {
            match answer.await {
                Ok(found) => assert_eq!(found, 1),
                Err(StoreError::Overloaded) => refused += 1,
                Err(other) => panic!("{other}"),
            }
        }
        // The one that is held may have stood in the queue for a moment.
        assert!((1..=Kind::List.most() + 1).contains(&refused), "{refused}");
    }
}
