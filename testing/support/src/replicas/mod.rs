//! A shared store for several engines in one process: a [`Hub`] replaces a database server, and each [`Replica`] a
//! process that uses it. Tests make replicas stop, lose their connection and die, and move the clock.
//!
//! The hub owns one inner store with all data. With a file ([`Hub::on_file`]) replicas read only committed data from
//! each other, as from a database. With [`interlingua::store::Memory`] they read each other's memory.
//!
//! `hub` has the members, the owners of runs and the clock, `lines` the queues of turns, `node` the state of one
//! replica's connection, `connection` its calls and faults, `guarded` a run's journal as the inner store sees it,
//! `followed` runs of other replicas, `steps` the times of faults, `replica` the interface for tests, `store` the
//! store's methods. Not here: the tests.

mod connection;
mod followed;
mod guarded;
mod hub;
mod lines;
mod node;
mod replica;
mod steps;
mod store;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use self::hub::Hub;
pub use self::replica::Replica;
pub use self::steps::{Fault, StepSelector};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
