//! One replica: the faults that tests cause. Not here: its calls (`store`).

use std::sync::Arc;

use interlingua::store::StoreError;
use interlingua_core::RunId;

use super::connection::Core;
use super::hub::Hub;
use super::node::{Link, Node};
use super::steps::{Fault, StepSelector};

impl Hub {
    /// A new replica.
    pub fn join(self: &Arc<Self>) -> Arc<Replica> {
        Arc::new(Replica::new(Arc::clone(self)))
    }

    /// Fences a replica as another one would whose clock has waited for a lease.
    ///
    /// # Errors
    /// The inner store cannot be written or read. The replica is fenced, and `recover` tries to take its runs over
    /// again.
    pub async fn fence(&self, replica: &Replica) -> Result<(), StoreError> {
        self.fence_member(replica.id()).await
    }

    /// The ids of the runs that a replica holds.
    pub fn held_by(&self, replica: &Replica) -> Vec<RunId> {
        self.of_member(replica.id())
    }
}

/// One of several users of a hub. Dropped without [`interlingua::store::Store::close`], it is as dead as after
/// [`Replica::kill`].
pub struct Replica {
    pub(super) core: Core,
}

impl Replica {
    pub(super) fn new(hub: Arc<Hub>) -> Self {
        let node = Node::join(&hub);
        Self { core: Core { hub, node } }
    }

    /// The process stands still: its calls wait, and nothing that it does meanwhile reaches the store.
    pub fn pause(&self) {
        self.core.disconnect(Link::Paused);
    }

    /// The process continues. If it was fenced meanwhile, it learns of it now.
    pub fn resume(&self) {
        self.core.reconnect(Link::Paused);
    }

    /// The store cannot be reached: calls fail, and the results of calls under way are lost.
    pub fn cut_off(&self) {
        self.core.disconnect(Link::Cut);
    }

    /// The store can be reached again.
    pub fn reconnect(&self) {
        self.core.reconnect(Link::Cut);
    }

    /// The process dies: its calls never return.
    pub fn kill(&self) {
        self.core.disconnect(Link::Killed);
    }

    /// Stops the replica at this step. Steps are: a call before it begins or after it is done, an event before it is
    /// written, a commit before the replica learns of it. Housekeeping and the lease of sole senders are no steps.
    pub fn fault_at(&self, step: StepSelector, fault: Fault) {
        self.core.node.steps.arm(step, fault);
    }

    /// No fault comes any more.
    pub fn no_fault(&self) {
        self.core.node.steps.disarm();
    }

    /// The name of the step at which it was stopped, once it is.
    pub fn stopped(&self) -> tokio::sync::watch::Receiver<Option<String>> {
        self.core.node.steps.reached()
    }

    /// Undoes a fault.
    pub fn undo(&self, fault: Fault) {
        self.core.reconnect(fault.into());
    }

    /// The id it has now: another one after it was fenced.
    pub fn id(&self) -> u64 {
        self.core.node.member()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.core.disconnect(Link::Killed);
    }
}
