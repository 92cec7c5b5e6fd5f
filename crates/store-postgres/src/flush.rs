//! One flush: pending writes of a replica, as many as fit into one transaction. The transaction fails as a whole if the
//! replica was fenced. A flush has a number, so that it is applied once however often it is sent. Every write with a waiting caller has an id or a
//! condition by which its result is found again after a lost connection.
//!
//! Not here: the written parts of runs ([`super::tracked`]), and sending and retrying a flush ([`super::writer`]).

mod answers;
mod halves;
mod room;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use futures_util::future::join_all;
use interlingua_core::id::RunId;
use sha2::{Digest as _, Sha256};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row};
use uuid::Uuid;

use self::room::SizeBudget;
use super::database::Database;
use super::queue::QueuedWork;
use super::results::{Results, place_in, removed_in, written_in};
use super::tracked::{RunWrites, Runs, int};
use super::work::{DocumentsWork, Reply, WriteCommand};
use interlingua_store::{Claim, Journal, Signal, StoreError, Ticket, owner_in};

const COMMIT: &str = "COMMIT";
const RENEW: &str = "SELECT il.renew($1, $2, $3)";
/// In the order of the keys: flushes of several replicas do not wait for each other in a circle.
const LOCK: &str = "SELECT pg_advisory_xact_lock(key) FROM unnest($1::bigint[]) key";
const OPEN: &str = "
    INSERT INTO il.runs AS r (id, holder, agent, owner, session, protocol, state, ended, hidden, created_at, changed_at, upto,
                         size, route, remembered, about, head, tags, preview)
    SELECT id, $1, agent, owner, session, protocol, state, ended, hidden, created_at, changed_at, upto, size, route,
           remembered, about, head, string_to_array(tags, chr(30)), preview
    FROM unnest($2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bool[], $9::bool[],
                $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::text[], $15::bool[], $16::bytea[],
                $17::bytea[], $18::text[], $19::text[])
         AS n(id, agent, owner, session, protocol, state, ended, hidden, created_at, changed_at, upto, size, route,
              remembered, about, head, tags, preview)
    ON CONFLICT (id) DO UPDATE SET holder = excluded.holder WHERE r.holder = excluded.holder RETURNING r.id";
const CLAIM: &str = "
    UPDATE il.runs r SET holder = $1 FROM unnest($2::uuid[], $3::bigint[]) AS c(id, upto)
    WHERE r.id = c.id AND r.upto = c.upto AND (r.holder IS NULL OR r.holder = $1) RETURNING r.id";
const LINES: &str = "
    INSERT INTO il.lines (run, first, events, bytes)
    SELECT l.run, l.first, l.events, l.bytes
    FROM unnest($2::uuid[], $3::bigint[], $4::int[], $5::bytea[]) AS l(run, first, events, bytes)
    JOIN il.runs r ON r.id = l.run AND r.holder = $1
    ON CONFLICT (run, first) DO NOTHING";
const HEADS: &str = "
    UPDATE il.runs r SET state = h.state, ended = h.ended, hidden = h.hidden, changed_at = h.changed_at, upto = h.upto,
           size = r.size + h.added, about = h.about, head = h.head, tags = string_to_array(h.tags, chr(30)),
           holder = CASE WHEN h.has_holder THEN r.holder END
    FROM unnest($2::uuid[], $3::text[], $4::bool[], $5::bool[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bytea[],
                $10::bytea[], $11::bool[], $12::text[])
         AS h(id, state, ended, hidden, changed_at, upto, added, about, head, has_holder, tags)
    WHERE r.id = h.id AND r.holder = $1 RETURNING r.id";
const LOG: &str = "INSERT INTO il.log (replica, flush, bytes, followed) VALUES ($1, $2, $3, $4)";
const TRIM: &str = "DELETE FROM il.log WHERE replica = $1 AND flush < $2";
/// Whether there was such a run, and whether it is gone: another replica may hold it.
const REMOVE: &str = "
    WITH gone AS (DELETE FROM il.runs WHERE id = $1 AND (holder IS NULL OR holder = $2) RETURNING id),
         lines AS (DELETE FROM il.lines WHERE run IN (SELECT id FROM gone))
    SELECT EXISTS (SELECT FROM il.runs WHERE id = $1), EXISTS (SELECT FROM gone)";
const DOCUMENTS: &str = "SELECT * FROM il.write_documents($1, $2, $3, $4, $5, $6, $7)";
const LEAVE: &str = "SELECT il.leave_turns($1, $2, $3)";
const QUEUE: &str = "SELECT * FROM il.queue_turn($1, $2, $3, $4, $5)";
const SIGNAL: &str = "
    INSERT INTO il.signals (id, replica, run, kind) SELECT $1, holder, id, $3 FROM il.runs
    WHERE id = $2 AND holder IS NOT NULL ON CONFLICT (id) DO NOTHING";

/// A place in a line that a caller wants.
struct Queueing {
    session: String,
    continues: Option<RunId>,
    most: i64,
    id: Uuid,
    reply: Reply<Option<Ticket>>,
}

/// A run of which the caller has loaded this number of events.
struct Claiming {
    run: Arc<dyn Journal>,
    events: i64,
    reply: Reply<()>,
}

/// The writes of one transaction, and the callers that wait for it.
pub(super) struct Flush {
    replica: Uuid,
    pub(super) number: i64,
    pub(super) runs: RunWrites,
    /// Forgets what is in the log: all of it is in rows.
    pub(super) trims: bool,
    claims: Vec<Claiming>,
    removes: Vec<(RunId, Reply<bool>)>,
    documents: Vec<DocumentsWork>,
    queueing: Vec<Queueing>,
    leaving: (Vec<String>, Vec<i64>),
    signals: Vec<(Uuid, RunId, &'static str)>,
    /// The callers that wait until it is committed, each with its run.
    waiting: Vec<(Option<RunId>, Reply<()>)>,
    pub(super) closing: Option<Reply<()>>,
}

/// The name of a signal in the database.
pub(super) const fn signal_name(signal: Signal) -> &'static str {
    match signal {
        Signal::Cancel => "cancel",
        Signal::ReceiversChanged => "receivers",
    }
}

impl Flush {
    /// A flush without writes.
    fn empty(replica: Uuid, number: i64) -> Self {
        Self {
            replica,
            number,
            runs: RunWrites::default(),
            trims: false,
            claims: Vec::new(),
            removes: Vec::new(),
            documents: Vec::new(),
            queueing: Vec::new(),
            leaving: (Vec::new(), Vec::new()),
            signals: Vec::new(),
            waiting: Vec::new(),
            closing: None,
        }
    }

    /// Takes work in order until a transaction is full, and leaves the rest. Work for an earlier replica
    /// id of this process fails.
    pub(super) fn build(
        replica: Uuid,
        number: i64,
        runs: &mut Runs,
        work: &mut VecDeque<QueuedWork>,
        moves_all: bool,
    ) -> Self {
        let mut flush = Self { trims: moves_all, ..Self::empty(replica, number) };
        let mut room = SizeBudget::default();
        while work.front().is_some_and(|(_, next)| room.takes(next)) {
            let Some((asked, next)) = work.pop_front() else { break };
            if asked != replica && next.follows_from_earlier() {
                next.fail(&StoreError::Fenced);
                continue;
            }
            flush.add(runs, next);
            room.count(&flush.runs);
        }
        if moves_all {
            runs.move_all_lines(&mut flush.runs);
        }
        flush
    }

    fn add(&mut self, runs: &mut Runs, work: WriteCommand) {
        match work {
            WriteCommand::Touch(run) => runs.touch(&run, &mut self.runs),
            WriteCommand::Open { run, claim: Claim::New, reply } => {
                runs.open(&run, &mut self.runs);
                self.waiting.push((Some(run.id()), reply));
            }
            WriteCommand::Open { run, claim: Claim::Existing { events }, reply } => {
                runs.claim(&run, events);
                self.claims.push(Claiming { run, events: int(events), reply });
            }
            WriteCommand::Settle { run, reply } if runs.is_lost(&run) => {
                let _ = reply.send(Err(StoreError::Fenced));
            }
            WriteCommand::Settle { run, reply } => {
                runs.settle(&run, &mut self.runs);
                self.waiting.push((Some(run.id()), reply));
            }
            WriteCommand::Remove { run, reply } => {
                runs.by_id.remove(&run);
                self.removes.push((run, reply));
            }
            WriteCommand::Documents(work) => self.documents.push(work),
            WriteCommand::QueueTurn { session, continues, most, id, reply } => {
                let most = i64::try_from(most).unwrap_or(i64::MAX);
                self.queueing.push(Queueing { session, continues, most, id, reply });
            }
            WriteCommand::LeaveTurn { ticket, reply } => {
                self.leaving.0.push(ticket.session);
                self.leaving.1.push(int(ticket.number));
                self.waiting.push((None, reply));
            }
            WriteCommand::Signal { run, signal, id, reply } => {
                self.signals.push((id, run, signal_name(signal)));
                self.waiting.push((None, reply));
            }
            WriteCommand::Flush(reply) => self.waiting.push((None, reply)),
            WriteCommand::Close(reply) => self.closing = Some(reply),
        }
    }

    /// True if it takes runs over that other replicas may follow already.
    pub(super) const fn claims(&self) -> bool {
        !self.claims.is_empty()
    }

    /// The notifications for other replicas.
    pub(super) fn notices(&self) -> String {
        let mut notices = String::new();
        if self.runs.changes_followed {
            notices.push('r');
        }
        if !self.runs.followed.is_empty() {
            notices.push('l');
        }
        if !self.leaving.0.is_empty() {
            notices.push('t');
        }
        if !self.signals.is_empty() {
            notices.push('s');
        }
        notices
    }

    /// True if only the heartbeat of the replica is written.
    pub(super) fn is_empty(&self) -> bool {
        self.runs.new.is_empty()
            && self.runs.segments.is_empty()
            && self.runs.heads.is_empty()
            && self.runs.log.is_empty()
            && self.claims.is_empty()
            && self.removes.is_empty()
            && self.documents.is_empty()
            && self.queueing.is_empty()
            && self.leaving.0.is_empty()
            && self.signals.is_empty()
    }

    /// The keys of what other replicas may write at the same time, in one order for all. Every version of the gateway
    /// has the same keys.
    fn locks(&self) -> Vec<i64> {
        let key = |kind: &str, name: &str| {
            let hash = Sha256::new().chain_update(kind).chain_update([0]).chain_update(name).finalize();
            hash.first_chunk().map_or(0, |first| i64::from_be_bytes(*first))
        };
        let documents = self.documents.iter().flat_map(|work| &work.writes);
        let documents = documents.map(|write| key(&write.collection, &write.key));
        let sessions = self.queueing.iter().map(|queueing| &queueing.session).chain(&self.leaving.0);
        let mut keys: Vec<i64> = documents.chain(sessions.map(|session| key("", session))).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Sends the transaction. The results of the statements that have any, in the order of [`Flush::finish`].
    ///
    /// `lease`: for how long a replica may be silent, in seconds.
    pub(super) async fn send(&self, database: &Database, lease: f64) -> Result<Results, Error> {
        let locks = self.locks();
        let run_writes = async {
            futures_util::try_join!(
                self.open(database),
                self.claim(database),
                self.lines(database),
                self.heads(database),
                self.log(database)
            )
        };
        let removes =
            join_all(self.removes.iter().map(async |(run, _)| {
                database.rows(REMOVE, &[(&run.0, Type::UUID), (&self.replica, Type::UUID)]).await
            }));
        let documents = join_all(self.documents.iter().map(|work| write_documents(database, work)));
        let leaving = async {
            if self.leaving.0.is_empty() {
                return Ok(Vec::new());
            }
            let (sessions, places) = &self.leaving;
            let parameters: [(&(dyn ToSql + Sync), Type); 3] =
                [(sessions, Type::TEXT_ARRAY), (places, Type::INT8_ARRAY), (&self.replica, Type::UUID)];
            database.rows(LEAVE, &parameters).await
        };
        let queueing = join_all(self.queueing.iter().map(|queueing| self.queue(database, queueing)));
        let signals = join_all(self.signals.iter().map(async |(id, run, kind)| {
            database.rows(SIGNAL, &[(id, Type::UUID), (&run.0, Type::UUID), (kind, Type::TEXT)]).await
        }));
        let lock = async {
            if locks.is_empty() { Ok(Vec::new()) } else { database.rows(LOCK, &[(&locks, Type::INT8_ARRAY)]).await }
        };
        let renew_parameters: [(&(dyn ToSql + Sync), Type); 3] =
            [(&self.replica, Type::UUID), (&self.number, Type::INT8), (&lease, Type::FLOAT8)];

        // Started in this order and sent together. The database answers after the last one.
        let (begun, renewed, locked, runs, removed, written, left, queued, signaled, committed) = futures_util::join!(
            database.begin(),
            database.rows(RENEW, &renew_parameters),
            lock,
            run_writes,
            removes,
            documents,
            leaving,
            queueing,
            signals,
            database.rows(COMMIT, &[]),
        );

        // The first error is the cause; those after it say that the transaction is aborted.
        begun?;
        renewed?;
        locked?;
        let (opened, claimed, _, heads, _) = runs?;
        let removed = removed.into_iter().collect::<Result<Vec<_>, _>>()?;
        let written = written.into_iter().collect::<Result<Vec<_>, _>>()?;
        left?;
        let queued = queued.into_iter().collect::<Result<Vec<_>, _>>()?;
        signaled.into_iter().collect::<Result<Vec<_>, _>>()?;
        committed?;

        let id = |row: &Row| row.get::<_, Uuid>(0);
        Ok(Results {
            opened: opened.iter().map(id).collect(),
            claimed: claimed.iter().map(id).collect(),
            heads: Some(heads.iter().map(id).collect()),
            removed: removed.iter().map(|rows| removed_in(rows)).collect(),
            written: written.iter().map(|rows| written_in(rows)).collect(),
            queued: queued.iter().map(|rows| place_in(rows)).collect(),
        })
    }

    async fn open(&self, database: &Database) -> Result<Vec<Row>, Error> {
        let new = &self.runs.new;
        if new.is_empty() {
            return Ok(Vec::new());
        }
        macro_rules! column {
            ($value:expr) => {
                new.iter().map($value).collect::<Vec<_>>()
            };
        }
        let (ids, agents, owners) =
            (column!(|row| row.head.id), column!(|row| &*row.agent), column!(|row| &*row.owner));
        let (sessions, protocols) = (column!(|row| &*row.session), column!(|row| &*row.protocol));
        let (states, ended, hidden) =
            (column!(|row| row.head.state), column!(|row| row.head.ended), column!(|row| row.head.hidden));
        let (created, changed) = (column!(|row| row.created_at), column!(|row| row.head.changed_at));
        let (upto, sizes) = (column!(|row| row.head.upto), column!(|row| row.head.added));
        let (routes, remembered) = (column!(|row| row.route.as_deref()), column!(|row| row.remembered));
        let (about, heads) = (column!(|row| &*row.head.about), column!(|row| &*row.head.head));
        let (tags, previews) = (column!(|row| &*row.head.tags), column!(|row| &*row.preview));
        let parameters: [(&(dyn ToSql + Sync), Type); 19] = [
            (&self.replica, Type::UUID),
            (&ids, Type::UUID_ARRAY),
            (&agents, Type::TEXT_ARRAY),
            (&owners, Type::TEXT_ARRAY),
            (&sessions, Type::TEXT_ARRAY),
            (&protocols, Type::TEXT_ARRAY),
            (&states, Type::TEXT_ARRAY),
            (&ended, Type::BOOL_ARRAY),
            (&hidden, Type::BOOL_ARRAY),
            (&created, Type::INT8_ARRAY),
            (&changed, Type::INT8_ARRAY),
            (&upto, Type::INT8_ARRAY),
            (&sizes, Type::INT8_ARRAY),
            (&routes, Type::TEXT_ARRAY),
            (&remembered, Type::BOOL_ARRAY),
            (&about, Type::BYTEA_ARRAY),
            (&heads, Type::BYTEA_ARRAY),
            (&tags, Type::TEXT_ARRAY),
            (&previews, Type::TEXT_ARRAY),
        ];
        database.rows(OPEN, &parameters).await
    }

    async fn claim(&self, database: &Database) -> Result<Vec<Row>, Error> {
        if self.claims.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<Uuid> = self.claims.iter().map(|claim| claim.run.id().0).collect();
        let events: Vec<i64> = self.claims.iter().map(|claim| claim.events).collect();
        let parameters: [(&(dyn ToSql + Sync), Type); 3] =
            [(&self.replica, Type::UUID), (&ids, Type::UUID_ARRAY), (&events, Type::INT8_ARRAY)];
        database.rows(CLAIM, &parameters).await
    }

    async fn lines(&self, database: &Database) -> Result<Vec<Row>, Error> {
        let segments = &self.runs.segments;
        if segments.is_empty() {
            return Ok(Vec::new());
        }
        let runs: Vec<Uuid> = segments.iter().map(|segment| segment.run).collect();
        let firsts: Vec<i64> = segments.iter().map(|segment| segment.first).collect();
        let events: Vec<i32> = segments.iter().map(|segment| segment.events).collect();
        let bytes: Vec<&[u8]> = segments.iter().map(|segment| &*segment.bytes).collect();
        let parameters: [(&(dyn ToSql + Sync), Type); 5] = [
            (&self.replica, Type::UUID),
            (&runs, Type::UUID_ARRAY),
            (&firsts, Type::INT8_ARRAY),
            (&events, Type::INT4_ARRAY),
            (&bytes, Type::BYTEA_ARRAY),
        ];
        database.rows(LINES, &parameters).await
    }

    async fn heads(&self, database: &Database) -> Result<Vec<Row>, Error> {
        // Of several states of one run in one flush, the last one applies; the growth is summed up.
        let mut latest: BTreeMap<Uuid, (&super::tracked::Head, i64)> = BTreeMap::new();
        for head in &self.runs.heads {
            let (_, added) = latest.get(&head.id).copied().unwrap_or((head, 0));
            latest.insert(head.id, (head, added + head.added));
        }
        // In the order of the runs, so that flushes of several replicas do not wait for each other in a circle.
        let (heads, added): (Vec<_>, Vec<_>) = latest.into_values().unzip();
        if heads.is_empty() {
            return Ok(Vec::new());
        }
        macro_rules! column {
            ($value:expr) => {
                heads.iter().map($value).collect::<Vec<_>>()
            };
        }
        let (ids, states, ended) = (column!(|head| head.id), column!(|head| head.state), column!(|head| head.ended));
        let (hidden, changed, upto) =
            (column!(|head| head.hidden), column!(|head| head.changed_at), column!(|head| head.upto));
        let (about, lines, has_holder) =
            (column!(|head| &*head.about), column!(|head| &*head.head), column!(|head| head.has_holder));
        let tags = column!(|head| &*head.tags);
        let parameters: [(&(dyn ToSql + Sync), Type); 12] = [
            (&self.replica, Type::UUID),
            (&ids, Type::UUID_ARRAY),
            (&states, Type::TEXT_ARRAY),
            (&ended, Type::BOOL_ARRAY),
            (&hidden, Type::BOOL_ARRAY),
            (&changed, Type::INT8_ARRAY),
            (&upto, Type::INT8_ARRAY),
            (&added, Type::INT8_ARRAY),
            (&about, Type::BYTEA_ARRAY),
            (&lines, Type::BYTEA_ARRAY),
            (&has_holder, Type::BOOL_ARRAY),
            (&tags, Type::TEXT_ARRAY),
        ];
        database.rows(HEADS, &parameters).await
    }

    async fn log(&self, database: &Database) -> Result<(), Error> {
        let trim = async {
            if self.trims {
                database.rows(TRIM, &[(&self.replica, Type::UUID), (&self.number, Type::INT8)]).await?;
            }
            Ok(())
        };
        let write = async {
            if !self.runs.log.is_empty() {
                let parameters: [(&(dyn ToSql + Sync), Type); 4] = [
                    (&self.replica, Type::UUID),
                    (&self.number, Type::INT8),
                    (&self.runs.log, Type::BYTEA),
                    (&self.runs.followed, Type::BYTEA),
                ];
                database.rows(LOG, &parameters).await?;
            }
            Ok(())
        };
        futures_util::try_join!(trim, write).map(drop)
    }

    async fn queue(&self, database: &Database, queueing: &Queueing) -> Result<Vec<Row>, Error> {
        let continues = queueing.continues.map(|run| run.0);
        let parameters: [(&(dyn ToSql + Sync), Type); 5] = [
            (&queueing.session, Type::TEXT),
            (&queueing.id, Type::UUID),
            (&self.replica, Type::UUID),
            (&continues, Type::UUID),
            (&queueing.most, Type::INT8),
        ];
        database.rows(QUEUE, &parameters).await
    }
}

async fn write_documents(database: &Database, work: &DocumentsWork) -> Result<Vec<Row>, Error> {
    let writes = &work.writes;
    let collections: Vec<&str> = writes.iter().map(|write| &*write.collection).collect();
    let keys: Vec<&str> = writes.iter().map(|write| &*write.key).collect();
    let owners: Vec<&str> = writes.iter().map(|write| owner_in(&write.collection, &write.key)).collect();
    let values: Vec<Option<&[u8]>> = writes.iter().map(|write| write.value.as_deref()).collect();
    let expected: Vec<i64> = writes.iter().map(|write| write.expected).collect();
    let now = int(work.now);
    let parameters: [(&(dyn ToSql + Sync), Type); 7] = [
        (&work.id, Type::UUID),
        (&collections, Type::TEXT_ARRAY),
        (&keys, Type::TEXT_ARRAY),
        (&owners, Type::TEXT_ARRAY),
        (&values, Type::BYTEA_ARRAY),
        (&expected, Type::INT8_ARRAY),
        (&now, Type::INT8),
    ];
    database.rows(DOCUMENTS, &parameters).await
}
