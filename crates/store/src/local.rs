//! Leases, signals and queues of turns for a single-process store, held in memory. Not here: coordination between
//! processes.

mod turns;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use interlingua_core::id::RunId;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

pub use self::turns::TurnQueues;
use super::Signal;

/// Locks a mutex, ignoring poisoning. Invariant: no panic can leave the protected values half-changed.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Current leases: by key, the holder and the expiry.
#[derive(Debug, Default)]
pub struct Leases(Mutex<HeldRun>);

#[derive(Debug, Default)]
struct HeldRun {
    by_key: HashMap<String, (String, Instant)>,
    /// Number of leases at which expired ones are removed next.
    sweep_at: usize,
}

impl Leases {
    /// Acquires or renews a lease for `ttl`. False: another holder has it.
    pub fn acquire(&self, key: &str, holder: &str, ttl: Duration) -> bool {
        let now = Instant::now();
        // A time beyond the range of the clock counts as unlimited.
        let until = now.checked_add(ttl).unwrap_or_else(|| now + Duration::from_secs(u32::MAX.into()));
        let mut held = lock(&self.0);
        if let Some((known, end)) = held.by_key.get_mut(key) {
            if known != holder && now < *end {
                return false;
            }
            if known != holder {
                holder.clone_into(known);
            }
            *end = until;
            return true;
        }

        if held.by_key.len() >= held.sweep_at {
            held.by_key.retain(|_, (_, end)| now < *end);
            held.sweep_at = 64 + 2 * held.by_key.len();
        }

        held.by_key.insert(key.to_owned(), (holder.to_owned(), until));
        true
    }

    /// Releases a lease, if `holder` has it.
    pub fn release(&self, key: &str, holder: &str) {
        let mut held = lock(&self.0);
        if held.by_key.get(key).is_some_and(|(known, _)| known == holder) {
            held.by_key.remove(key);
        }
    }
}

/// Subscribers to signals.
#[derive(Debug, Default)]
pub struct Signals(Mutex<Listeners>);

#[derive(Debug, Default)]
struct Listeners {
    senders: Vec<UnboundedSender<(RunId, Signal)>>,
    closed: bool,
}

impl Signals {
    /// Sends a signal for a run to all receivers.
    pub fn send(&self, id: RunId, signal: Signal) {
        lock(&self.0).senders.retain(|listener| listener.send((id, signal)).is_ok());
    }

    /// True if at least one receiver exists.
    pub fn has_listeners(&self) -> bool {
        !lock(&self.0).senders.is_empty()
    }

    /// A receiver of all signals from now on; it has ended after [`Signals::close`].
    pub fn listen(&self) -> UnboundedReceiver<(RunId, Signal)> {
        let (sender, receiver) = unbounded_channel();
        let mut listeners = lock(&self.0);
        if !listeners.closed {
            listeners.senders.push(sender);
        }
        receiver
    }

    /// Ends all receivers, present and future.
    pub fn close(&self) {
        *lock(&self.0) = Listeners { senders: Vec::new(), closed: true };
    }
}
