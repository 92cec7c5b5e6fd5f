//! Waiting turns of this replica in the queues of sessions: one query for all of them. Not here: queueing and leaving
//! ([`super::flush`]).

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_postgres::types::Type;

use super::connect::Notices;
use super::reads::Reads;
use interlingua_store::local::lock;
use interlingua_store::{StoreError, Ticket};

/// Interval of the search for granted turns, without notifications.
const INTERVAL: Duration = Duration::from_millis(200);

/// A session and a place in its line.
type QueuePlace = (String, u64);

/// A waiting caller.
type Waiter = oneshot::Sender<Result<(), StoreError>>;

/// All who wait.
#[derive(Default)]
pub(super) struct TurnWaiters {
    waiting: Mutex<HashMap<QueuePlace, Vec<Waiter>>>,
    added: tokio::sync::Notify,
}

impl TurnWaiters {
    /// Waits until a place is the first one.
    pub(super) fn wait(&self, ticket: &Ticket) -> oneshot::Receiver<Result<(), StoreError>> {
        let (sender, receiver) = oneshot::channel();
        if ticket.is_first {
            let _ = sender.send(Ok(()));
            return receiver;
        }
        lock(&self.waiting).entry((ticket.session.clone(), ticket.number)).or_default().push(sender);
        self.added.notify_one();
        receiver
    }

    /// The number of waiting turns.
    pub(super) fn len(&self) -> usize {
        lock(&self.waiting).len()
    }

    /// All places are lost.
    pub(super) fn lose_all(&self) {
        for sender in lock(&self.waiting).drain().flat_map(|(_, waiters)| waiters) {
            let _ = sender.send(Err(StoreError::Fenced));
        }
    }

    /// Checks for turns at the front of the queue until the store is closed.
    pub(super) async fn run(&self, reads: &Reads, notices: &Notices) {
        loop {
            if lock(&self.waiting).is_empty() {
                self.added.notified().await;
            } else {
                tokio::select! {
                    () = notices.turns.notified() => {}
                    () = self.added.notified() => {}
                    () = tokio::time::sleep(INTERVAL) => {}
                }
            }
            self.look(reads).await;
        }
    }

    async fn look(&self, reads: &Reads) {
        let places: Vec<QueuePlace> = {
            let mut waiting = lock(&self.waiting);
            // A caller that waits no longer gives its place up by itself.
            waiting.retain(|_, waiters| {
                waiters.retain(|sender| !sender.is_closed());
                !waiters.is_empty()
            });
            waiting.keys().cloned().collect()
        };
        if places.is_empty() {
            return;
        }

        let (sessions, numbers): (Vec<&str>, Vec<i64>) =
            places.iter().map(|(session, number)| (session.as_str(), number.cast_signed())).unzip();
        let sql = "
            SELECT w.session, w.number, t.number IS NOT NULL,
                   NOT EXISTS (SELECT FROM il.tickets o WHERE o.session = w.session AND o.number < w.number)
            FROM unnest($1::text[], $2::bigint[]) AS w(session, number)
            LEFT JOIN il.tickets t ON t.session = w.session AND t.number = w.number";
        let rows = reads
            .read(async |database| {
                Ok(database.rows(sql, &[(&sessions, Type::TEXT_ARRAY), (&numbers, Type::INT8_ARRAY)]).await?)
            })
            .await;
        // While the database is away, all turns keep waiting.
        for row in rows.unwrap_or_default() {
            let place = (row.get::<_, String>(0), row.get::<_, i64>(1).cast_unsigned());
            let (is_there, is_first): (bool, bool) = (row.get(2), row.get(3));
            if !is_first && is_there {
                continue;
            }
            for sender in lock(&self.waiting).remove(&place).unwrap_or_default() {
                let _ = sender.send(if is_there { Ok(()) } else { Err(StoreError::Fenced) });
            }
        }
    }
}
