//! A store in a PostgreSQL database, which any number of gateways use at the same time. Each replica writes the new
//! events of all its runs in one transaction every few milliseconds, so that a running stream causes little load.
//!
//! `options` has the settings, `begin` joins the other replicas and `standing` has the state of this one, `connect` and
//! `database` a connection, `schema` the tables, `check` whether a database can be used; `work` and `queue` pending
//! writes, `tracked` the written parts of runs, `flush` one transaction, `results` its result, `writer` the task that
//! sends flushes; `reads` the connections for reading, `reader` the queries; `turns`, `follows` and `signals` data from
//! other replicas; `recover` the runs of lost replicas, `latest_lines` lines that only their logs contain, `given_up`
//! orphaned runs of this replica, `handed_out` the runs given to the engine; `leases` tasks that one replica performs
//! for all, `retention` deletions, `import` data from a store of another kind. All of them run on a thread of their
//! own. Not here: files.

mod begin;
mod check;
mod connect;
mod database;
mod error;
mod flush;
mod follows;
mod given_up;
mod handed_out;
mod health;
mod import;
mod inner;
mod latest_lines;
mod leases;
mod options;
mod queue;
mod reader;
mod reads;
mod recover;
mod results;
mod retention;
mod schema;
mod signals;
mod standing;
mod target;
mod text;
mod tls;
mod tracked;
mod turns;
mod work;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use interlingua_core::event::Millis;
use interlingua_core::id::RunId;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::LocalSet;
use tokio_postgres::types::Type;

use self::database::Database;
pub use self::import::Import;
use self::inner::Inner;
pub use self::options::PostgresOptions;
use self::reads::ReadError;
use self::work::{DocumentWriteOwned, DocumentsWork, Reply, WriteCommand, WriteOutcome, expected};
use self::writer::Writer;
use interlingua_base::clock;
use interlingua_store::{
    Claim, Conflict, Coordination, Document, DocumentEntry, DocumentStore, DocumentWrite, Expect, Health, Journal,
    LoadCost, Query, ReplicaStatus, Retention, RetentionReport, RunPage, RunStore, RunUpdate, Signal, Store,
    StoreError, StoreFuture, StoredRun, Ticket, TransferTotals, TurnQueue, Version,
};

/// Time that the store has to start.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A store in a PostgreSQL database. Dropping it without [`Store::close`] is like a crash: other replicas take its runs
/// over once its lease has run out.
pub struct Postgres {
    inner: Arc<Inner>,
    /// Jobs for the store's thread. Dropping the sender ends the thread.
    jobs: UnboundedSender<Job>,
}

/// Begins something on the thread of the store.
type Job = Box<dyn FnOnce(Arc<Inner>) + Send>;

impl Postgres {
    /// Connects, brings the schema up to date, and joins the other replicas. Blocks until that is done. If the database
    /// cannot be reached, it is joined as soon as it can be: until then every call fails with
    /// [`StoreError::Unavailable`], and the lease is [`LeaseState::Joining`](interlingua_store::LeaseState::Joining).
    ///
    /// # Errors
    /// [`StoreError::Unusable`] if the URL is wrong, or the database refuses this process; [`StoreError::NewerSchema`].
    pub fn open(options: &PostgresOptions) -> Result<Self, StoreError> {
        let inner = Arc::new(Inner::new(options)?);
        let (jobs, mut incoming) = unbounded_channel();
        let (started, starts) = std::sync::mpsc::channel();
        let (shared, schema) = (Arc::clone(&inner), options.schema.clone());
        let thread = std::thread::Builder::new().name("store".into());
        let spawned = thread.spawn(move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(started.send(Err(StoreError::Internal(error.to_string())))),
            };
            // Boxed, as other large ones below: without optimization each level that passes one on has it on the stack.
            let tasks = Box::pin(async move {
                let writer = match Box::pin(begin::begin(&shared, &schema)).await {
                    Ok(writer) => {
                        let _ = started.send(Ok(()));
                        Some(writer)
                    }
                    Err(error @ StoreError::Unavailable { .. }) => {
                        let _ = started.send(Ok(()));
                        Box::pin(begin::retry(&shared, &schema, &mut incoming, error)).await
                    }
                    Err(error) => return drop(started.send(Err(error))),
                };
                if let Some(writer) = writer {
                    Box::pin(serve(shared, writer, incoming)).await;
                }
            });
            runtime.block_on(LocalSet::new().run_until(tasks));
        });
        spawned.map_err(|error| StoreError::Internal(error.to_string()))?;

        let started = starts.recv_timeout(START_TIMEOUT);
        started.unwrap_or(Err(StoreError::Timeout { after: START_TIMEOUT }))?;
        Ok(Self { inner, jobs })
    }

    /// Checks whether the database can be used, without changing anything in it. Returns a description of the store.
    /// Blocks.
    ///
    /// # Errors
    /// Those of [`Postgres::open`], and why this role or this server cannot be used.
    pub fn check(options: &PostgresOptions) -> Result<String, StoreError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(|error| StoreError::Internal(error.to_string()))?.block_on(check::check(options))
    }

    /// Fills an empty database with what another store has: all of it, or nothing. Blocks.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] if it is not empty or used by gateways; those of [`Postgres::open`] and of the items.
    pub fn import(options: &PostgresOptions, import: Import<'_>) -> Result<TransferTotals, StoreError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(|error| StoreError::Internal(error.to_string()))?.block_on(import::import(options, import))
    }

    /// Does something on the thread of the store, whether or not the caller waits for it.
    fn spawn<T, F>(&self, doing: impl FnOnce(Arc<Inner>) -> F + Send + 'static) -> StoreFuture<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + 'static,
    {
        if let Err(error) = self.inner.check_usable() {
            return failed(error);
        }
        let (reply, receiver) = oneshot::channel();
        let job = move |inner| {
            tokio::task::spawn_local(async move { reply.send(doing(inner).await) });
        };
        let _ = self.jobs.send(Box::new(job));
        Box::pin(async { receiver.await.unwrap_or(Err(StoreError::Closed)) })
    }

    /// Hands work to the writer.
    fn submit<T: Send + 'static>(&self, work: impl FnOnce(Reply<T>) -> WriteCommand) -> StoreFuture<T> {
        if let Err(error) = self.inner.check_usable() {
            return failed(error);
        }
        // Read first: if this replica is lost during the call, the caller does not know it yet.
        let replica = self.inner.replica();
        let (reply, receiver) = oneshot::channel();
        let work = work(reply);
        match self.inner.health.current() {
            Health::Failing { error, .. } if work.begins_run() => work.fail(&error),
            _ => self.inner.queue.push(replica, work),
        }
        Box::pin(async { receiver.await.unwrap_or(Err(StoreError::Closed)) })
    }

    fn write_documents(
        &self,
        writes: Vec<DocumentWriteOwned>,
        now: Millis,
    ) -> StoreFuture<Result<WriteOutcome, Conflict>> {
        let id = clock::new_id().0;
        let checked = writes.iter().try_for_each(|write| text::check("key", &[&write.collection, &write.key]));
        if let Err(error) = checked {
            return failed(error);
        }
        self.submit(|reply| WriteCommand::Documents(DocumentsWork { id, writes, now, reply }))
    }
}

/// Runs all tasks until the store is closed or dropped.
async fn serve(inner: Arc<Inner>, writer: Writer, incoming: UnboundedReceiver<Job>) {
    /// Fails what waits, however the tasks end.
    struct StopOnDrop(Arc<Inner>);
    impl Drop for StopOnDrop {
        fn drop(&mut self) {
            self.0.queue.stop();
            self.0.turns.lose_all();
            self.0.signals.close();
        }
    }

    let guard = StopOnDrop(Arc::clone(&inner));
    tokio::select! {
        () = Box::pin(writer.run()) => {}
        () = inner.turns.run(&inner.reads, &inner.notices) => {}
        () = inner.follows.run(&inner.reads, &inner.notices, &inner.channel, || inner.replica()) => {}
        () = signals::receive(Arc::clone(&inner)) => {}
        () = Box::pin(signals::listen(Arc::clone(&inner))) => {}
        () = signals::count_replicas(Arc::clone(&inner)) => {}
        () = begin_jobs(Arc::clone(&inner), incoming) => {}
    }
    drop(guard);
}

/// Begins what comes, until the store is dropped.
async fn begin_jobs(inner: Arc<Inner>, mut incoming: UnboundedReceiver<Job>) {
    while let Some(job) = incoming.recv().await {
        job(Arc::clone(&inner));
    }
}

fn failed<T: Send + 'static>(error: StoreError) -> StoreFuture<T> {
    Box::pin(std::future::ready(Err(error)))
}

impl RunStore for Postgres {
    fn open(&self, run: &Arc<dyn Journal>, claim: Claim) -> StoreFuture<()> {
        let mut checked = Ok(());
        if matches!(claim, Claim::New) {
            run.with(&mut |record, info| checked = text::check_run(record, info));
        }
        match checked {
            Ok(()) => self.submit(|reply| WriteCommand::Open { run: Arc::clone(run), claim, reply }),
            Err(error) => failed(error),
        }
    }

    fn touch(&self, run: &Arc<dyn Journal>) {
        if run.dirty_flag().set() {
            self.inner.queue.touch(run);
        }
    }

    fn settle(&self, run: &Arc<dyn Journal>) -> StoreFuture<()> {
        self.submit(|reply| WriteCommand::Settle { run: Arc::clone(run), reply })
    }

    fn load(&self, id: RunId) -> StoreFuture<Option<Arc<StoredRun>>> {
        self.spawn(async move |inner| inner.reads.read(async |database| reader::load(database, id).await).await)
    }

    fn load_cost(&self, id: RunId) -> StoreFuture<Option<LoadCost>> {
        self.spawn(async move |inner| inner.reads.read(async |database| reader::load_cost(database, id).await).await)
    }

    fn owner_of(&self, id: RunId) -> StoreFuture<Option<String>> {
        self.spawn(async move |inner| inner.reads.read(async |database| reader::owner_of(database, id).await).await)
    }

    fn heads(&self, ids: Vec<RunId>) -> StoreFuture<Vec<StoredRun>> {
        self.spawn(async move |inner| inner.reads.read(async |database| reader::heads(database, &ids).await).await)
    }

    fn find(&self, query: Query) -> StoreFuture<RunPage> {
        self.spawn(async move |inner| inner.reads.read(async |database| reader::find(database, &query).await).await)
    }

    fn latest(&self, agents: Vec<String>, owner: String, session: String) -> StoreFuture<Option<RunId>> {
        self.spawn(async move |inner| {
            inner.reads.read(async |database| reader::latest(database, &agents, &owner, &session).await).await
        })
    }

    fn remove(&self, id: RunId) -> StoreFuture<bool> {
        self.submit(|reply| WriteCommand::Remove { run: id, reply })
    }
}

impl DocumentStore for Postgres {
    fn get(&self, collection: &str, key: &str) -> StoreFuture<Option<Document>> {
        let (collection, key) = (collection.to_owned(), text::kept(key).into_owned());
        self.spawn(async move |inner| {
            inner.reads.read(async |database| reader::get(database, &collection, &key).await).await
        })
    }

    fn put(
        &self,
        collection: &str,
        key: &str,
        value: Bytes,
        expect: Expect,
        now: Millis,
    ) -> StoreFuture<Result<Version, Conflict>> {
        let write = write(collection, key, Some(value), expect);
        let written = self.write_documents(vec![write], now);
        Box::pin(async { Ok(written.await?.map(|written| written.version)) })
    }

    fn write(&self, writes: Vec<DocumentWrite>, now: Millis) -> StoreFuture<Result<Version, Conflict>> {
        let written = self.write_documents(writes.into_iter().map(Into::into).collect(), now);
        Box::pin(async { Ok(written.await?.map(|written| written.version)) })
    }

    fn delete(&self, collection: &str, key: &str, expect: Expect) -> StoreFuture<Result<bool, Conflict>> {
        let written = self.write_documents(vec![write(collection, key, None, expect)], clock::now());
        Box::pin(async { Ok(written.await?.map(|written| written.deleted)) })
    }

    fn list(
        &self,
        collection: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> StoreFuture<Vec<DocumentEntry>> {
        let (collection, prefix) = (collection.to_owned(), text::kept(prefix).into_owned());
        let after = after.map(|after| text::kept(after).into_owned());
        self.spawn(async move |inner| {
            let list =
                async |database: &Database| reader::list(database, &collection, &prefix, after.as_deref(), limit).await;
            inner.reads.read(list).await
        })
    }

    fn count(&self, collection: &str, principal: &str) -> StoreFuture<u64> {
        let (collection, principal) = (collection.to_owned(), text::kept(principal).into_owned());
        self.spawn(async move |inner| {
            inner.reads.read(async |database| reader::count(database, &collection, &principal).await).await
        })
    }
}

impl Coordination for Postgres {
    fn lease(&self, key: &str, holder: &str, ttl: Duration) -> StoreFuture<bool> {
        if let Err(error) = text::check("name of a lease", &[&text::kept(key)]) {
            return failed(error);
        }
        let (key, holder) = (text::kept(key).into_owned(), text::kept(holder).into_owned());
        // A longer time is unlimited.
        let seconds = ttl.as_secs_f64().min(1e9);
        self.spawn(async move |inner| leases::acquire(&inner, &key, &holder, seconds).await)
    }

    fn release(&self, key: &str, holder: &str) -> StoreFuture<()> {
        let (key, holder) = (text::kept(key).into_owned(), text::kept(holder).into_owned());
        self.spawn(async move |inner| leases::release(&inner, &key, &holder).await)
    }

    fn signal(&self, id: RunId, signal: Signal) -> StoreFuture<()> {
        let signal_id = clock::new_id().0;
        self.submit(|reply| WriteCommand::Signal { run: id, signal, id: signal_id, reply })
    }

    fn signals(&self) -> UnboundedReceiver<(RunId, Signal)> {
        let receiver = self.inner.signals.listen();
        self.inner.notices.signals.notify_one();
        receiver
    }

    fn recover(&self) -> StoreFuture<Vec<RunId>> {
        self.spawn(async move |inner| recover::recover(&inner).await)
    }

    fn turns(&self) -> &dyn TurnQueue {
        self
    }

    fn replica(&self) -> Option<ReplicaStatus> {
        Some(self.inner.status())
    }

    fn write_timeout(&self) -> Option<Duration> {
        None
    }

    fn runs_move(&self) -> bool {
        true
    }

    fn let_go(&self, run: &Arc<dyn Journal>) {
        drop(self.settle(run));
    }

    fn follow(&self, id: RunId, from: u64) -> Option<BoxStream<'static, Result<RunUpdate, StoreError>>> {
        Some(self.inner.follows.follow(id, from))
    }

    fn replaces(&self, known: Option<Version>) -> Expect {
        known.map_or(Expect::Absent, Expect::Version)
    }
}

impl Store for Postgres {
    fn retain(&self, policy: Retention, now: Millis) -> StoreFuture<RetentionReport> {
        self.spawn(async move |inner| retention::retain(&inner, &policy, now).await)
    }

    fn health(&self) -> Health {
        self.inner.health.current()
    }

    fn flush(&self) -> StoreFuture<()> {
        self.submit(WriteCommand::Flush)
    }

    fn close(&self) -> StoreFuture<()> {
        self.inner.signals.close();
        if !self.inner.standing.has_joined() {
            self.inner.queue.stop();
            return Box::pin(std::future::ready(Ok(())));
        }
        self.submit(WriteCommand::Close)
    }
}

impl TurnQueue for Postgres {
    fn queue_turn(&self, session: &str, continues: Option<RunId>, most: usize) -> StoreFuture<Option<Ticket>> {
        if let Err(error) = text::check("session", &[&text::kept(session)]) {
            return failed(error);
        }
        // Its ticket has it as it is kept; no one else reads it there.
        let (session, id) = (text::kept(session).into_owned(), clock::new_id().0);
        self.submit(|reply| WriteCommand::QueueTurn { session, continues, most, id, reply })
    }

    fn is_continued(&self, run: RunId) -> StoreFuture<bool> {
        self.spawn(async move |inner| {
            let sql = "
                SELECT FROM il.tickets t WHERE t.continues = $1
                  AND EXISTS (SELECT FROM il.tickets o WHERE o.session = t.session AND o.number < t.number) LIMIT 1";
            let continued = async |database: &Database| {
                Ok::<_, ReadError>(database.row(sql, &[(&run.0, Type::UUID)]).await?.is_some())
            };
            inner.reads.read(continued).await
        })
    }

    fn wait_for_turn(&self, ticket: &Ticket) -> StoreFuture<()> {
        let comes = self.inner.turns.wait(ticket);
        Box::pin(async { comes.await.unwrap_or(Err(StoreError::Closed)) })
    }

    fn leave_turn(&self, ticket: Ticket) -> StoreFuture<()> {
        self.submit(|reply| WriteCommand::LeaveTurn { ticket, reply })
    }
}

fn write(collection: &str, key: &str, value: Option<Bytes>, expect: Expect) -> DocumentWriteOwned {
    DocumentWriteOwned {
        collection: collection.to_owned(),
        key: text::kept(key).into_owned(),
        value,
        expected: expected(expect),
    }
}
