//! One replica's connection: whether calls go through, those that wait, the runs it has, and its signals. Not here: what
//! the calls do (`store`).

use std::collections::{HashMap, VecDeque};
use std::future::pending;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use interlingua::store::{Journal, Signal, StoreError, StoreFuture, Ticket};
use interlingua_core::RunId;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};

use super::Core;
use super::guarded::GuardedJournal;
use super::hub::{Hub, lock};
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

struct Gate {
    member: u64,
    is_fenced: bool,
}

/// A call that waits until its replica continues, with the id for the call. `None`: the replica is fenced.
type DeferredCall = Box<dyn FnOnce(u64, bool) + Send>;

pub(super) struct Node {
    /// Held for reading while a call starts, so that nothing starts once the replica is fenced or stopped.
    gate: RwLock<Gate>,
    pub(super) link: watch::Sender<Link>,
    deferred: Mutex<VecDeque<DeferredCall>>,
    /// By the address of the engine's journal. Those that were lost stay, to be refused.
    journals: Mutex<HashMap<usize, Arc<GuardedJournal>>>,
    mail: Mutex<Mail>,
    pub(super) steps: Steps,
    /// Queue places to give up once the store is reachable.
    left: Mutex<Vec<Ticket>>,
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
        node.write().member = hub.enter(&node);
        node
    }

    pub(super) fn member(&self) -> u64 {
        self.read().member
    }

    fn read(&self) -> RwLockReadGuard<'_, Gate> {
        self.gate.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Gate> {
        self.gate.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn link(&self) -> Link {
        *self.link.borrow()
    }

    /// From now on nothing of a replica reaches the store that had this id.
    pub(super) fn fence(&self, member: u64) {
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

    fn notify_lost(&self) {
        self.all_journals().iter().for_each(|journal| journal.notify_lost());
    }

    fn all_journals(&self) -> Vec<Arc<GuardedJournal>> {
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

    fn drop_journal(&self, journal: &Arc<GuardedJournal>) {
        lock(&self.journals).retain(|_, known| !Arc::ptr_eq(known, journal));
    }

    pub(super) fn drop_run(&self, id: RunId) {
        lock(&self.journals).retain(|_, known| known.id() != id);
    }

    /// Delivers a signal, or keeps it until it can be delivered.
    pub(super) fn post(&self, id: RunId, signal: Signal) {
        lock(&self.mail).waiting.push((id, signal));
        self.deliver();
    }

    fn deliver(&self) {
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

impl Core {
    /// Starts a call now, or when the replica continues.
    pub(super) fn call<T: Send + 'static>(
        &self,
        name: &'static str,
        kind: Kind,
        work: impl FnOnce(&Self, u64) -> StoreFuture<T> + Send + 'static,
    ) -> StoreFuture<T> {
        self.step("before", name);
        let started = self.start(kind, work);
        let core = self.clone();
        Box::pin(async move {
            let result = started.await;
            core.step("after", name);
            core.node.answered().await?;
            result
        })
    }

    /// A housekeeping call, which is no step of a run.
    pub(super) fn call_beside<T: Send + 'static>(
        &self,
        kind: Kind,
        work: impl FnOnce(&Self, u64) -> StoreFuture<T> + Send + 'static,
    ) -> StoreFuture<T> {
        let started = self.start(kind, work);
        let node = Arc::clone(&self.node);
        Box::pin(async move {
            let result = started.await;
            node.answered().await?;
            result
        })
    }

    /// The fault comes now if this is the step that it was to come at.
    fn step(&self, when: &str, call: &str) {
        let name = format!("{when} {call}");
        if let Some(fault) = self.node.steps.take(&name) {
            self.disconnect(fault.link());
            self.node.steps.report(name);
        }
    }

    fn start<T: Send + 'static>(
        &self,
        kind: Kind,
        work: impl FnOnce(&Self, u64) -> StoreFuture<T> + Send + 'static,
    ) -> StoreFuture<T> {
        let gate = self.node.read();
        match self.node.link() {
            Link::Up if gate.is_fenced => {
                drop(gate);
                let member = self.rejoin();
                match kind {
                    Kind::Write => done(Err(StoreError::Fenced)),
                    Kind::Read => work(self, member),
                }
            }
            Link::Up => work(self, gate.member),
            Link::Paused => self.defer(kind, work),
            Link::Cut => done(Err(unavailable())),
            Link::Killed => Box::pin(pending()),
            Link::Closed => done(Err(StoreError::Closed)),
        }
    }

    fn defer<T: Send + 'static>(
        &self,
        kind: Kind,
        work: impl FnOnce(&Self, u64) -> StoreFuture<T> + Send + 'static,
    ) -> StoreFuture<T> {
        let (sender, receiver) = oneshot::channel();
        let core = self.clone();
        let start: DeferredCall = Box::new(move |member, is_fenced| {
            let is_refused = is_fenced && kind == Kind::Write;
            let started = if is_refused { done(Err(StoreError::Fenced)) } else { work(&core, member) };
            BACKGROUND.spawn(async move {
                let _ = sender.send(started.await);
            });
        });
        lock(&self.node.deferred).push_back(start);
        let node = Arc::clone(&self.node);
        Box::pin(async move {
            match receiver.await {
                Ok(result) => result,
                Err(_) if node.link() == Link::Closed => Err(StoreError::Closed),
                // The replica died meanwhile.
                Err(_) => pending().await,
            }
        })
    }

    /// A fenced replica continues under a new id.
    fn rejoin(&self) -> u64 {
        let mut gate = self.node.write();
        if gate.is_fenced {
            *gate = Gate { member: self.hub.enter(&self.node), is_fenced: false };
        }
        gate.member
    }

    pub(super) fn disconnect(&self, link: Link) {
        let gate = self.node.write();
        let ranks = [Link::Up, Link::Paused, Link::Cut, Link::Killed];
        let rank = |link: Link| ranks.iter().position(|known| *known == link);
        if self.node.link() == Link::Closed || rank(link) < rank(self.node.link()) {
            return;
        }
        self.node.link.send_replace(link);
        self.hub.set_connected(gate.member, false);
        self.node.all_journals().iter().for_each(|journal| journal.freeze());
        drop(gate);
        if link == Link::Killed {
            // They hold parts of the engine, which holds the replica.
            let deferred = std::mem::take(&mut *lock(&self.node.deferred));
            let journals = std::mem::take(&mut *lock(&self.node.journals));
            drop((deferred, journals));
        }
    }

    pub(super) fn reconnect(&self, from: Link) {
        if self.node.link() != from {
            return;
        }

        let member = self.node.member();
        let is_fenced = !self.hub.set_connected(member, true);
        if is_fenced {
            self.node.fence(member);
            self.node.notify_lost();
        }
        let journals = self.node.all_journals();
        journals.iter().for_each(|journal| journal.thaw());
        let (released, journals): (Vec<_>, Vec<_>) =
            journals.into_iter().partition(|journal| journal.is_released.load(Ordering::SeqCst));
        released.iter().for_each(|journal| self.node.drop_journal(journal));

        // Calls run in their order.
        loop {
            let next = lock(&self.node.deferred).pop_front();
            if let Some(start) = next {
                let gate = self.node.read();
                start(gate.member, gate.is_fenced);
                continue;
            }
            let _gate = self.node.write();
            if lock(&self.node.deferred).is_empty() {
                self.node.link.send_replace(Link::Up);
                break;
            }
        }

        for ticket in std::mem::take(&mut *lock(&self.node.left)) {
            // One that was fenced has lost it anyway.
            let _ = self.hub.lines(member, |lines| lines.leave(&ticket));
        }
        if is_fenced {
            self.rejoin();
        }
        // Fenced again, it writes nothing of this.
        let _gate = self.node.read();
        for journal in journals.iter().filter(|journal| !journal.is_lost()) {
            self.hub.touch(Arc::clone(journal));
            if journal.is_owed.swap(false, Ordering::SeqCst) {
                drop(self.settle_kept(member, Arc::clone(journal)));
            }
        }
        self.node.deliver();
    }

    /// Passes a touch on, unless the replica is not connected: then its runs are touched when it is again. Called while
    /// the run's lock is held.
    pub(super) fn touch(&self, run: &Arc<dyn Journal>) {
        self.step("before", "touch");
        let Ok(gate) = self.node.gate.try_read() else { return };
        if self.node.link() != Link::Up || gate.is_fenced {
            return;
        }
        match self.node.journal(run) {
            Some(journal) if journal.is_lost() => {}
            Some(journal) => self.hub.touch(journal),
            None => self.free_unknown(run),
        }
    }

    /// A run that was removed or never opened is not written; its followers must not wait for a commit.
    pub(super) fn free_unknown(&self, run: &Arc<dyn Journal>) {
        if !self.hub.knows(run.id()) {
            let run = Arc::clone(run);
            BACKGROUND.spawn(async move { run.committed(u64::MAX) });
        }
    }

    /// Writes a run that this replica holds, and gives it up if it waits or has ended.
    pub(super) fn settle_kept(&self, member: u64, journal: Arc<GuardedJournal>) -> StoreFuture<()> {
        let settled = self.hub.inner.settle(&(Arc::clone(&journal) as Arc<dyn Journal>));
        let core = self.clone();
        in_background(async move {
            settled.await?;
            if let Some(length) = journal.length_at_rest()
                && core.hub.release(member, journal.id(), journal.hold, length)
            {
                core.node.let_go(&journal);
            }
            core.hub.note_change(journal.id());
            Ok(())
        })
    }
}
