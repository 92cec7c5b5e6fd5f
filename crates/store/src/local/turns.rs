//! Queues of turns in memory: no task, and no wait unless another turn is before.
//!
//! Not here: queues that several processes share.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::future::ready;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use interlingua_core::id::RunId;
use tokio::sync::oneshot;

use super::lock;
use crate::{StoreError, StoreFuture, Ticket, TurnQueue};

/// Each session belongs to one of this many parts, which have a lock each.
const PARTS: usize = 16;

/// The queues of all sessions.
#[derive(Debug, Default)]
pub struct TurnQueues {
    parts: [Mutex<Queues>; PARTS],
    hasher: RandomState,
    last_number: AtomicU64,
}

/// The queues of the sessions in one part.
#[derive(Debug, Default)]
struct Queues {
    by_session: HashMap<String, Queue>,
    is_closed: bool,
}

/// The queue of one session. Most have one place, which needs no allocation.
#[derive(Debug)]
struct Queue {
    first: QueuePlace,
    behind: VecDeque<QueuePlace>,
}

#[derive(Debug)]
struct QueuePlace {
    number: u64,
    continues: Option<RunId>,
    /// Waits until the place is the first one. At most one caller waits for a place at a time.
    waiter: Option<oneshot::Sender<()>>,
}

impl TurnQueues {
    fn part(&self, session: &str) -> &Mutex<Queues> {
        let hash = self.hasher.hash_one(session);
        &self.parts[usize::try_from(hash % PARTS as u64).unwrap_or(0)]
    }

    /// Fails every waiting caller and every later call.
    pub fn close(&self) {
        for part in &self.parts {
            let mut queues = lock(part);
            queues.is_closed = true;
            queues.by_session.clear();
        }
    }
}

impl Queues {
    /// Adds a place with this number. True if it is the first one. `None`: more than `most` places are before it.
    fn join(&mut self, session: &str, number: u64, continues: Option<RunId>, most: usize) -> Option<bool> {
        let place = QueuePlace { number, continues, waiter: None };
        match self.by_session.get_mut(session) {
            // Also counts the first place.
            Some(queue) if queue.behind.len() >= most => None,
            Some(queue) => {
                queue.behind.push_back(place);
                Some(false)
            }
            None => {
                self.by_session.insert(session.to_owned(), Queue { first: place, behind: VecDeque::new() });
                Some(true)
            }
        }
    }

    fn leave(&mut self, ticket: Ticket) {
        let Entry::Occupied(mut entry) = self.by_session.entry(ticket.session) else { return };
        let queue = entry.get_mut();
        if queue.first.number != ticket.number {
            queue.behind.retain(|place| place.number != ticket.number);
            return;
        }
        match queue.behind.pop_front() {
            Some(next) => {
                queue.first = next;
                if let Some(waiter) = queue.first.waiter.take() {
                    // The caller may have stopped waiting.
                    let _ = waiter.send(());
                }
            }
            None => drop(entry.remove()),
        }
    }
}

impl TurnQueue for TurnQueues {
    fn queue_turn(&self, session: &str, continues: Option<RunId>, most: usize) -> StoreFuture<Option<Ticket>> {
        let mut queues = lock(self.part(session));
        if queues.is_closed {
            return Box::pin(ready(Err(StoreError::Closed)));
        }
        let number = self.last_number.fetch_add(1, Ordering::Relaxed);
        let joined = queues.join(session, number, continues, most);
        drop(queues);
        Box::pin(ready(Ok(joined.map(|is_first| Ticket { session: session.to_owned(), number, is_first }))))
    }

    /// Reads all queues: a process that is alone counts the queued turns of its runs itself.
    fn is_continued(&self, run: RunId) -> StoreFuture<bool> {
        let continues = |place: &QueuePlace| place.continues == Some(run);
        let is_in =
            |part: &Mutex<Queues>| lock(part).by_session.values().any(|queue| queue.behind.iter().any(continues));
        Box::pin(ready(Ok(self.parts.iter().any(is_in))))
    }

    fn wait_for_turn(&self, ticket: &Ticket) -> StoreFuture<()> {
        let mut queues = lock(self.part(&ticket.session));
        if queues.is_closed {
            return Box::pin(ready(Err(StoreError::Closed)));
        }
        let queue = queues.by_session.get_mut(&ticket.session);
        let place = match queue {
            Some(queue) if queue.first.number == ticket.number => return Box::pin(ready(Ok(()))),
            Some(queue) => queue.behind.iter_mut().find(|place| place.number == ticket.number),
            None => None,
        };
        let Some(place) = place else { return Box::pin(ready(Err(StoreError::Fenced))) };
        let (waiter, first) = oneshot::channel();
        place.waiter = Some(waiter);
        // Dropped without a value: its queue was closed, or its place was given up meanwhile.
        Box::pin(async { first.await.map_err(|_| StoreError::Closed) })
    }

    fn leave_turn(&self, ticket: Ticket) -> StoreFuture<()> {
        lock(self.part(&ticket.session)).leave(ticket);
        Box::pin(ready(Ok(())))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn run(number: u128) -> RunId {
        RunId(uuid::Uuid::from_u128(number))
    }

    fn now<T>(future: StoreFuture<T>) -> Result<T, StoreError> {
        future.now_or_never().expect("nothing is before it")
    }

    fn join(queues: &TurnQueues, session: &str, continues: Option<RunId>) -> Ticket {
        now(queues.queue_turn(session, continues, 64)).expect("it is open").expect("there is room")
    }

    fn leave(queues: &TurnQueues, ticket: Ticket) {
        now(queues.leave_turn(ticket)).expect("it is open");
    }

    #[test]
    fn turns_come_in_the_order_of_their_places() {
        let queues = TurnQueues::default();
        let (first, second, third) = (join(&queues, "s", None), join(&queues, "s", None), join(&queues, "s", None));
        assert!(first.is_first && !second.is_first && join(&queues, "t", None).is_first);
        now(queues.wait_for_turn(&first)).expect("it is the first one");
        let mut waiting = queues.wait_for_turn(&third);
        assert!((&mut waiting).now_or_never().is_none());
        // A place that is given up before its turn delays no other one.
        leave(&queues, second);
        assert!((&mut waiting).now_or_never().is_none());
        leave(&queues, first);
        now(waiting).expect("its turn has come");
        leave(&queues, third.clone());
        assert!(matches!(now(queues.wait_for_turn(&third)), Err(StoreError::Fenced)));
        assert!(join(&queues, "s", None).is_first);
    }

    #[test]
    fn a_queue_has_a_limit() {
        let queues = TurnQueues::default();
        let limited = |most| now(queues.queue_turn("s", None, most)).expect("it is open");
        let first = limited(0).expect("it is empty");
        assert!(limited(0).is_none());
        assert!(limited(1).is_some() && limited(1).is_none());
        leave(&queues, first);
        assert!(limited(1).is_some());
    }

    #[test]
    fn a_run_is_continued_while_its_next_turn_waits() {
        let queues = TurnQueues::default();
        let continued = |id| now(queues.is_continued(run(id))).expect("it is open");
        let first = join(&queues, "s", Some(run(1)));
        assert!(!continued(1), "its turn is under way");
        let (second, third) = (join(&queues, "s", Some(run(1))), join(&queues, "s", Some(run(1))));
        assert!(continued(1) && !continued(2));
        leave(&queues, third);
        assert!(continued(1));
        leave(&queues, first);
        assert!(!continued(1));
        leave(&queues, second);
        assert!(!continued(1));
    }

    #[test]
    fn a_closed_queue_ends_all_waits() {
        let queues = TurnQueues::default();
        let (_first, second) = (join(&queues, "s", None), join(&queues, "s", None));
        let waiting = queues.wait_for_turn(&second);
        queues.close();
        assert!(matches!(now(waiting), Err(StoreError::Closed)));
        assert!(matches!(now(queues.wait_for_turn(&second)), Err(StoreError::Closed)));
        assert!(matches!(now(queues.queue_turn("s", None, 9)), Err(StoreError::Closed)));
        leave(&queues, second);
    }
}
