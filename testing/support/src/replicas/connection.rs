//! Calls of one replica, which pass, fail or wait, and the faults of its connection. Not here: what the calls do
//! (`store`).

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use interlingua::store::{Journal, StoreError, StoreFuture};
use tokio::sync::oneshot;

use super::guarded::GuardedJournal;
use super::hub::{Hub, Peer};
use super::lock;
use super::node::{BACKGROUND, DeferredCall, Gate, Kind, Link, Node, done, in_background, unavailable};
use super::steps::Fault;

/// The name of the step between a commit and its report to the replica.
const AFTER_COMMIT: &str = "after a commit";

/// The state that the calls of a replica use.
#[derive(Clone)]
pub(super) struct Core {
    pub(super) hub: Arc<Hub>,
    pub(super) node: Arc<Node>,
}

impl From<Fault> for Link {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Pause => Self::Paused,
            Fault::CutOff => Self::Cut,
            Fault::Kill => Self::Killed,
        }
    }
}

impl Core {
    /// The journal of a run as the inner store sees it from this hold on.
    pub(super) fn guard(&self, run: &Arc<dyn Journal>, hold: u64) -> Arc<GuardedJournal> {
        let (hub, node) = (Arc::downgrade(&self.hub), Arc::downgrade(&self.node));
        let fault = move || {
            let core = Self { hub: hub.upgrade()?, node: node.upgrade()? };
            let fault = core.node.steps.take(AFTER_COMMIT)?;
            let cause = move || {
                BACKGROUND.spawn(async move {
                    core.disconnect(fault.into());
                    core.node.steps.report(AFTER_COMMIT.to_owned());
                });
            };
            Some(Box::new(cause) as Box<dyn FnOnce()>)
        };
        GuardedJournal::new(run, hold, &self.hub, Box::new(fault))
    }

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
            self.disconnect(fault.into());
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
            *gate = Gate { member: self.hub.enter(Arc::clone(&self.node) as Arc<dyn Peer>), is_fenced: false };
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
            self.hub.touch(&(Arc::clone(journal) as Arc<dyn Journal>));
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
            Some(journal) => self.hub.touch(&(journal as Arc<dyn Journal>)),
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
