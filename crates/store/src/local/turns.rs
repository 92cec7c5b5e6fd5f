//! Queues of turns in memory: one lock, no task, and no wait unless another turn is before.
//!
//! Not here: queues that several processes share.

use std::collections::{HashMap, VecDeque};
use std::future::ready;
use std::sync::Mutex;

use interlingua_core::id::RunId;
use tokio::sync::oneshot;

use super::lock;
use crate::{StoreError, StoreFuture, Ticket, TurnQueue};

/// The queues of all sessions.
#[derive(Debug, Default)]
pub struct TurnQueues(Mutex<Queues>);

#[derive(Debug, Default)]
struct Queues {
    by_session: HashMap<String, VecDeque<QueuePlace>>,
    /// Number of places behind another one, by the run that they continue.
    continued: HashMap<RunId, usize>,
    last_number: u64,
    is_closed: bool,
}

#[derive(Debug)]
struct QueuePlace {
    number: u64,
    continues: Option<RunId>,
    /// Waits until the place is the first one. A place is waited for by one caller at a time.
    waiter: Option<oneshot::Sender<()>>,
}

impl TurnQueues {
    /// Fails every waiting caller and every later call.
    pub fn close(&self) {
        let mut queues = lock(&self.0);
        queues.is_closed = true;
        queues.by_session.clear();
        queues.continued.clear();
    }
}

impl Queues {
    fn join(&mut self, session: &str, continues: Option<RunId>, most: usize) -> Option<Ticket> {
        let number = self.last_number + 1;
        let place = QueuePlace { number, continues, waiter: None };
        let is_first = match self.by_session.get_mut(session) {
            Some(queue) if queue.len() > most => return None,
            Some(queue) => {
                queue.push_back(place);
                false
            }
            None => {
                self.by_session.insert(session.to_owned(), VecDeque::from([place]));
                true
            }
        };

        self.last_number = number;
        if let Some(run) = continues.filter(|_| !is_first) {
            *self.continued.entry(run).or_default() += 1;
        }
        Some(Ticket { session: session.to_owned(), number, is_first })
    }

    /// A place, and true if it is the first one. `None`: it is in no queue.
    fn find(&mut self, ticket: &Ticket) -> Option<(bool, &mut QueuePlace)> {
        let queue = self.by_session.get_mut(&ticket.session)?;
        let index = queue.iter().position(|place| place.number == ticket.number)?;
        Some((index == 0, &mut queue[index]))
    }

    fn leave(&mut self, ticket: &Ticket) {
        let Some(queue) = self.by_session.get_mut(&ticket.session) else { return };
        let Some(index) = queue.iter().position(|place| place.number == ticket.number) else { return };
        let left = queue.remove(index);
        // The place that does not wait behind another one any more: this one, or the next if this one was the first.
        let mut freed = left.filter(|_| index > 0).and_then(|place| place.continues);
        if index == 0 {
            match queue.front_mut() {
                Some(next) => {
                    freed = next.continues;
                    if let Some(waiter) = next.waiter.take() {
                        // The caller may have stopped waiting.
                        let _ = waiter.send(());
                    }
                }
                None => drop(self.by_session.remove(&ticket.session)),
            }
        }

        let Some(run) = freed else { return };
        if let Some(places) = self.continued.get_mut(&run) {
            *places -= 1;
            if *places == 0 {
                self.continued.remove(&run);
            }
        }
    }
}

impl TurnQueue for TurnQueues {
    fn queue_turn(&self, session: &str, continues: Option<RunId>, most: usize) -> StoreFuture<Option<Ticket>> {
        let mut queues = lock(&self.0);
        let joined = if queues.is_closed { Err(StoreError::Closed) } else { Ok(queues.join(session, continues, most)) };
        Box::pin(ready(joined))
    }

    fn is_continued(&self, run: RunId) -> StoreFuture<bool> {
        let queues = lock(&self.0);
        let continued = !queues.continued.is_empty() && queues.continued.contains_key(&run);
        Box::pin(ready(Ok(continued)))
    }

    fn wait_for_turn(&self, ticket: &Ticket) -> StoreFuture<()> {
        let mut queues = lock(&self.0);
        if queues.is_closed {
            return Box::pin(ready(Err(StoreError::Closed)));
        }
        let comes = match queues.find(ticket) {
            Some((true, _)) => return Box::pin(ready(Ok(()))),
            Some((false, place)) => {
                let (waiter, comes) = oneshot::channel();
                place.waiter = Some(waiter);
                comes
            }
            None => return Box::pin(ready(Err(StoreError::Fenced))),
        };
        // Dropped without a value: its queue was closed, or its place was given up meanwhile.
        Box::pin(async { comes.await.map_err(|_| StoreError::Closed) })
    }

    fn leave_turn(&self, ticket: Ticket) -> StoreFuture<()> {
        lock(&self.0).leave(&ticket);
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
