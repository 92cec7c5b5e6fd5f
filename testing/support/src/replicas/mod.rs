//! A shared store for several engines in one process: a [`Hub`] replaces a database server, and each [`Replica`] a
//! process that uses it. Tests make replicas stop, lose their connection and die, and move the clock.
//!
//! The hub owns one inner store with all data. With a file ([`Hub::on_file`]) replicas read only committed data from
//! each other, as from a database. With [`interlingua::store::Memory`] they read each other's memory.
//!
//! `hub` has the members, the owners of runs and the clock, `lines` the queues of turns, `node` one replica's
//! connection, `guarded` a run's journal as the inner store sees it, `followed` runs of other replicas, `steps` the
//! times of faults, `store` the store's methods. Not here: the tests.

mod followed;
mod guarded;
mod hub;
mod lines;
mod node;
mod steps;
mod store;

use std::sync::Arc;

pub use self::hub::Hub;
pub use self::steps::{Fault, StepSelector};

use self::node::{Link, Node};

/// One of several users of a hub. Dropped without [`interlingua::store::Store::close`], it is as dead as after
/// [`Replica::kill`].
pub struct Replica {
    core: Core,
}

/// The state that the calls of a replica use.
#[derive(Clone)]
struct Core {
    hub: Arc<Hub>,
    node: Arc<Node>,
}

impl Replica {
    fn new(hub: Arc<Hub>) -> Self {
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
        self.core.reconnect(fault.link());
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
