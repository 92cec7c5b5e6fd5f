//! The state of one replica's connection: whether calls pass, deferred calls, journals of its runs, and signals.
//!
//! Not here: calls and faults (`connection`).

use std::collections::{HashMap, VecDeque};
use std::future::pending;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use interlingua::store::{Journal, Signal, StoreError, StoreFuture, Ticket};
use interlingua_core::RunId;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};

use super::guarded::GuardedJournal;
use super::hub::{Hub, Peer};
use super::lock;
use super::steps::Steps;

/// Runs tasks that continue when the caller has dropped its future, or has no runtime.
pub(super) static BACKGROUND: LazyLock<Handle> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let handle = runtime.handle().clone();
    let run = move || runtime.block_on(pending::<()>());
    std::thread::Builder::new().name("replicas".into()).spawn(run).expect("a thread");
    handle
});

/// Whether a replica reaches the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Up,
    Paused,
    Cut,
    Killed,
    Closed,
}

/// The kind of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A replica that was fenced may read, under its new id.
    Read,
    /// Refused if the replica was fenced and does not know it.
    Write,
}

pub(super) struct Gate {
    pub(super) member: u64,
    pub(super) is_fenced: bool,
}

/// A call that waits until its replica continues, with the id for the call. `None`: the replica is fenced.
pub(super) type DeferredCall = Box<dyn FnOnce(u64, bool) + Send>;

pub(super) struct Node {
    /// Held for reading while a call starts, so that nothing starts once the replica is fenced or stopped.
    pub(super) gate: RwLock<Gate>,
    pub(super) link: watch::Sender<Link>,
    pub(super) deferred: Mutex<VecDeque<DeferredCall>>,
    /// By the address of the engine's journal. Those that were lost stay, to be refused.
    pub(super) journals: Mutex<HashMap<usize, Arc<GuardedJournal>>>,
    mail: Mutex<Mail>,
    pub(super) steps: Steps,
    /// Queue places to give up once the store is reachable.
    pub(super) left: Mutex<Vec<Ticket>>,
}

#[derive(Default)]
struct Mail {
    listeners: Vec<UnboundedSender<(RunId, Signal)>>,
    waiting: Vec<(RunId, Signal)>,
}

fn address(journal: &Arc<dyn Journal>) -> usize {
    Arc::as_ptr(journal).cast::<()>() as usize
}

impl Node {
    pub(super) fn join(hub: &Arc<Hub>) -> Arc<Self> {
        let node = Arc::new(Self {
            gate: RwLock::new(Gate { member: 0, is_fenced: false }),
            link: watch::Sender::new(Link::Up),
            deferred: Mutex::default(),
            journals: Mutex::default(),
            mail: Mutex::default(),
            steps: Steps::default(),
            left: Mutex::default(),
        });
        node.write().member = hub.enter(Arc::clone(&node) as Arc<dyn Peer>);
        node
    }

    pub(super) fn member(&self) -> u64 {
        self.read().member
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Gate> {
        self.gate.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Gate> {
        self.gate.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn link(&self) -> Link {
        *self.link.borrow()
    }

    pub(super) fn notify_lost(&self) {
        self.all_journals().iter().for_each(|journal| journal.notify_lost());
    }

    pub(super) fn all_journals(&self) -> Vec<Arc<GuardedJournal>> {
        lock(&self.journals).values().cloned().collect()
    }

    pub(super) fn journal(&self, run: &Arc<dyn Journal>) -> Option<Arc<GuardedJournal>> {
        lock(&self.journals).get(&address(run)).cloned()
    }

    /// Keeps the journal of a run that was opened, in place of the one that the run had.
    pub(super) fn keep(&self, journal: &Arc<GuardedJournal>) {
        let mut journals = lock(&self.journals);
        journals.retain(|_, known| known.id() != journal.id() || known.is_lost());
        journals.insert(address(&journal.journal), Arc::clone(journal));
    }

    /// Releases the run. A replica that is not connected first learns of its last commit.
    pub(super) fn let_go(&self, journal: &Arc<GuardedJournal>) {
        journal.is_released.store(true, Ordering::SeqCst);
        if !journal.is_frozen() {
            self.drop_journal(journal);
        }
    }

    pub(super) fn drop_journal(&self, journal: &Arc<GuardedJournal>) {
        lock(&self.journals).retain(|_, known| !Arc::ptr_eq(known, journal));
    }

    pub(super) fn drop_run(&self, id: RunId) {
        lock(&self.journals).retain(|_, known| known.id() != id);
    }

    pub(super) fn deliver(&self) {
        if self.link() != Link::Up {
            return;
        }
        let mut mail = lock(&self.mail);
        mail.listeners.retain(|listener| !listener.is_closed());
        if !mail.listeners.is_empty() {
            for message in std::mem::take(&mut mail.waiting) {
                for listener in &mail.listeners {
                    let _ = listener.send(message);
                }
            }
        }
    }

    pub(super) fn listen(&self) -> UnboundedReceiver<(RunId, Signal)> {
        let (sender, receiver) = unbounded_channel();
        if self.link() != Link::Closed {
            lock(&self.mail).listeners.push(sender);
            self.deliver();
        }
        receiver
    }

    /// No call goes through any more.
    pub(super) fn close(&self) -> bool {
        let _gate = self.write();
        let was_open = self.link.send_replace(Link::Closed) != Link::Closed;
        *lock(&self.mail) = Mail::default();
        lock(&self.deferred).clear();
        was_open
    }

    /// A closed replica's runs are others' now.
    pub(super) fn lose_all(&self) {
        self.all_journals().iter().for_each(|journal| journal.lose());
        lock(&self.journals).clear();
    }

    pub(super) fn leave_later(&self, ticket: Ticket) {
        lock(&self.left).push(ticket);
    }

    /// Waits until an answer can reach the replica.
    pub(super) async fn answered(&self) -> Result<(), StoreError> {
        let mut link = self.link.subscribe();
        let link = link.wait_for(|link| *link != Link::Paused).await.map_or(Link::Killed, |link| *link);
        match link {
            Link::Cut => Err(unavailable()),
            Link::Killed => pending().await,
            Link::Up | Link::Paused | Link::Closed => Ok(()),
        }
    }

    /// Waits until the replica reaches the store.
    pub(super) async fn connected(&self) -> Result<(), StoreError> {
        let mut link = self.link.subscribe();
        let link =
            link.wait_for(|link| matches!(link, Link::Up | Link::Closed)).await.map_or(Link::Closed, |link| *link);
        if link == Link::Up { Ok(()) } else { Err(StoreError::Closed) }
    }
}

impl Peer for Node {
    fn fence(&self, member: u64) {
        {
            let mut gate = self.write();
            if gate.member != member {
                return;
            }
            gate.is_fenced = true;
            self.all_journals().iter().for_each(|journal| journal.lose());
            lock(&self.mail).waiting.clear();
        }
        if self.link() == Link::Up {
            self.notify_lost();
        }
    }

    fn post(&self, id: RunId, signal: Signal) {
        lock(&self.mail).waiting.push((id, signal));
        self.deliver();
    }
}

pub(super) fn unavailable() -> StoreError {
    StoreError::Unavailable { reason: "the test says so".into() }
}

pub(super) fn done<T: Send + 'static>(result: Result<T, StoreError>) -> StoreFuture<T> {
    Box::pin(std::future::ready(result))
}

/// Goes on even if the result is dropped.
pub(super) fn in_background<T: Send + 'static>(
    work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> StoreFuture<T> {
    let (sender, receiver) = oneshot::channel();
    BACKGROUND.spawn(async move {
        let _ = sender.send(work.await);
    });
    Box::pin(async move {
        receiver.await.unwrap_or_else(|_| Err(StoreError::Internal("a call of a replica panicked".into())))
    })
}
